"""Runs named jobs at their times: a missed run is made up for once, a failure stops no other job.

`service` has the table of the jobs. Those whose times stand in the settings follow them as they
are (`bsd.core.config.JOBS`). Times are epoch seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from bsd.core.answers import as_json
from bsd.core.config import JOBS, SETTABLE, UNSETTLING, PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Conflict, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.logs import BoundLogger
from bsd.daemon.cron import Cron, Every, Schedule
from bsd.daemon.status import Job, LastResult

_log: BoundLogger = structlog.get_logger(module="jobs")

# A clock put back by less than this is waited out: slots that have run do not run again; jobs at
# equal distances go on. More is a correction of a wrong clock (as with cron), and times planned
# by it mean nothing.
_CORRECTION_SECONDS = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a job that has ended."""

    job: str
    started: float
    ended: float
    error: str | None = None


@dataclass(slots=True)
class ScheduledJob:
    """A row of the table of jobs.

    Attributes:
        schedule: None: it runs when it is asked for, or by its setting.
        noted_as: member of config.json that holds the time of the last run.
        is_enabled: whether its runs do anything; None: if it has a schedule.
        at_start: it is due at once, whenever it ran last.
        when_asked: the action instead of `action` if a person has it run.
        last_run: when it ran last, by this daemon or one before.
    """

    name: str
    action: Callable[[], object]
    schedule: Schedule | None = None
    noted_as: str | None = None
    is_enabled: Callable[[PruningConfig], bool] | None = None
    at_start: bool = False
    when_asked: Callable[[], object] | None = None
    last_run: float | None = None
    last: Run | None = field(default=None, init=False)
    next: float | None = field(default=None, init=False)
    running: bool = field(default=False, init=False)


