"""What the daemon's jobs do: look around, clean up, look after what is in flight, go over all."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog

from bsd.core.clock import look
from bsd.core.errors import (
    BsdError,
    Busy,
    LeftAlone,
    NotFound,
    TemporaryFailure,
    Unavailable,
)
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.core.layout import SessionName
from bsd.daemon import child_tasks
from bsd.daemon.child import Stopping
from bsd.daemon.children import Children
from bsd.daemon.directories import find_directories
from bsd.daemon.scan import sessions_by_stat
from bsd.daemon.state import DaemonState
from bsd.maintenance.retention import WHAT_IS_NEW, RetentionRun, in_plain_words
from bsd.sessions.commit.displaced import Recovered, State
from bsd.sessions.commit.recovery import retire
from bsd.transcripts.agents.programs import elsewhere, has_served, secure
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="daemon")
_cron_log = structlog.stdlib.get_logger(module="cron")

_DONE_WITH = {State.FINISHED, State.ABANDONED, State.FAILED}
_QUIET = {State.WATCHED, State.BUSY}
_BAD = {State.FAILED, State.ORPHANED}


class JobRunner:
    """Each method is a job, or part of one; `gone` hears of sessions that are no more."""

    def __init__(
        self,
        state: DaemonState,
        children: Children,
        *,
        gone: Callable[[SessionName], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._children = children
        self._gone = gone
        self._told: dict[Path, tuple[State, str]] = {}
        self._known: set[Path] = set()  # records that are our own, or have been looked into
        # Of records that need nothing yet, the displaced files as they were.
        self._watched: dict[Path, Written | None] = {}
        self._behind: set[SessionName] = set()  # whose index may lack files
        self._keeping = threading.Lock()  # sessions are being copied
        self._held: str | None = None  # why retention deletes nothing, as it was last told

    def look_around(self) -> None:
        """Find which sessions changed, by stat alone, and queue them."""
        self._look_at_clock()
        state = self._state
        now, wall = state.clocks.steady(), state.clocks.wall()
        for name, seen in state.scan.step(lambda seen: self._has_time(seen, wall)):
            if state.stopping.is_set():
                return
            if seen is None:
                state.ledger.forget(name)
                self._gone(name)
                state.savings.clear(name)
            else:
                state.enqueuer.found(name, seen, now, wall)
        found = find_directories(state.layout)
        state.mounts.look((*found.sessions, *found.archived_in))
        state.idle_sessions.flush()

    def _has_time(self, seen: os.stat_result, wall: float) -> bool:
        """Whether a session that was never looked at may be looked at later."""
        return self._state.enqueuer.has_time(seen, wall) and not self._state.settings.readonly

    def _look_at_clock(self) -> None:
        """See at once that it was put forward: what is destroyed by the clock may come later."""
        state = self._state
        clocks, config = state.clocks, state.config.current
        ages = look(state.layout, clocks.wall, clocks.steady, keep=not state.settings.readonly)
        settings = (config.retention, config.trash_retention, config.archive_retention)
        kept = map(lifetime_seconds, settings)
        why = next(filter(None, map(ages.why_held, kept)), None)
        if why is not None and self._held is None:
            _log.warning("The clock cannot be believed", problem=why)
        elif why is None and self._held is not None:
            _log.info("The clock is believed again")
        self._held = why

    @property
    def clock_in_doubt(self) -> str | None:
        """Why nothing is deleted by the clock, as of the last look."""
        return self._held

    def resume(self) -> None:
        """Take over from the daemon before: what it left idle need not be opened again."""
        state = self._state
        now, wall = state.clocks.steady(), state.clocks.wall()
        for left in state.idle_sessions.known():
            state.scan.note(left.session, left.file)
            if left.due_at is not None:
                state.enqueuer.changed(left.session, now + max(0.0, left.due_at - wall))

    def is_something_in_flight(self) -> bool:
        """Whether a commit left something to look after, ours or another bsd's."""
        return next(self._state.in_flight.records(), None) is not None

    def recover(self) -> bool:
        """Finish or undo what is in flight; whether there will be more to do soon."""
        self._note_behind()
        try:
            found = self._recovered()
            self._reindex()
        except Stopping:
            return True
        except TemporaryFailure as problem:
            _log.error("What is in flight must wait", problem=problem.message, hint=problem.hint)
            return True
        for each in found:
            if self._told.get(each.record) != (each.state, each.detail):
                _tell(each)
        self._told = {each.record: (each.state, each.detail) for each in found}
        return bool(self._behind or self._watched) or any(
            each.state not in _DONE_WITH for each in found
        )

    def _recovered(self) -> list[Recovered]:
        """Let a child see to it, if there is more than displaced files that have had their time."""
        state = self._state
        found = retire(state.in_flight, now_ns=lambda: int(state.clocks.wall() * 1e9))
        for record in [*self._watched]:
            if not os.path.lexists(record):
                del self._watched[record]
        done = [each for each in found if each.state in _DONE_WITH]
        if len(done) == len(found) and not self._is_something_to_do():
            return done
        for each in (later := self._children.call(child_tasks.recover)):
            self._watched.pop(each.record, None)
            if each.state is State.WATCHED:
                self._watched[each.record] = _displaced(each.record)
        return [*done, *later]

    def _is_something_to_do(self) -> bool:
        """Whether a displaced file was written to, or a record is none of ours."""
        records = self._state.in_flight.records()
        return self._state.layout.has_moves() or any(
            record not in self._watched or self._watched[record] != _displaced(record)
            for record in records
        )

    def committed(self, record: Path) -> None:
        """Hear of what a commit of ours has left in flight."""
        self._known.add(record)
        self._watched[record] = _displaced(record)

    def fell_behind(self, name: SessionName) -> None:
        """Hear of a store whose index lacks files: it is mended when what is in flight is."""
        self._behind.add(name)

    def _note_behind(self) -> None:
        """Note what others have in flight: who was killed after a commit has not indexed it."""
        seen = set(self._state.in_flight.records())
        known = self._known & seen
        for path in seen - known:
            with suppress(OSError, BsdError):
                if (record := self._state.in_flight.read(path)) is not None:
                    self._behind.add(record.session)
                    known.add(path)
        self._known = known

    def _reindex(self) -> None:
        for name in sorted([*self._behind]):  # workers add to it
            try:
                if self._children.call(child_tasks.reindex, name):
                    _log.info("The index of a store was made anew", session=str(name))
            except Stopping:
                return
            except (Busy, TemporaryFailure):
                continue  # perhaps it is just being written
            except NotFound:  # with its session: there is nothing to be found by it
                pass
            except Unavailable as problem:  # no room: tried again until there is
                _log.debug("An index must wait", session=str(name), problem=problem.message)
                continue
            except BsdError as problem:
                _log.warning(
                    "The index of a store may lack files, `bsd verify --repair` mends it",
                    session=str(name),
                    problem=problem.message,
                )
            self._behind.discard(name)

    def clean_up(self) -> None:
        """Archive or delete what has been kept long enough; raises BsdError if some of it stays."""
        state = self._state
        started = state.clocks.wall()
        run = RetentionRun(
            state.layout,
            actor="daemon",
            clock=state.clocks.wall,
            steady=state.clocks.steady,
            stopping=state.stopping.is_set,
        )
        done = run.clean_all(state.config.current)
        if not state.stopping.is_set():
            state.idle_sessions.keep_only(self._is_there)
            state.config.note_run("last_retention_run_at", started)
        if done.failures:
            raise Unavailable(
                f"not all could be moved or deleted (failures: {done.failures})",
                hint=f"{state.layout.log_file} says which, and why",
            )

    def keep_sessions(self) -> int:
        """Copy sessions that have been idle for a day; returns of how many the archive heard.

        If the copying that begins with the daemon still goes on, nothing.
        """
        if not self._keeping.acquire(blocking=False):
            return 0
        try:
            return self._keep()[0]
        finally:
            self._keeping.release()

    def keep_first(self) -> tuple[int, bool]:
        """At the start, copy sessions that their program deletes by their age, one part of them.

        Returns of how many sessions the archive heard, and if there are no more.
        """
        with self._keeping:
            return self._keep(first=True)

    def _keep(self, *, first: bool = False) -> tuple[int, bool]:
        keep = self._state.config.current.archive_sessions
        task = partial(child_tasks.keep_sessions, first=first)
        try:
            # What may be deleted at any moment does not wait for an idle machine.
            done = self._children.call(task, keep, background=not first)
        except Stopping:
            return 0, True
        if done.sessions:
            _log.info(f"archive: copied {done.sessions} sessions", bytes_packed=done.packed)
        for name in done.gone:  # whoever looked before found neither session nor copy
            self._gone(name)
        return done.sessions + len(done.gone), done.complete or not done.sessions

    def _is_there(self, name: SessionName) -> bool:
        return os.path.lexists(self._state.layout.transcript(name))

    def claim_sources(self) -> None:
        """Say of sources that they are served from here, as they have been; others can wait."""
        layout = self._state.layout
        for source in layout.sources:
            try:
                if has_served(layout, source) or elsewhere(layout, source):
                    secure(layout, source)
            except LeftAlone as problem:
                _log.warning(
                    "A source is only looked at", problem=problem.message, hint=problem.hint
                )

    def explain_retention(self) -> None:
        """Before anything has ever gone, say what will, and how to have it otherwise.

        And where a bsd that only deleted was at work before, that it no longer does.
        """
        config = self._state.config.current
        if config.last_retention_run_at is None:
            _log.info(in_plain_words(config))
        elif config.archive and not os.path.lexists(self._state.layout.archive):
            _log.info(WHAT_IS_NEW)


