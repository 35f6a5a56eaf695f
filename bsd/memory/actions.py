"""The actions on a memory, shared by the command line, HTTP and agents: plain functions.

Each action takes a `Memory` and returns an answer, a frozen dataclass. Actions raise:

    NotFound: there is no database (`store` and `save_checkpoint` create it instead).
    Busy: another program writes for too long.
    Forbidden: the database may not be read or written.
    Unavailable: the database is damaged, or the disk is full.
    Conflict: the database belongs to another program.
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
    """A fact that was stored, or the existing fact with the same text."""

    created: Annotated[bool, Field(description="False: a fact with the same text existed already")]


@dataclass(frozen=True, slots=True)
class ConfirmedFact(Fact):
    """A fact that was confirmed."""

    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class ForgottenFact(Fact):
    """A fact that was deleted, in its last state."""

    forgotten: bool = True


@dataclass(frozen=True, slots=True)
class SavedCheckpoint(Fact):
    """A checkpoint that was saved, as a fact."""

    saved: bool = True


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Facts that contain any of the words, best matches first."""

    query: str
    results: list[RecalledFact]


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Facts about an entity, ordered by confidence, then newest first."""

    entity: str
    key: str | None
    results: list[Fact]


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The numbers of facts and vectors in a memory."""

    database: str
    created_by_bsd: bool
    facts: int
    vectors: Annotated[
        int | None, Field(description="null: there are no vectors, or they cannot be counted")
    ]
    vectors_problem: Annotated[str | None, Field(description="Why the vectors cannot be counted")]
    by_class: Annotated[dict[str, int], Field(description="Facts of each decay class")]
    expired: Annotated[int, Field(description="Expired facts that are not pruned yet")]


@dataclass(frozen=True, slots=True)
class BackfillAnswer:
    """The numbers of facts whose class or expiry changed, by new class."""

    reclassified: dict[str, int]


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The last checkpoint as it was saved; null if there is none."""

    checkpoint: dict[str, Any] | None


# --- storing facts ---


def store(memory: Memory, new: NewFact) -> StoredFact:
    """Store a fact unless a live fact has the same text, entity, key and value.

    If `new` names a decay class, an existing fact takes that class.

    Raises:
        Invalid: a field of `new` is invalid.
        NotFound: the fact that `new` supersedes is missing.
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
    """Confirm that a fact still holds: reset its lifetime and confidence. Raises NotFound."""
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
    """Delete a fact and its vector for good. Raises NotFound.

    Afterwards no part of the database contains its words, free space included.
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
    """Delete the fact with exactly this text; if it is not unique, return candidates instead.

    Words alone never delete a fact, because they could mean a different fact.
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
    """Find the facts that contain any of the words, best matches first.

    Args:
        limit: the maximum number of facts.
        offset: the number of best facts to skip.
        only: conditions that the facts must meet.
        refresh: renew the found facts and count the recall; if False, the database stays unchanged.
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
    """Find the facts about an entity, or about its property `key`.

    The facts are ordered by confidence, then newest first. `limit`, `offset`, `only` and `refresh`
    are as for `recall`.
    """
    db = memory.open(write=refresh)
    found = facts.lookup(db, entity, key, only, offset + limit, memory.now())[offset:]
    if refresh and found:
        renewed = _refresh(memory, db, found)
        found = [renewed.get(fact.id, fact) for fact in found]
    return LookupAnswer(entity, key, found)


def get(memory: Memory, id: str, *, refresh: bool = False) -> Fact:
    """Return the fact with this id; raises NotFound. `refresh`: as for `recall`."""
    db = memory.open(write=refresh)
    fact = facts.existing(db, id)
    return _refresh(memory, db, [fact]).get(id, fact) if refresh else fact


def _refresh(memory: Memory, db: Database, found: Sequence[Fact]) -> dict[str, Fact]:
    """Record that facts were recalled; return them by id in their new state."""
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
    """Delete expired facts and fade old ones; delete the vectors of deleted facts.

    Args:
        hard: delete expired facts.
        soft: fade facts by age, and delete those whose confidence is too low.
        vectors: also find and delete vectors without a fact.
        dry_run: only count the facts and vectors that a prune would change.
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
    """Count the facts, in total and by class, the vectors, and the expired facts."""
    by_class = count_by_class(memory)
    table, vectors, problem = memory.vectors, None, None
    if table.exist:
        try:
            vectors = table.count()
        except BsdError as error:  # the facts can still be counted
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
    """Return the number of facts by class, without empty classes."""
    rows = memory.open(write=False).all(
        "SELECT decay_class, COUNT(*) FROM facts GROUP BY 1 ORDER BY 1"
    )
    counts: Counter[str] = Counter()
    for name, count in rows:
        counts[text_of(name) or DEFAULT_CLASS] += count
    return dict(counts)


def count_expired(memory: Memory) -> int:
    """Return the number of expired facts that are not pruned yet."""
    return decay.count_expired(memory.open(write=False), memory.forgetting_time(changes=False))


# --- classifying again, after the rules changed or for facts from before decay classes ---

_BATCH = 2000  # rows in one transaction
_CHECKPOINT_ENTITY, _CHECKPOINT_KEY = "system", "checkpoint:"
# Saved checkpoints keep their class, which is not a guess.
_IS_CHECKPOINT = f"entity = '{_CHECKPOINT_ENTITY}' AND key LIKE '{_CHECKPOINT_KEY}%'"
# Changes only rows that are unchanged since they were read. A fading fact gets its full confidence
# back and fades by its new times.
_RECLASSIFY = f"""UPDATE facts SET decay_class = :class, expires_at = :expires_at,
    confidence = {BASE}, bsd_base_confidence = NULL
    WHERE rowid = :rowid AND text IS :text AND superseded_at IS NULL
    AND last_confirmed_at IS :last_confirmed_at"""  # noqa: S608 - our own words


def backfill(memory: Memory) -> BackfillAnswer:
    """Determine the class and the expiry of all facts again.

    Superseded facts and saved checkpoints stay as they are. The expiry counts from the last
    confirmation, or from the creation of a fact that was never confirmed.
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
    """Return the parameters of `_RECLASSIFY` for a row; None if the row does not change."""
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
_VALUE_LENGTH = 100  # characters of the intent that become the fact's value


def save_checkpoint(
    memory: Memory,
    intent: str,
    state: str,
    *,
    expected_outcome: str | None = None,
    working_files: Sequence[str] | None = None,
) -> SavedCheckpoint:
    """Store an agent's intent and state for some hours; raises Invalid."""
    if not intent.strip() or not state.strip():
        raise Invalid(
            "a checkpoint needs an intent and a state",
            hint="name the next step as intent, and the present situation as state",
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
    """Return the latest checkpoint that has not expired; its answer is null if there is none."""
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
    if not isinstance(document, dict):  # written by another program: return its text
        document = {"text": fact.text}
    return CheckpointAnswer({"id": fact.id, **document, "expires_at": fact.expires_at})
