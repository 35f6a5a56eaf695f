"""How the answer of an action becomes JSON: its names, and which fields are left out.

An answer is a frozen standard-library dataclass. Properties of a field in JSON beyond its name
and type stand beside the type, where FastAPI reads them too::

    @dataclass(frozen=True, slots=True)
    class Recalled:
        last_confirmed: Annotated[int, Field(serialization_alias="lastConfirmedAt")]
        reason: Annotated[str | None, OMIT_EMPTY] = None
        bytes_read: Internal[int] = 0

A nested answer is written by the type that the field declares: members that a subclass adds are
not written.
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


# Mark of a field that is left out of the JSON if it is None or empty.
OMIT_EMPTY: Final = Field(exclude_if=is_empty)


class _Unchecked:
    """Metadata of a type that pydantic need not know."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return any_schema()


_T = TypeVar("_T")
# Type of a field for callers within bsd, of any type: it is left out of the JSON.
Internal = Annotated[_T, Field(exclude=True), _Unchecked()]


def as_json(answer: Any) -> dict[str, Any]:
    """Return an answer as JSON has it: dictionaries, lists, texts, numbers, true, false, null.

    Texts and keys are unchanged, lone surrogates included (pydantic's own JSON mode replaces them
    in keys); `formatting.document` writes them.
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
    if kind is dict:  # most of them: an abstract class takes long to compare
        return {_plain(key): _plain(member) for key, member in value.items()}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, PurePath) else value
