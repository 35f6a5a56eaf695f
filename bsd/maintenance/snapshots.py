"""Takes snapshots of sessions, from which deleted sessions can be brought back (SPEC §7a).

A session is copied after it has been idle for a day, and again after each change. If its program
has renamed the session's files, the newest of them is copied. A session that its program will
delete soon is copied without waiting, in the order of deletion. A session that has not changed
since its last copy costs only a stat.

A run holds bsd's lock of the session that it reads and opens the session as an ordinary reader, so
that neither the program nor a commit waits for the copy. If the session is busy, a later run copies
it. `maintenance/deleted_sessions.py` tells which sessions are deleted.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import structlog

from bsd.core.config import OFF
from bsd.core.errors import BsdError, Busy, ConfigError, Unavailable, os_problem
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import has_grown, is_deleted, origin_of, parent_of
from bsd.maintenance.lineage import beginning_of
from bsd.maintenance.project_memory import copy_memory
from bsd.maintenance.titles import ends_in
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.idle import IdlePolicy, RetryBudget, busy
from bsd.store.snapshot_parts import (
    PartWriter,
    damaged_snapshots,
    split_into_parts,
    tidy_snapshot,
    unchanged_parts,
)
from bsd.store.snapshots import (
    CopiedVersions,
    Snapshot,
    SnapshotFile,
    archive_directories,
    read_snapshot,
    snapshot_directory,
    snapshots_in,
    snapshots_of,
    write_snapshot,
)
from bsd.transcripts.agents.opening import open_file, open_transcript, stat_transcript
from bsd.transcripts.agents.program import ENDING, AgentProgram
from bsd.transcripts.agents.programs import elsewhere, program_of
from bsd.transcripts.change import Identity, Written
from bsd.transcripts.reader import InBlocks, TranscriptFile

_log = structlog.stdlib.get_logger(module="archive")

_REST_SECONDS = 24 * 3600.0
SOON_SECONDS = 7 * 24 * 3600.0  # a session whose deletion is nearer than this is copied at once
# Limits of a run, because other jobs of the daemon wait for it; the next run continues.
_MOST_BYTES, _MOST_SESSIONS = 256 << 20, 1000
_LOCK_SECONDS = 10.0  # how long to wait for another bsd process that works on a session
# Each snapshot is checked for damage once a week: a week has 1008 turns of 600 seconds.
_TURN_SECONDS, _TURNS = 600, 1008
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """The sessions that a run copies.

    Args:
        first: only sessions that their program deletes by age, which are urgent.
        at_once: copy sessions without waiting for a day of idleness, and without the run's limits.
        names: only these sessions and their parts; empty: all sessions.
        dry_run: only report the sessions that would be copied.
        rest_seconds: how long a session must have been idle. A run with another value than the
            default does not check the copies of sessions that have not changed.
    """

    first: bool = False
    at_once: bool = False
    names: frozenset[SessionName] = frozenset()
    dry_run: bool = False
    rest_seconds: float = _REST_SECONDS


class SnapshotStatus(StrEnum):
    """The status of a session after a run."""

    COPIED = "copied"
    UNCHANGED = "unchanged"
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SnapshotOutcome:
    """The result for one session. `size`: bytes of its transcript."""

    session: SessionName
    status: SnapshotStatus
    size: int
    problem: BsdError | None = None


@dataclass(slots=True)
class SnapshotTotals:
    """The result of a run. Sizes are bytes."""

    sessions: int = 0  # sessions with a new or renewed snapshot
    read: int = 0
    packed: int = 0  # bytes read that no snapshot had before
    gone: list[SessionName] = field(default_factory=list)  # found deleted for the first time
    memory: list[Path] = field(default_factory=list)  # copied files of projects' notes
    left_out: list[str] = field(default_factory=list)  # notes that were not copied, and why
    complete: bool = True  # False: more sessions are left for the next run
    # Sessions that their program deletes soon and that could not be copied, each with the reason.
    not_copied: dict[SessionName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A session to copy. `renamed`: its file, if its program has renamed it."""

    name: SessionName
    written: Written
    renamed: Path | None = None
    deleted_at: float = math.inf  # when its program deletes it, epoch seconds

    def open(self, layout: Layout) -> InBlocks:
        """Open the transcript."""
        return open_file(self.renamed) if self.renamed else open_transcript(layout, self.name)

    def stat(self, layout: Layout) -> os.stat_result:
        """Return the state of the transcript."""
        return self.renamed.lstat() if self.renamed else stat_transcript(layout, self.name)


