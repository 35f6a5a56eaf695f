"""Keeps copies of whole sessions, and tells which of these their program has deleted (SPEC §7a).

A session that has been idle for a day is copied, and again after it changed; so is one that its
program has put aside. One that its program will delete soon does not wait for that day, and the one
that it will delete first is copied first. A run costs a stat of each session that is as it was when
it was copied. It holds bsd's own lock of the session that it reads and opens it as whoever looks at
it does, so that neither its program nor a commit of ours is ever in its way; what is busy comes
with a later run.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

import structlog

from bsd.core.config import OFF
from bsd.core.errors import (
    BsdError,
    Busy,
    ConfigError,
    Conflict,
    Invalid,
    NotFound,
    Unavailable,
    os_problem,
)
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance import catalog
from bsd.maintenance.copy_scope import (
    SOON_SECONDS,
    Candidate,
    CopyOutcome,
    CopyScope,
    CopyStatus,
    candidates,
    parent_of,
    used_before,
)
from bsd.maintenance.leftovers import is_there
from bsd.maintenance.titles import ends_in
from bsd.maintenance.trashed import transcripts
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.idle import IdlePolicy, RetryBudget, busy
from bsd.sessions.session import format_of
from bsd.store.copies import (
    CopiedFile,
    CopiedTranscript,
    NewParts,
    SessionCopy,
    archived,
    copies_in,
    copies_of,
    copy_directories,
    copy_directory,
    damaged_copies,
    parts_of,
    read_copy,
    tidy_copy,
    unchanged_parts,
    write_copy,
)
from bsd.store.copies_overview import CopiedVersions
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Identity, Written
from bsd.transcripts.reader import InBlocks, Transcript, TranscriptFile, parse_entry

_log = structlog.stdlib.get_logger(module="archive")

REST_SECONDS = 24 * 3600.0
# What one run reads: other jobs of the daemon wait for it. The rest comes with the next.
_MOST_BYTES, _MOST_SESSIONS = 256 << 20, 1000
_LOCK_SECONDS = 10.0  # for which another bsd that works on a session is waited for
_LINES_LOOKED_AT = 50
# In so many turns of such a length all copies are looked at.
_TURN_SECONDS, _TURNS = 600, 1008
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class KeptNow:
    """What a run has done. Sizes are bytes."""

    sessions: int = 0  # whose copies are new, or were renewed
    read: int = 0
    packed: int = 0  # of that, what no copy had yet
    gone: tuple[SessionName, ...] = ()  # seen to be gone for the first time
    complete: bool = True  # else there is more to do, and the next run goes on


@dataclass(slots=True)
class _Sessions:
    """What a run has found, each session with the name of its store."""

    there: set[str] = field(default_factory=set)  # in their places
    due: list[tuple[Candidate, str]] = field(default_factory=list)
    to_check: list[tuple[Candidate, str]] = field(default_factory=list)


class Keeping:
    """One run. `patience.quiet` is as the settings say; `stopping` is asked before each session.

    `told` hears what became of each session of which a copy was to be made.
    """

    def __init__(
        self,
        layout: Layout,
        keep: str,
        budget: RetryBudget,
        *,
        stopping: Callable[[], bool] = lambda: False,
        most_bytes: int = _MOST_BYTES,
        scope: CopyScope | None = None,
        told: Callable[[CopyOutcome], None] = lambda _: None,
    ) -> None:
        self._layout = layout
        self._keep = keep
        self._budget = budget
        self._stopping = stopping
        self._scope = scope = scope or CopyScope()
        self._told = told
        self._left = math.inf if scope.at_once else most_bytes
        self._most_sessions = math.inf if scope.at_once else _MOST_SESSIONS
        self._names = set(map(str, scope.names))
        self._idle_policy = IdlePolicy(layout, budget, InFlight(layout))
        self._done = KeptNow()

    def run(self) -> KeptNow:
        """Copy what is due, and note what is gone; problems with single sessions are logged."""
        if self._keep.strip().casefold() == OFF:
            return self._done
        known = CopiedVersions(self._layout)
        try:
            self._copy_due(known)
        finally:
            known.save()
        return self._done

    def _copy_due(self, known: CopiedVersions) -> None:
        now = self._budget.clock()
        found = self._look(known, now)
        for one, store in sorted(found.due, key=lambda each: each[0].deleted_at):
            if not self._has_room() or not self._try(one, known, store):
                return
        if self._scope.first:
            return
        for one, store in found.to_check:
            if not self._is_damaged(store, now):
                self._told(_outcome(one, CopyStatus.UNCHANGED))
            elif not self._has_room() or not self._try(one, known, store, mending=True):
                return
        if not (self._names or self._scope.dry_run):
            self._note_gone(found.there)

    def _look(self, known: CopiedVersions, now: float) -> _Sessions:
        found = _Sessions()
        for one in candidates(self._layout, self._names):
            store = self._layout.store_name(one.name)
            if one.aside is None:
                found.there.add(store)
            if known.get(store) != one.written and self._is_due(one, now):
                found.due.append((one, store))
            elif self._scope.at_once or _is_turn_of(store, now):
                found.to_check.append((one, store))
        return found

    def _has_room(self) -> bool:
        """True if this run may copy one more; else the next run goes on."""
        full = self._left <= 0 or self._done.sessions >= self._most_sessions
        if full or self._stopping():
            self._done = replace(self._done, complete=False)
            return False
        return True

    def _is_due(self, one: Candidate, now: float) -> bool:
        if one.deleted_at - now <= SOON_SECONDS:
            return True
        if self._scope.first and one.deleted_at == math.inf:
            return False
        # A time to come is that of a clock which was put back since: nobody can wait for it.
        age = now - one.written.mtime_ns / 1e9
        if self._scope.at_once or age >= REST_SECONDS or age < 0:
            return True
        used = used_before(self._layout, one)
        return used is not None and now - used >= REST_SECONDS

    def _is_damaged(self, store: str, now: float) -> bool:
        """Whether a copy has been damaged since it was made; each has its turn once a week."""
        if self._scope.dry_run or not _is_turn_of(store, now):
            return False
        archive = self._layout.archive / store
        self._left -= sum(copy.packed for copy in copies_in(archive))
        try:
            return any(damaged_copies(archive))
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"reading {archive}").message
            _log.warning("A copy cannot be looked at", problem=problem)
            return False

    def remake(self, name: SessionName) -> bool:
        """Make the copy of a session in its place anew, if that may be read now; whether it was."""
        known = CopiedVersions(self._layout)
        try:
            status = self._layout.session_file(name).lstat()
        except (BsdError, OSError):
            return False
        self._try(Candidate(name, Written.of(status)), known, "", mending=True)
        return self._done.sessions > 0

    def _try(
        self, one: Candidate, known: CopiedVersions, store: str, *, mending: bool = False
    ) -> bool:
        """Copy a session if it may be; whether the run goes on."""
        try:
            if not self._scope.dry_run:
                known.note(store, self._copy(one, mending=mending))
        except Busy as problem:
            _log.debug(f"Session {one.name} is copied later", why=problem.message)
            self._told(_outcome(one, CopyStatus.BUSY, problem))
        except (BsdError, OSError) as error:
            failure = os_problem(error, f"keeping a copy of {one.name}")
            _log.warning("No copy is kept", session=str(one.name), problem=failure.message)
            self._told(_outcome(one, CopyStatus.FAILED, failure))
            if isinstance(error, OSError) and error.errno in _FULL:
                self._done = replace(self._done, complete=False)
                return False
        else:
            self._told(_outcome(one, CopyStatus.COPIED))
        return True

    def _copy(self, one: Candidate, *, mending: bool) -> Written:
        """Return as what the session was copied.

        Raises Busy for a session in use, and what reading and writing raises.
        """
        layout, name = self._layout, one.name
        # A worker may just be extracting from it: what is wanted now does not wait for another run.
        is_wanted_now = self._scope.at_once or self._scope.first
        wait = _LOCK_SECONDS if is_wanted_now else 0.0
        with own_lock(layout, name, wait, sleep=self._budget.sleep):
            if one.aside is None and (not_idle := self._idle_policy.why_not(name)) is not None:
                raise busy(name, not_idle)
            path = one.aside or layout.session_file(name)
            with TranscriptFile(path) as source:
                written = source.identity.written
                if written != one.written and not is_wanted_now:
                    raise Busy(f"session {name} has just been written to", hint="again later")
                now = self._budget.clock()
                copying = _Copying(layout, one, path, source, now, self._stopping)
                new = copying.run(mending=mending)
            self._done = replace(
                self._done,
                sessions=self._done.sessions + 1,
                read=self._done.read + new.read,
                packed=self._done.packed + new.packed,
            )
            self._left -= new.read
        return written

    def _note_gone(self, there: set[str]) -> None:
        """Of sessions that are not there any more, note since when."""
        for archive in archived(self._layout):
            if archive.name in there:
                continue
            for copy in copies_in(archive):
                if copy.gone_at is None and is_gone(self._layout, copy.name):
                    with suppress(BsdError, OSError), own_lock(self._layout, copy.name, 0.0):
                        write_copy(replace(copy, gone_at=self._budget.clock()))
                        _log.info(f"Session {copy.name} is gone; its copy is in the archive")
                        self._done = replace(self._done, gone=(*self._done.gone, copy.name))


def _outcome(one: Candidate, status: CopyStatus, problem: BsdError | None = None) -> CopyOutcome:
    return CopyOutcome(one.name, status, one.written.size, problem)


def _is_turn_of(store: str, now: float) -> bool:
    return zlib.crc32(store.encode()) % _TURNS == int(now / _TURN_SECONDS) % _TURNS


def is_gone(layout: Layout, name: SessionName) -> bool:
    """Whether there is no transcript in the session's place, as far as that can be told."""
    source = layout.source_of(name.agent)
    try:
        os.stat(source.path if source else layout.agents)  # or all seemed gone with their mount
        os.lstat(layout.transcript(name))
    except (FileNotFoundError, NotADirectoryError):
        return source is None or source.path.is_dir()
    except (BsdError, OSError):  # it leads elsewhere, or nobody may look
        return False
    return False


