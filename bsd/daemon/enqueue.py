"""How sessions come into the queue: after an event and a quiet time, by the scan, or by a job."""

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

# How fast a session is read and planned, to tell huge ones from small ones; precision is no matter.
_BYTES_PER_SECOND = 100e6
_MOST_TOLD = 1000  # sessions of which is known when their programs said that they are idle
_LIVING_SECONDS = 60.0  # a session that was written to more lately is likely to be used again

QUIET_SECONDS = 2.0
LONGEST_SECONDS = 30.0


class Debounce:
    """Sessions that changed lately; pure, the caller locks.

    One is due when nothing happened to it for `quiet` seconds, or when it waits for `longest`
    seconds already. Every operation takes constant time for each session that it concerns.
    Threads that read the clock before they get the lock may bring times a little out of order:
    a session is then due by as much later.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        if not 0 <= quiet <= longest:
            raise ValueError("the quiet time is from 0 to the longest delay")
        self._quiet = quiet
        self._longest = longest
        # Both delays are the same for all, so the first noted is the first due: no heap needed.
        self._first: OrderedDict[SessionName, float] = OrderedDict()  # by first note
        self._last: OrderedDict[SessionName, float] = OrderedDict()  # by latest note

    def __len__(self) -> int:
        return len(self._last)

    def note(self, session: SessionName, now: float) -> bool:
        """Note that something happened; True if no session waited before: wake the sleeper."""
        was_empty = not self._last
        self._first.setdefault(session, now)
        self._last[session] = now
        self._last.move_to_end(session)
        return was_empty

    def due(self, now: float) -> list[SessionName]:
        """Take out the sessions whose time has come, the longest waiting first."""
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
        """When `due` will have something to give, if nothing else happens."""
        if not self._last:
            return None
        quiet_at = next(iter(self._last.values())) + self._quiet
        longest_at = next(iter(self._first.values())) + self._longest
        return min(quiet_at, longest_at)


class Urgency(StrEnum):
    """Why a session is looked into at once."""

    CRON = "cron"  # commit however little is saved
    ASKED = "asked"  # the same, and nothing waits for a prompt cache: a person has asked


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
        self._quiet = quiet  # of the file itself, by its mtime
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._urgent: dict[SessionName, Urgency] = {}
        self._told_idle: OrderedDict[SessionName, float] = OrderedDict()  # when, epoch seconds

    def __len__(self) -> int:
        """How many sessions wait for their quiet time."""
        return len(self._debounce)

    def hint(self, name: SessionName) -> None:
        """Note that something happened to a session."""
        with self._lock:
            first = self._debounce.note(name, self._clock())
        if first:
            self._wake()

    def step(self, now: float) -> float | None:
        """Queue sessions that have been quiet for long enough; returns when to come again."""
        with self._lock:
            due = self._debounce.due(now)
            again = self._debounce.next_due()
        for name in due:
            # Writing by bsd makes events, too: then the session is as bsd left it.
            if self._scan.changed(name):
                self.put(name, now)
        return again

    def put(
        self, name: SessionName, due: float, seen: Written | None = None, *, backlog: bool = False
    ) -> None:
        """Queue a session; a session of a backlog lets all others go first."""
        work = seen.size / _BYTES_PER_SECOND if seen else 0.0
        if not self._queue.put(name, due, work=work, backlog=backlog):
            self._scan.forget(name)  # no room: the next scan finds it again

    def can_wait(self, seen: os.stat_result, wall: float) -> bool:
        """Return True if it is idle and the queue is full, so that it can wait for a later scan."""
        return self._is_backlog(seen.st_mtime_ns, wall) and self._queue.is_full

    @staticmethod
    def _is_backlog(mtime_ns: int, wall: float) -> bool:
        return wall - mtime_ns / 1e9 > _LIVING_SECONDS

    def put_found(self, name: SessionName, seen: Written, now: float, wall: float) -> None:
        """Queue a session that the scan found, for when it will be idle; `wall`: epoch seconds."""
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
        """Queue a session that shall be committed however little is saved; False: no room."""
        self.return_urgency(name, urgency)
        due, work = self._idle_at(seen, now, wall), seen.size / _BYTES_PER_SECOND
        if self._queue.put(name, due, work=work, backlog=True):
            return True
        self.take_urgency(name)
        return False

    def put_idle(self, name: SessionName, now: float, wall: float) -> None:
        """Queue a session of which its program has just said that it is idle (`wall`: when).

        It need not have changed, nor lie where changes are noticed.
        """
        with self._lock:
            self._told_idle[name] = wall
            self._told_idle.move_to_end(name)
            if len(self._told_idle) > _MOST_TOLD:
                self._told_idle.popitem(last=False)
        self.put(name, now + UNCERTAIN_SECONDS)

    def told_idle(self, name: SessionName) -> float | None:
        """Return when its program said that a session is idle (epoch seconds); None: it did not.

        Lines written since then may show that it is not any more.
        """
        with self._lock:
            return self._told_idle.get(name)

    def _idle_at(self, seen: Written, now: float, wall: float) -> float:
        """Return when the file will have been quiet for long enough."""
        age = wall - seen.mtime_ns / 1e9
        return now + max(0.0, self._quiet - age) if age >= 0 else now

    def take_urgency(self, name: SessionName) -> Urgency | None:
        """Return why the session was queued as urgent, if so; it is not urgent any more."""
        with self._lock:
            urgency = self._urgent.pop(name, None)
            if not self._urgent:
                self._urgent.clear()  # or it keeps the room that it ever had
            return urgency

    def return_urgency(self, name: SessionName, urgency: Urgency) -> None:
        """Make a session urgent, or urgent again since the attempt at it led to nothing."""
        with self._lock:
            if self._urgent.get(name) is not Urgency.ASKED:
                self._urgent[name] = urgency