def take_snapshots(
    layout: Layout,
    keep: str,
    budget: RetryBudget,
    *,
    scope: SnapshotScope | None = None,
    stopping: Callable[[], bool] = lambda: False,
    report: Callable[[SnapshotOutcome], None] = lambda _: None,
    most_bytes: int = _MOST_BYTES,
) -> SnapshotTotals:
    """Copy the sessions that are due, and record which sessions are deleted.

    Problems with single sessions are logged and do not end the run.

    Args:
        layout: the root.
        keep: the setting `archive_sessions`; if it is off, no session is copied.
        budget: times of waiting; `quiet` comes from the settings.
        scope: the sessions to copy; None: all that are due.
        stopping: called before each session and each line; True ends the run.
        report: called with the result for each session.
        most_bytes: the run ends after reading this number of bytes, unless the scope is `at_once`.
    """
    scope = scope or SnapshotScope()
    bytes_left = math.inf if scope.at_once else most_bytes
    run = _Run(layout, budget, scope, stopping, report, bytes_left)
    if keep.strip().casefold() != OFF:
        try:
            run.run()
        finally:
            if not scope.dry_run:
                run.versions.save()
    return run.totals


def retake_snapshot(layout: Layout, name: SessionName, budget: RetryBudget) -> bool:
    """Replace the damaged snapshot of an existing session; return False if that fails."""
    try:
        status = stat_transcript(layout, name)
    except (BsdError, OSError):
        return False
    run = _Run(layout, budget, SnapshotScope())
    run.copy(_Candidate(name, Written.of(status)), check=True)
    return run.totals.sessions > 0


