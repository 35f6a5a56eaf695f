"""Answers as data: a dataclass says once what every door tells, in its order, by its names.

Its fields are the contract, but for those that are `INTERNAL`. What is to be said of a field stands
in its metadata (`contract`), and descriptions for other programs (OpenAPI, MCP) are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from enum import Enum
from functools import cache
from typing import Any, ClassVar

_KEY = "contract"


class Unsaid(Enum):
    """The value of a field that is not there: null would say something else."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


@dataclass(frozen=True, slots=True)
class Contract:
    """What doors know of a field beside its name and type."""

    doc: str = ""
    name: str | None = None  # as other programs know it, if that is no name of ours
    omit: bool = False  # left out where it says nothing: None, or empty
    by: Callable[[Any], Any] | None = None  # makes it from the other fields
    inline: bool = False  # an answer whose members stand among ours, if it is there
    internal: bool = False  # for whoever asked within bsd: no door tells it


def contract(
    doc: str = "",
    *,
    name: str | None = None,
    omit: bool = False,
    by: Callable[[Any], Any] | None = None,
    inline: bool = False,
) -> Mapping[str, Any]:
    """Metadata of a dataclass field; one that is made `by` a function wants `init=False`, too."""
    return {_KEY: Contract(doc, name, omit, by, inline)}


INTERNAL: Mapping[str, Any] = {_KEY: Contract(internal=True)}
_PLAIN = Contract()


def contract_of(one: Field[Any]) -> Contract:
    """What is said of a field."""
    said: Contract = one.metadata.get(_KEY, _PLAIN)
    return said


@cache
def told_fields(kind: Any) -> tuple[tuple[Field[Any], Contract], ...]:
    """The fields of a dataclass that doors tell, in their order."""
    found = ((one, contract_of(one)) for one in fields(kind))
    return tuple((one, said) for one, said in found if not said.internal)


@cache
def _made_fields(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields that are made from others, and how."""
    return tuple((one.name, said.by) for one, said in told_fields(kind) if said.by is not None)


def schema_name(kind: type) -> str:
    """What OpenAPI calls an answer, where that is not the name of its class."""
    return str(getattr(kind, "schema_name", kind.__name__))


class Answer:
    """What a planner or query answers; its subclasses are dataclasses."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, make in _made_fields(kind):
            object.__setattr__(self, name, make(self))

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract, as JSON has them."""
        document: dict[str, Any] = {}
        kind: Any = type(self)
        for one, said in told_fields(kind):
            value = getattr(self, one.name)
            if said.inline:
                document |= {} if value is None else value.as_json()
            elif not _is_left_out(value, said):
                document[said.name or one.name] = _plain(value)
        return document


def _is_left_out(value: Any, said: Contract) -> bool:
    return value is UNSAID or (said.omit and (value is None or value in ((), [], {})))


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return value.as_json()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value
