"""The job `auto_cron` (seed 000, SP-04): extract from sessions that changed since its last run."""

from __future__ import annotations

import logging
import os
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
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="cron")


class AutoCron:
    """A run puts sessions into the queue; it is over when each has had its turn once."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._left: set[SessionName] = set()
        self._started: float | None = None  # epoch seconds, while a run goes on

    def run_asked(self) -> None:
        """Start a run for a person: no session waits for its prompt cache to get cold."""
        self.run(Urgency.ASKED)

    def run(self, urgency: Urgency = Urgency.CRON) -> None:
        """Start a run, unless bsd is switched off or the run before goes on."""
        config = self._state.config.current
        if not config.enabled:
            _log.debug("Nothing is extracted: `enabled` is false")
            return
        if self._state.scan.left:
            _log.debug("The first look at all sessions is still going on")
            return
        with self._lock:
            if self._started is not None:
                _log.debug("The run before is still going on", sessions_left=len(self._left))
                return
            # The start counts as the time of the run: changes while it goes on are for the next
            # one.
            self._started = self._state.clocks.wall()
        try:
            due = dict(self._due(config.last_run_at))
            if urgency is Urgency.ASKED:
                due |= self._waiting()
        except BaseException:  # else the next run would take this one to be still going on
            self._started = None
            raise
        with self._lock:
            self._left = set(due)
        self._begin(due, urgency)
        self._end_if_done()

    def everything(self) -> None:
        """Put every session into the queue: other settings may take other entries out."""
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in sessions_by_stat(self._state.layout):
            self._state.enqueuer.put_found(name, seen, now, wall)

    def _waiting(self) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions that wait for their prompt cache, which bsd has left so."""
        waiting = self._state.waiting.copy()  # other threads change it
        for name in sorted(waiting, key=waiting.__getitem__):
            with suppress(BsdError, OSError):  # it is gone
                yield name, Written.of(os.lstat(self._state.layout.transcript(name)))

    def _begin(self, due: Mapping[SessionName, Written], urgency: Urgency) -> None:
        now, wall = self._state.clocks.steady(), self._state.clocks.wall()
        for name, seen in due.items():
            if not self._state.enqueuer.put_urgent(name, seen, now, wall, urgency):
                self.worked(name)  # no room: it comes with the next run

    def worked(self, name: SessionName) -> None:
        """Note that a session has had its turn, with any outcome."""
        with self._lock:
            if name not in self._left:
                return
            self._left.discard(name)
        self._end_if_done()

    def _due(self, last_run_at: str | None) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions of a run: all, if there was no run before.

        Sessions that are as bsd left them under the present settings are left out.
        """
        last = None if last_run_at is None else datetime.fromisoformat(last_run_at).timestamp()
        since = "it was looked into" if last is None else iso_utc(last)[:19] + "Z"
        told = _log.isEnabledFor(logging.DEBUG)
        # Nearly all are as old as before; their names are needed for the log only.
        for name, seen in sessions_by_stat(self._state.layout, None if told else last):
            is_new = last is None or seen.mtime_ns / 1e9 > last
            if is_new and self._is_open(name):
                yield name, seen
            elif told:
                _log.debug(f"Session {name} unchanged since {since}, skipping")

    def _is_open(self, name: SessionName) -> bool:
        """Return True if it is not as bsd left it: bsd's own writes are newer than a run, too."""
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
            _log.error("The time of the run could not be noted", problem=problem.message)
