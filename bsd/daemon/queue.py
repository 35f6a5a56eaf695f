"""The work queue: one job per session, due at a time, never two workers on one session.

Workers take ready jobs in the order of `due + expected work`. So a small job passes a huge job that
became due shortly before. A job that becomes due after the due time plus the work of another job
cannot pass it, so a job waits in proportion to its work, and not for ever. Huge jobs leave one
worker free. A job of the backlog (a session without recent changes) counts as due an hour later, so
sessions in use come first.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from bsd.core.clock import steady
from bsd.core.layout import SessionName
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS

CAPACITY = 100_000
# Each job takes half a kilobyte, so only some of very many new sessions are ready at the same time.
# From FULL ready jobs on, the scan leaves idle sessions for another scan; below ROOMY it queues
# more.
FULL, ROOMY = 4000, 1000
HEAVY_SECONDS = 1.0  # expected work from which a job counts as huge
PARK_AFTER = 5  # failures in a row
TOGETHER_SECONDS = 0.05  # limit of the expected work in a batch for one worker
_COURTESY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The work is done. `next_due`: when the session is due again without a change (steady)."""

    next_due: float | None = None


@dataclass(frozen=True, slots=True)
class TryLater:
    """The session is in use; try again at `again` if it is known (steady seconds)."""

    again: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; after `PARK_AFTER` failures the session is parked until it changes."""

    error: str


Verdict = Finished | TryLater | Failed


@dataclass(frozen=True, slots=True)
class Parked:
    """A session that workers leave alone until it changes, and the reason."""

    session: SessionName
    error: str
    failures: int
    since: float  # steady seconds


@dataclass(frozen=True, slots=True)
class Counts:
    """The queue in numbers, for status and metrics."""

    waiting: int  # jobs that are not due yet
    ready: int
    working: int
    parked: int
    refused: int  # since the start, because the queue was full
    retried: int
    failed: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between attempts: each twice the previous one, up to `longest` seconds.

    `chance` returns a random number from 0 to 1, which spreads the attempts of several sessions.
    """

    first: float = 2.0
    longest: float = 60.0
    chance: Callable[[], float] = random.random

    def delay(self, tries: int) -> float:
        """Return the seconds to wait after `tries` attempts in a row without success (1, 2, …)."""
        # The exponent is limited, too: a session may be busy for weeks.
        full = min(self.longest, self.first * 2.0 ** min(tries - 1, 60))
        return full * (0.5 + 0.5 * self.chance())


class _Queued:
    __slots__ = (
        "attempts",
        "backlog",
        "changed",
        "due",
        "failures",
        "given",
        "heavy",
        "ready",
        "ticket",
        "work",
        "working",
    )

    def __init__(self) -> None:
        self.due: float | None = None  # None: a worker has it, and no new request came
        self.work = 0.0
        self.given = 0.0, 0.0  # due time and work of the job that a worker has
        self.ticket = 0  # identifies its only valid place in a heap
        self.ready = False
        self.working = False
        self.heavy = False  # the job that a worker has is huge
        self.changed = False  # a request came while a worker has it
        self.backlog = True  # without recent changes
        self.attempts = 0  # attempts in a row that found it busy
        self.failures = 0  # failures in a row


# Due time (for a ready job: due time plus work), ticket, session.
_Place = tuple[float, int, SessionName]


