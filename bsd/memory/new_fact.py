"""What is to be stored: a fact, checked, classified and put into a row; a checkpoint, made a fact.

A checkpoint is what an agent was about to do, kept for a few hours as a fact of its own form.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.foundation.definition import argument
from bsd.foundation.errors import FieldError, Invalid, NotFound
from bsd.foundation.spelling import iso_utc
from bsd.memory.classes import (
    CHECKPOINT_ENTITY,
    CHECKPOINT_KEY,
    IS_CHECKPOINT,
    Classes,
    Classifier,
)
from bsd.memory.database import Database, normalized_hash, storable
from bsd.memory.fact import FIELDS, SHOWN, Fact
from bsd.memory.schema import MILLISECONDS

MOMENT = {"least": 0, "most": MILLISECONDS}  # beyond, somebody forgot to divide
_HINT = "`bsd memory recall` and `bsd memory lookup` show ids"


@dataclass(frozen=True, slots=True)
class NewFact:
    """What somebody wants to be remembered; without a class its words tell it."""

    text: str = field(
        metadata=argument("The fact, as one sentence.", metavar="TEXT", positional=True)
    )
    entity: str | None = field(
        default=None, metadata=argument("Who or what it is about.", metavar="NAME")
    )
    key: str | None = field(
        default=None, metadata=argument("Which property of the entity.", metavar="KEY")
    )
    value: str | None = field(
        default=None, metadata=argument("The value of that property.", metavar="VALUE")
    )
    category: str = field(
        default="other",
        metadata=argument("For instance preference, fact, decision, entity.", metavar="NAME"),
    )
    source: str = field(
        default="conversation", metadata=argument("Where it comes from.", metavar="NAME")
    )
    summary: str | None = field(
        default=None, metadata=argument("The same in short.", metavar="TEXT")
    )
    tags: tuple[str, ...] | None = field(
        default=None, metadata=argument("Words to find it by later.", metavar="A,B")
    )
    decay_class: str | None = field(
        default=None,
        metadata=argument(
            "How long it lives; leave it out, and its words tell it.",
            metavar="CLASS",
            names={"cli": "class"},
        ),
    )
    confidence: float = field(default=1.0, metadata=argument("0 to 1.", least=0, most=1))
    importance: float = field(default=0.7, metadata=argument("0 to 1.", least=0, most=1))
    source_date: int | None = field(
        default=None,
        metadata=argument(
            "When it was said, if not now (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    expires_at: int | None = field(
        default=None,
        metadata=argument(
            "When it expires, whatever its class (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    supersedes: str | None = field(
        default=None,
        metadata=argument("Id of the fact whose place this one takes.", metavar="ID", least=1),
    )

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
            "tags": _tags(self.tags or ()),
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


# --- checkpoints ---

_CHECKPOINT_IMPORTANCE = 0.9
_VALUE_LENGTH = 100  # characters of its intent, which is the value of the fact


def checkpoint(
    intent: str,
    state: str,
    expected_outcome: str | None,
    working_files: Sequence[str] | None,
    moment: float,
) -> NewFact:
    """The fact that a checkpoint becomes; `moment` in epoch seconds."""
    document: dict[str, Any] = {"intent": intent, "state": state}
    if expected_outcome is not None:
        document["expectedOutcome"] = expected_outcome
    if working_files is not None:
        document["workingFiles"] = list(working_files)
    document["savedAt"] = iso_utc(moment)
    return NewFact(
        json.dumps(document, ensure_ascii=False),
        entity=CHECKPOINT_ENTITY,
        key=f"{CHECKPOINT_KEY}{int(moment * 1000)}",
        value=intent[:_VALUE_LENGTH],
        importance=_CHECKPOINT_IMPORTANCE,
        decay_class="checkpoint",
    )


def newest_checkpoint(db: Database, now: int) -> dict[str, Any] | None:
    """The last checkpoint that has not expired; of several in one second, the last one saved."""
    row = db.one(
        f"SELECT {SHOWN} FROM facts WHERE {IS_CHECKPOINT}"  # noqa: S608 - our own words
        " AND (expires_at IS NULL OR expires_at > ?)"
        " ORDER BY created_at DESC,"
        f" CAST(substr(key, {len(CHECKPOINT_KEY) + 1}) AS INTEGER) DESC, rowid DESC",
        (now,),
    )
    if row is None:
        return None
    fact = Fact.of(row)
    return {"id": fact.id, **_document(fact.text), "expires_at": fact.expires_at}


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    # Somebody else's hand may have written it: then it is shown as it is.
    return document if isinstance(document, dict) else {"text": text}
