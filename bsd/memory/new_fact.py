"""A fact that is to be stored: checked, classified, and put into a row."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bsd.foundation.errors import FieldError, Invalid, NotFound
from bsd.memory.classes import Classes
from bsd.memory.classify import Classifier
from bsd.memory.database import Database
from bsd.memory.fact import FIELDS, SHOWN, Fact
from bsd.memory.schema import MILLISECONDS
from bsd.memory.text import normalized_hash, storable

_HINT = "`bsd memory recall` and `bsd memory lookup` show ids"


@dataclass(frozen=True, slots=True)
class NewFact:
    """What somebody wants to be remembered. Without a class, the words tell it.

    Times are epoch seconds; `expires_at` overrides the class's lifetime, `supersedes` is the id of
    the fact whose place it takes.
    """

    text: str
    entity: str | None = None
    key: str | None = None
    value: str | None = None
    category: str = "other"
    source: str = "conversation"
    summary: str | None = None
    tags: tuple[str, ...] = ()
    decay_class: str | None = None
    confidence: float = 1.0
    importance: float = 0.7
    source_date: int | None = None
    expires_at: int | None = None
    supersedes: str | None = None

    def check(self) -> None:
        """Raise Invalid that names every bad field."""
        errors = []
        if not self.text.strip():
            errors.append(FieldError("text", "a fact without any text says nothing"))
        for name, share in (("confidence", self.confidence), ("importance", self.importance)):
            if not 0 <= share <= 1:  # NaN neither
                errors.append(FieldError(name, f"{name} must be a number between 0 and 1"))
        for name, moment in (("expires_at", self.expires_at), ("source_date", self.source_date)):
            if moment is not None and moment > MILLISECONDS:
                errors.append(FieldError(name, f"{name} is too large for seconds since 1970"))
        if errors:
            raise Invalid(
                "; ".join(one.message for one in errors),
                hint='say what is to be remembered, as in "Ada likes tea", and how sure that is',
                errors=tuple(errors),
            )

    def row(self, classes: Classes, classifier: Classifier, now: int) -> dict[str, Any]:
        """The columns of its row; raises Invalid."""
        self.check()
        texts = ("text", "entity", "key", "value", "category", "source", "summary")
        row: dict[str, Any] = {}
        for name in texts:
            said = getattr(self, name)
            row[name] = None if said is None else storable(said)
        name = self.decay_class or classifier.classify(row["entity"], row["key"], row["text"])
        expiry = classes.expiry(classes.check(name), now)
        return {
            **row,
            "id": str(uuid.uuid4()),
            "tags": _tags(self.tags),
            "decay_class": name,
            "confidence": float(self.confidence),
            "importance": float(self.importance),
            "created_at": now,
            "last_confirmed_at": now,
            "expires_at": expiry if self.expires_at is None else self.expires_at,
            "source_date": self.source_date,
            "valid_from": now if self.source_date is None else self.source_date,
            "supersedes_id": self.supersedes,
            "normalized_hash": normalized_hash(row["text"]),
        }


def twin(db: Database, row: Mapping[str, Any]) -> Fact | None:
    """A live fact of the same text, entity, key and value, other than the one superseded."""
    found = db.one(
        f"SELECT {SHOWN} FROM facts WHERE normalized_hash = :normalized_hash"  # noqa: S608
        " AND IFNULL(entity, '') = IFNULL(:entity, '') AND IFNULL(key, '') = IFNULL(:key, '')"
        " AND IFNULL(value, '') = IFNULL(:value, '')"
        " AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at)"
        " AND id IS NOT :supersedes_id LIMIT 1",
        row,
    )
    return None if found is None else Fact.of(found)


def reclassify(db: Database, fact: Fact, row: Mapping[str, Any]) -> Fact:
    """Let a fact have the class of its twin, and begin anew with it, within a change."""
    db.run(
        "UPDATE facts SET decay_class = :decay_class, expires_at = :expires_at,"
        " last_confirmed_at = :created_at WHERE id = :twin",
        {**row, "twin": fact.id},
    )
    return existing(db, fact.id)


def insert(db: Database, row: Mapping[str, Any]) -> Fact:
    """Write a row within a change; raises NotFound if what it supersedes is not there."""
    old = row["supersedes_id"]
    if old is not None:
        existing(db, old)
    marks = ", ".join(f":{name}" for name in row)
    db.run(f"INSERT INTO facts ({', '.join(row)}) VALUES ({marks})", row)  # noqa: S608
    if old is not None:
        db.run(
            "UPDATE facts SET superseded_at = :created_at, superseded_by = :id,"
            " valid_until = :valid_from WHERE id = :supersedes_id",
            row,
        )
        db.run(
            "INSERT INTO memory_links (id, source_fact_id, target_fact_id, link_type, created_at)"
            " VALUES (?, ?, ?, 'SUPERSEDES', ?)",
            (str(uuid.uuid4()), row["id"], old, row["created_at"]),
        )
    return existing(db, row["id"])


def existing(db: Database, id: str) -> Fact:
    """One fact; raises NotFound."""
    row = db.one(f"SELECT {', '.join(FIELDS)} FROM facts WHERE id = ?", (storable(id),))  # noqa: S608
    if row is None:
        raise NotFound(f"there is no fact {id}", hint=_HINT)
    return Fact.of(row)


def _tags(tags: tuple[str, ...]) -> str | None:
    listed = [storable(tag).strip().lower() for tag in tags]
    return ",".join(dict.fromkeys(tag for tag in listed if tag)) or None