class WorkQueue:
    """The queue. Thread-safe.

    Times are steady seconds, passed by the caller or read from `clock`.

    Args:
        workers: the number of workers.
        capacity: the maximum number of jobs.
        heavy: seconds of expected work from which a job counts as huge.
        park_after: failures in a row after which a session is parked.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        capacity: int = CAPACITY,
        backoff: Backoff | None = None,
        heavy: float = HEAVY_SECONDS,
        park_after: int = PARK_AFTER,
        clock: Callable[[], float] = steady,
    ) -> None:
        self._capacity = capacity
        self._backoff = backoff or Backoff()
        self._heavy = heavy
        self._workers = workers
        self._heavy_places = max(1, workers - 1)
        self._park_after = park_after
        self._clock = clock
        self._changed = threading.Condition()
        self._tickets = itertools.count(1)
        self._jobs: dict[SessionName, _Queued] = {}
        self._parked: dict[SessionName, Parked] = {}
        self._waiting: list[_Place] = []
        self._light: list[_Place] = []
        self._hard: list[_Place] = []
        self._ready = 0
        self._working = self._heavy_working = 0
        self._refused = self._retried = self._failed = 0
        self._closed = False

    def put(
        self, session: SessionName, due: float, *, work: float = 0.0, backlog: bool = False
    ) -> bool:
        """Queue a session that changed, due at `due`, or earlier if it waits for an earlier time.

        If a worker has the session, it is queued again when the worker has finished.

        Args:
            work: expected work in seconds.
            backlog: all other jobs come first.

        Returns:
            False if the queue is full or closed: the caller must find the session again later.
        """
        with self._changed:
            job = self._jobs.get(session)
            if self._closed or (job is None and len(self._jobs) >= self._capacity):
                self._refused += not self._closed
                return False
            if job is None:
                job = self._jobs[session] = _Queued()
            if self._parked.pop(session, None) is not None:
                job.failures = self._park_after - 1  # after a change it gets one more attempt
            job.work = max(job.work, work)
            job.changed = True
            if job.backlog and not backlog:
                job.backlog = False
                if job.ready:
                    self._make_one_ready(session, job)
            self._want(session, job, due)
            return True

    @property
    def is_full(self) -> bool:
        """True if enough jobs are ready, so that jobs which can wait should come later."""
        with self._changed:
            self._make_ready(self._clock())
            return self._ready >= FULL

    @property
    def is_roomy(self) -> bool:
        """True if there is room for the jobs that were to come later."""
        with self._changed:
            self._make_ready(self._clock())
            return self._ready < ROOMY

    def take(self, timeout: float = LONGEST_SLEEP_SECONDS) -> SessionName | None:
        """Wait for a session to work on; the caller must call `done` or `give_back` for it.

        Returns None after `timeout` seconds (at most 60), or after `close`.
        """
        with self._changed:
            now = self._clock()
            deadline = now + min(timeout, LONGEST_SLEEP_SECONDS)
            while not self._closed:
                session = self._take(now)
                if session is not None or now >= deadline:
                    return session
                due = self._next()
                self._changed.wait((deadline if due is None else min(due, deadline)) - now)
                now = self._clock()
            return None

    def take_more(self, first: SessionName, most: int) -> list[SessionName]:
        """Take further small sessions of the backlog for a batch that begins with `first`.

        A batch takes no more than this worker's share of the ready jobs. The caller must call
        `done` or `give_back` for each session.
        """
        with self._changed:
            job = self._jobs[first]
            most = min(most, self._ready // self._workers)
            work = job.given[1]
            found: list[SessionName] = []
            while job.backlog and not job.heavy and len(found) < most and not self._closed:
                heap = self._best()
                if heap is None or heap is self._hard:
                    break
                other = self._jobs[heap[0][2]]
                work += other.work
                if not other.backlog or work > TOGETHER_SECONDS:
                    break
                found.append(self._take_from(heap))
            return found

    def give_back(self, session: SessionName) -> None:
        """Put back a session that the worker did not process: it waits as before."""
        with self._changed:
            job, again = self._release(session)
            due, work = job.given
            job.work = max(job.work, work)
            self._want(session, job, due if again is None else min(due, again))
            self._changed.notify()  # as in `done`

    def done(self, session: SessionName, verdict: Verdict, now: float | None = None) -> None:
        """Record the verdict on a session that a worker has taken."""
        with self._changed:
            now = self._clock() if now is None else now
            job, again = self._release(session)
            due = self._after(session, job, verdict, now)
            wanted = [each for each in (again, due) if each is not None]
            if session in self._parked or not wanted:
                del self._jobs[session]
                if not self._jobs:
                    self._jobs.clear()  # an emptied dict keeps its memory until it is cleared
            else:
                self._want(session, job, min(wanted))
            self._changed.notify()  # another huge job may now be allowed to run

    def next_due(self) -> float | None:
        """Return the due time of the next job for `take`; None: there is no job."""
        with self._changed:
            return self._next()

    def parked(self) -> list[Parked]:
        """Return the parked sessions, the oldest first."""
        with self._changed:
            return list(self._parked.values())

    def counts(self) -> Counts:
        with self._changed:
            ready = self._ready
            idle = sum(job.working and job.due is None for job in self._jobs.values())
            return Counts(
                waiting=len(self._jobs) - ready - idle,
                ready=ready,
                working=self._working,
                parked=len(self._parked),
                refused=self._refused,
                retried=self._retried,
                failed=self._failed,
            )

    def others_first(self, session: SessionName, *later: SessionName) -> bool:
        """Return True if the work on a session of the backlog should stop for a session in use.

        `later`: sessions that follow in the same batch; they may be in use now, too.
        """
        with self._changed:
            if not self._jobs[session].backlog:
                return False
            if not all(self._jobs[one].backlog for one in later):
                return True
            self._make_ready(self._clock())
            heap = self._best()
            return heap is not None and not self._jobs[heap[0][2]].backlog

    def close(self) -> None:
        """Stop handing out sessions; every waiting `take` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- all below: with the lock held ---

    def _want(self, session: SessionName, job: _Queued, due: float) -> None:
        if job.due is not None and job.due <= due:
            return
        job.due = due
        if job.working or job.ready:
            return  # `done` will queue it, or it is ready already
        job.ticket = next(self._tickets)
        self._tidy()
        heapq.heappush(self._waiting, (due, job.ticket, session))
        if self._waiting[0][1] == job.ticket:
            self._changed.notify()  # a worker sleeps until the previous due time, which is later

    def _take(self, now: float) -> SessionName | None:
        self._make_ready(now)
        heap = self._best()
        return None if heap is None else self._take_from(heap)

    def _take_from(self, heap: list[_Place]) -> SessionName:
        _, _, session = heapq.heappop(heap)
        job = self._jobs[session]
        assert job.due is not None  # noqa: S101 - a ready job has a due time
        job.given = job.due, job.work
        job.ready = job.changed = False
        job.working = True
        self._ready -= 1
        job.heavy = heap is self._hard
        job.due, job.work = None, 0.0
        self._working += 1
        self._heavy_working += job.heavy
        if self._next() is not None:
            self._changed.notify()  # another worker must wait for the next job
        return session

    def _release(self, session: SessionName) -> tuple[_Queued, float | None]:
        """Mark the work as ended; return the job, and the due time of a request during the work."""
        job = self._jobs[session]
        if not job.working:
            raise ValueError(f"{session} was not taken")
        job.working = False
        self._working -= 1
        self._heavy_working -= job.heavy
        again, job.due = job.due, None
        return job, again

    def _make_ready(self, now: float) -> None:
        while self._drop_stale() and self._waiting[0][0] <= now:
            _, _, session = heapq.heappop(self._waiting)
            job = self._jobs[session]
            job.ready = True
            self._ready += 1
            self._make_one_ready(session, job)

    def _make_one_ready(self, session: SessionName, job: _Queued) -> None:
        """Put a job into the heap of ready jobs; an older place of the job becomes invalid."""
        assert job.due is not None  # noqa: S101 - a ready job has a due time
        job.ticket = next(self._tickets)
        heap = self._hard if job.work >= self._heavy else self._light
        turn = job.due + job.work + (_COURTESY_SECONDS if job.backlog else 0.0)
        heapq.heappush(heap, (turn, job.ticket, session))

    def _best(self) -> list[_Place] | None:
        """Return the heap with the next job; None: no job is ready, or may run now."""
        for heap in (self._light, self._hard):
            while heap and not self._is_valid(heap[0], ready=True):
                heapq.heappop(heap)
        heaps = [self._light] if self._light else []
        if self._hard and self._heavy_working < self._heavy_places:
            heaps.append(self._hard)
        return min(heaps, key=lambda heap: heap[0], default=None)

    def _next(self) -> float | None:
        heap = self._best()
        if heap is not None:
            return self._jobs[heap[0][2]].due
        return self._waiting[0][0] if self._drop_stale() else None

    def _drop_stale(self) -> bool:
        """Remove invalid places at the front; return True if a place is left."""
        while self._waiting and not self._is_valid(self._waiting[0]):
            heapq.heappop(self._waiting)
        return bool(self._waiting)

    def _is_valid(self, place: _Place, *, ready: bool = False) -> bool:
        job = self._jobs.get(place[2])
        return job is not None and job.ticket == place[1] and job.ready is ready and not job.working

    def _tidy(self) -> None:
        """Remove all invalid places if they are the majority."""
        if len(self._waiting) > 2 * len(self._jobs) + 64:
            self._waiting = [place for place in self._waiting if self._is_valid(place)]
            heapq.heapify(self._waiting)

    def _after(
        self, session: SessionName, job: _Queued, verdict: Verdict, now: float
    ) -> float | None:
        """Return when the session is due again after a verdict; None: not again, or parked."""
        if isinstance(verdict, Finished):
            job.attempts = job.failures = 0
            return verdict.next_due
        if isinstance(verdict, TryLater):
            self._retried += 1
            if verdict.again is not None:
                job.attempts = 0  # it only has to be quiet for some time
                return max(now, verdict.again)
            job.attempts += 1
            return now + self._backoff.delay(job.attempts)
        assert isinstance(verdict, Failed)  # noqa: S101 - mypy cannot infer it
        return self._after_failure(session, job, verdict.error, now)

    def _after_failure(
        self, session: SessionName, job: _Queued, error: str, now: float
    ) -> float | None:
        job.attempts = 0
        job.failures += 1
        self._failed += 1
        if job.failures < self._park_after:
            return now + self._backoff.delay(job.failures)
        if job.changed:  # the change may have repaired the session: one more attempt
            job.failures = self._park_after - 1
            return None
        self._parked[session] = Parked(session, error, job.failures, now)
        return None
