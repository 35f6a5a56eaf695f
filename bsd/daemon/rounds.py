"""Seed 000's cron (SP-04): every session that changed since the last run is looked at."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime

from bsd.agents.owner import ENDING
from bsd.agents.owners import owner_of
from bsd.daemon import directories
from bsd.daemon.clock import steady
from bsd.daemon.intake import Intake
from bsd.daemon.savings import Savings
from bsd.daemon.scan import Scan
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.spelling import iso_utc
from bsd.text.change import Written

_log = get_logger("cron")


@traced(_log)
class Rounds:
    """A run puts sessions into the queue, and is over when each has had its turn once."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        intake: Intake,
        scan: Scan,
        savings: Savings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
    ) -> None:
        self._layout = layout
        self._config = config
        self._intake = intake
        self._scan = scan
        self._savings = savings
        self._clock = clock
        self._steady = steady
        self._lock = threading.Lock()
        self._left: set[SessionName] = set()
        self._started: float | None = None  # epoch seconds, while a round goes on

    def run(self) -> None:
        """Start a round, unless bsd is switched off or the round before goes on."""
        config = self._config.current
        if not config.enabled:
            _log.debug("Nothing is extracted: `enabled` is false")
            return
        with self._lock:
            if self._started is not None:
                _log.debug("The run before is still going on", sessions_left=len(self._left))
                return
            # The start counts as the time of the run: what changes while it goes on is for the
            # next one.
            self._started = self._clock()
        due = list(self._due(config.last_run_at))
        with self._lock:
            self._left = {name for name, _ in due}
        self._begin(due)
        self._end_if_done()

    def everything(self) -> None:
        """Put every session into the queue: what was settled is not, by other settings."""
        now, wall = self._steady(), self._clock()
        for name, seen in sessions_by_stat(self._layout):
            self._intake.found(name, seen, now, wall)

    def _begin(self, due: list[tuple[SessionName, Written]]) -> None:
        now, wall = self._steady(), self._clock()
        for name, seen in due:
            if not self._intake.insist(name, seen, now, wall):
                self.worked(name)  # no room: it comes with the next run

    def worked(self, name: SessionName) -> None:
        """A session has had its turn, whatever came of it."""
        with self._lock:
            if name not in self._left:
                return
            self._left.discard(name)
        self._end_if_done()

    def _due(self, last_run_at: str | None) -> Iterator[tuple[SessionName, Written]]:
        """Yield the sessions that are to be looked at: all, if there was no run before."""
        last = None if last_run_at is None else datetime.fromisoformat(last_run_at).timestamp()
        since = None if last is None else iso_utc(last)[:19] + "Z"
        told = _log.is_enabled("debug")
        # Nearly all are as old as they were; nobody need make names of those, except for the log.
        for name, seen in sessions_by_stat(self._layout, None if told else last):
            if last is None or (seen.mtime_ns / 1e9 > last and self._is_open(name)):
                yield name, seen
            elif told:
                _log.debug(f"Session {name} unchanged since {since}, skipping")

    def _is_open(self, name: SessionName) -> bool:
        """Whether it is not as we left it (our own writing is newer than the last run, too)."""
        return self._scan.changed(name) or self._savings.due(name) is not None

    def _end_if_done(self) -> None:
        with self._lock:
            started = self._started
            if started is None or self._left:
                return
            self._started = None
            self._left.clear()  # an empty set keeps the room that it ever had
        try:
            self._config.note_run("last_run_at", started)
        except BsdError as problem:
            _log.error("The time of the run could not be noted", problem=problem.message)


def sessions_by_stat(
    layout: Layout, newer_than: float | None = None
) -> Iterator[tuple[SessionName, Written]]:
    """Yield all sessions as they are now, or those written to after a moment (epoch seconds).

    What cannot be read is left out.
    """
    found = directories.look(layout)
    for agent, directory in found.agents():
        with suppress(OSError, BsdError), found.files(agent, directory) as files:
            yield from _of_agent(layout, agent, files, newer_than)


def _of_agent(
    layout: Layout, agent: str, files: Iterable[os.DirEntry[str]], newer_than: float | None
) -> Iterator[tuple[SessionName, Written]]:
    owner = owner_of(layout, agent)
    for file in files:
        if not owner.is_session_file(file.name):
            continue
        with suppress(FileNotFoundError):
            found = file.stat(follow_symlinks=False)
            if newer_than is not None and found.st_mtime_ns / 1e9 <= newer_than:
                continue
            if stat.S_ISREG(found.st_mode):
                yield SessionName(agent, file.name.removesuffix(ENDING)), Written.of(found)
