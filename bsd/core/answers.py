"""Conversion of an action's answer to JSON: names of members, and omitted fields.

An answer is a frozen standard-library dataclass. Annotations of a field's type control its JSON;
FastAPI reads them too::

    @dataclass(frozen=True, slots=True)
    class Recalled:
        last_confirmed: Annotated[int, Field(serialization_alias="lastConfirmedAt")]
        reason: Annotated[str | None, OMIT_EMPTY] = None
        bytes_read: Internal[int] = 0

A nested answer is written according to the declared type of its field: members that a subclass
adds are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter
from pydantic_core import CoreSchema
from pydantic_core.core_schema import any_schema


def is_empty(value: object) -> bool:
    """Return True for None and for an empty list, tuple or dictionary, but not for 0 or ""."""
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


# Marks a field that is omitted from the JSON if it is None or empty.
OMIT_EMPTY: Final = Field(exclude_if=is_empty)


class _Unchecked:
    """Annotation that makes pydantic accept a type without a schema for it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return any_schema()


_T = TypeVar("_T")
# Marks a field, of any type, for callers inside bsd only: it is omitted from the JSON.
Internal = Annotated[_T, Field(exclude=True), _Unchecked()]


def as_json(answer: Any) -> dict[str, Any]:
    """Convert an answer to dictionaries, lists, strings, numbers, booleans and None.

    Strings and keys stay unchanged, including lone surrogates (pydantic's JSON mode replaces them
    in keys). `formatting.document` writes the result.
    """
    adapter = _adapter(answer.__class__)
    document: dict[str, Any] = _plain(adapter.dump_python(answer, by_alias=True, warnings="none"))
    return document


_PLAIN: Final = frozenset((str, int, float, bool, None.__class__))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _plain(value: Any) -> Any:
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if kind is dict:  # the common case; a check against an abstract class is slow
        return {_plain(key): _plain(member) for key, member in value.items()}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, PurePath) else value
