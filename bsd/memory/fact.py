"""A fact as callers see it: the columns of the database, by their names.

SQLite keeps anything in any column, and others write there, too: what is read is made what its
column should hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bsd.memory.database import Row
from bsd.memory.schema import COLUMNS


@dataclass(frozen=True, slots=True)
class Fact:
    """Times are epoch seconds; `tags` are small, with commas."""

    id: str
    text: str
    category: str
    importance: float
    entity: str | None
    key: str | None
    value: str | None
    source: str
    created_at: int
    decay_class: str
    expires_at: int | None
    last_confirmed_at: int | None
    confidence: float
    summary: str | None
    source_date: int | None
    tags: str | None
    recall_count: int
    last_accessed: int | None
    superseded_at: int | None
    superseded_by: str | None
    valid_from: int | None
    valid_until: int | None
    supersedes_id: str | None

    @classmethod
    def of(cls, row: Row) -> Fact:
        return cls(*(read(row[name]) for name, read in zip(FIELDS, _READERS, strict=True)))

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}


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
class Recalled:
    """A fact that was searched for, and how well it fits: 0 to 1."""

    fact: Fact
    score: float

    def as_json(self) -> dict[str, Any]:
        return {**self.fact.as_json(), "score": round(self.score, 6)}


@dataclass(frozen=True, slots=True)
class Stored:
    """A fact that was stored, or the one of the same text that was there before."""

    fact: Fact
    created: bool

    def as_json(self) -> dict[str, Any]:
        return {"created": self.created, **self.fact.as_json()}
