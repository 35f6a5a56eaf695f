"""The handle of a memory: its database and its settings. `actions` has the functions over it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any

from bsd.core.audit import AuditLog
from bsd.core.clock import begin_run, check_clock, steady
from bsd.core.errors import BsdError, os_problem
from bsd.core.files import Closing
from bsd.core.formatting import LIFETIMES
from bsd.core.layout import Layout
from bsd.core.settings import MemorySettings
from bsd.memory import schema
from bsd.memory.classes import Classes, Classifier, rules_for
from bsd.memory.database import WAIT_SECONDS, Database
from bsd.memory.vectors import Vectors


@dataclass(slots=True)
class Memory(Closing):
    """A database of facts, opened on first use; use it as a context manager.

    Calls that only read never change the file: a database with an older schema is then only
    presented in the current schema.

    Attributes:
        path: the database file.
        classes: the decay classes.
        classifier: the rules that find a fact's class.
        vectors_directory: the directory of the plugin's LanceDB; None: `lancedb` beside the
            database.
        actor: the actor named in the audit log.
        audit: the audit log; None: no audit.
        clock: returns epoch seconds.
        forgets_by: returns the time by which facts expire and fade (epoch seconds), which lags
            behind `clock` if that was set forward. Its argument is True if facts will be changed.
        stopping: called during long operations; True cancels them.
        wait: seconds to wait for another program that writes.
    """

    path: Path
    classes: Classes = field(default_factory=Classes)
    classifier: Classifier = field(default_factory=Classifier)
    vectors_directory: Path | None = None
    actor: str = "cli"
    audit: AuditLog | None = None
    clock: Callable[[], float] = time.time
    forgets_by: Callable[[bool], float] | None = None
    stopping: Callable[[], bool] = lambda: False
    wait: float = WAIT_SECONDS
    _database: Database | None = None

    @property
    def vectors(self) -> Vectors:
        return Vectors(self.vectors_directory or self.path.parent / "lancedb", self.stopping)

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def open(self, *, write: bool, create: bool = False) -> Database:
        """Return the database, which is opened on the first call.

        Args:
            write: open it for changes, and update its schema.
            create: create the file if it is missing.

        Raises:
            NotFound, Busy, Forbidden.
            Unavailable: the database is damaged, or the disk is full.
            Conflict: the database belongs to another program.
        """
        if self._database is not None and (not write or not self._database.readonly):
            return self._database
        self.close()
        database = Database(self.path, readonly=not write, create=create, wait=self.wait)
        try:
            if write:
                schema.prepare(database)
            else:
                schema.pretend(database)
        except BsdError:
            database.close()
            raise
        self._database = database
        return database

    def now(self) -> int:
        """Return the present time in whole epoch seconds."""
        return int(self.clock())

    def forgetting_time(self, *, changes: bool) -> int:
        """Return the time by which facts expire and fade, in whole epoch seconds.

        `changes`: True if facts will be changed.
        """
        return int(self.forgets_by(changes) if self.forgets_by else self.clock())

    def record(self, action: str, **details: Any) -> None:
        """Write a line to the audit log, if there is one."""
        if self.audit is not None:
            self.audit.record(actor=self.actor, action=action, **details)

    def exists(self) -> bool:
        """Return True if the database exists and is not empty; raises BsdError if unknown."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise os_problem(error, f"opening {self.path}") from error
        return S_ISREG(found.st_mode) and found.st_size > 0

    def is_ours(self) -> bool:
        """Return True if bsd created the database."""
        return self.noted(schema.CREATED_BY) == "bsd"

    def noted(self, name: str) -> str | int | None:
        """Return a note that `note` stored in the database; None if there is no such note."""
        return schema.noted(self.open(write=False), name)

    def note(self, name: str, value: str | int) -> None:
        """Store a note in the database."""
        schema.note(self.open(write=True), name, value)


def open_memory(
    layout: Layout,
    settings: MemorySettings | None = None,
    *,
    actor: str = "cli",
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    stopping: Callable[[], bool] = lambda: False,
) -> Memory:
    """Return the memory of a root without opening its database.

    Args:
        layout: the root.
        settings: the settings; None: the defaults of the seed.
        actor: the actor named in the audit log.
        clock: returns epoch seconds.
        steady: returns seconds of a clock that is never set.
        stopping: called during long operations; True cancels them.

    Raises:
        Forbidden: a symbolic link leads out of the root, and the settings name no other database.
    """
    settings = settings or MemorySettings()
    classes = classes_of(settings)
    hint = "replace the symbolic link, or name its target as `database` in [memory] of bsd.toml"
    words = {
        name: (words.keys, words.texts, words.entities) for name, words in settings.words.items()
    }

    return Memory(
        settings.database or layout.refuse_outside(layout.facts_db, hint),
        classes=classes,
        classifier=Classifier(rules_for(settings.languages, words)),
        vectors_directory=settings.vectors,
        actor=actor,
        audit=AuditLog(layout.audit_file, clock),
        clock=clock,
        forgets_by=partial(_forgetting_time, layout, clock, steady),
        stopping=stopping,
    )


def _forgetting_time(
    layout: Layout,
    clock: Callable[[], float],
    steady: Callable[[], float],
    changes: bool,  # noqa: FBT001 - the signature of `forgets_by`
) -> float:
    look = begin_run if changes else check_clock
    run = look(layout, "memory", clock, steady)
    return run.now - run.ahead


def classes_of(settings: MemorySettings | None) -> Classes:
    """Return the seed's classes, extended and changed by the settings."""
    settings = settings or MemorySettings()
    return Classes({**LIFETIMES, **settings.ttl}, frozenset(settings.refresh))
