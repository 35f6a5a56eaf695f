"""The actions on a memory, for the command line, HTTP and agents alike: plain functions.

Each takes a `Memory` and returns an answer, a frozen dataclass. Each raises NotFound if there is no
database (those that store make one), Busy if another program writes too long, Forbidden,
Unavailable (damaged, no room), and Conflict for a database of another program.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from bsd.core.errors import BsdError, Invalid
from bsd.core.formatting import iso_utc
from bsd.memory import decay, facts
from bsd.memory.classes import DEFAULT_CLASS, Classes, Classifier
from bsd.memory.database import Database, Row, normalized_hash
from bsd.memory.decay import BASE, PrunedFacts
from bsd.memory.facts import (
    SHOWN,
    Fact,
    FactFilter,
    RecalledFact,
    extend,
    fact_from_row,
    text_of,
    whole_number,
)
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

_MOST_CANDIDATES = 10
ALL_FACTS = FactFilter()


# --- answers ---


@dataclass(frozen=True, slots=True)
class StoredFact(Fact):
    """A fact that was stored, or the one of the same text that was there before."""

    created: Annotated[bool, Field(description="False: one of the same text was there before")]


@dataclass(frozen=True, slots=True)
class ConfirmedFact(Fact):
    """A fact that begins anew."""

    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class ForgottenFact(Fact):
    """A fact as it was."""

    forgotten: bool = True


@dataclass(frozen=True, slots=True)
class SavedCheckpoint(Fact):
    """The fact that a checkpoint became."""

    saved: bool = True


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Facts that hold any of the words, the best first."""

    query: str
    results: list[RecalledFact]


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Facts about an entity, the surest and newest first."""

    entity: str
    key: str | None
    results: list[Fact]


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What there is in a memory."""

    database: str
    created_by_bsd: bool
    facts: int
    vectors: Annotated[int | None, Field(description="null where there are none to be counted")]
    vectors_problem: Annotated[str | None, Field(description="Why they cannot be counted")]
    by_class: Annotated[dict[str, int], Field(description="Facts of each decay class")]
    expired: Annotated[int, Field(description="Facts that wait to be pruned: their time is over")]