def origin_of(source: Transcript, program: AgentProgram) -> str:
    """What tells a session from another one that comes to its name: 16 hex digits.

    Its first message, which no extraction renames; of what has none, its first line.
    """
    fmt = format_of(source, program)
    first: bytes | None = None
    header: str | None = None
    for line in islice(source.lines(), _LINES_LOOKED_AT):
        first = line.raw if first is None else first
        if fmt is None or (entry := parse_entry(line.raw)) is None:
            continue
        info = fmt.info(entry)
        if info.is_message and not info.is_header and info.id:
            return _short(info.id.encode("utf-8", "replace"))
        header = header or info.id
    return _short(header.encode("utf-8", "replace") if header else first or b"")


def has_grown(copy: SessionCopy, source: Transcript) -> bool:
    """Whether this is the very file that was copied, which may have had no message then."""
    was, now = copy.transcript.was, source.identity
    if (was.dev, was.ino) != (now.dev, now.ino) or copy.gone_at is not None:
        return False
    with suppress(BsdError), closing(CopiedTranscript(copy)) as copied:
        return _first_line(copied) == _first_line(source)
    return False


def _short(what: bytes) -> str:
    return sha256(what).hexdigest()[:16]


@dataclass(slots=True)
class _Copying:
    """Makes or renews the copy of one session; its own lock is held."""

    layout: Layout
    one: Candidate
    path: Path
    source: TranscriptFile
    now: float
    stopping: Callable[[], bool]
    program: AgentProgram = field(init=False)
    read: int = 0
    packed: int = 0
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = program_of(self.layout, self.one.name.agent)

    def run(self, *, mending: bool) -> _Copying:
        """Raises Busy if the session changes meanwhile, OSError, Unavailable.

        `mending`: what is there of the copy is read before it is relied on.
        """
        name = self.one.name
        others = copies_of(self.layout, name)
        origin = origin_of(self.source, self.program)
        if grown := [other for other in others if has_grown(other, self.source)]:
            origin = grown[0].origin
        directory = copy_directory(self.layout, name, origin)
        before = _before(directory)
        with NewParts(directory, before, self.now, mending=mending) as new:
            files = [self._file(self.path, self.source, before, new, is_transcript=True)]
            files += self._belongings(before, new)
            _refuse_changed(self.path, self.source)
            new.finish()
            self.packed = new.taken
        copy = self._described(SessionCopy(directory, name, origin, tuple(files), self.now))
        write_copy(copy)
        new.drop_damaged()
        tidy_copy(copy, self.now)
        for other in others:
            if other.origin != origin and other.gone_at is None:
                write_copy(replace(other, gone_at=self.now))
        return self

    def _described(self, copy: SessionCopy) -> SessionCopy:
        """With what tells people and programs of it."""
        name, layout = self.one.name, self.layout
        registry = self.program.registry()
        title = registry.title(name.session)
        if title is None:
            title = ends_in(self.source, self.program).title
        return replace(
            copy,
            title=title,
            parent=parent_of(layout, self.program),
            listed=self.program.listed(name.session),
            put_away=self.one.aside is None and layout.archived_as(name) is not None,
            left_out=tuple(self.left_out),
            gone_at=self.now if self.one.aside else None,
        )

    def _belongings(self, before: SessionCopy | None, new: NewParts) -> Iterator[CopiedFile]:
        for path in self.program.belongings(self.one.name.session):
            try:
                with TranscriptFile(path) as source:
                    file = self._file(path, source, before, new)
                    _refuse_changed(path, source)
                    yield file
            except Busy:
                raise
            except (BsdError, OSError) as error:  # a link, a pipe, another user's file
                problem = os_problem(error, f"reading {path}")
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise
                _log.warning("Not copied", path=str(path), problem=problem.message)
                self.left_out.append(problem.message)

    def _file(
        self,
        path: Path,
        source: TranscriptFile,
        before: SessionCopy | None,
        new: NewParts,
        *,
        is_transcript: bool = False,
    ) -> CopiedFile:
        name = self.one.name
        top = self.layout.sessions_dir(name.agent)
        # By its own name, wherever its program has put it meanwhile.
        below = f"{name.session}{ENDING}" if is_transcript else str(path.relative_to(top))
        was = next((file for file in before.files if file.path == below), None) if before else None
        status = path.lstat()
        if was is not None and not new.has(was.parts):
            was = None  # a pack of it is damaged, or gone
        if was is not None and was.was.written == source.identity.written and not is_transcript:
            parts = was.parts
        else:
            parts = unchanged_parts(source, was) if was else ()
            start = sum(part.size for part in parts)
            self.read += source.identity.size - start
            parts += tuple(map(new.add, parts_of(self._lines(source, start))))
        mode = status.st_mode & 0o777
        return CopiedFile(below, source.identity, mode, status.st_uid, status.st_gid, parts)

    def _lines(self, source: Transcript, start: int) -> Iterator[bytes]:
        for line in source.lines(start):
            if self.stopping():
                raise Busy("bsd stops", hint="again later")
            yield line.raw