class AutoCron:
    """Seed 000's cron (SP-04): every session that changed since the last run is looked at.

    A run puts sessions into the queue, and is over when each has had its turn once.
    """

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._left: set[SessionName] = set()
        self._started: float | None = None  # epoch seconds, while a run goes on

    def run(self) -> None:
        """Start a run, unless bsd is switched off or the run before goes on."""
        config = self._state.config.current
        if not config.enabled:
            _cron_log.debug("Nothing is extracted: `enabled` is false")
            return
        if self._state.scan.left:
            _cron_log.debug("The first look at all sessions is still going on")
            return
        with self._lock:
            if self._started is not None:
                _cron_log.debug("The run before is still going on", sessions_left=len(self._left))
                return
            # The start counts as the time of the run: what changes while it goes on is for the
            # next one.
            self._started = self._state.clocks.wall()
        due = list(self._due(config.last_run_at))
        with self._lock:
            self._left = {name for name, _ in due}
        self._begin(due)
        self._end_if_done()

    def everything(self) -> None:
        """Put every session into the queue: what was settled is not, by other settings."""
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in sessions_by_stat(self._state.layout):
            self._state.enqueuer.found(name, seen, now, wall)

    def _begin(self, due: list[tuple[SessionName, Written]]) -> None:
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in due:
            if not self._state.enqueuer.insist(name, seen, now, wall):
                self.worked(name)  # no room: it comes with the next run

    def worked(self, name: SessionName) -> None:
        """A session has had its turn, whatever came of it."""
        with self._lock:
            if name not in self._left:
                return
            self._left.discard(name)
        self._end_if_done()

    def _due(self, last_run_at: str | None) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions that are to be looked at: all, if there was no run before.

        But for those that bsd has seen to, by the settings that hold, and that are as it left them.
        """
        last = None if last_run_at is None else datetime.fromisoformat(last_run_at).timestamp()
        since = "it was looked into" if last is None else iso_utc(last)[:19] + "Z"
        told = _cron_log.isEnabledFor(logging.DEBUG)
        # Nearly all are as old as they were; nobody need make names of those, except for the log.
        for name, seen in sessions_by_stat(self._state.layout, None if told else last):
            is_new = last is None or seen.mtime_ns / 1e9 > last
            if is_new and self._is_open(name):
                yield name, seen
            elif told:
                _cron_log.debug(f"Session {name} unchanged since {since}, skipping")

    def _is_open(self, name: SessionName) -> bool:
        """Whether it is not as we left it (our own writing is newer than the last run, too)."""
        return self._state.scan.changed(name) or self._state.savings.due(name) is not None

    def _end_if_done(self) -> None:
        with self._lock:
            started = self._started
            if started is None or self._left:
                return
            self._started = None
            self._left.clear()  # an empty set keeps the room that it ever had
        try:
            self._state.config.note_run("last_run_at", started)
        except BsdError as problem:
            _cron_log.error("The time of the run could not be noted", problem=problem.message)


def _tell(each: Recovered) -> None:
    if each.state in _BAD:
        _log.error("What was in flight needs a look", **each.as_json())
    elif each.state not in _QUIET:
        _log.info("What was in flight was looked after", **each.as_json())


def _displaced(record: Path) -> Written | None:
    """The displaced file of a record in flight as it is now, if there is one."""
    with suppress(OSError):
        return Written.of(record.with_suffix(".file").lstat())
    return None
