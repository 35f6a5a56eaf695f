"""A fact as callers see it: the columns of the database, by their names.

SQLite keeps anything in any column, and others write there, too: what is read is made what its
column should hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.foundation.answers import Answer, contract
from bsd.memory.database import Row
from bsd.memory.schema import COLUMNS


@dataclass(frozen=True, slots=True)
class Fact(Answer):
    """A fact: the columns of the database. Times are epoch seconds."""

    id: str
    text: str
    category: str
    importance: float = field(metadata=contract("0 to 1"))
    entity: str | None = field(metadata=contract("Who or what it is about"))
    key: str | None = field(metadata=contract("Which property of the entity"))
    value: str | None = field(metadata=contract("The value of that property"))
    source: str
    created_at: int
    decay_class: str
    expires_at: int | None = field(metadata=contract("null: never"))
    last_confirmed_at: int | None
    confidence: float = field(metadata=contract("0 to 1; it fades with time"))
    summary: str | None
    source_date: int | None = field(metadata=contract("When it was said, if not then"))
    tags: str | None = field(metadata=contract("Small, with commas"))
    recall_count: int
    last_accessed: int | None
    superseded_at: int | None
    superseded_by: str | None = field(metadata=contract("The id of the fact that took its place"))
    valid_from: int | None
    valid_until: int | None
    supersedes_id: str | None = field(metadata=contract("The id of the fact whose place it took"))

    @classmethod
    def of(cls, row: Row) -> Fact:
        return cls(*(read(row[name]) for name, read in zip(FIELDS, _READERS, strict=True)))


FIELDS = tuple(Fact.__dataclass_fields__)
SHOWN = ", ".join(f"facts.{name}" for name in FIELDS)  # what a SELECT for `Fact.of` names


def text_of(value: object) -> str | None:
    """A text, whatever it was written as; None for nothing."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def whole_number(value: object) -> int | None:
    """A number without its fraction; None for what is none."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def _share(value: object) -> float | None:
    good = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if good else None  # type: ignore[arg-type]


def _reader(name: str) -> Callable[[object], Any]:
    """What makes of a value what the column should hold: its default, if it is nothing of it."""
    kind, _, rest = COLUMNS[name].partition(" ")
    read: Callable[[object], Any]
    read = {"TEXT": text_of, "REAL": _share, "INTEGER": whole_number}[kind]
    if not rest:
        return read
    default: Any = rest.partition("DEFAULT ")[2].strip("'")
    if kind != "TEXT":
        default = read(float(default or 0))
    return lambda value: default if (got := read(value)) is None else got


_READERS = tuple(_reader(name) for name in FIELDS)


@dataclass(frozen=True, slots=True)
class RecalledFact(Answer):
    """A fact that was searched for, and how well it fits."""

    fact: Fact = field(metadata=contract(inline=True))
    score: float = field(metadata=contract("0 to 1"))

    def as_json(self) -> dict[str, Any]:
        return Answer.as_json(self) | {"score": round(self.score, 6)}


@dataclass(frozen=True, slots=True)
class StoredFact(Answer):
    """A fact that was stored, or the one of the same text that was there before."""

    created: bool = field(metadata=contract("False: one of the same text was there before"))
    fact: Fact = field(metadata=contract(inline=True))
