"""Run named jobs at their times. Missed runs are made up by one run; jobs do not affect each other.

`service` has the table of jobs. A job with a schedule in the settings (`bsd.core.config.JOBS`)
follows changes of that setting. Times are epoch seconds.
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

# If the clock is put back by less than this, slots of cron expressions do not run a second time,
# and jobs with a fixed interval continue. If it is put back by more, the clock was wrong before (as
# in cron), so all times are computed again.
_CORRECTION_SECONDS = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of a job."""

    job: str
    started: float
    ended: float
    error: str | None = None


@dataclass(slots=True)
class ScheduledJob:
    """A row of the table of jobs.

    Attributes:
        schedule: None: the job has the schedule of its setting, or runs only on request.
        noted_as: the member of config.json with the time of the last run.
        is_enabled: returns True if a run has an effect; None: the job is enabled if it has a
            schedule.
        at_start: the job is due immediately, regardless of its last run.
        when_asked: the action for a run that a person requests, instead of `action`.
        last_run: the start of the last run, of this daemon or of a previous one.
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
    """Runs jobs on the thread that calls `step`; other methods may be called from any thread.

    Args:
        wake: called when `step` should be called soon.
        ended: called with every finished run.
        changed: called with the names of changed settings.
        extraction_changed: called if a changed setting affects extraction.
        spent: returns the seconds of a core that the thread has used.
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
        self._latest = float("-inf")  # the latest time that the clock has shown

    def add(self, job: ScheduledJob) -> None:
        """Add a job. If it missed runs since its last run, one run is due immediately.

        Raises:
            ConfigError: config.json cannot be used.
            Conflict: a job of this name exists.
        """
        now = self._clock()
        if self._applied is None:
            self._applied = self._config.current
        if job.schedule is None and job.name in JOBS:
            job.schedule = _by_settings(self._applied, job.name)
        if job.noted_as is not None:
            job.last_run = _time(getattr(self._applied, job.noted_as))
        if job.schedule is not None:
            # If the last run is in the future, the clock was wrong at that time.
            since = now if job.last_run is None else min(job.last_run, now)
            job.next = now if job.at_start else job.schedule.after(since)
        with self._lock:
            if job.name in self._jobs:
                raise Conflict(f"there is a job {job.name} already")
            self._jobs[job.name] = job

    def step(self, now: float) -> float | None:
        """Run the jobs that are due or requested; return the time of the next step.

        A job that another thread is running is skipped. If it was requested, it runs once more
        after the other run.
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
            self._asked |= running  # the end of the other run calls `wake`
            times = [each.next for each in self._jobs.values() if each.next is not None]
        return now if hurry else min(times, default=None)

    def ask(self, name: str) -> None:
        """Request a run of a job soon, on the thread of `step`."""
        with self._lock:
            self._asked.add(name)
        self._wake()

    def look_at_settings(self) -> None:
        """Request that changed settings are applied soon, on the thread of `step`."""
        with self._lock:
            self._settings_asked = True
        self._wake()

    def apply(self) -> None:
        """Apply the current settings."""
        with self._lock:
            before, now = self._applied or PruningConfig(), self._config.current
            self._applied = now
        changed = [name for name in SETTABLE if getattr(before, name) != getattr(now, name)]
        if not changed:
            return
        for name in JOBS.keys() & self._jobs.keys():
            schedule = _by_settings(now, name)
            if self.reschedule(name, schedule):
                _log.info("A job has a new schedule", job=name, schedule=str(schedule))
        self._changed(changed)
        if now.enabled and not UNSETTLING.isdisjoint(changed):
            self._extraction_changed()

    def reschedule(self, name: str, schedule: Schedule | None) -> bool:
        """Set the schedule of a job; return False if it is the same. A due run stays due."""
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
        """Run a job now for a person, on this thread; the answer has its error, if it fails.

        Raises NotFound, and Conflict if the job is running.
        """
        run = self._run(name, asked=True)
        self._wake()  # its next time has changed
        return run

    def _run(self, name: str, *, asked: bool = False) -> Run:
        started = self._clock()
        with self._lock:
            job = self._job(name)
            if job.running:
                raise Conflict(f"job {name} is running", hint="`bsd jobs` shows when it has ended")
            job.running = True
            # Computed before the run: of slots that pass during the run, only the first is due.
            job.next = job.schedule.after(started) if job.schedule else None
        run = Run(name, started, started, "it was interrupted")
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
        except Exception:  # noqa: BLE001 - the scheduler must not stop for a failed notification
            _log.exception("The end of a job's run could not be reported", job=name)
        return run

    def note(self, name: str, started: float) -> None:
        """Record that a job ran outside the schedule; its next time stays. Raises NotFound."""
        with self._lock:
            job = self._job(name)
            job.last_run, job.last = started, Run(name, started, self._clock())

    def next_run(self, name: str) -> float | None:
        """Return when a job runs next; None if it does not exist or has no schedule."""
        with self._lock:
            job = self._jobs.get(name)
            return job.next if job else None

    def status(self) -> list[dict[str, Any]]:
        """Return all jobs, by name: the fields of `status.Job`."""
        noted = None
        with suppress(BsdError):  # broken settings are reported elsewhere
            noted = self._config.current  # `bsd retention` records its runs there, too
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
                "The clock was put back; all jobs get new times", seconds=self._latest - now
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
        """Run a job; return False if another thread is running it."""
        try:
            self._run(name)
        except Conflict:
            return False
        return True


def _act(job: ScheduledJob, action: Callable[[], object]) -> str | None:
    """Run an action of a job; return the error message, or None if it succeeded."""
    _log.trace("A job begins", job=job.name)
    try:
        action()
    except BsdError as problem:  # its message is enough without a traceback
        _log.warning("A job has failed", job=job.name, problem=problem.message, hint=problem.hint)
        return problem.message
    except Exception as error:  # noqa: BLE001 - an error in a job does not stop the others
        _log.exception("A job has failed", job=job.name)
        return str(error) or type(error).__name__
    return None


def _is_due(job: ScheduledJob, now: float) -> bool:
    return job.next is not None and job.next <= now


def _by_settings(config: PruningConfig, name: str) -> Schedule:
    """Return the schedule of a job from its setting: a cron expression, or seconds."""
    value = getattr(config, JOBS[name])
    return Cron(value) if isinstance(value, str) else Every(value)


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso_utc(moment)


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
