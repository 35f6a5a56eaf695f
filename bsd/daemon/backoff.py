"""How long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long each time, up to `longest` seconds; `chance` (0 to 1) keeps tries apart."""

    first: float = 2.0
    longest: float = 60.0
    chance: Callable[[], float] = random.random

    def delay(self, tries: int) -> float:
        """Seconds to wait after so many tries in a row that led to nothing (1, 2, …)."""
        # The exponent is bounded too: a session may be busy for weeks.
        full = min(self.longest, self.first * 2.0 ** min(tries - 1, 60))
        return full * (0.5 + 0.5 * self.chance())