def _before(directory: Path) -> SessionCopy | None:
    """The copy as it is, if it can be understood; else it is made anew, as its session is there."""
    try:
        return read_copy(directory)
    except Unavailable as problem:
        _log.warning("A damaged copy is made anew", problem=problem.message)
        return None


def _refuse_changed(path: Path, source: TranscriptFile) -> None:
    if Identity.of(path.lstat()) != source.identity:
        raise Busy(f"{path} changed while it was read", hint="again later")


def _first_line(source: Transcript) -> bytes:
    return next((line.raw for line in source.lines()), b"")


# --- sessions that their program has deleted, told by their copies ---

# One that was deleted through bsd is in the trash, whose rules hold for it.
_HINT = "`bsd archive list` shows what there is"


def gone_sessions(
    layout: Layout, agent: str | None = None, *, strictly: bool = False
) -> list[SessionCopy]:
    """The copies of all sessions that are gone, or of an agent's; those used last come first.

    `strictly`: raise BsdError, OSError for a copy that cannot be read now (one that is damaged is
    left out all the same), and include those whose program's directory is not there.
    """
    trashed = {each for each, _ in transcripts(layout)}
    as_copied = CopiedVersions(layout).written.items() & _live(layout).items()
    known = {store for store, _ in as_copied}
    gone = [
        copy
        for archive in archived(layout)
        for copy in copies_in(archive, but_one=archive.name in known, strictly=strictly)
        if agent in (None, copy.name.agent)
        and (_is_gone(layout, copy, trashed) or (strictly and not is_there(layout, copy.name)))
    ]
    return sorted(gone, key=lambda copy: copy.transcript.was.mtime_ns, reverse=True)


