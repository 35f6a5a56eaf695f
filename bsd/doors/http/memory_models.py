"""The answers of `/api/memory/…` as OpenAPI describes them; times are epoch seconds."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bsd.doors.models import Document


class FactAnswer(Document):
    """A fact: the columns of the database."""

    id: str
    text: str
    category: str
    importance: float
    entity: str | None
    key: str | None
    value: str | None
    decay_class: str
    created_at: int
    expires_at: int | None
    last_confirmed_at: int | None
    confidence: float
    tags: str | None = Field(None, description="With commas")


class RecalledFact(FactAnswer):
    score: float = Field(description="0 to 1")


class RecallAnswer(Document):
    query: str
    results: list[RecalledFact]


class LookupAnswer(Document):
    entity: str
    key: str | None
    results: list[FactAnswer]


class StoredFact(FactAnswer):
    created: bool = Field(description="False: one of the same text was there before")


class ConfirmedFact(FactAnswer):
    confirmed: bool


class ForgottenFact(FactAnswer):
    forgotten: bool


class PruneAnswer(Document):
    expired: int = Field(description="Deleted: their time was over")
    decayed: int = Field(description="Still there, with less confidence")
    deleted: int = Field(description="Their confidence was too low")
    dry_run: bool
    vectors_deleted: int
    vectors_pending: int = Field(description="Could not be deleted; tried again")
    vectors_orphaned: int | None = Field(description="Without a fact, if they were looked for")


class BackfillAnswer(Document):
    reclassified: dict[str, int]


class MemoryStats(Document):
    database: str
    created_by_bsd: bool
    facts: int
    vectors: int | None
    vectors_problem: str | None
    by_class: dict[str, int]
    expired: int


class SavedCheckpoint(FactAnswer):
    saved: bool


class CheckpointAnswer(Document):
    checkpoint: dict[str, Any] | None
