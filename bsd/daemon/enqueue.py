"""Put sessions into the queue: after an event and a quiet time, for the scan, or for a job."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum

from bsd.core.clock import steady
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.layout import SessionName
from bsd.daemon.queue import WorkQueue
from bsd.daemon.scan import Scan
from bsd.transcripts.change import Written

# The assumed speed of reading and planning. It need not be precise: it only separates huge sessions
# from small ones.
_BYTES_PER_SECOND = 100e6
_MOST_TOLD = 1000  # sessions whose programs reported them as idle, with the time of the report
_LIVING_SECONDS = 60.0  # a session that was written to more recently is likely to be used again

QUIET_SECONDS = 2.0
LONGEST_SECONDS = 30.0


class Debounce:
    """Sessions that changed recently. Not thread-safe: the caller holds a lock.

    A session is due when it had no event for `quiet` seconds, or when its first event was `longest`
    seconds ago. Each operation takes constant time per session. If threads read the clock before
    they get the lock, times may be slightly out of order; a session is then due later by the same
    amount.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        if not 0 <= quiet <= longest:
            raise ValueError("the quiet time must be between 0 and the longest delay")
        self._quiet = quiet
        self._longest = longest
        # Both delays are the same for all sessions, so the order of events is the order of due
        # times, and no heap is needed.
        self._first: OrderedDict[SessionName, float] = OrderedDict()  # times of first events
        self._last: OrderedDict[SessionName, float] = OrderedDict()  # times of latest events

    def __len__(self) -> int:
        return len(self._last)

    def note(self, session: SessionName, now: float) -> bool:
        """Record an event; return True if no session waited before, so the loop must wake up."""
        was_empty = not self._last
        self._first.setdefault(session, now)
        self._last[session] = now
        self._last.move_to_end(session)
        return was_empty

    def due(self, now: float) -> list[SessionName]:
        """Remove and return the sessions that are due."""
        due = []
        while self._first and next(iter(self._first.values())) + self._longest <= now:
            session, _ = self._first.popitem(last=False)
            del self._last[session]
            due.append(session)
        while self._last and next(iter(self._last.values())) + self._quiet <= now:
            session, _ = self._last.popitem(last=False)
            del self._first[session]
            due.append(session)
        return due

    def next_due(self) -> float | None:
        """Return when the next session is due if no further event occurs; None: no session."""
        if not self._last:
            return None
        quiet_at = next(iter(self._last.values())) + self._quiet
        longest_at = next(iter(self._first.values())) + self._longest
        return min(quiet_at, longest_at)


class Urgency(StrEnum):
    """Why a session is processed immediately."""

    CRON = "cron"  # commit even the smallest saving
    ASKED = "asked"  # a user asked: the same, and no value waits for the prompt cache


class Enqueuer:
    """Puts sessions into the queue. Thread-safe; times are steady seconds."""

    def __init__(
        self,
        queue: WorkQueue,
        scan: Scan,
        debounce: Debounce,
        *,
        quiet: float,
        wake: Callable[[], None],
        clock: Callable[[], float] = steady,
    ) -> None:
        self._queue = queue
        self._scan = scan
        self._debounce = debounce
        self._quiet = quiet  # seconds since the file's mtime
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._urgent: dict[SessionName, Urgency] = {}
        self._told_idle: OrderedDict[SessionName, float] = OrderedDict()  # epoch seconds

    def __len__(self) -> int:
        """Return the number of sessions that wait for their quiet time."""
        return len(self._debounce)

    def hint(self, name: SessionName) -> None:
        """Record an event of a session."""
        with self._lock:
            first = self._debounce.note(name, self._clock())
        if first:
            self._wake()

    def step(self, now: float) -> float | None:
        """Queue sessions that have been quiet for long enough; return the time of the next step."""
        with self._lock:
            due = self._debounce.due(now)
            again = self._debounce.next_due()
        for name in due:
            # bsd's own writes cause events, too; after these the session has not changed.
            if self._scan.changed(name):
                self.put(name, now)
        return again

    def put(
        self, name: SessionName, due: float, seen: Written | None = None, *, backlog: bool = False
    ) -> None:
        """Queue a session; all other sessions come before those of a backlog."""
        work = seen.size / _BYTES_PER_SECOND if seen else 0.0
        if not self._queue.put(name, due, work=work, backlog=backlog):
            self._scan.forget(name)  # the queue is full: the next scan finds the session again

    def can_wait(self, seen: os.stat_result, wall: float) -> bool:
        """Return True if a session is idle and the queue is full: it can wait for a later scan."""
        return self._is_backlog(seen.st_mtime_ns, wall) and self._queue.is_full

    @staticmethod
    def _is_backlog(mtime_ns: int, wall: float) -> bool:
        return wall - mtime_ns / 1e9 > _LIVING_SECONDS

    def put_found(self, name: SessionName, seen: Written, now: float, wall: float) -> None:
        """Queue a session that the scan found, due when it will be idle.

        `now` is in steady seconds, `wall` in epoch seconds.
        """
        backlog = self._is_backlog(seen.mtime_ns, wall)
        self.put(name, self._idle_at(seen, now, wall), seen, backlog=backlog)

    def put_urgent(
        self,
        name: SessionName,
        seen: Written,
        now: float,
        wall: float,
        urgency: Urgency = Urgency.CRON,
    ) -> bool:
        """Queue a session as urgent: even its smallest saving is committed.

        Returns False if the queue is full.
        """
        self.return_urgency(name, urgency)
        due, work = self._idle_at(seen, now, wall), seen.size / _BYTES_PER_SECOND
        if self._queue.put(name, due, work=work, backlog=True):
            return True
        self.take_urgency(name)
        return False

    def put_idle(self, name: SessionName, now: float, wall: float) -> None:
        """Queue a session that its program has just reported as idle, at `wall` (epoch seconds).

        The session need not have changed, and its directory need not be watched.
        """
        with self._lock:
            self._told_idle[name] = wall
            self._told_idle.move_to_end(name)
            if len(self._told_idle) > _MOST_TOLD:
                self._told_idle.popitem(last=False)
        self.put(name, now + UNCERTAIN_SECONDS)

    def told_idle(self, name: SessionName) -> float | None:
        """Return when its program reported a session as idle (epoch seconds); None: never.

        Lines that were written after this time may show that the session is in use again.
        """
        with self._lock:
            return self._told_idle.get(name)

    def _idle_at(self, seen: Written, now: float, wall: float) -> float:
        """Return when the file will have been quiet for long enough."""
        age = wall - seen.mtime_ns / 1e9
        return now + max(0.0, self._quiet - age) if age >= 0 else now

    def take_urgency(self, name: SessionName) -> Urgency | None:
        """Remove and return the urgency of a session; None if it was not urgent."""
        with self._lock:
            urgency = self._urgent.pop(name, None)
            if not self._urgent:
                self._urgent.clear()  # an emptied dict keeps its memory until it is cleared
            return urgency

    def return_urgency(self, name: SessionName, urgency: Urgency) -> None:
        """Make a session urgent, or urgent again after an attempt without a result."""
        with self._lock:
            if self._urgent.get(name) is not Urgency.ASKED:
                self._urgent[name] = urgency