def _live(layout: Layout) -> dict[str, Written]:
    """The sessions in their places, by the names of their stores."""
    with suppress(ConfigError):  # a root without agents
        found = catalog.with_stats(layout)
        return {layout.store_name(name): Written.of(stat) for name, stat in found}
    return {}


def _is_gone(layout: Layout, copy: SessionCopy, trashed: set[SessionName]) -> bool:
    if is_gone(layout, copy.name):
        return copy.gone_at is not None or copy.name not in trashed
    try:
        path = layout.session_file(copy.name)
        if Written.of(path.lstat()) == copy.transcript.was.written:
            return False
        with TranscriptFile(path) as source:
            same = origin_of(source, program_of(layout, copy.name.agent)) == copy.origin
            return not same and not has_grown(copy, source)
    except (BsdError, OSError):  # something is there, and nobody can tell what
        return False


def find_gone(layout: Layout, text: str) -> SessionCopy:
    """The one that is meant: by its id, or the session's name; raises NotFound, Invalid."""
    found = gone_sessions(layout)
    chosen = [copy for copy in found if copy.id == text]
    if not chosen:
        name = SessionName.parse(text)
        chosen = [copy for copy in found if copy.name == name]
        if not chosen and copies_of(layout, name) and not is_gone(layout, name):
            raise Conflict(f"session {name} is not gone: it lies where it lay", hint=_HINT)
        if not chosen:  # its program may have put something there, and have taken it away again
            chosen = [copy for copy in gone_sessions(layout) if copy.name == name]
    if not chosen:
        _refuse_damaged(layout, text.partition("@")[0])
        raise NotFound(f"there is no copy of {text} in the archive", hint=_HINT)
    if len(chosen) > 1:
        which = ", ".join(copy.id for copy in chosen)
        raise Invalid(f"{len(chosen)} sessions were called {text}", hint=f"one of {which}")
    return chosen[0]


