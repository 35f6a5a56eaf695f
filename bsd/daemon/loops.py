"""The daemon's threads: their clocks, their heartbeats, and the loop that most of them run.

A `Loop` repeats one step, sleeps until the next step is due, survives errors of a step, and sends
heartbeats.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from bsd.core.clock import steady

_log = structlog.stdlib.get_logger(module="daemon")

# The clock of a wait may stop during suspend, and the wall clock may be set. So no loop that waits
# for a time sleeps longer than this: one wake-up per minute.
LONGEST_SLEEP_SECONDS = 60.0
# A loop that waits to be woken needs no clock; it wakes up only to show that it is alive.
_UNTIL_WOKEN_SECONDS = 600.0
# A heartbeat may be late by this much, for example on a busy machine or a slow disk.
GRACE_SECONDS = 15.0
# The wait after a crash, so that a persistent failure does not use a whole core.
_AFTER_CRASH_SECONDS = 5.0
_ARENAS = -8  # M_ARENA_MAX of glibc's malloc.h


def awake() -> float:
    """Return monotonic seconds without suspend, as systemd's watchdog counts them."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the daemon's parts: `wall` in epoch seconds, `steady` in steady seconds."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady


class Beats:
    """The heartbeats of loops. Each loop announces when its next heartbeat will come at the latest.

    The default clock is `awake`, so that no loop is late because of a suspend.
    """

    def __init__(self, grace: float = GRACE_SECONDS, clock: Callable[[], float] = awake) -> None:
        self._grace = grace
        self._clock = clock
        self._lock = threading.Lock()
        self._promised: dict[str, float] = {}

    def beat(self, loop: str, within: float) -> None:
        """Record a heartbeat of `loop`; its next one comes within `within` seconds.

        Before a long sleep or a long task, pass a longer time.
        """
        with self._lock:
            self._promised[loop] = self._clock() + within

    def expect(self, loop: str, within: float) -> None:
        """Expect the first heartbeat of a loop within `within` seconds."""
        with self._lock:
            self._promised.setdefault(loop, self._clock() + within)

    def end(self, loop: str) -> None:
        """Expect no more heartbeats of a loop: it has ended normally."""
        with self._lock:
            self._promised.pop(loop, None)

    def late(self) -> list[str]:
        """Return the loops whose heartbeat is late."""
        now = self._clock()
        with self._lock:
            return sorted(loop for loop, by in self._promised.items() if now > by + self._grace)


class Loop:
    """A thread that repeats `step(now)` until `stop`.

    `step` returns the time of the next step, or None to wait until the loop is woken. Both times
    are seconds of `clock`. A loop that waits for a time never sleeps longer than a minute, so that
    it notices a suspend and a change of the clock.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[float], float | None],
        beats: Beats,
        *,
        clock: Callable[[], float] = steady,
        work_seconds: float = 60.0,
    ) -> None:
        self.name = name
        self.crashes = 0
        self._step = step
        self._beats = beats
        self._clock = clock
        self._work_seconds = work_seconds  # a step may take so long before the loop counts as late
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"bsd-{name}")

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._beats.expect(self.name, self._work_seconds)
        self._thread.start()

    def wake(self) -> None:
        """Make the next step due now. May be called from any thread, also from the step itself."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def stop(self) -> None:
        """Ask the loop to end after the current step; `join` waits for its end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return True if it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._beats.beat(self.name, self._work_seconds)
            self._sleep(self._once())
        self._beats.end(self.name)

    def _once(self) -> float:
        """Run one step; return how many seconds to sleep."""
        with self._changed:
            self._woken = False
        now = self._clock()
        try:
            again = self._step(now)
        except Exception:  # noqa: BLE001 - the loop must survive a failed step
            self.crashes += 1
            _log.exception("A step has failed", loop=self.name)
            return _AFTER_CRASH_SECONDS
        if again is None:
            return _UNTIL_WOKEN_SECONDS
        return min(max(again - self._clock(), 0.0), LONGEST_SLEEP_SECONDS)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not (self._woken or self._stopping):
                self._beats.beat(self.name, seconds)
                self._changed.wait(seconds)


def share_heap() -> None:
    """Make all threads share one heap, because each separate heap would keep its freed memory.

    This costs no time: threads that wait for Python's lock do not compete for the heap. Without
    glibc this function does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENAS, 1)
