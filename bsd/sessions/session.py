"""A session as one object: its name, its files, its program; opens, reads and locks it.

This module does not wait, write or plan, and does not load the code that commits.
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
from bsd.core.errors import LeftAlone, NotRecognised, UnknownForm
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.core.logs import BoundLogger
from bsd.store.history import History
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.compressed import why_not_edited
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.entry import first_entries
from bsd.transcripts.agents.format import NotOurs, TranscriptFormat
from bsd.transcripts.agents.opening import database_with, open_file, open_transcript
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import InBlocks, Transcript, TranscriptFile, parse_entry

_log: BoundLogger = structlog.get_logger(module="session")

_END_BYTES = 32 << 10  # of a session, in which its last lines are judged

# Hints about sessions that bsd leaves alone.
_READABLE = "read it with `bsd show`, or update bsd; nothing in it is changed"
_IN_DATABASE = "read it with `bsd show`; nothing in the database is changed"
_NO_PLAIN_FILE = "its program keeps it in a form that bsd does not edit"
_COMPRESSED = "open it once in its program, which makes a plain file of it; or read it as it is"
_UNREADABLE = "update bsd, or leave it out with the setting `exclude`; nothing in it is changed"


class Session:
    """The session with this name under a root, whether or not it exists. Holds no open files."""

    def __init__(self, layout: Layout, name: SessionName) -> None:
        self.layout = layout
        self.name = name

    def __str__(self) -> str:
        return str(self.name)

    @property
    def path(self) -> Path:
        """The transcript's present path, a regular file, to edit it.

        Raises NotFound, Forbidden; LeftAlone if the session is in a database.
        """
        if (database := database_with(self.layout, self.name)) is not None:
            raise LeftAlone(self._why_read_only(database), hint=_IN_DATABASE)
        return self.layout.session_file(self.name)

    @cached_property
    def program(self) -> AgentProgram:
        """The program that writes the session."""
        return program_of(self.layout, self.name.agent)

    @cached_property
    def store(self) -> SessionStore:
        """The extracted originals of the session."""
        return SessionStore(self.layout, self.name)

    @cached_property
    def history(self) -> History:
        """The operations on the session."""
        return History(self.layout, self.name)

    def refuse_no_session(self, *, unless_stored: bool = True) -> None:
        """Raise LeftAlone if the session is excluded, or if its file is no session to its program.

        Also raises NotFound, Forbidden.

        Args:
            unless_stored: accept a file from which an earlier version of bsd extracted values, so
                that they can come back.
        """
        self.layout.refuse_excluded(self.name)
        if database_with(self.layout, self.name) is not None:
            return
        self.layout.session_file(self.name)
        self._refuse_no_session(unless_stored=unless_stored)

    def _refuse_no_session(self, *, unless_stored: bool) -> None:
        why = self.program.why_no_session(f"{self.name.session}{ENDING}")
        if why is None or (unless_stored and self.has_stored()):
            return
        raise LeftAlone(
            f"{self.name} is not a session: {why}", hint="`bsd sessions` lists sessions"
        )

    def has_stored(self) -> bool:
        """Return whether the root holds any data about a change of the session."""
        archive = self.layout.archive_dir(self.name)
        places = (self.store.directory, self.history.directory, archive)
        return any(os.path.lexists(place) for place in places)

    def open(self, path: Path | None = None) -> tuple[TranscriptFile, TranscriptFormat]:
        """Open the transcript to edit it, and detect its format.

        Args:
            path: the transcript's path, if the caller has just resolved it.

        Raises:
            LeftAlone: bsd does not edit the session.
            NotFound, Forbidden: there is no such file, or it lies outside.
        """
        if database := self.program.database():  # reading a session from it takes long
            raise LeftAlone(self._why_read_only(database), hint=_IN_DATABASE)
        path = path or self.path
        if compressed := why_not_edited(path):
            raise LeftAlone(compressed, hint=_COMPRESSED)
        source, found, read_only = self._open(path)
        if read_only is None and isinstance(found, NotOurs):
            with source:
                raise _left_alone(found, source)
        if not (read_only or isinstance(found, NotOurs)) and isinstance(source, TranscriptFile):
            return source, found
        source.close()
        raise LeftAlone(read_only or _NO_PLAIN_FILE, hint=_READABLE)

    def open_to_read(
        self, path: Path | None = None
    ) -> tuple[InBlocks, TranscriptFormat, str | None]:
        """Open the transcript, also if bsd does not edit it, and detect its format.

        Returns:
            The transcript, its format, and the reason why bsd does not edit it, or None.

        Raises:
            LeftAlone: bsd does not understand its lines.
            NotFound, Forbidden: there is no such file, or it lies outside.
        """
        source, found, read_only = self._open(path)
        if not isinstance(found, NotOurs):
            return source, found, read_only
        if found.reads is not None:
            return source, found.reads, read_only or found.reason
        with source:
            raise _left_alone(found, source)

    def _open(self, path: Path | None) -> tuple[InBlocks, TranscriptFormat | NotOurs, str | None]:
        """Open the transcript, and detect its format; raises as `open_to_read`.

        Returns:
            The transcript, its format, and why bsd only reads a transcript in a database, or None.
        """
        _log.trace("A session is opened", session=str(self))
        self.layout.refuse_excluded(self.name)
        database = database_with(self.layout, self.name)
        if database is None:
            path = path or self.layout.session_file(self.name)
            self._refuse_no_session(unless_stored=True)
        source = open_file(path) if path else open_transcript(self.layout, self.name)
        database = database or self.program.database()
        read_only = why_not_edited(path) if path else None
        if database is not None:
            read_only = self._why_read_only(database)
        try:
            found = self.program.detect(line.raw for line in source.lines())
            if read_only is None and isinstance(found, TranscriptFormat):
                why = _why_unknown_at_end(source, found)
                found = NotOurs(why, found, is_unknown_form=True) if why else found
        except BaseException:  # leave no file open after an error
            source.close()
            raise
        if _log.isEnabledFor(logging.DEBUG):
            found_as = found.reason if isinstance(found, NotOurs) else found.name
            known = source.identity
            told = {"bytes": known.size, "mtime_ns": known.mtime_ns, "dialect": found_as}
            _log.debug(f"Session {self} is read", session=str(self), **told)
        return source, found, read_only

    def _why_read_only(self, database: SessionDatabase) -> str:
        return f"the sessions of {self.name.agent} are in {database.path}: {database.left_alone}"

    def opened(
        self,
        source: InBlocks,
        fmt: TranscriptFormat,
        now: float,
        config: ConfigService,
        left_alone: str | None = None,
    ) -> OpenSession:
        """Return the open session for a planner or a query; `now` is in epoch seconds."""
        return OpenSession(
            self.name, source, fmt, self.store, self.history, now, config, left_alone
        )

    def lock(
        self, wait: float, *, sleep: Callable[[float], None] = time.sleep
    ) -> AbstractContextManager[object]:
        """Return bsd's lock of the session, held from planning to audit.

        Entering it raises Busy after `wait` seconds.
        """
        return own_lock(self.layout, self.name, wait, sleep=sleep)


def _why_unknown_at_end(source: Transcript, fmt: TranscriptFormat) -> str | None:
    """Return why the last lines have a form that bsd does not know; None if they have not.

    The program may have been updated while the session was in use, and its first lines are then in
    the former form.
    """
    size = source.identity.size
    start = max(0, size - _END_BYTES)
    lines = source.read(start, size - start).split(b"\n")
    entries = (parse_entry(line) for line in lines[start > 0 :] if line)
    return next((why for each in entries if each and (why := fmt.why_unknown_form(each))), None)


def _left_alone(found: NotOurs, source: Transcript) -> LeftAlone:
    """Return the error for a session that bsd does not edit, of the class that tells the cause."""
    hint = found.hint or (_UNREADABLE if found.reads is None else _READABLE)
    if found.is_unknown_form:
        return UnknownForm(found.reason, hint=found.hint)
    fmt = found.reads
    first = first_entries(line.raw for line in source.lines())
    is_recognised = fmt is not None and any(fmt.info(entry).is_message for entry in first)
    error = LeftAlone if is_recognised or found.hint else NotRecognised
    return error(found.reason, hint=hint)


def format_of(source: Transcript, program: AgentProgram) -> TranscriptFormat | None:
    """Return the format of a session's lines, if known, even if bsd does not edit the session."""
    found = program.detect(line.raw for line in source.lines())
    return found.reads if isinstance(found, NotOurs) else found


@dataclass(frozen=True, slots=True)
class OpenSession:
    """An open session, with the data that planners and queries need.

    Attributes:
        now: epoch seconds.
        left_alone: the reason why bsd does not edit it, or None.
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
        """The present settings; raises ConfigError. Most planners need none."""
        return self.config.current


class SessionReader:
    """Opens one session for reading: `with reader as opened: …`.

    Entering raises NotFound, LeftAlone, Forbidden.

    Args:
        to_edit: refuse a session that bsd does not edit, even if it understands its lines.
    """

    def __init__(
        self, session: Session, config: ConfigService, now: float, *, to_edit: bool = False
    ) -> None:
        self._session = session
        self._config = config
        self._now = now
        self._to_edit = to_edit

    def __enter__(self) -> OpenSession:
        self._file: InBlocks
        left_alone = None
        if self._to_edit:
            self._file, fmt = self._session.open()
        else:
            self._file, fmt, left_alone = self._session.open_to_read()
        return self._session.opened(self._file, fmt, self._now, self._config, left_alone)

    def __exit__(self, *_: object) -> None:
        self._file.close()
