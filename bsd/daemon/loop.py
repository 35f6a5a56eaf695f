"""A thread that repeats one step: sleeps exactly until the next, survives it, and beats."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bsd.daemon.beats import Beats
from bsd.daemon.clock import LONGEST_SLEEP_SECONDS, awake, steady
from bsd.foundation.logs import get_logger

_log = get_logger(__name__)

# After a crash: not at once, or a lasting failure would spin.
_AFTER_CRASH_SECONDS = 5.0


class Loop:
    """Repeats `step(now) → when to come again` (None: when woken) until `stop`.

    `now` and the answer are seconds of `clock`. It never sleeps for longer than a minute, so
    suspend and changes of the clock are noticed.
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
        self._beats.expect(self.name, awake(), self._work_seconds)
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
            self._beats.beat(self.name, awake(), self._work_seconds)
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
            return LONGEST_SLEEP_SECONDS
        return min(max(again - self._clock(), 0.0), LONGEST_SLEEP_SECONDS)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not (self._woken or self._stopping):
                self._beats.beat(self.name, awake(), seconds)
                self._changed.wait(seconds)
