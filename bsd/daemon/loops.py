"""The daemon's threads: their clocks, their promises, the loop that most of them are.

A `Loop` repeats one step, sleeps exactly until the next, survives it, and beats.
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

# A wait is measured by a clock that may stand still during suspend, and a calendar may be put
# forward. No loop sleeps longer than this without looking: one wake-up a minute.
LONGEST_SLEEP_SECONDS = 60.0
# A loop that waits to be woken needs no clock; it wakes only to show that it is alive.
_UNTIL_WOKEN_SECONDS = 600.0
# How much later than promised is still on time: a busy machine, a slow disk.
GRACE_SECONDS = 15.0
# After a crash: not at once, or a lasting failure would spin.
_AFTER_CRASH_SECONDS = 5.0
_ARENAS = -8  # M_ARENA_MAX of glibc's malloc.h


def awake() -> float:
    """Seconds in which the process could have run, as systemd's watchdog counts them: for beats."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the daemon's parts: epoch seconds, and steady ones."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady


class Beats:
    """Which loops are alive: each promises when it will beat next.

    `clock` is `awake` except in tests: no loop is late because of a suspend.
    """

    def __init__(self, grace: float = GRACE_SECONDS, clock: Callable[[], float] = awake) -> None:
        self._grace = grace
        self._clock = clock
        self._lock = threading.Lock()
        self._promised: dict[str, float] = {}

    def beat(self, loop: str, within: float) -> None:
        """`loop` is alive and will beat again within so many seconds.

        Before a long sleep or a long piece of work, promise accordingly.
        """
        with self._lock:
            self._promised[loop] = self._clock() + within

    def expect(self, loop: str, within: float) -> None:
        """Expect a first beat of a loop within so many seconds."""
        with self._lock:
            self._promised.setdefault(loop, self._clock() + within)

    def end(self, loop: str) -> None:
        """`loop` has ended as it should."""
        with self._lock:
            self._promised.pop(loop, None)

    def late(self) -> list[str]:
        """Loops that have broken their promise; none means that all is well."""
        now = self._clock()
        with self._lock:
            return sorted(loop for loop, by in self._promised.items() if now > by + self._grace)


class Loop:
    """Repeats `step(now) → when to come again` (None: when woken) until `stop`.

    `now` and the answer are seconds of `clock`. A loop that waits for a time never sleeps for more
    than a minute, so suspend and changes of the clock are noticed.
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
        self._work_seconds = work_seconds  # a step may take that long without being called late
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
        """Let the next step come now. From any thread, also from within the step itself."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def stop(self) -> None:
        """Ask it to end after the present step; `join` waits for that."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._beats.beat(self.name, self._work_seconds)
            self._sleep(self._once())
        self._beats.end(self.name)

    def _once(self) -> float:
        """Take one step; returns how many seconds to sleep."""
        with self._changed:
            self._woken = False
        now = self._clock()
        try:
            again = self._step(now)
        except Exception:  # noqa: BLE001 - a loop that ends is worse than any failed step
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
    """Let all threads share one heap: each of their own would hold on to its freed memory.

    Threads that wait for Python's lock do not wait for this one. Nothing happens without glibc.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENAS, 1)
