"""The daemon's jobs and their times, always by the settings as they are now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from bsd.core.answers import as_json
from bsd.core.config import JOBS, OFF, SETTABLE, UNSETTLING, PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Conflict
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.daemon.scheduler import Cron, Every, JobStatus, Run, Schedule, Scheduler
from bsd.daemon.status import Job, LastResult
from bsd.daemon.watches import Watches, open_watches

_log = structlog.stdlib.get_logger(module="jobs")

SCAN, AUTO_CRON, RETENTION, RECOVER = "scan", "auto_cron", "retention", "recover"
INDEX, KEEP = "index", "keep_sessions"

# How often what is in flight is looked after: displaced files are kept for a minute.
RECOVER_SECONDS = 30.0
# How often the search index is compared with all sessions: it hears of changes, and may miss one.
INDEX_SECONDS = 3600.0
# How often sessions are looked for that have been idle for long enough to be copied.
KEEP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Actions:
    """What the jobs do: `recover` says whether anything is still in flight, `index` only asks."""

    scan: Callable[[], object]
    auto_cron: Callable[[], object]
    retention: Callable[[], object]
    recover: Callable[[], bool]
    index: Callable[[], object] = lambda: None
    keep_sessions: Callable[[], object] = lambda: None


class JobSchedule:
    """Runs jobs on the thread that calls `step`; everything else may come from any thread.

    `extraction_changed` is called when settings changed that decide what is extracted.
    """

    def __init__(
        self,
        config: ConfigService,
        actions: Actions,
        *,
        wake: Callable[[], None] = lambda: None,
        ended: Callable[[Run], None] = lambda _: None,
        changed: Callable[[list[str]], None] = lambda _: None,
        extraction_changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._actions = actions
        self._wake = wake
        self._changed = changed
        self._extraction_changed = extraction_changed
        self._scheduler = Scheduler(ended, clock)
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._look = False  # at the settings
        self._applied = PruningConfig()  # until the start

    def start(self, *, readonly: bool = False) -> None:
        """Make all jobs known; a daemon that may change nothing only looks. Raises ConfigError."""
        now = self._applied = self._config.current
        add = self._scheduler.add
        schedules = _schedules(now)
        add(SCAN, schedules[SCAN], self._scan)
        add(INDEX, Every(INDEX_SECONDS), self._actions.index)
        if readonly:
            return
        add(RECOVER, None, self._recover)
        add(KEEP, Every(KEEP_SECONDS), self._actions.keep_sessions)
        auto_cron, retention = self._actions.auto_cron, self._actions.retention
        add(AUTO_CRON, schedules[AUTO_CRON], auto_cron, last_run=_at(now.last_run_at))
        add(
            RETENTION,
            schedules[RETENTION],
            retention,
            last_run=_at(now.last_retention_run_at),
            at_start=True,
        )

    def add(
        self,
        name: str,
        schedule: Schedule,
        action: Callable[[], object],
        *,
        last_run: float | None = None,
    ) -> None:
        """Make one more job known, whose schedule stays; `last_run`: by a former daemon."""
        self._scheduler.add(name, schedule, action, last_run=last_run)

    def step(self, now: float) -> float | None:
        """Run what is due, by the settings as they are; returns when to come again (epoch s)."""
        with self._lock:
            asked, self._asked = self._asked, set()
            look, self._look = self._look, False
        if look:
            self.apply()
        running = {name for name in sorted(asked) if not self._run_here(name)}
        self._scheduler.step(now)
        with self._lock:
            hurry = bool(self._asked or self._look)
            self._asked |= running
        return now if hurry else self._scheduler.next_due()

    def ask(self, name: str) -> None:
        """Let a job run soon, on the timer's thread."""
        with self._lock:
            self._asked.add(name)
        self._wake()

    def look_at_settings(self) -> None:
        """The settings may have changed: the timer's thread will see to it."""
        with self._lock:
            self._look = True
        self._wake()

    def in_flight(self) -> None:
        """Something is in flight: look after it until it is not."""
        if self._scheduler.reschedule(RECOVER, Every(RECOVER_SECONDS)):
            self._wake()

    def run(self, name: str) -> Run:
        """Run a job now, on this thread; raises NotFound, and Conflict if it is running."""
        run = self._scheduler.run(name)
        self._wake()  # its next time is another now
        return run

    def note(self, name: str, started: float) -> None:
        """A job was done outside its time (epoch seconds), as it is at a start."""
        self._scheduler.note(name, started)

    def apply(self) -> None:
        """Follow the settings as they are now."""
        with self._lock:
            before, now = self._applied, self._config.current
            self._applied = now
        changed = [name for name in SETTABLE if getattr(before, name) != getattr(now, name)]
        if not changed:
            return
        for job, schedule in _schedules(now).items():
            self._follow(job, schedule)
        self._changed(changed)
        if now.enabled and not UNSETTLING.isdisjoint(changed):
            self._extraction_changed()

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs as `Service.jobs` tells them."""
        config = self._applied
        enabled = {
            AUTO_CRON: config.enabled,
            RETENTION: lifetime_seconds(config.retention) is not None,
            KEEP: config.archive_sessions != OFF,
        }
        noted: dict[str, float | None] = {}
        with suppress(BsdError):  # of broken settings it is told elsewhere
            now = self._config.current  # `bsd retention` has runs noted there, too
            noted = {AUTO_CRON: _at(now.last_run_at), RETENTION: _at(now.last_retention_run_at)}
        return [
            as_json(
                Job(
                    name=job.name,
                    schedule=job.schedule,
                    enabled=enabled.get(job.name, job.schedule is not None),
                    running=job.running,
                    last_run=_iso(_latest(job.last_run, noted.get(job.name))),
                    last_result=_result(job.last),
                    next_run=_iso(job.next_run),
                )
            )
            for job in self._scheduler.status()
        ]

    def next_run(self, name: str) -> float | None:
        """When a job runs next (epoch seconds)."""
        found: list[JobStatus] = [job for job in self._scheduler.status() if job.name == name]
        return found[0].next_run if found else None

    def _run_here(self, name: str) -> bool:
        try:
            self._scheduler.run(name)
        except Conflict:
            return False  # it may be past the point in question; its end wakes us, then once more
        return True

    def _scan(self) -> None:
        self.apply()  # if nobody has told of a change
        self._actions.scan()

    def _recover(self) -> None:
        if not self._actions.recover():
            self._scheduler.reschedule(RECOVER, None)

    def _follow(self, name: str, schedule: Schedule) -> None:
        try:
            if self._scheduler.reschedule(name, schedule):
                _log.info("A job follows another schedule", job=name, schedule=str(schedule))
                self._wake()
        except BsdError:  # a daemon that may change nothing does not have it
            return


class SettingsWatch:
    """Notices changes of `config.json`, by one watch on one directory.

    Where there is none to be had, the scan looks instead.
    """

    def __init__(self, file: Path, told: Callable[[], None]) -> None:
        self._file = file
        self._told = told
        self._watches: Watches | None = None

    def start(self) -> None:
        """Begin to watch; a refusal costs only the haste."""
        try:
            self._watches = open_watches(self)
            # Only names: it is always replaced, and our own log of changes grows beside it.
            self._watches.add(self._file.parent, files=False)
        except OSError as error:
            _log.warning("Changes of settings are noticed by the scan only", error=str(error))

    def close(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.close()

    # --- on watchdog's thread, which any exception would end; `told` only sets a flag ---

    def touched(self, directory: str, name: str) -> None:  # noqa: ARG002 - there is only one
        if name == self._file.name:
            self._told()

    def gone(self, directory: str) -> None:  # noqa: ARG002
        self._told()

    def lost(self, why: str) -> None:  # noqa: ARG002
        self._told()


def _result(run: Run | None) -> LastResult | None:
    if run is None:
        return None
    return LastResult(run.error is None, run.error, round(run.ended - run.started, 3))


def _schedules(config: PruningConfig) -> dict[str, Schedule]:
    """The times of all jobs that a setting gives its times: an expression, or seconds."""
    times = {job: getattr(config, name) for job, name in JOBS.items()}
    return {job: Cron(at) if isinstance(at, str) else Every(at) for job, at in times.items()}


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso_utc(moment)


def _latest(*moments: float | None) -> float | None:
    return max((moment for moment in moments if moment is not None), default=None)


def _at(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