def _refuse_damaged(layout: Layout, text: str) -> None:
    """Raise Unavailable if there is a copy of a session of this name that cannot be used."""
    with suppress(Invalid, FileNotFoundError):
        for directory in copy_directories(layout.archive_dir(SessionName.parse(text))):
            read_copy(directory)


def parts_of_session(layout: Layout, head: SessionCopy) -> list[SessionCopy]:
    """The copies of sessions that are parts of this one, and gone with it: of each the latest."""
    found: dict[SessionName, SessionCopy] = {}
    for copy in gone_sessions(layout):
        if copy.parent == str(head.name):
            with suppress(BsdError):  # its agent is none of this program's
                if parent_of(layout, program_of(layout, copy.name.agent)) == copy.parent:
                    found.setdefault(copy.name, copy)
    return [found[name] for name in sorted(found)]


def gone_copy(layout: Layout, name: SessionName) -> SessionCopy | None:
    """The latest copy of a session, if there is none of that name in its place."""
    if not is_gone(layout, name):
        return None
    trashed = {each for each, _ in transcripts(layout)}
    found = (copy for copy in copies_of(layout, name) if _is_gone(layout, copy, trashed))
    return max(found, key=lambda copy: copy.transcript.was.mtime_ns, default=None)


def open_or_copy(layout: Layout, name: SessionName) -> InBlocks:
    """A session, or its copy if it is gone; raises NotFound, Forbidden, Busy."""
    try:
        return TranscriptFile(layout.session_file(name))
    except NotFound:
        if (copy := gone_copy(layout, name)) is not None:
            return CopiedTranscript(copy)
        raise
