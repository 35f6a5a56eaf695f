"""A session as one object: its name, where it lies, whose it is; opened and locked from here.

And who only looks at it: nothing here waits or writes, plans, or loads what operates.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import structlog

from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.planning.plan import Means
from bsd.sessions.notes import Notes
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Transcript, TranscriptFile

_log: BoundLogger = structlog.get_logger(module="session")


class Session:
    """The session of this name under a root, whether it is there or not; nothing is held open."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self.layout = layout
        self.name = name

    def __str__(self) -> str:
        return str(self.name)

    @property
    def path(self) -> Path:
        """Its transcript as it lies now, a regular file; raises NotFound, Forbidden."""
        return self.layout.session_file(self.name)

    @cached_property
    def program(self) -> AgentProgram:
        """What is known of the program whose session it is."""
        return program_of(self.layout, self.name.agent)

    @cached_property
    def store(self) -> SessionStore:
        """What was taken out of it."""
        return SessionStore(self.layout, self.name)

    @cached_property
    def history(self) -> History:
        """What was done to it."""
        return History(self.layout, self.name)

    def has_traces(self) -> bool:
        """Whether bsd has changed it, as far as anything of that is still kept."""
        return os.path.lexists(self.store.directory) or os.path.lexists(self.history.directory)

    def refuse_no_session(self, *, unless_stored: bool = True) -> None:
        """Raise LeftAlone if its file is no session of its program's, with the reason.

        `unless_stored`: a file from which an earlier version has extracted is accepted, so that
        its values come back. Raises NotFound, Forbidden.
        """
        self.layout.session_file(self.name)
        self._refuse_no_session(unless_stored=unless_stored)

    def _refuse_no_session(self, *, unless_stored: bool) -> None:
        why = self.program.why_no_session(f"{self.name.session}{ENDING}")
        if why is None or (unless_stored and self._has_stored()):
            return
        raise LeftAlone(f"{self.name} is no session: {why}", hint="`bsd sessions` lists sessions")

    def _has_stored(self) -> bool:
        archive = self.layout.archive_dir(self.name)
        return self.has_traces() or os.path.lexists(archive)

    def open(self, path: Path | None = None) -> tuple[TranscriptFile, TranscriptFormat]:
        """Open it to edit it, and tell its dialect; raises LeftAlone, NotFound, Forbidden.

        `path` is its own, of who has just asked for it.
        """
        return self._open(to_read=False, path=path)

    def open_to_read(self) -> tuple[TranscriptFile, TranscriptFormat]:
        """The same of one that need not be ours to edit, as long as its lines are understood."""
        return self._open(to_read=True)

    def _open(
        self, *, to_read: bool, path: Path | None = None
    ) -> tuple[TranscriptFile, TranscriptFormat]:
        _log.trace("A session is opened", session=str(self))
        if database := self.program.database():
            raise LeftAlone(f"the sessions of {self.name.agent} are in {database}")
        path = path or self.path
        self._refuse_no_session(unless_stored=True)
        source = TranscriptFile(path)
        try:
            found = self.program.detect(line.raw for line in source.lines())
        except BaseException:  # nobody else has it to close
            source.close()
            raise
        if _log.isEnabledFor(logging.DEBUG):
            found_as = found.reason if isinstance(found, NotOurs) else found.name
            known = source.identity
            told = {"bytes": known.size, "mtime_ns": known.mtime_ns, "dialect": found_as}
            _log.debug(f"Session {self} is read", session=str(self), **told)
        if not isinstance(found, NotOurs):
            return source, found
        if to_read and found.reads is not None:
            return source, found.reads
        source.close()
        raise LeftAlone(found.reason)

    def lock(
        self, wait: float, *, sleep: Callable[[float], None] = time.sleep
    ) -> AbstractContextManager[object]:
        """bsd's own lock, held from planning to audit; entering it raises Busy after `wait` s."""
        return own_lock(self.layout, self.name, wait, sleep=sleep)

    def program_lock(self, path: Path, wait: float) -> AbstractContextManager[object]:
        """The lock that its owner honours; entering it raises Busy."""
        return self.program.lock(self.name, path, wait)


_Answer = TypeVar("_Answer")


def format_of(source: Transcript, program: AgentProgram) -> TranscriptFormat | None:
    """How the lines of a session are made, as far as anybody knows; it need not be ours to edit."""
    found = program.detect(line.raw for line in source.lines())
    return found.reads if isinstance(found, NotOurs) else found


class Queries:
    """Answers what is asked of one session at a time; `actor` is named in the log."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        actor: str = "cli",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.layout = layout
        self.config = config
        self.clock = clock
        self.notes = Notes(layout, actor, clock)

    def look(
        self, name: SessionName, query: Callable[[Transcript, TranscriptFormat, Means], _Answer]
    ) -> _Answer:
        """Ask something of a session as it stands; raises NotFound and what the query raises."""
        session = Session(self.layout, name)
        source, fmt = session.open_to_read()
        with source:
            return query(source, fmt, self._means(name, session.store))

    def _means(self, name: SessionName, store: SessionStore) -> Means:
        return Means(name, store, self.clock(), lambda: self.config.current)

    def settings(self, overrides: Mapping[str, Any] | None) -> PruningConfig:
        """The settings as they are, but for those of one call; raises ConfigError, Invalid."""
        config = self.config.current
        if not overrides:
            return config
        return PruningConfig.from_json({**config.as_json(), **overrides})