@dataclass(slots=True)
class _Run:
    layout: Layout
    budget: RetryBudget
    scope: SnapshotScope
    stopping: Callable[[], bool] = lambda: False
    report: Callable[[SnapshotOutcome], None] = lambda _: None
    bytes_left: float = math.inf
    idle_policy: IdlePolicy = field(init=False)
    versions: CopiedVersions = field(init=False)
    totals: SnapshotTotals = field(default_factory=SnapshotTotals)

    def __post_init__(self) -> None:
        self.idle_policy = IdlePolicy(self.layout, self.budget, InFlight(self.layout))
        self.versions = CopiedVersions(self.layout)

    def run(self) -> None:
        scope, now = self.scope, self.budget.clock()
        agents = list(_agents(self.layout))
        if not (scope.first or scope.dry_run):
            self._copy_memories(agents)
        in_place, due, unchanged = self._sort_candidates(agents, now)
        for candidate in sorted(due, key=lambda each: each.deleted_at):
            if not self._may_go_on() or not self.copy(candidate):
                return
        if scope.first:
            return
        for candidate in unchanged:
            if not self._is_damaged(candidate, now):
                self._tell(candidate, SnapshotStatus.UNCHANGED)
            elif not self._may_go_on() or not self.copy(candidate, check=True):
                return
        if not (scope.names or scope.dry_run):
            self._note_deleted(in_place)

    def _copy_memories(self, agents: list[str]) -> None:
        """Copy the notes of the projects in the scope."""
        wanted = {name.agent for name in self.scope.names}
        for agent in agents:
            if self.stopping():
                return
            if wanted and agent not in wanted:
                continue
            try:
                copied = copy_memory(self.layout, agent)
            except (BsdError, OSError) as error:
                problem = os_problem(error, f"keeping a copy of the memory of {agent}")
                self.totals.left_out.append(problem.message)
            else:
                self.totals.memory += copied.files
                self.totals.left_out += copied.left_out
        for why in self.totals.left_out:
            _log.debug("Not copied", problem=why)

    def _sort_candidates(
        self, agents: list[str], now: float
    ) -> tuple[set[str], list[_Candidate], list[_Candidate]]:
        """Return the stores of existing sessions, the sessions to copy, and those to check."""
        in_place: set[str] = set()
        due, unchanged = [], []
        for candidate in _candidates(self.layout, agents, set(map(str, self.scope.names))):
            store = self.layout.store_name(candidate.name)
            if candidate.renamed is None:
                in_place.add(store)
            changed = self.versions.versions.get(store) != candidate.written
            if changed and self._is_due(candidate, now):
                due.append(candidate)
            elif self.scope.at_once or (
                self.scope.rest_seconds == _REST_SECONDS and _is_turn_of(store, now)
            ):
                unchanged.append(candidate)
        return in_place, due, unchanged

    def _may_go_on(self) -> bool:
        most = math.inf if self.scope.at_once else _MOST_SESSIONS
        if self.bytes_left > 0 and self.totals.sessions < most and not self.stopping():
            return True
        self.totals.complete = False
        return False

    def _is_due(self, candidate: _Candidate, now: float) -> bool:
        if candidate.deleted_at - now <= SOON_SECONDS:
            return True
        if self.scope.first and candidate.deleted_at == math.inf:
            return False
        # A time in the future means that the clock was set back since.
        age = now - candidate.written.mtime_ns / 1e9
        if self.scope.at_once or age >= self.scope.rest_seconds or age < 0:
            return True
        used = _used_before_bsd(self.layout, candidate)
        return used is not None and now - used >= self.scope.rest_seconds

    def _is_damaged(self, candidate: _Candidate, now: float) -> bool:
        store = self.layout.store_name(candidate.name)
        if self.scope.dry_run or not _is_turn_of(store, now):
            return False
        archive = self.layout.archive / store
        self.bytes_left -= sum(snapshot.packed for snapshot in snapshots_in(archive))
        try:
            return any(damaged_snapshots(archive))
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"reading {archive}").message
            _log.warning("A copy cannot be looked at", problem=problem)
            return False

    def copy(self, candidate: _Candidate, *, check: bool = False) -> bool:
        """Copy a session unless it is busy; return False if the disk is full and the run must end.

        `check`: verify the data in its snapshot, and do not reuse damaged data.
        """
        name = candidate.name
        try:
            if not self.scope.dry_run:
                self._copy(candidate, check=check)
        except Busy as problem:
            _log.debug(f"Session {name} is copied later", why=problem.message)
            self._tell(candidate, SnapshotStatus.BUSY, problem)
        except (BsdError, OSError) as error:
            failure = os_problem(error, f"keeping a copy of {name}")
            _log.warning("No copy is kept", session=str(name), problem=failure.message)
            self._tell(candidate, SnapshotStatus.FAILED, failure)
            if candidate.deleted_at - self.budget.clock() <= SOON_SECONDS:
                self.totals.not_copied[name] = failure.message
            if isinstance(error, OSError) and error.errno in _DISK_FULL:
                self.totals.complete = False
                return False
        else:
            self._tell(candidate, SnapshotStatus.COPIED)
        return True

    def _copy(self, candidate: _Candidate, *, check: bool) -> None:
        layout, name = self.layout, candidate.name
        # A worker may be extracting from the session: an urgent copy waits for the lock.
        is_wanted_now = self.scope.at_once or self.scope.first
        wait = _LOCK_SECONDS if is_wanted_now else 0.0
        with own_lock(layout, name, wait, sleep=self.budget.sleep):
            not_idle = None if candidate.renamed else self.idle_policy.why_not(name, to_read=True)
            if not_idle is not None:
                raise busy(name, not_idle)
            with candidate.open(layout) as source:
                written = source.identity.written
                if written != candidate.written and not is_wanted_now:
                    raise Busy(f"session {name} has just been written to", hint="again later")
                now = self.budget.clock()
                copying = _SessionCopying(layout, candidate, source, now, self.stopping)
                copying.run(check=check)
        self.versions.note(layout.store_name(name), written)
        self.totals.sessions += 1
        self.totals.read += copying.read
        self.totals.packed += copying.packed
        self.bytes_left -= copying.read

    def _tell(
        self, candidate: _Candidate, status: SnapshotStatus, problem: BsdError | None = None
    ) -> None:
        size = candidate.written.size
        self.report(SnapshotOutcome(candidate.name, status, size, problem))

    def _note_deleted(self, in_place: set[str]) -> None:
        """Record when deleted sessions were found deleted; their retention counts from then."""
        for archive in archive_directories(self.layout):
            if archive.name in in_place:
                continue
            for snapshot in snapshots_in(archive):
                name = snapshot.name
                if self.layout.excluded(name):  # excluded sessions are not checked at all
                    continue
                if snapshot.gone_at is None and is_deleted(self.layout, name):
                    with suppress(BsdError, OSError), own_lock(self.layout, name, 0.0):
                        write_snapshot(replace(snapshot, gone_at=self.budget.clock()))
                        _log.info(f"Session {name} is gone; its copy is in the archive")
                        self.totals.gone.append(name)


