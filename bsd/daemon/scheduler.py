"""Named jobs at their times: what was missed runs once, what fails hurts nobody else.

Times are cron expressions in local time; this is the only user of croniter. What happens when the
clocks change is decided here, as croniter does it by halves: an hour that does not exist is made up
for when it would have ended, at once and once; an hour that comes twice counts once, except for
what runs in every hour anyway and would otherwise pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import structlog
from croniter import CroniterError, croniter  # type: ignore[import-untyped]

from bsd.core.errors import BsdError, Conflict, Invalid, NotFound
from bsd.core.logs import BoundLogger

_log: BoundLogger = structlog.get_logger(module="jobs")

# A clock put back by less than this is waited out: slots that have run do not run again. More is a
# correction of a wrong clock (as with cron), and what was planned by it means nothing.
_CORRECTION_SECONDS = 3 * 3600.0
# What runs at equal distances takes no larger part of a core than this, and waits for longer: to
# look at 100,000 sessions every 30 seconds took two in a hundred. But nobody waits for ever.
_SHARE = 0.005
_LONGEST_PAUSE_SECONDS = 120.0
# Clocks are put back by an hour (Lord Howe: half of one); Antarctica has seen three.
_NEAR_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Cron:
    """`minute hour day month weekday` in the time zone of this machine."""

    expression: str

    def __post_init__(self) -> None:
        try:
            croniter.expand(self.expression, strict=True)
        except CroniterError as problem:
            raise Invalid(
                f"{self.expression!r} is not a cron expression: {problem}",
                hint="five fields: minute hour day month weekday, like `0 */6 * * *`",
            ) from None

    def __str__(self) -> str:
        return self.expression

    def after(self, moment: float) -> float:
        """Return the first time after `moment` (both epoch seconds)."""
        local, back = _local(moment), _put_back(moment)
        best: float | None = None
        # When clocks are put back, an earlier slot may mean a later moment.
        for slot in self._slots(local - back):
            for found in self._moments(slot):
                if found > moment and (best is None or found < best):
                    best = found
            if best is not None and (not back or slot > _local(best) + back):
                return best
        raise AssertionError("croniter never ends")

    def _slots(self, after: datetime) -> Iterator[datetime]:
        # Without a time zone croniter only counts; it would do the change of clocks its own way.
        slots = croniter(self.expression, after.replace(fold=0))
        while True:
            yield slots.get_next(datetime)

    def _moments(self, slot: datetime) -> list[float]:
        """List when this local time is: once, twice when clocks are put back, or after a gap."""
        first = slot.timestamp()
        if _local(first) != slot:
            return [_end_of_gap(slot)]
        second = slot.replace(fold=1).timestamp()
        if second == first:
            return [first]
        back = timedelta(seconds=second - first)
        return [first, second] if self._runs_always(slot, back) else [first]

    def _runs_always(self, slot: datetime, back: timedelta) -> bool:
        return _in_every_hour(self.expression) and bool(
            croniter.match(self.expression, slot - back)
        )


@dataclass(frozen=True, slots=True)
class Every:
    """At equal distances, whatever the calendar says; what takes much time comes less often."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise Invalid("an interval must be longer than nothing")

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"

    def after(self, moment: float) -> float:
        return moment + self.seconds

    def pause(self, spent: float) -> float:
        """Seconds from the end of a run that took so many seconds of a core to the next."""
        return max(self.seconds, min(spent / _SHARE, _LONGEST_PAUSE_SECONDS))


Schedule = Cron | Every


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job that has ended; epoch seconds."""

    job: str
    started: float
    ended: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as `bsd jobs` lists it; epoch seconds."""

    name: str
    schedule: str | None  # None: only when asked
    next_run: float | None
    last: Run | None
    last_run: float | None  # of this process or a former one
    running: bool


class _Scheduled:
    __slots__ = ("action", "last", "last_run", "name", "next", "running", "schedule")

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self.name = name
        self.action = action
        self.schedule: Schedule | None = None
        self.next: float | None = None
        self.last: Run | None = None
        self.last_run: float | None = None
        self.running = False


class Scheduler:
    """Runs jobs on the thread that calls `step`, one after the other.

    `ended` hears of every run: the caller keeps what must survive a restart. Times are epoch
    seconds; other threads may change schedules, ask and run jobs at any time. `spent`: how many
    seconds of a core a thread has used.
    """

    def __init__(
        self,
        ended: Callable[[Run], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._ended = ended
        self._clock = clock
        self._spent = spent
        self._lock = threading.Lock()
        self._jobs: dict[str, _Scheduled] = {}
        self._latest = float("-inf")

    def add(
        self,
        name: str,
        schedule: Schedule | None,
        action: Callable[[], object],
        *,
        last_run: float | None = None,
        at_start: bool = False,
    ) -> None:
        """Make a job known. If a slot since `last_run` was missed, it is due at once, and once.

        `at_start`: due at once in any case. A schedule of None: only `run` runs it.
        """
        now = self._clock()
        job = _Scheduled(name, action)
        job.schedule = schedule
        job.last_run = last_run
        if schedule is not None:
            # A last run in the future was noted by a wrong clock.
            since = now if last_run is None else min(last_run, now)
            job.next = now if at_start else schedule.after(since)
        with self._lock:
            if name in self._jobs:
                raise Conflict(f"there is a job {name} already")
            self._jobs[name] = job

    def reschedule(self, name: str, schedule: Schedule | None) -> bool:
        """Let a job follow another schedule from now on; False if that is what it does already.

        A run that is overdue stays so. Whoever sleeps until `next_due` must be woken.
        """
        now = self._clock()
        with self._lock:
            job = self._job(name)
            if job.schedule == schedule:
                return False
            overdue = job.next is not None and job.next <= now
            job.schedule = schedule
            if schedule is None:
                job.next = None
            elif not overdue:
                job.next = schedule.after(now)
            return True

    def due(self, now: float) -> list[str]:
        """Jobs whose time has come, the longest waiting first."""
        with self._lock:
            return self._due(now)

    def step(self, now: float) -> list[Run]:
        """Run everything that is due; a job that another thread runs just now is left to it."""
        # The time zone may have changed: a laptop travels.
        time.tzset()
        with self._lock:
            self._mind_the_clock(now)
            due = self._due(now)
        runs = []
        for name in due:
            try:
                runs.append(self.run(name))
            except (Conflict, NotFound):  # run or removed by another thread meanwhile
                continue
        return runs

    def run(self, name: str) -> Run:
        """Run a job now, on this thread, due or not; its failure is in the answer.

        Raises NotFound, and Conflict if it is running.
        """
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
            error = self._act(job)
            run = Run(name, started, self._clock(), error)
        finally:
            with self._lock:
                self._finish(job, run, self._spent() - before)
        self._tell(run)
        return run

    def note(self, name: str, started: float) -> None:
        """Hear that a job was done by somebody else; its times stay. Raises NotFound."""
        with self._lock:
            job = self._job(name)
            job.last_run, job.last = started, Run(name, started, self._clock(), None)

    def next_due(self) -> float | None:
        """When `step` has something to do."""
        with self._lock:
            return min(
                (job.next for job in self._jobs.values() if job.next is not None), default=None
            )

    def status(self) -> list[JobStatus]:
        """All jobs, by name."""
        with self._lock:
            return [
                JobStatus(
                    name=job.name,
                    schedule=str(job.schedule) if job.schedule else None,
                    next_run=job.next,
                    last=job.last,
                    last_run=job.last_run,
                    running=job.running,
                )
                for _, job in sorted(self._jobs.items())
            ]

    def _job(self, name: str) -> _Scheduled:
        if name not in self._jobs:
            raise NotFound(f"there is no job {name}", hint="`bsd jobs` lists them")
        return self._jobs[name]

    def _due(self, now: float) -> list[str]:
        waiting = [
            (job.next, job.name)
            for job in self._jobs.values()
            if job.next is not None and job.next <= now and not job.running
        ]
        return [name for _, name in sorted(waiting)]

    def _mind_the_clock(self, now: float) -> None:
        if now < self._latest - _CORRECTION_SECONDS:
            _log.warning(
                "The clock was put back; jobs are planned anew", seconds=self._latest - now
            )
            for job in self._jobs.values():
                if job.schedule is not None and job.next is not None:
                    job.next = job.schedule.after(now)
            self._latest = now
        self._latest = max(self._latest, now)

    def _act(self, job: _Scheduled) -> str | None:
        _log.trace("A job begins", job=job.name)
        try:
            job.action()
        except BsdError as problem:  # it says what happened; where in bsd is no news
            _log.warning(
                "A job has failed", job=job.name, problem=problem.message, hint=problem.hint
            )
            return problem.message
        except Exception as error:  # noqa: BLE001 - whatever a job does, the others go on
            _log.exception("A job has failed", job=job.name)
            return str(error) or type(error).__name__
        return None

    def _finish(self, job: _Scheduled, run: Run, spent: float) -> None:
        job.running = False
        job.last = run
        job.last_run = run.started
        if isinstance(job.schedule, Every):
            job.next = run.ended + job.schedule.pause(spent)

    def _tell(self, run: Run) -> None:
        try:
            self._ended(run)
        except Exception:  # noqa: BLE001 - a note that could not be kept is no reason to stop
            _log.exception("A job's run could not be noted", job=run.job)


def _local(moment: float) -> datetime:
    # Without a time zone on purpose: that is how Python means "of this machine".
    return datetime.fromtimestamp(moment)  # noqa: DTZ006


def _offset(moment: float) -> int:
    return time.localtime(moment).tm_gmtoff


def _put_back(moment: float) -> timedelta:
    """By how much clocks are put back around `moment`; mostly not at all."""
    back = _offset(moment - _NEAR_SECONDS) - _offset(moment + _NEAR_SECONDS)
    return timedelta(seconds=max(back, 0))


@lru_cache(maxsize=32)
def _in_every_hour(expression: str) -> bool:
    return bool(croniter.expand(expression)[0][1] == ["*"])


def _end_of_gap(slot: datetime) -> float:
    """Find when clocks were put forward over `slot`."""
    late, early = slot.timestamp(), slot.replace(fold=1).timestamp()
    new = _offset(late)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(middle) == new:
            late = middle
        else:
            early = middle
    return late
