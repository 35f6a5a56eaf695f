"""The two clocks of the daemon; everything else gets `now` passed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# Linux's monotonic clock stands still while the machine sleeps; this one goes on. macOS has only
# the one, and there it goes on too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# A wait is measured by a clock that may stand still during suspend, and a calendar may be put
# forward. Nobody sleeps longer than this without looking: one wake-up a minute.
LONGEST_SLEEP_SECONDS = 60.0


def steady() -> float:
    """Seconds that never jump and go on while the machine sleeps: for due times and back-off."""
    return time.clock_gettime(_STEADY)


def awake() -> float:
    """Seconds in which the process could have run, as systemd's watchdog counts them: for beats."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the daemon's parts get the time from: epoch seconds, and steady ones."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady
