"""When facts expire and how they fade, as SQL over sets of them; and the pruning that does it.

A fact fades by its age and not by how often somebody looks: past 75 % of the time between its last
confirmation and its expiry, its confidence is

    base · 0.5^k    with k = 1 + the full hours since then

`base` is what the confidence was before. So hourly ticks, one tick after two days of downtime and
forty ticks in a minute come to the same. With whole seconds, and all of it times four, the moment
is exact: `now` is past 75 % when 4·now > confirmed + 3·expires.

The gateway has the database open, too, and waits five seconds at most: pruning is done in batches,
a transaction each, of which none takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from bsd.core.definition import Answer, contract
from bsd.core.errors import Busy
from bsd.memory.database import Database
from bsd.memory.schema import LARGEST
from bsd.memory.vectors import note_due

_log = structlog.stdlib.get_logger(module="memory")

_BATCH = 5000  # a third of a second where a fact has a hundred words
_PART = 50_000  # that fade: so, too, a third of a second, as no word of theirs changes
_PAGES = 500  # of 4 KB, that a step writes

FAINTEST = 0.1  # below this a fact is forgotten
_QUARTER_HOURS = 4 * 3600  # an hour, as seconds are counted here
_USUAL_HALVINGS = 3
_MOST_HALVINGS = 62  # what a shift of SQLite's integers can take; no confidence survives as many

# The confidence from which a fact fades; somebody who knows no base may have raised it meanwhile.
BASE = "MAX(confidence, COALESCE(bsd_base_confidence, confidence))"
# Just as the index `bsd_facts_fading` has it, or it is not used.
_MOMENT = "last_confirmed_at + 3 * expires_at"
_HALVINGS = (
    f"MIN(1 + CAST((4 * :now - ({_MOMENT})) / {_QUARTER_HOURS} AS INTEGER), {_MOST_HALVINGS})"
)

_EXPIRED = "expires_at IS NOT NULL AND expires_at < :now"
# `+`: of two indexes, the one that finds next to nothing. One that expires this very second fades
# as well: it is deleted a second later, and a tick at either moment shall find the same.
# Texts are no times, and the half of one is nothing: what is no number is left as it is.
_NUMBERS = " AND ".join(
    f"+{name} < {LARGEST}" for name in ("expires_at", "last_confirmed_at", "confidence")
)
_STILL_THERE = (
    f"expires_at IS NOT NULL AND +expires_at >= :now AND {_NUMBERS} AND {BASE} > {FAINTEST}"
)
_PAST = f"{_MOMENT} <= 4 * :now - 1 AND {_STILL_THERE}"
_WITHIN = f"{_MOMENT} > :since AND {_MOMENT} <= :until"
_BEGINNING = -(1 << 62)
# Whatever its class, and although it may never expire (as the plugin has it).
_FAINT = f"confidence < {FAINTEST}"


def expired(db: Database) -> str:
    """The condition of facts that a hard prune at `:now` deletes."""
    return f"{_EXPIRED}{unprotected(db)}"


def faint(db: Database) -> str:
    """The condition of facts that soft decay at `:now` deletes."""
    return f"{_FAINT}{unprotected(db)}"


@dataclass(frozen=True, slots=True)
class Fading:
    """Facts that have been halved equally often, as conditions of SQL."""

    faded: str  # the confidence that is left
    now: int
    since: int  # the moment of each is later, and not later than `until`
    until: int
    others: str  # than those that are protected
    mostly_goes: bool = False  # then it need not be updated before

    @property
    def when(self) -> str:
        return f"{_WITHIN} AND {_STILL_THERE}{self.others}"

    @property
    def parameters(self) -> dict[str, int]:
        return {"now": self.now, "since": self.since, "until": self.until}

    @property
    def stays(self) -> str:
        """The condition of those whose confidence changes, and which stay."""
        return f"{self.when} AND {self.faded} >= {FAINTEST} AND confidence <> {self.faded}"

    @property
    def goes(self) -> str:
        """The condition of those that have faded away; after `update` they are among the faint."""
        return f"{self.when} AND {self.faded} < {FAINTEST}"

    @property
    def update(self) -> str:
        """The statement that fades them, with `parameters`.

        Those that go, too: to look for them before would cost as much again.
        """
        return (
            f"UPDATE facts SET bsd_base_confidence = {BASE}, confidence = {self.faded}"  # noqa: S608
            f" WHERE {self.when} AND (confidence <> {self.faded} OR {_FAINT})"
        )


def fading(now: int, others: str = "") -> Iterator[Fading]:
    """All facts past 75 % but the protected ones, an hour's worth each and then the rest, disjoint.

    No confidence up to 1 survives more than three halvings: for all that usually is there, the
    divisor is a constant.
    """
    until = 4 * now - 1
    for count in range(1, _USUAL_HALVINGS + 1):
        since = 4 * now - _QUARTER_HOURS * count
        yield Fading(f"({BASE} / {1 << count})", now, since, until, others)
        until = since
    faded = f"({BASE} / (1 << {_HALVINGS}))"
    yield Fading(faded, now, _BEGINNING, until, others, mostly_goes=True)


def in_parts(db: Database, facts: Fading, size: int) -> Iterator[Fading]:
    """The same facts in parts of about `size`, first those that began to fade last.

    Facts that began at the same moment are in one part, however many they are.
    """
    while True:
        since = db.value(
            f"SELECT {_MOMENT} FROM facts WHERE expires_at IS NOT NULL AND {_WITHIN}"  # noqa: S608
            f" ORDER BY {_MOMENT} DESC LIMIT 1 OFFSET {size}",
            facts.parameters,
        )
        if since is None:
            yield facts
            return
        since = min(since, facts.until - 1)  # of more than `size` of one moment none waits
        yield replace(facts, since=since)
        facts = replace(facts, until=since)


def count_expired(db: Database, now: int) -> int:
    """How many facts a hard prune would delete."""
    return _count(db, expired(db), {"now": now})


def fade(db: Database, facts: Fading) -> int:
    """Update these facts, within a change; returns how many of them stay."""
    updated = db.run(facts.update, facts.parameters)
    # Few are faint; to look through all that have just been updated would cost a quarter as much.
    gone = f"SELECT COUNT(*) FROM facts INDEXED BY bsd_facts_faint WHERE {_FAINT} AND {facts.goes}"  # noqa: S608
    return updated - int(db.value(gone, facts.parameters))


def count_fading(db: Database, now: int) -> tuple[int, int]:
    """How many facts soft decay would leave with less confidence, and how many it would delete."""
    sets = list(fading(now, unprotected(db)))
    stay = sum(_count(db, each.stays, each.parameters) for each in sets)
    go = sum(_count(db, each.goes, each.parameters) for each in sets)
    # Those that fade and stay are above the faintest afterwards, whatever they are now.
    others = _count(db, f"{faint(db)} AND NOT COALESCE({_PAST}, 0)", {"now": now})
    return stay, go + others


def _count(db: Database, where: str, parameters: dict[str, int]) -> int:
    return int(db.value(f"SELECT COUNT(*) FROM facts WHERE {where}", parameters))  # noqa: S608


# --- what later versions of the plugin protect: pinned, frozen and verified facts do not fade ---

# The gateway that marked them spares them itself; who maintains its database must, too.
_PROTECTING = {
    "pinned_at": "pinned_at IS NULL",
    "decay_freeze_until": "COALESCE(decay_freeze_until <= :now, TRUE)",
}
_VERIFIED = "id NOT IN (SELECT fact_id FROM verified_facts WHERE fact_id IS NOT NULL)"


def unprotected(db: Database) -> str:
    """What `AND` adds to a condition of facts to be pruned at `:now`: nothing, most of the time."""
    known = _columns(db, "facts")
    terms = [term for name, term in _PROTECTING.items() if name in known]
    if "fact_id" in _columns(db, "verified_facts"):
        terms.append(_VERIFIED)
    return "".join(f" AND {term}" for term in terms)


def _columns(db: Database, table: str) -> set[str]:
    return {row[0] for row in db.all("SELECT name FROM pragma_table_info(?)", (table,))}


# --- pruning ---


@dataclass(frozen=True, slots=True)
class PrunedFacts(Answer):
    """What a prune did, or would do. Each fact is counted once."""

    expired: int = field(default=0, metadata=contract("Deleted: their time was over"))
    decayed: int = field(default=0, metadata=contract("Still there, with less confidence"))
    deleted: int = field(default=0, metadata=contract("Deleted: their confidence was too low"))
    dry_run: bool = False
    vectors_deleted: int = 0
    vectors_pending: int = field(default=0, metadata=contract("Could not be deleted; tried again"))
    vectors_orphaned: int | None = field(
        default=None, metadata=contract("Without a fact, if they were looked for")
    )

    @property
    def changed_anything(self) -> bool:
        """Whether a fact or a vector is not as it was."""
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

    def predict(self, *, hard: bool, soft: bool) -> PrunedFacts:
        """What `prune` would do, given the same; changes nothing."""
        over = count_expired(self._db, self._now) if hard else 0
        decayed, deleted = count_fading(self._db, self._now) if soft else (0, 0)
        if hard and soft:  # what is both faint and expired is gone before soft decay sees it
            both = f"{faint(self._db)} AND {expired(self._db)}"
            deleted -= self._db.value(
                f"SELECT COUNT(*) FROM facts WHERE {both}",  # noqa: S608 - our own words
                {"now": self._now},
            )
        return PrunedFacts(over, decayed, deleted, dry_run=True)

    def prune(self, *, hard: bool, soft: bool) -> PrunedFacts:
        """`hard`: delete what has expired; then, `soft`: let facts fade, and delete the faint."""
        # A delete with triggers can be taken back by itself: SQLite keeps every page that it
        # changes as it was, and writes them to a file of its own once they are more than a few.
        self._db.run("PRAGMA temp_store = MEMORY")
        done = PrunedFacts()
        if hard:
            done = replace(done, expired=self._delete(expired(self._db)))
        if soft:
            decayed, deleted = self._fade()
            done = replace(done, decayed=decayed, deleted=deleted)
        return done

    def _fade(self) -> tuple[int, int]:
        decayed = deleted = 0
        for facts in fading(self._now, unprotected(self._db)):
            if facts.mostly_goes:
                deleted += self._delete(facts.goes, **facts.parameters)
            for part in in_parts(self._db, facts, _PART):
                if self._stopping():
                    break
                with self._db.change():
                    decayed += fade(self._db, part)
        return decayed, deleted + self._delete(faint(self._db))

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


# --- taking the words of a deleted fact out of the file, when it is to be forgotten ---
#
# SQLite only marks space as free, and FTS5 only notes that a row is gone, until the parts of its
# index are made one. That takes seconds in a very large database: it is done in short changes, so
# that the gateway waits for none of them.


def leave_nothing_behind(db: Database) -> None:
    """Let what this connection deletes from now on be overwritten."""
    db.run("PRAGMA secure_delete = ON")


def erase_words(db: Database) -> None:
    """Make the index of words one part, outside of any change; words of deleted facts go."""
    step = -_PAGES  # less than 0: all parts, and not only those that are alike
    try:
        while _merge(db, step):
            step = _PAGES
    except Busy as problem:
        _log.warning(
            "The fact is deleted, its words leave the index with the next one that is forgotten",
            problem=problem.message,
        )


def _merge(db: Database, pages: int) -> bool:
    """Whether there was something to do: the index then changed, beside the command itself."""
    with db.change():
        before = int(db.value("SELECT total_changes()"))
        db.run("INSERT INTO facts_fts (facts_fts, rank) VALUES ('merge', ?)", (pages,))
        return int(db.value("SELECT total_changes()")) - before >= 2
