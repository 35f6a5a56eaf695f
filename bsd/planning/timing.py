"""The rule that says when the daemon makes a cut by itself (SPEC §3a). Pure functions.

A cut is a commit that changes values in context: R tokens leave, and T tokens that stand after the
first changed one must be written to the provider's cache again. The rule never lets a session cost
more than a tenth above the cost of changing nothing: a cut while the cache is warm is a loss of
(w - r) * T until further calls have earned it, so it is made only if the requests since bsd's
arrival were dear enough to bear that loss, and if further calls will probably earn it. Amounts are
in input tokens: one token at the model's input price.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from bsd.core.prices import Price

# Part of the cost without bsd that a cut may put at risk. The bound is a tenth; the rest is for
# errors of the token estimate.
RISK = 0.08
# Further calls that a warm run will see, as a part of the calls that it has seen.
GOES_ON = 0.5


class Cause(StrEnum):
    """Why a cut is made now, or why it waits."""

    __hash__ = str.__hash__  # Enum's own is written in Python

    ASKED = "asked"  # a user or an agent asked, or the setting is "now"
    NO_CACHE = "no_cache"  # no message of the session shows a cache
    COLD = "cold"
    STEP = "step"  # the next request would cost more as a whole
    PAYS = "pays"
    WARM = "warm"  # it waits


@dataclass(frozen=True, slots=True)
class Cut:
    """The effect of a cut on the next request, in tokens."""

    removed: int  # R
    rewritten: int  # T: tokens that stay, after the first changed value


@dataclass(frozen=True, slots=True)
class Account:
    """What requests have cost since bsd's arrival in a session, in input tokens."""

    spent: float = 0.0  # on input, cache reads and cache writes
    saved: float = 0.0  # by earlier cuts; negative if they have cost more than they saved

    @property
    def without_bsd(self) -> float:
        """The cost if nothing had been cut."""
        return self.spent + self.saved


@dataclass(frozen=True, slots=True)
class CacheState:
    """The prompt cache of a session, as its answers show it."""

    in_use: bool
    cold_at: float | None  # epoch seconds; None: it is cold
    context: int = 0  # tokens of the newest request with its answer
    growth: int = 0  # tokens by which a request is usually larger than the one before it
    calls: int = 0  # since the cache was last cold
    account: Account = Account()


@dataclass(frozen=True, slots=True)
class Timing:
    """The decision about a cut, with its figures."""

    cause: Cause
    cut: Cut
    cold_at: float | None = None  # epoch seconds, while the cache is warm
    loss: float | None = None  # input tokens that a cut now costs; None: prices unknown
    dollars: float | None = None  # the same in US dollars
    calls_needed: float | None = None  # further calls that earn the loss
    calls_expected: float | None = None

    @property
    def waits(self) -> bool:
        return self.cause is Cause.WARM


def timing_of(
    cut: Cut, cache: CacheState, price: Price | None, when: str, life: float | None = None
) -> Timing:
    """Decide whether to make a cut now.

    Args:
        price: prices of the model now; None if they are unknown.
        when: the setting: "now", "cold" or "pays".
        life: the cache's lifetime by the session's usage, in seconds, if it shows one.
    """
    if when == "now":
        return Timing(Cause.ASKED, cut)
    if not cache.in_use:
        return Timing(Cause.NO_CACHE, cut)
    if cache.cold_at is None:
        return Timing(Cause.COLD, cut)
    written = price.life(life) if price else None
    if price is None or written is None or cut.removed <= 0:
        return Timing(Cause.WARM, cut, cache.cold_at)
    loss = max(0.0, written.write - price.read) * cut.rewritten
    needed = loss / (price.read * cut.removed) if price.read else inf
    waits = Timing(
        Cause.WARM,
        cut,
        cache.cold_at,
        loss,
        loss * price.input / 1e6,
        needed,
        GOES_ON * cache.calls,
    )
    if when == "cold":
        return waits
    if _stays_below_a_step(cut, cache, price):
        return replace(waits, cause=Cause.STEP)
    account = cache.account
    is_safe = loss - account.saved <= RISK * account.without_bsd
    return (
        replace(waits, cause=Cause.PAYS) if needed <= GOES_ON * cache.calls and is_safe else waits
    )


def _stays_below_a_step(cut: Cut, cache: CacheState, price: Price) -> bool:
    """Return whether the next request is above a price step, and below it with the cut."""
    following = cache.context + cache.growth
    return any(following - cut.removed <= step.above < following for step in price.steps)
