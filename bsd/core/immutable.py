"""Immutable classes: what `dataclass(frozen=True, slots=True)` is, in a quarter of the time.

A frozen dataclass sets each member through `object.__setattr__`. Where millions are made, that is
a good part of all work; here it is the type checker alone that refuses a second assignment. And a
dataclass compiles six methods when it is defined, which was a third of the time in which a command
starts; here it compiles `__init__`, and the others are functions that read the members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_Class]) -> type[_Class]:
    """A class of values that are made once and never changed."""
    own = vars(cls)
    made = dataclass(slots=True, repr=False, eq=False)(cls)
    compared = _reader([one.name for one in fields(made) if one.compare])  # type: ignore[arg-type]

    def equal(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def hashed(self: object) -> int:
        return hash(compared(self))

    for name, method in (("__eq__", equal), ("__hash__", hashed), ("__repr__", _shown)):
        if name not in own:
            setattr(made, name, method)
    return made


def _reader(names: Sequence[str]) -> Callable[[Any], tuple[object, ...]]:
    """A function that returns these members of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def _shown(self: Any) -> str:
    members = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{self.__class__.__qualname__}({', '.join(members)})"
