"""When facts expire and how they fade, as SQL over sets of them; and the pruning that does it.

A fact fades by its age, not by how often it is looked at. Past 75 % of the time between its last
confirmation and its expiry, its confidence is

    base · 0.5^k    with k = 1 + the full hours since then

`base` is the confidence before it began to fade. So hourly ticks, one tick after two days of
downtime and forty ticks in a minute have the same result. With whole seconds, and both sides
multiplied by four, the moment is exact: `now` is past 75 % when 4·now > confirmed + 3·expires.

The gateway has the database open too, and waits five seconds at most: a prune runs in batches, each
a short transaction of its own.
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

# Rows in one transaction, each a third of a second where a fact has a hundred words; deleting a
# row changes the index of words, fading does not.
_DELETED_AT_ONCE = 5000
_FADED_AT_ONCE = 50_000
_PAGES = 500  # of 4 KB, that a step of `erase_words` writes

FAINTEST = 0.1  # below this confidence a fact is deleted
_QUARTER_HOURS = 4 * 3600  # an hour in the unit of _MOMENT
_MOST_HALVINGS = 62  # the most that SQLite's integers can be shifted by

# The confidence from which a fact fades; the plugin, which knows no base, may have raised it.
BASE = "MAX(confidence, COALESCE(bsd_base_confidence, confidence))"
# Exactly as in the index `bsd_facts_fading`, or SQLite does not use that index.
_MOMENT = "last_confirmed_at + 3 * expires_at"
_HALVINGS = (
    f"MIN(1 + CAST((4 * :now - ({_MOMENT})) / {_QUARTER_HOURS} AS INTEGER), {_MOST_HALVINGS})"
)
FADED = f"({BASE} / (1 << {_HALVINGS}))"

_EXPIRED = "expires_at IS NOT NULL AND expires_at < :now"
# `+` keeps SQLite from the indexes that find nearly every fact. A fact that expires this very
# second still fades: it is deleted a second later, and a tick at either moment has the same
# result. SQLite orders texts after all numbers: a column that holds no number excludes the fact.
_NUMBERS = " AND ".join(
    f"+{name} < {LARGEST}" for name in ("expires_at", "last_confirmed_at", "confidence")
)
FADING = (
    f"{_MOMENT} <= 4 * :now - 1 AND expires_at IS NOT NULL AND +expires_at >= :now"
    f" AND {_NUMBERS} AND {BASE} > {FAINTEST}"
)
_STAYS = f"{FADING} AND {FADED} >= {FAINTEST} AND confidence <> {FADED}"
_FADES_AWAY = f"{FADING} AND {FADED} < {FAINTEST}"
# For any class, and although it may never expire (as the plugin has it).
_FAINT = f"confidence < {FAINTEST}"


@dataclass(frozen=True, slots=True)
class PrunedFacts:
    """The facts that a prune changed, or would change. Each is counted once."""

    expired: Annotated[int, Field(description="Deleted: their time was over")] = 0
    decayed: Annotated[int, Field(description="Still there, with less confidence")] = 0
    deleted: Annotated[int, Field(description="Deleted: their confidence was too low")] = 0
    dry_run: bool = False
    vectors_deleted: int = 0
    vectors_pending: Annotated[int, Field(description="Could not be deleted; tried again")] = 0
    vectors_orphaned: Annotated[
        int | None, Field(description="Without a fact, if they were looked for")
    ] = None

    @property
    def changed_anything(self) -> bool:
        """Return True if a fact or a vector was changed or deleted."""
        return bool(self.expired or self.decayed or self.deleted or self.vectors_deleted)


def count_expired(db: Database, now: int) -> int:
    """Return how many facts a hard prune would delete."""
    return _count(db, _EXPIRED + _unprotected(db), now)


def predict(db: Database, now: int, *, hard: bool, soft: bool) -> PrunedFacts:
    """Return the result that `prune` with the same arguments would have; changes nothing."""
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
    """Delete expired facts (`hard`); then fade facts, and delete the faint ones (`soft`).

    Args:
        keep_ids: note the ids of deleted facts, so that their vectors can be deleted.
        stopping: asked between two batches; True ends the prune early.
    """
    # SQLite keeps a copy of each page that a statement with triggers changes, in a file of its own
    # once they are many.
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
    """Yield conditions that each choose up to `size` of the facts.

    The facts are looked up once, into a temporary table. A caller repeats `where`, since the
    plugin may change a fact meanwhile.
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
    """Delete facts, within a change; returns how many. `keep_ids`: see `prune`."""
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
    """Return the part that `AND` adds to a condition, so that protected facts stay; often ''."""
    known = _columns(db, "facts")
    terms = [term for name, term in _PROTECTING.items() if name in known]
    if "fact_id" in _columns(db, "verified_facts"):
        terms.append(_VERIFIED)
    return "".join(f" AND {term}" for term in terms)


def _columns(db: Database, table: str) -> set[str]:
    return {row[0] for row in db.all("SELECT name FROM pragma_table_info(?)", (table,))}


# --- erasing the words of a forgotten fact ---


def leave_nothing_behind(db: Database) -> None:
    """Let SQLite overwrite the space of rows that this connection deletes from now on."""
    db.run("PRAGMA secure_delete = ON")


def erase_words(db: Database) -> None:
    """Merge the index of words, outside of any change: FTS5 only marks the words of deleted rows.

    FTS5's `optimize` does the same in one transaction, which takes seconds in a large database:
    these are short ones, so that the gateway waits for none of them.
    """
    pages = -_PAGES  # less than 0: begin a merge of all parts
    try:
        while _merge(db, pages):
            pages = _PAGES
    except Busy as problem:
        _log.warning(
            "The fact is deleted, its words leave the index with the next one that is forgotten",
            problem=problem.message,
        )


def _merge(db: Database, pages: int) -> bool:
    """Merge some pages; returns True if there was work (FTS5 then changes more than one row)."""
    with db.change():
        before = int(db.value("SELECT total_changes()"))
        db.run("INSERT INTO facts_fts (facts_fts, rank) VALUES ('merge', ?)", (pages,))
        return int(db.value("SELECT total_changes()")) - before >= 2
