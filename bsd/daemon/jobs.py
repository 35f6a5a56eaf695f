"""The daemon's jobs: scan, retention, copies of sessions; and tasks at its start."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

import structlog

from bsd.core.clock import check_clock
from bsd.core.errors import BsdError, LeftAlone, Unavailable
from bsd.core.layout import SessionName
from bsd.daemon import child_tasks
from bsd.daemon.child import Stopping
from bsd.daemon.children import Children
from bsd.daemon.directories import find_directories
from bsd.daemon.state import DaemonState
from bsd.maintenance.retention import WHAT_IS_NEW, RetentionRun, in_plain_words
from bsd.planning.timing_members import wait_of
from bsd.transcripts.agents.opening import has_transcript
from bsd.transcripts.agents.programs import elsewhere, has_served, secure

_log = structlog.stdlib.get_logger(module="daemon")


class JobRunner:
    """The jobs, each a method. `gone` is called with each session that was deleted."""

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
        self._copying = threading.Lock()
        self.clock_in_doubt: str | None = None  # why no file is deleted by age
        # Sessions that their program deletes soon and the last run could not copy → the reason.
        self.not_copied: dict[SessionName, str] = {}

    def scan(self) -> None:
        """Find changed sessions by stat alone, and queue them."""
        self._check_clock()
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
                state.enqueuer.put_found(name, seen, now, wall)
        found = find_directories(state.layout)
        state.mounts.look((*found.sessions, *found.archived_in))
        state.idle_sessions.flush()

    def _has_time(self, seen: os.stat_result, wall: float) -> bool:
        """Return True if a session that bsd has never processed can wait for a later scan."""
        return self._state.enqueuer.can_wait(seen, wall) and not self._state.settings.readonly

    def _check_clock(self) -> None:
        """Log if the clock was set: the next retention run then deletes no file."""
        clocks = self._state.clocks
        why = check_clock(self._state.layout, "retention", clocks.wall, clocks.steady).doubt
        if why is not None and self.clock_in_doubt is None:
            _log.warning("The clock is in doubt", problem=why)
        elif why is None and self.clock_in_doubt is not None:
            _log.info("The clock is trusted again")
        self.clock_in_doubt = why

    def resume(self) -> None:
        """Take over idle sessions from the previous daemon, so that they are not opened again."""
        state = self._state
        now, wall = state.clocks.steady(), state.clocks.wall()
        exclusions = state.layout.exclusions()
        for left in state.idle_sessions.known():
            if exclusions.session(left.session.agent, left.session.session):
                continue
            state.scan.note(left.session, left.file)
            state.note_waiting(left.session, wait_of(left, wall))
            if left.due_at is not None:
                # If the clock was set back meanwhile, `wall` is too early. A wait is never longer
                # than it was when the file had just been written.
                began = max(wall, left.file.mtime_ns / 1e9)
                state.enqueuer.put(left.session, now + max(0.0, left.due_at - began))

    def clean_up(self) -> None:
        """Archive or delete files that have reached their retention time.

        Raises:
            BsdError: files that are due could not be moved or deleted.
        """
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
                f"some files could not be moved or deleted (failures: {done.failures})",
                hint=f"{state.layout.log_file} has the files and the reasons",
            )
        if held := next(iter(done.held_places.values()), None):
            raise Unavailable(
                f"no file was deleted by age, because {held}; the next run deletes them",
                hint="set the clock right; if it is right: `bsd retention --trust-clock`",
            )

    def copy_sessions(self) -> int:
        """Copy sessions that have been idle for a day.

        Returns:
            The number of sessions that were copied or found deleted; 0 if `copy_first` is active.
        """
        if not self._copying.acquire(blocking=False):
            return 0
        try:
            return self._copy()[0]
        finally:
            self._copying.release()

    def copy_first(self) -> tuple[int, bool]:
        """At the start, copy a part of the sessions that their program deletes by age.

        Returns:
            The number of sessions that were copied or found deleted; True if no more are left.
        """
        with self._copying:
            return self._copy(first=True)

    def _copy(self, *, first: bool = False) -> tuple[int, bool]:
        keep = self._state.config.current.archive_sessions
        task = partial(child_tasks.keep_sessions, first=first)
        try:
            # A session that its program may delete at any moment is copied with normal priority.
            done = self._children.call(task, keep, background=not first)
        except Stopping:
            return 0, True
        self.not_copied = done.not_copied
        if done.sessions:
            _log.info(f"archive: copied {done.sessions} sessions", bytes_packed=done.packed)
        for name in done.gone:  # until now a search found neither the session nor its copy
            self._gone(name)
        return done.sessions + len(done.gone), done.complete or not done.sessions

    def _is_there(self, name: SessionName) -> bool:
        try:
            return has_transcript(self._state.layout, name)
        except BsdError:  # it cannot be told
            return True

    def claim_sources(self) -> None:
        """Record at each source that this root serves it, if the root has served it before."""
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
        """Before the first run of retention, log what it will delete, and how to change that.

        After an update from a bsd without an archive, log that content is no longer deleted.
        """
        config = self._state.config.current
        if config.last_retention_run_at is None:
            _log.info(in_plain_words(config))
        elif config.archive and not os.path.lexists(self._state.layout.archive):
            _log.info(WHAT_IS_NEW)