def _is_turn_of(store: str, now: float) -> bool:
    return zlib.crc32(store.encode()) % _TURNS == int(now / _TURN_SECONDS) % _TURNS


# --- the sessions to consider ---


def _candidates(layout: Layout, agents: list[str], wanted: set[str]) -> Iterator[_Candidate]:
    """Yield the existing sessions of these agents, and the newest renamed files of other sessions.

    `wanted`: only sessions of these names, and parts of them; empty: all.
    """
    for agent in agents:
        with suppress(BsdError):  # `catalog.agents` reports the problem
            program = program_of(layout, agent)
            part_of, deleted_at = parent_of(layout, program), deletion_of(program)
            found = [
                _Candidate(name, written, deleted_at=deleted_at(written))
                for name, stat in catalog.with_stats(layout, agent, strays=False)
                for written in (Written.of(stat),)
            ]
            found += _renamed(layout, agent, {each.name for each in found})
            for each in found:
                if not wanted or str(each.name) in wanted or part_of in wanted:
                    yield each


def _agents(layout: Layout) -> Iterator[str]:
    """Yield the agents whose sessions this root copies, without agents that other roots serve."""
    with suppress(ConfigError):  # a root without agents
        others = {source.name for source in layout.sources if elsewhere(layout, source)}
        for agent in catalog.agents(layout):
            source = layout.source_of(agent.name)
            if not (source is not None and source.name in others):
                yield agent.name


def _renamed(layout: Layout, agent: str, in_place: set[SessionName]) -> Iterable[_Candidate]:
    latest: dict[SessionName, _Candidate] = {}
    for name, path in catalog.renamed_by_program(layout, agent):
        if name not in in_place:
            with suppress(OSError):
                found = _Candidate(name, Written.of(path.lstat()), path)
                before = latest.get(name)
                if before is None or before.written.mtime_ns < found.written.mtime_ns:
                    latest[name] = found
    return latest.values()


def deletion_of(program: AgentProgram) -> Callable[[Written], float]:
    """Return a function that tells when a program deletes a session (epoch seconds).

    The function takes the state of the session's file. A part of a session is deleted with the
    session if that exists, else by its own age.
    """
    kept_for = program.kept_for_seconds
    if kept_for is None:
        return lambda _: math.inf
    if program.part_of is not None:
        with suppress(OSError):
            goes_with = program.part_of.lstat().st_mtime + kept_for
            return lambda _: goes_with
    return lambda written: written.mtime_ns / 1e9 + kept_for


def _used_before_bsd(layout: Layout, candidate: _Candidate) -> float | None:
    """Return the time of the newest entry (epoch seconds) if bsd wrote to the session last.

    None if the file's own time is to be used: a program may have written to it since, bsd does not
    change that time, or no entry has a time.
    """
    program = program_of(layout, candidate.name.agent)
    if program.keeps_mtime:
        return None
    try:
        history = layout.history_dir(candidate.name).lstat()
        if history.st_mtime_ns < candidate.written.mtime_ns:
            return None
        with candidate.open(layout) as source:
            newest = ends_in(source, program).newest_ms
    except (BsdError, OSError):  # never changed by bsd, or copying will report the problem
        return None
    return None if newest is None else newest / 1000


# --- copying a session ---


