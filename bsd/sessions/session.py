"""A session as one object: its name, where it lies, whose it is; opened, read and locked from here.

Nothing here waits or writes, plans, or loads the code that commits.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import structlog

from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Transcript, TranscriptFile

_log: BoundLogger = structlog.get_logger(module="session")

# Hints about sessions that bsd leaves alone.
_READABLE = "read it with `bsd show`, or update bsd; nothing in it is changed"
_UNREADABLE = "update bsd, or leave it out with the setting `exclude`; nothing in it is changed"


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
        """The program that writes it."""
        return program_of(self.layout, self.name.agent)

    @cached_property
    def store(self) -> SessionStore:
        """The originals that were extracted from it."""
        return SessionStore(self.layout, self.name)

    @cached_property
    def history(self) -> History:
        """The operations on it."""
        return History(self.layout, self.name)

    def refuse_no_session(self, *, unless_stored: bool = True) -> None:
        """Raise LeftAlone if it is excluded, or its file is no session of its program's.

        `unless_stored`: a file from which an earlier version has extracted is accepted, so that
        its values come back. Raises NotFound, Forbidden.
        """
        self.layout.refuse_excluded(self.name)
        self.layout.session_file(self.name)
        self._refuse_no_session(unless_stored=unless_stored)

    def _refuse_no_session(self, *, unless_stored: bool) -> None:
        why = self.program.why_no_session(f"{self.name.session}{ENDING}")
        if why is None or (unless_stored and self.has_stored()):
            return
        raise LeftAlone(f"{self.name} is no session: {why}", hint="`bsd sessions` lists sessions")

    def has_stored(self) -> bool:
        """Whether anything is still kept of a change by bsd."""
        archive = self.layout.archive_dir(self.name)
        places = (self.store.directory, self.history.directory, archive)
        return any(os.path.lexists(place) for place in places)

    def open(self, path: Path | None = None) -> tuple[TranscriptFile, TranscriptFormat]:
        """Open its transcript to edit it, and find out its format.

        `path`: the transcript, if the caller has just asked for it. Raises LeftAlone, NotFound,
        Forbidden.
        """
        source, fmt, left_alone = self.open_to_read(path)
        if left_alone is not None:
            source.close()
            raise LeftAlone(left_alone, hint=_READABLE)
        return source, fmt

    def open_to_read(
        self, path: Path | None = None
    ) -> tuple[TranscriptFile, TranscriptFormat, str | None]:
        """Open its transcript, also one that bsd does not edit, and find out its format.

        Returns:
            The transcript, its format, and the reason why bsd does not edit it, if it does not.

        Raises:
            LeftAlone: its lines are not understood.
            NotFound, Forbidden: there is no such file, or it lies outside.
        """
        _log.trace("A session is opened", session=str(self))
        self.layout.refuse_excluded(self.name)
        if database := self.program.database():
            hint = "read them with their program; nothing in the database is changed"
            raise LeftAlone(f"the sessions of {self.name.agent} are in {database}", hint=hint)
        path = path or self.path
        self._refuse_no_session(unless_stored=True)
        source = TranscriptFile(path)
        try:
            found = self.program.detect(line.raw for line in source.lines())
        except BaseException:  # the caller gets an open file or none
            source.close()
            raise
        if _log.isEnabledFor(logging.DEBUG):
            found_as = found.reason if isinstance(found, NotOurs) else found.name
            known = source.identity
            told = {"bytes": known.size, "mtime_ns": known.mtime_ns, "dialect": found_as}
            _log.debug(f"Session {self} is read", session=str(self), **told)
        if not isinstance(found, NotOurs):
            return source, found, None
        if found.reads is not None:
            return source, found.reads, found.reason
        source.close()
        raise LeftAlone(found.reason, hint=found.hint or _UNREADABLE)

    def opened(
        self,
        source: TranscriptFile,
        fmt: TranscriptFormat,
        now: float,
        config: ConfigService,
        left_alone: str | None = None,
    ) -> OpenSession:
        """Return the session, opened, for a planner or a query; `now` in epoch seconds."""
        return OpenSession(
            self.name, source, fmt, self.store, self.history, now, config, left_alone
        )

    def lock(
        self, wait: float, *, sleep: Callable[[float], None] = time.sleep
    ) -> AbstractContextManager[object]:
        """bsd's own lock, held from planning to audit; entering it raises Busy after `wait` s."""
        return own_lock(self.layout, self.name, wait, sleep=sleep)


def format_of(source: Transcript, program: AgentProgram) -> TranscriptFormat | None:
    """The format of a session's lines, if it is known; the session need not be ours to edit."""
    found = program.detect(line.raw for line in source.lines())
    return found.reads if isinstance(found, NotOurs) else found


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that is open, and the other data that planners and queries need.

    Attributes:
        now: epoch seconds.
        left_alone: the reason why bsd does not edit it; None if it does.
    """

    name: SessionName
    transcript: Transcript
    format: TranscriptFormat
    store: SessionStore
    history: History
    now: float
    config: ConfigService
    left_alone: str | None = None

    @property
    def settings(self) -> PruningConfig:
        """The settings as they are now; raises ConfigError. Most planners need none."""
        return self.config.current


class SessionReader:
    """Opens one session and reads it: `with reader as opened: …`.

    Entering raises NotFound, LeftAlone, Forbidden.

    Args:
        to_edit: refuse a session that bsd does not edit, even if its lines are understood.
    """

    def __init__(
        self, session: Session, config: ConfigService, now: float, *, to_edit: bool = False
    ) -> None:
        self._session = session
        self._config = config
        self._now = now
        self._to_edit = to_edit

    def __enter__(self) -> OpenSession:
        self._file, fmt, left_alone = self._session.open_to_read()
        if left_alone is not None and self._to_edit:
            self._file.close()
            raise LeftAlone(left_alone, hint=_READABLE)
        return self._session.opened(self._file, fmt, self._now, self._config, left_alone)

    def __exit__(self, *_: object) -> None:
        self._file.close()
