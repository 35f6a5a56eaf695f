"""The two clocks of the daemon; everything else gets `now` passed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bsd.foundation.ages import steady

# A wait is measured by a clock that may stand still during suspend, and a calendar may be put
# forward. Nobody sleeps longer than this without looking: one wake-up a minute.
LONGEST_SLEEP_SECONDS = 60.0

__all__ = ["LONGEST_SLEEP_SECONDS", "Clocks", "awake", "steady"]


def awake() -> float:
    """Seconds in which the process could have run, as systemd's watchdog counts them: for beats."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the daemon's parts get the time from: epoch seconds, and steady ones."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady
