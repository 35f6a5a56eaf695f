"""The memory: all that doors and the daemon do with facts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

from bsd.core.audit import AuditLog
from bsd.core.clock import look, steady
from bsd.core.definition import Answer, contract
from bsd.core.errors import BsdError, Invalid, os_problem
from bsd.core.files import Closing
from bsd.core.formatting import LIFETIMES
from bsd.core.layout import Layout
from bsd.core.settings import MemorySettings
from bsd.memory import schema
from bsd.memory.database import WAIT_SECONDS, Database
from bsd.memory.decay import (
    PrunedFacts,
    Pruner,
    count_expired,
    delete_facts,
    erase_words,
    leave_nothing_behind,
)
from bsd.memory.fact import (
    Fact,
    RecalledFact,
    StoredFact,
    WantedFacts,
    by_id,
    existing,
    insert,
    lookup,
    note_recalled,
    reclassify,
    search,
    text_of,
    twin,
)
from bsd.memory.new_fact import (
    DEFAULT_CLASS,
    Classes,
    Classifier,
    NewFact,
    backfill,
    checkpoint,
    newest_checkpoint,
    rules_for,
)
from bsd.memory.vectors import Vectors


@dataclass(frozen=True, slots=True)
class MemoryStats(Answer):
    """What there is in a memory."""

    database: str
    created_by_bsd: bool
    facts: int
    vectors: int | None = field(metadata=contract("null where there are none to be counted"))
    vectors_problem: str | None = field(metadata=contract("Why they cannot be counted"))
    by_class: dict[str, int] = field(metadata=contract("Facts of each decay class"))
    expired: int = field(metadata=contract("Facts that wait to be pruned: their time is over"))


class Memory(Closing):
    """One database of facts, opened when it is first needed; use it as a context.

    What only reads never changes the file: an older version then only looks up to date. Every
    method raises NotFound if there is no database (those that store make one), Busy, Forbidden,
    Unavailable (damaged, no room), and Conflict for a database of something else.

    `forgets_by` is the time by which facts expire and fade, as that of `clock` may have been put
    forward; it is told whether anything is to be changed.
    """

    def __init__(  # noqa: PLR0913 - the parts of a memory, each with its default
        self,
        path: Path,
        *,
        classes: Classes | None = None,
        classifier: Classifier | None = None,
        vectors: Path | None = None,
        actor: str = "cli",
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.time,
        forgets_by: Callable[[bool], float] | None = None,
        stopping: Callable[[], bool] = lambda: False,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self.path = path
        self.vectors = Vectors(vectors or path.parent / "lancedb", stopping)
        self._classes = classes or Classes()
        self._classifier = classifier or Classifier()
        self._actor = actor
        self._audit = audit
        self._clock = clock
        self._forgets_by = forgets_by or (lambda _: clock())
        self._stopping = stopping
        self._wait = wait
        self._db: Database | None = None

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    # --- keeping facts ---

    def store(self, new: NewFact) -> StoredFact:
        """Keep a fact, unless there is a live one of the same text, entity, key and value.

        That one then takes the class that `new` names, if it names one. Raises Invalid, and
        NotFound if what it supersedes is not there.
        """
        row = new.row(self._classes, self._classifier, self._now())
        db = self._open(write=True, create=True)
        with db.change():
            found = twin(db, row)
            if found and new.decay_class in {None, found.decay_class}:
                return StoredFact(created=False, fact=found)
            fact = reclassify(db, found, row) if found else insert(db, row)
        self._record("memory_store", fact=fact.id, decay_class=fact.decay_class)
        return StoredFact(created=found is None, fact=fact)

    def confirm(self, id: str) -> Fact:
        """Let a fact begin anew, with full confidence; raises NotFound."""
        now = self._now()
        db = self._open(write=True)
        with db.change():
            fact = existing(db, id)
            expires_at = self._classes.renewed(fact, now)
            db.run(
                "UPDATE facts SET confidence = 1.0, bsd_base_confidence = NULL,"
                " last_confirmed_at = ?, expires_at = ? WHERE id = ?",
                (now, expires_at, id),
            )
        self._record("memory_confirm", fact=id)
        return replace(fact, confidence=1.0, last_confirmed_at=now, expires_at=expires_at)

    def forget(self, id: str) -> Fact:
        """Delete a fact and its vector; returns what it was. Raises NotFound.

        Its words stand nowhere in the database afterwards, not even in what is free there.
        """
        db = self._open(write=True)
        leave_nothing_behind(db)
        with db.change():
            fact = existing(db, id)
            delete_facts(db, "id = :id", {"id": id}, keep_ids=self.vectors.exist)
        erase_words(db)
        self.vectors.settle(db)
        self._record("memory_forget", fact=id)
        return fact

    # --- finding facts ---

    def recall(
        self, query: str, *, limit: int = 5, wanted: WantedFacts | None = None, refresh: bool = True
    ) -> list[RecalledFact]:
        """The facts that hold any of the words, the best first.

        Being found keeps facts alive; without `refresh` nothing is changed.
        """
        db = self._open(write=refresh)
        now = self._now()
        found = search(db, query, wanted or WantedFacts(), limit, now)
        if not (refresh and found):
            return found
        anew = self._refresh(db, [one.fact for one in found], now)
        return [replace(one, fact=anew.get(one.fact.id, one.fact)) for one in found]

    def lookup(
        self,
        entity: str,
        key: str | None = None,
        *,
        limit: int = 100,
        wanted: WantedFacts | None = None,
        refresh: bool = True,
    ) -> list[Fact]:
        """What is known about an entity; the surest and newest first. `refresh`: see `recall`."""
        db = self._open(write=refresh)
        now = self._now()
        found = lookup(db, entity, key, wanted or WantedFacts(), limit, now)
        if not (refresh and found):
            return found
        anew = self._refresh(db, found, now)
        return [anew.get(fact.id, fact) for fact in found]

    def get(self, id: str, *, refresh: bool = False) -> Fact:
        """One fact; raises NotFound. Only with `refresh` it lives on by that."""
        db = self._open(write=refresh)
        fact = existing(db, id)
        return self._refresh(db, [fact], self._now()).get(id, fact) if refresh else fact

    # --- forgetting ---

    def prune(
        self,
        *,
        hard: bool = True,
        soft: bool = True,
        dry_run: bool = False,
        orphans: bool = False,
    ) -> PrunedFacts:
        """Delete what expired (`hard`), let fade what nobody recalls (`soft`), vectors included.

        `orphans`: also find vectors without a fact, and delete them.
        """
        now = int(self._forgets_by(not dry_run))
        db = self._open(write=not dry_run)
        pruner = Pruner(db, now, keep_ids=self.vectors.exist, stopping=self._stopping)
        if dry_run:
            done = pruner.predict(hard=hard, soft=soft)
            found = len(self.vectors.orphans(db, now)) if orphans else None
            return replace(done, vectors_orphaned=found)
        done = pruner.prune(hard=hard, soft=soft)
        deleted, pending = self.vectors.settle(db)
        done = replace(done, vectors_deleted=deleted, vectors_pending=pending)
        if orphans:
            lost = self.vectors.orphans(db, now)
            more = self.vectors.delete(lost) if lost else 0
            done = replace(done, vectors_orphaned=len(lost), vectors_deleted=deleted + more)
        if done.changed_anything:
            told = ("expired", "decayed", "deleted", "vectors_deleted")
            self._record("memory_prune", **{name: getattr(done, name) for name in told})
        return done

    def backfill(self) -> dict[str, int]:
        """Classify all facts anew; returns how many of each class have changed."""
        changed = backfill(self._open(write=True), self._classifier, self._classes)
        if changed:
            self._record("memory_backfill", facts=sum(changed.values()))
        return changed

    # --- looking at it ---

    def stats(self) -> MemoryStats:
        """Counts of facts, by class too."""
        by_class = self.by_class()
        vectors, problem = None, None
        if self.vectors.exist:
            try:
                vectors = self.vectors.count()
            except BsdError as error:  # the facts can be counted all the same
                problem = error.message
        return MemoryStats(
            database=str(self.path),
            created_by_bsd=self.is_ours(),
            facts=sum(by_class.values()),
            vectors=vectors,
            vectors_problem=problem,
            by_class=by_class,
            expired=self.expired(),
        )

    def by_class(self) -> dict[str, int]:
        """How many facts there are of each class that has any."""
        rows = self._open(write=False).all(
            "SELECT decay_class, COUNT(*) FROM facts GROUP BY 1 ORDER BY 1"
        )
        counts: Counter[str] = Counter()
        for name, count in rows:
            counts[text_of(name) or DEFAULT_CLASS] += count
        return dict(counts)

    def expired(self) -> int:
        """How many facts wait to be pruned, since their time is over."""
        return count_expired(self._open(write=False), int(self._forgets_by(False)))  # noqa: FBT003

    def exists(self) -> bool:
        """Whether anything has been stored; raises Forbidden if that cannot be seen."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise os_problem(error, f"opening {self.path}") from error
        return S_ISREG(found.st_mode) and found.st_size > 0

    def is_ours(self) -> bool:
        """Whether bsd created the database, and nobody else."""
        return schema.noted(self._open(write=False), schema.CREATED_BY) == "bsd"

    def noted(self, name: str) -> str | int | None:
        """Something that was kept about the database."""
        return schema.noted(self._open(write=False), name)

    def note(self, name: str, value: str | int) -> None:
        """Keep something about the database."""
        schema.note(self._open(write=True), name, value)

    # --- checkpoints ---

    def save_checkpoint(
        self,
        intent: str,
        state: str,
        *,
        expected_outcome: str | None = None,
        working_files: Sequence[str] | None = None,
    ) -> Fact:
        """Keep what an agent is about to do; raises Invalid."""
        if not intent.strip() or not state.strip():
            raise Invalid(
                "a checkpoint needs an intent and a state",
                hint="say what is about to be done, and how things stand",
            )
        moment = self._clock()
        new = checkpoint(intent, state, expected_outcome, working_files, moment)
        row = new.row(self._classes, self._classifier, int(moment))
        db = self._open(write=True, create=True)
        with db.change():
            fact = insert(db, row)
        self._record("memory_checkpoint", fact=fact.id)
        return fact

    def restore_checkpoint(self) -> dict[str, Any] | None:
        """The last checkpoint that has not expired, as it was saved; None if there is none."""
        if not self.exists():
            return None
        return newest_checkpoint(self._open(write=False), self._now())

    # --- small parts ---

    def _open(self, *, write: bool, create: bool = False) -> Database:
        if self._db is not None and (not write or not self._db.readonly):
            return self._db
        self.close()
        db = Database(self.path, readonly=not write, create=create, wait=self._wait)
        try:
            if write:
                schema.prepare(db)
            else:
                schema.pretend(db)
        except BsdError:
            db.close()
            raise
        self._db = db
        return db

    def _now(self) -> int:
        return int(self._clock())

    def _refresh(self, db: Database, facts: Sequence[Fact], now: int) -> dict[str, Fact]:
        ids = [fact.id for fact in facts]
        note_recalled(db, ids, self._classes.living_on(), now)
        return by_id(db, ids)

    def _record(self, action: str, **what: Any) -> None:
        if self._audit is not None:
            self._audit.record(actor=self._actor, action=action, **what)


# --- the memory of a root, as the settings want it ---


def open_memory(
    layout: Layout,
    settings: MemorySettings | None = None,
    *,
    actor: str = "cli",
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    stopping: Callable[[], bool] = lambda: False,
) -> Memory:
    """Whoever asks gets a memory of its own, which opens nothing before it is used.

    Without settings it is as the seed describes it. Raises Forbidden if a link leads out of the
    root where nobody has named another place.
    """
    settings = settings or MemorySettings()
    classes = classes_of(settings)
    longest = max((life for life in classes.lifetimes.values() if life is not None), default=0)

    def forgets_by(changes: bool) -> float:  # noqa: FBT001 - it asks for nothing else
        return look(layout, clock, steady, keep=changes).now_for(longest)

    words = {
        name: (words.keys, words.texts, words.entities) for name, words in settings.words.items()
    }
    return Memory(
        settings.database or _facts(layout),
        classes=classes,
        classifier=Classifier(rules_for(settings.languages, words)),
        vectors=settings.vectors,
        actor=actor,
        audit=AuditLog(layout.audit_file, clock),
        clock=clock,
        forgets_by=forgets_by,
        stopping=stopping,
    )


def classes_of(settings: MemorySettings | None) -> Classes:
    """The seed's classes, with those that the settings add or change."""
    settings = settings or MemorySettings()
    return Classes({**LIFETIMES, **settings.ttl}, frozenset(settings.refresh))


def _facts(layout: Layout) -> Path:
    hint = "replace the symbolic link, or name its target as `database` in [memory] of bsd.toml"
    return layout.refuse_outside(layout.facts_db, hint)