@dataclass(slots=True)
class _SessionCopying:
    """Makes or renews the snapshot of one session, whose bsd lock is held."""

    layout: Layout
    candidate: _Candidate
    source: InBlocks
    now: float
    stopping: Callable[[], bool]
    program: AgentProgram = field(init=False)
    left_out: list[str] = field(default_factory=list)
    read: int = 0  # bytes
    packed: int = 0

    def __post_init__(self) -> None:
        self.program = program_of(self.layout, self.candidate.name.agent)

    def run(self, *, check: bool) -> None:
        """Write the snapshot; raises Busy if the session changes meanwhile, OSError, Unavailable.

        `check`: verify the data of the present snapshot.
        """
        name, now = self.candidate.name, self.now
        others = snapshots_of(self.layout, name)
        origin = origin_of(self.source, self.program)
        if grown := [other for other in others if has_grown(other, self.source)]:
            origin = grown[0].origin
        directory = snapshot_directory(self.layout, name, origin)
        before = self._before(directory)
        with PartWriter(directory, now, check=check) as writer:
            transcript = f"{name.session}{ENDING}"
            status = self.candidate.stat(self.layout)
            files = [self._file(transcript, status, self.source, before, writer)]
            files += self._belongings(before, writer)
            _refuse_changed(str(name), self.candidate.stat(self.layout), self.source)
            writer.finish()
        self.packed = writer.taken
        ends = ends_in(self.source, self.program)
        title = self.program.registry().title(name.session) or ends.title
        snapshot = Snapshot(
            directory,
            name,
            origin,
            tuple(files),
            kept_at=now,
            title=title,
            parent=parent_of(self.layout, self.program),
            listed=self.program.listed(name.session),
            put_away=self.candidate.renamed is None and self.layout.archived_as(name) is not None,
            left_out=tuple(self.left_out),
            working_directory=ends.directory,
            gone_at=now if self.candidate.renamed else None,
            owns_directory=self.program.owns_directory,
            begins_in=self._begins_in(),
        )
        write_snapshot(snapshot)
        writer.drop_damaged()
        tidy_snapshot(snapshot, now)
        for other in others:
            if other.origin != origin and other.gone_at is None:
                write_snapshot(replace(other, gone_at=now))

    def _begins_in(self) -> str | None:
        begun = beginning_of(self.layout, self.candidate.name, self.source)
        return str(begun.session) if begun and begun.session else None

    def _before(self, directory: Path) -> dict[str, SnapshotFile]:
        """Return the files of the present snapshot by path; empty if it is missing or damaged."""
        try:
            before = read_snapshot(directory)
        except Unavailable as problem:
            _log.warning("A damaged copy is replaced", problem=problem.message)
            return {}
        return {file.path: file for file in before.files} if before else {}

    def _belongings(
        self, before: dict[str, SnapshotFile], writer: PartWriter
    ) -> Iterator[SnapshotFile]:
        agent = self.candidate.name.agent
        source_of = self.layout.source_of(agent)
        # The path as its program names it: links above it are not resolved.
        top = source_of.directory(agent) if source_of else None
        top = top or self.layout.sessions_dir(agent)
        for path in self.program.belongings(self.candidate.name.session):
            try:
                with TranscriptFile(path) as source:
                    below = str(path.relative_to(top))
                    file = self._file(below, path.lstat(), source, before, writer)
                    _refuse_changed(str(path), path.lstat(), source)
                    yield file
            except Busy:
                raise
            except (BsdError, OSError) as error:  # a link, a pipe or another user's file
                if isinstance(error, OSError) and error.errno in _DISK_FULL:
                    raise
                problem = os_problem(error, f"reading {path}")
                _log.warning("Not copied", path=str(path), problem=problem.message)
                self.left_out.append(problem.message)

    def _file(
        self,
        below: str,
        status: os.stat_result,
        source: InBlocks,
        before: dict[str, SnapshotFile],
        writer: PartWriter,
    ) -> SnapshotFile:
        was = before.get(below)
        if was is not None and not writer.has(was.parts):
            was = None  # a pack of the file is damaged or missing
        is_beside = source is not self.source
        if was is not None and is_beside and was.was.written == source.identity.written:
            parts = was.parts
        else:
            parts = unchanged_parts(source, was) if was else ()
            start = sum(part.size for part in parts)
            self.read += source.size - start
            parts += tuple(map(writer.add, split_into_parts(self._lines(source, start))))
        mode = status.st_mode & 0o777
        return SnapshotFile(below, source.identity, mode, status.st_uid, status.st_gid, parts)

    def _lines(self, source: InBlocks, start: int) -> Iterator[bytes]:
        for line in source.lines(start):
            if self.stopping():
                raise Busy("bsd stops", hint="again later")
            yield line.raw


def _refuse_changed(called: str, status: os.stat_result, source: InBlocks) -> None:
    if Identity.of(status) != source.identity:
        raise Busy(f"{called} changed while it was read", hint="again later")
