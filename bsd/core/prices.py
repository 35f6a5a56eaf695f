"""Prices of models, by date, as their providers publish them (SPEC §3a).

Shipped rows are in `prices.json`. A model that no row matches has no price: bsd then counts tokens
and names no money.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheLife:
    """A lifetime of cached tokens that a provider offers."""

    seconds: float  # after the last use
    write: float  # price of a written token, relative to an input token


@dataclass(frozen=True, slots=True)
class PriceStep:
    """Other prices of a whole request whose prompt is larger than `above` tokens."""

    above: int
    input: float  # factor on input, cache reads and cache writes
    output: float  # factor on output


@dataclass(frozen=True, slots=True)
class PeakHours:
    """Hours of a day at which all prices are multiplied."""

    begin: int  # hour in UTC, 0 to 23
    end: int  # hour in UTC, exclusive, 1 to 24
    factor: float


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a date on. Money is US dollars per million tokens."""

    input: float
    output: float
    read: float  # price of a token read from the cache, relative to an input token
    lives: tuple[CacheLife, ...]  # shortest first; empty: no published lifetime
    steps: tuple[PriceStep, ...] = ()  # ascending by `above`
    peaks: tuple[PeakHours, ...] = ()
    valid_from: str = ""  # ISO date; empty: since ever
    source: str = ""
    pattern: str = ""  # of the models, as in the row

    def life(self, seconds: float | None) -> CacheLife | None:
        """Return the lifetime that applies; None if none is published.

        Args:
            seconds: the lifetime that the session's usage shows, if any. Without it, the longest
                applies, since waiting too long never costs more than changing nothing.
        """
        if not self.lives:
            return None
        if seconds is None:
            return self.lives[-1]
        return min(self.lives, key=lambda life: abs(life.seconds - seconds))

    def step(self, tokens: int) -> PriceStep | None:
        """Return the step that a prompt of `tokens` tokens is above, the highest; None if none."""
        return next((step for step in reversed(self.steps) if tokens > step.above), None)