@dataclass(frozen=True, slots=True)
class BackfillAnswer:
    """How many facts of each class have another class or expiry than before."""

    reclassified: dict[str, int]


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The checkpoint as it was saved; null if there is none."""

    checkpoint: dict[str, Any] | None


# --- keeping facts ---


def store(memory: Memory, new: NewFact) -> StoredFact:
    """Keep a fact, unless there is a live one of the same text, entity, key and value.

    That one then takes the class that `new` names, if it names one. Raises Invalid, and NotFound
    if the fact that it supersedes is missing.
    """
    row = new.row(memory.classes, memory.classifier, memory.now())
    db = memory.open(write=True, create=True)
    with db.change():
        found = facts.twin(db, row)
        if found and new.decay_class in {None, found.decay_class}:
            return extend(StoredFact, found, created=False)
        fact = facts.reclassify(db, found, row) if found else facts.insert(db, row)
    memory.record("memory_store", fact=fact.id, decay_class=fact.decay_class)
    return extend(StoredFact, fact, created=found is None)


def confirm(memory: Memory, id: str) -> ConfirmedFact:
    """Say that a fact still holds: it begins anew, with full confidence. Raises NotFound."""
    now = memory.now()
    db = memory.open(write=True)
    with db.change():
        fact = facts.existing(db, id)
        db.run(
            "UPDATE facts SET confidence = 1.0, bsd_base_confidence = NULL,"
            " last_confirmed_at = ?, expires_at = ? WHERE id = ?",
            (now, memory.classes.renewed(fact, now), fact.id),
        )
        fact = facts.existing(db, fact.id)
    memory.record("memory_confirm", fact=id)
    return extend(ConfirmedFact, fact)


def forget(memory: Memory, id: str) -> ForgottenFact:
    """Delete a fact for good, and its vector. Raises NotFound.

    Its words stand nowhere in the database afterwards, not even in free space.
    """
    db = memory.open(write=True)
    vectors = memory.vectors
    decay.leave_nothing_behind(db)
    with db.change():
        fact = facts.existing(db, id)
        decay.delete_facts(db, "id = :id", {"id": fact.id}, keep_ids=vectors.exist)
    decay.erase_words(db)
    vectors.delete_due(db)
    memory.record("memory_forget", fact=id)
    return extend(ForgottenFact, fact)


def forget_text(memory: Memory, text: str) -> ForgottenFact | RecallAnswer:
    """Delete the one fact whose whole text this is; otherwise return candidates, deleting nothing.

    Words alone never delete a fact: they could mean another one.
    """
    everything = FactFilter(include_expired=True, include_superseded=True)
    found = recall(memory, text, limit=_MOST_CANDIDATES, only=everything, refresh=False)
    wanted = normalized_hash(text)
    same = [fact.id for fact in found.results if normalized_hash(fact.text) == wanted]
    return forget(memory, same[0]) if len(same) == 1 else found


# --- finding facts ---


def recall(
    memory: Memory,
    query: str,
    *,
    limit: int = 5,
    offset: int = 0,
    only: FactFilter = ALL_FACTS,
    refresh: bool = True,
) -> RecallAnswer:
    """Find the facts that hold any of the words, the best first.

    Args:
        limit: at most so many facts, after the first `offset`.
        refresh: keep the found facts alive, and count the recall; False changes nothing.
    """
    db = memory.open(write=refresh)
    found = facts.search(db, query, only, offset + limit, memory.now())[offset:]
    if refresh and found:
        renewed = _refresh(memory, db, found)
        found = [
            extend(RecalledFact, renewed.get(fact.id, fact), score=fact.score) for fact in found
        ]
    return RecallAnswer(query, found)


def lookup(
    memory: Memory,
    entity: str,
    key: str | None = None,
    *,
    limit: int = 100,
    offset: int = 0,
    only: FactFilter = ALL_FACTS,
    refresh: bool = True,
) -> LookupAnswer:
    """Find the facts about an entity (or one property of it), the surest and newest first.

    `limit`, `offset`, `refresh`: see `recall`.
    """
    db = memory.open(write=refresh)
    found = facts.lookup(db, entity, key, only, offset + limit, memory.now())[offset:]
    if refresh and found:
        renewed = _refresh(memory, db, found)
        found = [renewed.get(fact.id, fact) for fact in found]
    return LookupAnswer(entity, key, found)


def get(memory: Memory, id: str, *, refresh: bool = False) -> Fact:
    """Return one fact; raises NotFound. `refresh`: see `recall`."""
    db = memory.open(write=refresh)
    fact = facts.existing(db, id)
    return _refresh(memory, db, [fact]).get(id, fact) if refresh else fact


def _refresh(memory: Memory, db: Database, found: Sequence[Fact]) -> dict[str, Fact]:
    """Note that facts were recalled; returns them by id, as they are now."""
    ids = [fact.id for fact in found]
    facts.note_recalled(db, ids, memory.classes.refreshed_lifetimes(), memory.now())
    return facts.by_id(db, ids)


# --- pruning and counting ---


def prune(
    memory: Memory,
    *,
    hard: bool = True,
    soft: bool = True,
    vectors: bool = False,
    dry_run: bool = False,
) -> PrunedFacts:
    """Delete expired facts (`hard`), let facts fade that are not recalled (`soft`).

    Their vectors are deleted too. `vectors`: also find vectors without a fact, and delete them.
    """
    now = memory.forgetting_time(changes=not dry_run)
    db = memory.open(write=not dry_run)
    table = memory.vectors
    if dry_run:
        predicted = decay.predict(db, now, hard=hard, soft=soft)
        orphans = len(table.orphans(db, now)) if vectors else None
        return replace(predicted, vectors_orphaned=orphans)
    done = decay.prune(
        db, now, hard=hard, soft=soft, keep_ids=table.exist, stopping=memory.stopping
    )
    deleted, pending = table.delete_due(db)
    done = replace(done, vectors_deleted=deleted, vectors_pending=pending)
    if vectors:
        lost = table.orphans(db, now)
        deleted += table.delete(lost) if lost else 0
        done = replace(done, vectors_orphaned=len(lost), vectors_deleted=deleted)
    if done.changed_anything:
        counts = ("expired", "decayed", "deleted", "vectors_deleted")
        memory.record("memory_prune", **{name: getattr(done, name) for name in counts})
    return done


def stats(memory: Memory) -> MemoryStats:
    """Count facts, by class, and those that are to be pruned."""
    by_class = count_by_class(memory)
    table, vectors, problem = memory.vectors, None, None
    if table.exist:
        try:
            vectors = table.count()
        except BsdError as error:  # the facts can be counted all the same
            problem = error.message
    return MemoryStats(
        database=str(memory.path),
        created_by_bsd=memory.is_ours(),
        facts=sum(by_class.values()),
        vectors=vectors,
        vectors_problem=problem,
        by_class=by_class,
        expired=count_expired(memory),
    )


def count_by_class(memory: Memory) -> dict[str, int]:
    """Return how many facts there are of each class that has any."""
    rows = memory.open(write=False).all(
        "SELECT decay_class, COUNT(*) FROM facts GROUP BY 1 ORDER BY 1"
    )
    counts: Counter[str] = Counter()
    for name, count in rows:
        counts[text_of(name) or DEFAULT_CLASS] += count
    return dict(counts)


def count_expired(memory: Memory) -> int:
    """Return how many facts wait to be pruned, since their time is over."""
    return decay.count_expired(memory.open(write=False), memory.forgetting_time(changes=False))


# --- finding the classes anew, after the rules changed or for facts older than decay ---

_BATCH = 2000  # rows in one transaction
_CHECKPOINT_ENTITY, _CHECKPOINT_KEY = "system", "checkpoint:"
# A fact that is a saved checkpoint: its class is not a guess.
_IS_CHECKPOINT = f"entity = '{_CHECKPOINT_ENTITY}' AND key LIKE '{_CHECKPOINT_KEY}%'"
# Rows that are as they were when they were read; a fading fact begins anew by its new times.
_RECLASSIFY = f"""UPDATE facts SET decay_class = :class, expires_at = :expires_at,
    confidence = {BASE}, bsd_base_confidence = NULL
    WHERE rowid = :rowid AND text IS :text AND superseded_at IS NULL
    AND last_confirmed_at IS :last_confirmed_at"""  # noqa: S608 - our own words


def backfill(memory: Memory) -> BackfillAnswer:
    """Find the class of all facts anew, and when they expire by it.

    Superseded facts and saved checkpoints stay as they are. Expiry counts from the last
    confirmation, else from creation.
    """
    db = memory.open(write=True)
    changed: Counter[str] = Counter()
    for rows in _batches(db):
        judged = [_judged(row, memory.classifier, memory.classes) for row in rows]
        changes = [change for change in judged if change is not None]
        if changes:
            with db.change():
                for change in changes:
                    changed[str(change["class"])] += db.run(_RECLASSIFY, change)
    reclassified = dict(sorted((name, count) for name, count in changed.items() if count))
    if reclassified:
        memory.record("memory_backfill", facts=sum(reclassified.values()))
    return BackfillAnswer(reclassified)


def _batches(db: Database) -> Iterator[list[Row]]:
    last = -(1 << 63)
    while rows := db.all(
        "SELECT rowid, entity, key, text, created_at, decay_class,"  # noqa: S608 - our own words
        " expires_at, last_confirmed_at FROM facts WHERE rowid > ? AND superseded_at IS NULL"
        f" AND NOT COALESCE({_IS_CHECKPOINT}, 0) ORDER BY rowid LIMIT {_BATCH}",
        (last,),
    ):
        yield rows
        last = rows[-1]["rowid"]


def _judged(row: Row, classifier: Classifier, classes: Classes) -> dict[str, object] | None:
    """Return the parameters of `_RECLASSIFY` for a row; None if it stays as it is."""
    entity, key, text = (text_of(row[name]) for name in ("entity", "key", "text"))
    name = classifier.classify(entity, key, text or "")
    confirmed = row["last_confirmed_at"]
    since = whole_number(row["created_at"] if confirmed is None else confirmed)
    if since is None:
        return None  # its age is unknown
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


# --- checkpoints ---

_CHECKPOINT_IMPORTANCE = 0.9
_VALUE_LENGTH = 100  # characters of the intent, which is the value of the fact


def save_checkpoint(
    memory: Memory,
    intent: str,
    state: str,
    *,
    expected_outcome: str | None = None,
    working_files: Sequence[str] | None = None,
) -> SavedCheckpoint:
    """Keep an agent's intent and state, for some hours; raises Invalid."""
    if not intent.strip() or not state.strip():
        raise Invalid(
            "a checkpoint needs an intent and a state",
            hint="say what is about to be done, and how things stand",
        )
    moment = memory.clock()
    document: dict[str, Any] = {"intent": intent, "state": state}
    if expected_outcome is not None:
        document["expectedOutcome"] = expected_outcome
    if working_files is not None:
        document["workingFiles"] = list(working_files)
    document["savedAt"] = iso_utc(moment)
    new = NewFact(
        json.dumps(document, ensure_ascii=False),
        entity=_CHECKPOINT_ENTITY,
        key=f"{_CHECKPOINT_KEY}{int(moment * 1000)}",
        value=intent[:_VALUE_LENGTH],
        importance=_CHECKPOINT_IMPORTANCE,
        decay_class="checkpoint",
    )
    row = new.row(memory.classes, memory.classifier, int(moment))
    db = memory.open(write=True, create=True)
    with db.change():
        fact = facts.insert(db, row)
    memory.record("memory_checkpoint", fact=fact.id)
    return extend(SavedCheckpoint, fact)


def restore_checkpoint(memory: Memory) -> CheckpointAnswer:
    """Return the last checkpoint that has not expired; null if there is none."""
    if not memory.exists():
        return CheckpointAnswer(None)
    row = memory.open(write=False).one(
        f"SELECT {SHOWN} FROM facts WHERE {_IS_CHECKPOINT}"  # noqa: S608 - our own words
        " AND (expires_at IS NULL OR expires_at > ?)"
        " ORDER BY created_at DESC,"
        f" CAST(substr(key, {len(_CHECKPOINT_KEY) + 1}) AS INTEGER) DESC, rowid DESC",
        (memory.now(),),
    )
    if row is None:
        return CheckpointAnswer(None)
    fact = fact_from_row(row)
    try:
        document = json.loads(fact.text)
    except ValueError:
        document = None
    if not isinstance(document, dict):  # written by another program: shown as it is
        document = {"text": fact.text}
    return CheckpointAnswer({"id": fact.id, **document, "expires_at": fact.expires_at})
