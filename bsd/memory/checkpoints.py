"""Checkpoints: what an agent was about to do, kept for a few hours as a fact of its own form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bsd.foundation.spelling import iso_utc
from bsd.memory.database import Database
from bsd.memory.fact import SHOWN, Fact
from bsd.memory.new_fact import NewFact

ENTITY, KEY, CLASS = "system", "checkpoint:", "checkpoint"
IMPORTANCE = 0.9
_VALUE_LENGTH = 100
# A fact that is a saved checkpoint: its class is not a guess.
IS_CHECKPOINT = f"entity = '{ENTITY}' AND key LIKE '{KEY}%'"


def written(
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
        entity=ENTITY,
        key=f"{KEY}{int(moment * 1000)}",
        value=intent[:_VALUE_LENGTH],
        importance=IMPORTANCE,
        decay_class=CLASS,
    )


def newest(db: Database, now: int) -> dict[str, Any] | None:
    """The last checkpoint that has not expired; of several in one second, the last one saved."""
    row = db.one(
        f"SELECT {SHOWN} FROM facts WHERE {IS_CHECKPOINT}"  # noqa: S608 - our own words
        " AND (expires_at IS NULL OR expires_at > ?)"
        f" ORDER BY created_at DESC, CAST(substr(key, {len(KEY) + 1}) AS INTEGER) DESC, rowid DESC",
        (now,),
    )
    if row is None:
        return None
    fact = Fact.of(row)
    return {"id": fact.id, **_read(fact.text), "expires_at": fact.expires_at}


def _read(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    # Somebody else's hand may have written it: then it is shown as it is.
    return document if isinstance(document, dict) else {"text": text}
