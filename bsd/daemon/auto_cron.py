"""The job `auto_cron` (seed 000, SP-04): extract from sessions that changed since its last run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime

import structlog

from bsd.core.errors import BsdError
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.daemon.enqueue import Urgency
from bsd.daemon.scan import sessions_by_stat
from bsd.daemon.state import DaemonState
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="cron")


class AutoCron:
    """The runs of the job. A run queues sessions; it ends after a worker took each of them once."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._left: set[SessionName] = set()
        self._started: float | None = None  # epoch seconds, while a run goes on

    def run_asked(self) -> None:
        """Start a run for a user: no session waits for its prompt cache to get cold."""
        self.run(Urgency.ASKED)

    def run(self, urgency: Urgency = Urgency.CRON) -> None:
        """Start a run, unless bsd is switched off or the previous run is still active."""
        config = self._state.config.current
        if not config.enabled:
            _log.debug("No run starts: the setting `enabled` is false")
            return
        if self._state.scan.left:
            _log.debug("No run starts: the first scan of all sessions is still active")
            return
        with self._lock:
            if self._started is not None:
                _log.debug("The previous run is still active", sessions_left=len(self._left))
                return
            # The start counts as the time of the run: changes during the run are for the next run.
            self._started = self._state.clocks.wall()
        try:
            due = dict(self._due(config.last_run_at))
            if urgency is Urgency.ASKED:
                due |= self._waiting()
        except BaseException:  # otherwise this run would count as active for ever
            self._started = None
            raise
        with self._lock:
            self._left = set(due)
        self._begin(due, urgency)
        self._end_if_done()

    def everything(self) -> None:
        """Queue every session: with changed settings, other values may be due."""
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in sessions_by_stat(self._state.layout):
            self._state.enqueuer.put_found(name, seen, now, wall)

    def _waiting(self) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions that wait for their prompt cache to get cold, the first due first."""
        waiting = self._state.waiting.copy()  # other threads change it
        for name in sorted(waiting, key=lambda name: waiting[name].cold_at or 0.0):
            with suppress(BsdError, OSError):  # the session was deleted
                yield name, Written.of(stat_transcript(self._state.layout, name))

    def _begin(self, due: Mapping[SessionName, Written], urgency: Urgency) -> None:
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in due.items():
            if not self._state.enqueuer.put_urgent(name, seen, now, wall, urgency):
                self.worked(name)  # the queue is full: the next run includes the session

    def worked(self, name: SessionName) -> None:
        """Record that a worker took a session, with any outcome."""
        with self._lock:
            if name not in self._left:
                return
            self._left.discard(name)
        self._end_if_done()

    def _due(self, last_run_at: str | None) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions of a run: those that changed since the last run, or all.

        Sessions that have not changed since bsd processed them with the present settings are left
        out.
        """
        last = None if last_run_at is None else datetime.fromisoformat(last_run_at).timestamp()
        since = "bsd processed it" if last is None else iso_utc(last)[:19] + "Z"
        told = _log.isEnabledFor(logging.DEBUG)
        # Almost no session has changed. The names of the others are needed only for the log.
        for name, seen in sessions_by_stat(self._state.layout, None if told else last):
            is_new = last is None or seen.mtime_ns / 1e9 > last
            if is_new and self._is_open(name):
                yield name, seen
            elif told:
                _log.debug(f"Session {name} unchanged since {since}, skipping")

    def _is_open(self, name: SessionName) -> bool:
        """Return True if the session may have due values.

        Its time alone does not show this: bsd's own writes are newer than the last run, too.
        """
        return self._state.scan.changed(name) or name in self._state.savings

    def _end_if_done(self) -> None:
        with self._lock:
            started = self._started
            if started is None or self._left:
                return
            self._started = None
            self._left.clear()  # an emptied set keeps its memory until it is cleared
        try:
            self._state.config.note_run("last_run_at", started)
        except BsdError as problem:
            _log.error("The time of the run could not be saved", problem=problem.message)
