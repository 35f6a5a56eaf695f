"""Deleting what has expired and letting fade what nobody recalls: in batches, a transaction each.

The gateway has the database open, too, and waits five seconds at most: no batch takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bsd.memory import decay
from bsd.memory.database import Database
from bsd.memory.protected import unprotected
from bsd.memory.vectors import note_due

_BATCH = 5000  # a third of a second where a fact has a hundred words
_PART = 50_000  # that fade: so, too, a third of a second, as no word of theirs changes


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune did, or would do. Each fact is counted once."""

    expired: int = 0  # deleted: their time was over
    decayed: int = 0  # still there, with less confidence
    deleted: int = 0  # their confidence was too low
    dry_run: bool = False
    vectors_deleted: int = 0
    vectors_pending: int = 0  # could not be deleted yet
    vectors_orphaned: int | None = None  # found without a fact, if they were looked for

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def something(self) -> bool:
        """Whether anything was done."""
        return bool(self.expired or self.decayed or self.deleted or self.vectors_deleted)


class Pruner:
    """One prune at one moment; `stopping` breaks it off between two batches."""

    def __init__(
        self,
        db: Database,
        now: int,
        *,
        keep_ids: bool,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`keep_ids`: note which facts are gone, for their vectors."""
        self._db = db
        self._now = now
        self._keep_ids = keep_ids
        self._stopping = stopping

    def predict(self, *, hard: bool, soft: bool) -> Pruned:
        """What `prune` would do; changes nothing."""
        expired = decay.count_expired(self._db, self._now) if hard else 0
        decayed, deleted = decay.count_fading(self._db, self._now) if soft else (0, 0)
        if hard and soft:  # what is both faint and expired is gone before soft decay sees it
            both = f"{decay.faint(self._db)} AND {decay.expired(self._db)}"
            deleted -= self._db.value(
                f"SELECT COUNT(*) FROM facts WHERE {both}",  # noqa: S608 - our own words
                {"now": self._now},
            )
        return Pruned(expired, decayed, deleted, dry_run=True)

    def prune(self, *, hard: bool, soft: bool) -> Pruned:
        """Delete and let fade; the expired first."""
        done = Pruned()
        if hard:
            done = replace(done, expired=self._delete(decay.expired(self._db)))
        if soft:
            decayed, deleted = self._fade()
            done = replace(done, decayed=decayed, deleted=deleted)
        return done

    def _fade(self) -> tuple[int, int]:
        decayed = deleted = 0
        for each in decay.fading(self._now, unprotected(self._db)):
            if each.mostly_goes:
                deleted += self._delete(each.goes, **each.parameters)
            for part in decay.in_parts(self._db, each, _PART):
                if self._stopping():
                    break
                with self._db.change():
                    decayed += decay.fade(self._db, part)
        return decayed, deleted + self._delete(decay.faint(self._db))

    def _delete(self, where: str, **parameters: int) -> int:
        parameters = {"now": self._now, **parameters}
        count = 0
        while not self._stopping():
            with self._db.change():
                gone = delete_facts(
                    self._db, f"{where} LIMIT {_BATCH}", parameters, keep_ids=self._keep_ids
                )
            count += gone
            if gone < _BATCH:
                break
        return count


def delete_facts(db: Database, where: str, parameters: dict[str, Any], *, keep_ids: bool) -> int:
    """Delete facts within a change that goes on; returns how many."""
    rows = db.all(f"SELECT rowid, id FROM facts WHERE {where}", parameters)  # noqa: S608
    if not rows:
        return 0
    if keep_ids:
        note_due(db, [row["id"] for row in rows])
    return db.run(
        "DELETE FROM facts WHERE rowid IN (SELECT value FROM json_each(?))",
        (str([row["rowid"] for row in rows]),),
    )
