"""Immutable classes: what `dataclass(frozen=True, slots=True)` is, in a quarter of the time.

A frozen dataclass sets each member through `object.__setattr__`. Where millions are made, that is
a good part of all work; here it is the type checker alone that refuses a second assignment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_Class]) -> type[_Class]:
    """A class of values that are made once and never changed."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
