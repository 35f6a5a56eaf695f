"""A fact as callers see it: the columns of the database, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsd.memory.database import Row


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
        return cls(*(row[name] for name in FIELDS))

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}


FIELDS = tuple(Fact.__dataclass_fields__)
SHOWN = ", ".join(f"facts.{name}" for name in FIELDS)  # what a SELECT for `Fact.of` names


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
