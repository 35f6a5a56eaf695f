"""Expiry and fading of facts, as SQL over sets of facts, and the pruning that applies it.

A fact fades by age, independently of the number of prunes. After 75 % of the time between its last
confirmation and its expiry, its confidence is

    base · 0.5^k    with k = 1 + the full hours since then

where `base` is the confidence before the fact began to fade. Thus hourly prunes, a single prune
after two days of downtime, and forty prunes in a minute have the same result. Times are whole
seconds, and both sides are multiplied by four to be exact: a fact fades when
4·now > confirmed + 3·expires.

OpenClaw's gateway also has the database open and waits for at most five seconds. Therefore a prune
runs in batches, each in a short transaction of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from pydantic import Field

from bsd.core.errors import Busy
from bsd.memory.database import Database
from bsd.memory.schema import LARGEST
from bsd.memory.vectors import note_due

_log = structlog.stdlib.get_logger(module="memory")

# Rows per transaction, which takes a third of a second for facts of a hundred words. Deleting a row
# changes the index of words; fading does not.
_DELETED_AT_ONCE = 5000
_FADED_AT_ONCE = 50_000
_PAGES = 500  # pages of 4 KB that a step of `erase_words` writes

FAINTEST = 0.1  # below this confidence a fact is deleted
_QUARTER_HOURS = 4 * 3600  # an hour in the unit of _MOMENT
_MOST_HALVINGS = 62  # the largest shift of SQLite's integers

# The confidence from which a fact fades. The plugin does not know the base column, and may have
# raised the confidence.
BASE = "MAX(confidence, COALESCE(bsd_base_confidence, confidence))"
# Must be written exactly as in the index `bsd_facts_fading`, or SQLite does not use the index.
_MOMENT = "last_confirmed_at + 3 * expires_at"
_HALVINGS = (
    f"MIN(1 + CAST((4 * :now - ({_MOMENT})) / {_QUARTER_HOURS} AS INTEGER), {_MOST_HALVINGS})"
)
FADED = f"({BASE} / (1 << {_HALVINGS}))"

_EXPIRED = "expires_at IS NOT NULL AND expires_at < :now"
# `+` prevents SQLite from using indexes that match nearly every fact. A fact that expires in this
# second still fades: it is deleted a second later, so a prune at either moment has the same result.
# SQLite sorts texts after all numbers, so a column without a number excludes the fact.
_NUMBERS = " AND ".join(
    f"+{name} < {LARGEST}" for name in ("expires_at", "last_confirmed_at", "confidence")
)
FADING = (
    f"{_MOMENT} <= 4 * :now - 1 AND expires_at IS NOT NULL AND +expires_at >= :now"
    f" AND {_NUMBERS} AND {BASE} > {FAINTEST}"
)
_STAYS = f"{FADING} AND {FADED} >= {FAINTEST} AND confidence <> {FADED}"
_FADES_AWAY = f"{FADING} AND {FADED} < {FAINTEST}"
# In any class, even for facts that never expire, as in the plugin.
_FAINT = f"confidence < {FAINTEST}"


@dataclass(frozen=True, slots=True)
class PrunedFacts:
    """The numbers of facts that a prune changed, or would change. Each fact counts once."""

    expired: Annotated[int, Field(description="Facts deleted because they expired")] = 0
    decayed: Annotated[int, Field(description="Facts whose confidence decreased")] = 0
    deleted: Annotated[int, Field(description="Facts deleted for too low confidence")] = 0
    dry_run: bool = False
    vectors_deleted: int = 0
    vectors_pending: Annotated[
        int, Field(description="Vectors whose deletion failed; the next prune tries again")
    ] = 0
    vectors_orphaned: Annotated[
        int | None, Field(description="Vectors without a fact; null: not searched")
    ] = None

    @property
    def changed_anything(self) -> bool:
        """Return True if a fact or a vector was changed or deleted."""
        return bool(self.expired or self.decayed or self.deleted or self.vectors_deleted)


def count_expired(db: Database, now: int) -> int:
    """Return the number of facts that a hard prune would delete."""
    return _count(db, _EXPIRED + _unprotected(db), now)


def predict(db: Database, now: int, *, hard: bool, soft: bool) -> PrunedFacts:
    """Return the result that `prune` would have with these arguments, without changes."""
    others = _unprotected(db)
    expired = _count(db, _EXPIRED + others, now) if hard else 0
    if not soft:
        return PrunedFacts(expired, dry_run=True)
    # A fact that fades and stays is not faint afterwards, even if it is now.
    faint = f"{_FAINT} AND NOT COALESCE({FADING}, FALSE)"
    if hard:
        faint += f" AND NOT ({_EXPIRED})"
    deleted = _count(db, _FADES_AWAY + others, now) + _count(db, faint + others, now)
    return PrunedFacts(expired, _count(db, _STAYS + others, now), deleted, dry_run=True)


def prune(
    db: Database,
    now: int,
    *,
    hard: bool,
    soft: bool,
    keep_ids: bool,
    stopping: Callable[[], bool] = lambda: False,
) -> PrunedFacts:
    """Delete expired facts, then fade facts and delete faint ones.

    Args:
        now: epoch seconds.
        hard: delete expired facts.
        soft: fade facts, and delete facts below the confidence `FAINTEST`.
        keep_ids: record the ids of deleted facts, so that their vectors can be deleted.
        stopping: called between batches; True ends the prune early.
    """
    # For a statement with triggers, SQLite copies each changed page, to a temporary file if there
    # are many.
    db.run("PRAGMA temp_store = MEMORY")
    others = _unprotected(db)
    parameters = {"now": now}
    expired = decayed = deleted = 0
    if hard:
        expired = _delete(db, _EXPIRED + others, parameters, keep_ids, stopping)
    if soft:
        for chosen in _batches(db, _STAYS + others, parameters, _FADED_AT_ONCE, stopping):
            with db.change():
                decayed += db.run(
                    f"UPDATE facts SET bsd_base_confidence = {BASE}, confidence = {FADED}"  # noqa: S608
                    f" WHERE {chosen} AND {_STAYS}",
                    parameters,
                )
        deleted = _delete(db, _FADES_AWAY + others, parameters, keep_ids, stopping)
        deleted += _delete(db, _FAINT + others, parameters, keep_ids, stopping)
    return PrunedFacts(expired, decayed, deleted)


def _delete(
    db: Database,
    where: str,
    parameters: Mapping[str, int],
    keep_ids: bool,  # noqa: FBT001
    stopping: Callable[[], bool],
) -> int:
    count = 0
    for chosen in _batches(db, where, parameters, _DELETED_AT_ONCE, stopping):
        with db.change():
            count += delete_facts(db, f"{chosen} AND {where}", parameters, keep_ids=keep_ids)
    return count


def _batches(
    db: Database,
    where: str,
    parameters: Mapping[str, int],
    size: int,
    stopping: Callable[[], bool],
) -> Iterator[str]:
    """Yield SQL conditions, each of which selects up to `size` of the facts.

    The facts are looked up once, into a temporary table. Callers must add `where` to each
    condition, because the plugin may change a fact meanwhile.
    """
    db.run("DROP TABLE IF EXISTS temp.bsd_chosen")
    facts = f"SELECT rowid AS fact FROM facts WHERE {where}"  # noqa: S608 - our own words
    db.run(f"CREATE TEMP TABLE bsd_chosen AS {facts}", parameters)
    most = int(db.value("SELECT COUNT(*) FROM bsd_chosen"))
    for start in range(0, most, size):
        if stopping():
            break
        yield (
            "rowid IN (SELECT fact FROM temp.bsd_chosen"  # noqa: S608
            f" WHERE rowid > {start} AND rowid <= {start + size})"
        )


def delete_facts(db: Database, where: str, parameters: Mapping[str, Any], *, keep_ids: bool) -> int:
    """Delete facts within a transaction; return their number. `keep_ids`: as for `prune`."""
    if keep_ids:
        note_due(db, [row[0] for row in db.all(f"SELECT id FROM facts WHERE {where}", parameters)])  # noqa: S608
    return db.run(f"DELETE FROM facts WHERE {where}", parameters)  # noqa: S608


def _count(db: Database, where: str, now: int) -> int:
    return int(db.value(f"SELECT COUNT(*) FROM facts WHERE {where}", {"now": now}))  # noqa: S608


# --- facts that later versions of the plugin protect: pinned, frozen and verified ones ---

_PROTECTING = {
    "pinned_at": "pinned_at IS NULL",
    "decay_freeze_until": "COALESCE(decay_freeze_until <= :now, TRUE)",
}
_VERIFIED = "id NOT IN (SELECT fact_id FROM verified_facts WHERE fact_id IS NOT NULL)"


def _unprotected(db: Database) -> str:
    """Return SQL to append to a condition, which excludes protected facts; may be empty."""
    known = _columns(db, "facts")
    terms = [term for name, term in _PROTECTING.items() if name in known]
    if "fact_id" in _columns(db, "verified_facts"):
        terms.append(_VERIFIED)
    return "".join(f" AND {term}" for term in terms)


def _columns(db: Database, table: str) -> set[str]:
    return {row[0] for row in db.all("SELECT name FROM pragma_table_info(?)", (table,))}


# --- erasing the words of a forgotten fact ---


def leave_nothing_behind(db: Database) -> None:
    """Make SQLite overwrite the content of rows that this connection deletes from now on."""
    db.run("PRAGMA secure_delete = ON")


def erase_words(db: Database) -> None:
    """Remove the words of deleted rows from the index, which FTS5 only marks as deleted.

    Must be called outside of a transaction. The index is merged in short transactions, so that the
    gateway does not wait. FTS5's `optimize` does the same in a single transaction, which takes
    seconds in a large database.
    """
    pages = -_PAGES  # a negative number begins a merge of all segments
    try:
        while _merge(db, pages):
            pages = _PAGES
    except Busy as problem:
        _log.warning(
            "The fact is deleted; its words stay in the index until the next fact is forgotten",
            problem=problem.message,
        )


def _merge(db: Database, pages: int) -> bool:
    """Merge some pages; return True if there was work (FTS5 then changes at least two rows)."""
    with db.change():
        before = int(db.value("SELECT total_changes()"))
        db.run("INSERT INTO facts_fts (facts_fts, rank) VALUES ('merge', ?)", (pages,))
        return int(db.value("SELECT total_changes()")) - before >= 2
