"""Finding the class of facts anew, after the rules changed or because they are older than decay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bsd.memory.checkpoints import IS_CHECKPOINT
from bsd.memory.classes import Classes
from bsd.memory.classify import Classifier
from bsd.memory.database import Database, Row
from bsd.memory.decay import BASE
from bsd.memory.fact import text_of, whole_number

_BATCH = 2000

# Rows that are as they were when they were read; what began to fade begins anew by its new times.
_UPDATE = f"""UPDATE facts SET decay_class = :class, expires_at = :expires_at,
    confidence = {BASE}, bsd_base_confidence = NULL
    WHERE rowid = :rowid AND text IS :text AND superseded_at IS NULL
    AND last_confirmed_at IS :last_confirmed_at"""  # noqa: S608 - our own words


def backfill(db: Database, classifier: Classifier, classes: Classes) -> dict[str, int]:
    """Classify all facts but superseded ones and saved checkpoints.

    Expiry counts from the last confirmation, else from creation. Returns how many facts of each
    class have another class or expiry than before.
    """
    changed: Counter[str] = Counter()
    for rows in _batches(db):
        changes = [new for row in rows if (new := _judged(row, classifier, classes))]
        if changes:
            with db.change():
                for new in changes:
                    changed[str(new["class"])] += db.run(_UPDATE, new)
    return dict(sorted(item for item in changed.items() if item[1]))


def _batches(db: Database) -> Iterator[list[Row]]:
    last = -(1 << 63)
    while rows := db.all(
        "SELECT rowid, entity, key, text, created_at, decay_class,"  # noqa: S608 - our own words
        " expires_at, last_confirmed_at FROM facts WHERE rowid > ? AND superseded_at IS NULL"
        f" AND NOT COALESCE({IS_CHECKPOINT}, 0) ORDER BY rowid LIMIT {_BATCH}",
        (last,),
    ):
        yield rows
        last = rows[-1]["rowid"]


def _judged(row: Row, classifier: Classifier, classes: Classes) -> dict[str, object] | None:
    """What is to be changed about a fact, if anything is."""
    entity, key, text = (text_of(row[name]) for name in ("entity", "key", "text"))
    name = classifier.classify(entity, key, text or "")
    confirmed = row["last_confirmed_at"]
    since = whole_number(row["created_at"] if confirmed is None else confirmed)
    if since is None:
        return None  # nobody knows how old it is
    expires_at = classes.expiry(name, since)
    if (name, expires_at) == (row["decay_class"], row["expires_at"]):
        return None
    return {
        "rowid": row["rowid"],
        "text": row["text"],
        "last_confirmed_at": confirmed,
        "class": name,
        "expires_at": expires_at,
    }