class Scheduler:
    """Runs jobs on the thread that calls `step`; all else may be called from any thread.

    Args:
        wake: called when `step` should be called soon.
        ended: called with every run.
        changed: called with the names of settings that have changed.
        extraction_changed: called if one of them decides about extraction.
        spent: returns how many seconds of a core the thread has used.
    """

    def __init__(
        self,
        config: ConfigService,
        *,
        wake: Callable[[], None] = lambda: None,
        ended: Callable[[Run], None] = lambda _: None,
        changed: Callable[[list[str]], None] = lambda _: None,
        extraction_changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._config = config
        self._wake = wake
        self._ended = ended
        self._changed = changed
        self._extraction_changed = extraction_changed
        self._clock = clock
        self._spent = spent
        self._lock = threading.Lock()
        self._jobs: dict[str, ScheduledJob] = {}
        self._asked: set[str] = set()
        self._settings_asked = False
        self._applied: PruningConfig | None = None  # None: before the first job
        self._before = float("-inf")  # the clock at the last step
        self._latest = float("-inf")  # and the latest that it ever showed

    def add(self, job: ScheduledJob) -> None:
        """Add a row. If a run since the last one was missed, it is due at once, and once.

        Raises ConfigError if config.json cannot be used, Conflict if there is a job of this name.
        """
        now = self._clock()
        if self._applied is None:
            self._applied = self._config.current
        if job.schedule is None and job.name in JOBS:
            job.schedule = _by_settings(self._applied, job.name)
        if job.noted_as is not None:
            job.last_run = _time(getattr(self._applied, job.noted_as))
        if job.schedule is not None:
            # A last run in the future was noted by a wrong clock.
            since = now if job.last_run is None else min(job.last_run, now)
            job.next = now if job.at_start else job.schedule.after(since)
        with self._lock:
            if job.name in self._jobs:
                raise Conflict(f"there is a job {job.name} already")
            self._jobs[job.name] = job

    def step(self, now: float) -> float | None:
        """Run jobs that are due or were asked for, by present settings; returns when to come again.

        A job that another thread runs just now is left to it; if it was asked for, it runs once
        more after that.
        """
        time.tzset()  # the time zone may have changed: a laptop travels
        with self._lock:
            asked, self._asked = self._asked, set()
            settings_asked, self._settings_asked = self._settings_asked, False
            self._check_clock(now)
        if settings_asked:
            self.apply()
        running = {name for name in sorted(asked) if not self._try(name)}
        with self._lock:
            jobs = [each for each in self._jobs.values() if not each.running]
            due = sorted((each.next, each.name) for each in jobs if _is_due(each, now))
        for _, name in due:
            self._try(name)
        with self._lock:
            hurry = bool(self._asked or self._settings_asked)
            self._asked |= running  # the end of their run calls `wake`
            times = [each.next for each in self._jobs.values() if each.next is not None]
        return now if hurry else min(times, default=None)

    def ask(self, name: str) -> None:
        """Have a job run soon, on the thread of `step`."""
        with self._lock:
            self._asked.add(name)
        self._wake()

    def look_at_settings(self) -> None:
        """Have changed settings followed soon, on the thread of `step`."""
        with self._lock:
            self._settings_asked = True
        self._wake()

    def apply(self) -> None:
        """Follow the settings as they are now."""
        with self._lock:
            before, now = self._applied or PruningConfig(), self._config.current
            self._applied = now
        changed = [name for name in SETTABLE if getattr(before, name) != getattr(now, name)]
        if not changed:
            return
        for name in JOBS.keys() & self._jobs.keys():
            schedule = _by_settings(now, name)
            if self.reschedule(name, schedule):
                _log.info("A job follows another schedule", job=name, schedule=str(schedule))
        self._changed(changed)
        if now.enabled and not UNSETTLING.isdisjoint(changed):
            self._extraction_changed()

    def reschedule(self, name: str, schedule: Schedule | None) -> bool:
        """Give a job another schedule; False if it has it already. A run that is due stays so."""
        now = self._clock()
        with self._lock:
            job = self._job(name)
            if job.schedule == schedule:
                return False
            job.schedule = schedule
            if schedule is None:
                job.next = None
            elif not _is_due(job, now):
                job.next = schedule.after(now)
        self._wake()
        return True

    def run(self, name: str) -> Run:
        """Run a job now for a person, on this thread; its failure is in the answer.

        Raises NotFound, and Conflict if it is running.
        """
        run = self._run(name, asked=True)
        self._wake()  # its next time is another now
        return run

    def _run(self, name: str, *, asked: bool = False) -> Run:
        started = self._clock()
        with self._lock:
            job = self._job(name)
            if job.running:
                raise Conflict(f"job {name} is running", hint="`bsd jobs` shows when it has ended")
            job.running = True
            # Before it runs: slots that pass meanwhile are not due afterwards, but the next is.
            job.next = job.schedule.after(started) if job.schedule else None
        run = Run(name, started, started, "it was broken off")
        before = self._spent()
        try:
            error = _act(job, (job.when_asked if asked else None) or job.action)
            run = Run(name, started, self._clock(), error)
        finally:
            with self._lock:
                job.running, job.last, job.last_run = False, run, started
                if isinstance(job.schedule, Every):
                    job.next = run.ended + job.schedule.pause(self._spent() - before)
        try:
            self._ended(run)
        except Exception:  # noqa: BLE001 - a note that could not be kept is no reason to stop
            _log.exception("A job's run could not be noted", job=name)
        return run

    def note(self, name: str, started: float) -> None:
        """Note that a job was done outside its time; its next time stays. Raises NotFound."""
        with self._lock:
            job = self._job(name)
            job.last_run, job.last = started, Run(name, started, self._clock())

    def next_run(self, name: str) -> float | None:
        """When a job runs next; None if there is none of this name or it has no schedule."""
        with self._lock:
            job = self._jobs.get(name)
            return job.next if job else None

    def status(self) -> list[dict[str, Any]]:
        """Return all jobs, by name: the fields of `status.Job`."""
        noted = None
        with suppress(BsdError):  # of broken settings it is told elsewhere
            noted = self._config.current  # `bsd retention` has its runs noted there, too
        with self._lock:
            return [self._status_of(job, noted) for _, job in sorted(self._jobs.items())]

    def status_of(self, name: str) -> dict[str, Any]:
        """Return one job; raises NotFound."""
        with self._lock:
            self._job(name)
        return next(job for job in self.status() if job["name"] == name)

    # --- with the lock held ---

    def _status_of(self, job: ScheduledJob, noted: PruningConfig | None) -> dict[str, Any]:
        last_run = job.last_run
        if noted is not None and job.noted_as is not None:
            other = _time(getattr(noted, job.noted_as))
            last_run = max(filter(None, (last_run, other)), default=None)
        last, settings = job.last, self._applied or PruningConfig()
        seconds = round(last.ended - last.started, 3) if last else 0.0
        answer = Job(
            name=job.name,
            schedule=str(job.schedule) if job.schedule else None,
            enabled=job.is_enabled(settings) if job.is_enabled else job.schedule is not None,
            running=job.running,
            last_run=_iso(last_run),
            last_result=LastResult(last.error is None, last.error, seconds) if last else None,
            next_run=_iso(job.next),
        )
        return as_json(answer)

    def _job(self, name: str) -> ScheduledJob:
        if name not in self._jobs:
            raise NotFound(f"there is no job {name}", hint="`bsd jobs` lists them")
        return self._jobs[name]

    def _check_clock(self, now: float) -> None:
        if now < self._latest - _CORRECTION_SECONDS:
            _log.warning(
                "The clock was put back; jobs are planned anew", seconds=self._latest - now
            )
            for job in self._jobs.values():
                if job.schedule is not None and job.next is not None:
                    job.next = job.schedule.after(now)
            self._latest = now
        elif now < self._before:
            for job in self._jobs.values():
                if isinstance(job.schedule, Every) and job.next is not None:
                    job.next -= self._before - now
        self._before, self._latest = now, max(self._latest, now)

    # --- without it ---

    def _try(self, name: str) -> bool:
        """Run a job unless another thread runs it; False if one does."""
        try:
            self._run(name)
        except Conflict:
            return False
        return True


def _act(job: ScheduledJob, action: Callable[[], object]) -> str | None:
    """Run an action of a job; returns why it failed."""
    _log.trace("A job begins", job=job.name)
    try:
        action()
    except BsdError as problem:  # its message is enough; a traceback would add nothing
        _log.warning("A job has failed", job=job.name, problem=problem.message, hint=problem.hint)
        return problem.message
    except Exception as error:  # noqa: BLE001 - an error in a job does not stop the others
        _log.exception("A job has failed", job=job.name)
        return str(error) or type(error).__name__
    return None


def _is_due(job: ScheduledJob, now: float) -> bool:
    return job.next is not None and job.next <= now


def _by_settings(config: PruningConfig, name: str) -> Schedule:
    """Return the schedule of a job by its setting: a cron expression, or seconds."""
    value = getattr(config, JOBS[name])
    return Cron(value) if isinstance(value, str) else Every(value)


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso_utc(moment)


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
