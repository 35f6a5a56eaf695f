"""The rule that says when the daemon makes a cut by itself (SPEC §3a). Pure functions.

A cut is a commit that changes values in context: R tokens leave, and T tokens that stand after the
first changed one must be written to the provider's cache again. A cut while the cache is warm makes
the next request dearer by (w - r) * T, and every request from the next one on cheaper by r * R. If
the session ends after the next request, the difference is lost.

The rule promises that no session costs more than a tenth above the cost of changing nothing,
counted from bsd's arrival, wherever it ends. It keeps an account of the requests since then: a cut
is made only if the account can bear its loss, and if the calls that are expected earn it. Of the
values that are due, the newest may leave alone, since few tokens stand after them.

There is one exception: if the newest request was above a price step, and the next one is below it
with the cut, the account is not needed if a few calls (STEP_CALLS) earn the cut. Amounts are in
input tokens: one token at the model's input price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from bsd.core.prices import Price

# Part of the cost without bsd that may be lost. The bound is a tenth; the rest is for errors of the
# price table and of the time of a request.
RISK = 0.08
# Relative error of estimated tokens that the account bears: losses count as more by this part, and
# savings as less.
ERROR = 0.2
# Further calls that are expected: this number, and a part of the calls since bsd's arrival.
LEAST_CALLS = 10
GOES_ON = 0.25
# A cut that takes a session below a price step needs no account if so many calls earn it.
STEP_CALLS = 5


class Cause(StrEnum):
    """Why a cut is made now, or why it waits."""

    __hash__ = str.__hash__  # Enum's own is written in Python

    ASKED = "asked"  # a user or an agent asked, or the setting is "now"
    NO_CACHE = "no_cache"  # no message of the session shows a cache
    COLD = "cold"
    STEP = "step"  # it pays, since the next request would cost more as a whole
    PAYS = "pays"
    WARM = "warm"  # it waits


@dataclass(frozen=True, slots=True)
class Cut:
    """The effect of a cut on the next request, in tokens."""

    removed: int  # R
    rewritten: int  # T: tokens that stay, after the first changed value


@dataclass(frozen=True, slots=True)
class Account:
    """What requests have cost since bsd's arrival in a session, in input tokens.

    bsd arrives when it first looks at a session. If the account is lost, bsd arrives anew: that
    costs only savings. The same holds for requests that were not counted.
    """

    spent: float = 0.0  # on input, cache reads and cache writes
    # By earlier cuts, those in a cold cache included; negative if they have cost more than they
    # saved. Each request adds the price of the tokens that it lacks, read or written as it was,
    # and each cut in a warm cache takes off (w - r) * T.
    saved: float = 0.0

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
    account: Account = Account()


@dataclass(frozen=True, slots=True)
class Timing:
    """The decision about a cut, with its figures."""

    cause: Cause
    cut: Cut
    cold_at: float | None = None  # epoch seconds, while the cache is warm
    loss: float | None = None  # input tokens that the rewriting costs; None: prices unknown
    dollars: float | None = None  # the same in US dollars
    calls_needed: float | None = None  # calls that earn the loss, from the next one on
    calls_expected: float | None = None
    step: int | None = None  # tokens: the price step below which the cut keeps the next request

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
    return best_timing((cut,), cache, price, when, life)


def best_timing(
    cuts: Sequence[Cut],
    cache: CacheState,
    price: Price | None,
    when: str,
    life: float | None = None,
) -> Timing:
    """Decide which of several cuts to make now, if any.

    Args:
        cuts: at least one. The first takes out all values that are due, and the others only those
            from some place in the session on. The places of the values that have become due since
            the last decision are enough: all others bring little more.
        price, when, life: as in `timing_of`.

    Returns:
        The decision with the cut that it is about. If all wait, that is the first.
    """
    whole = cuts[0]
    if when == "now":
        return Timing(Cause.ASKED, whole)
    if not cache.in_use:
        return Timing(Cause.NO_CACHE, whole)
    if cache.cold_at is None:
        return Timing(Cause.COLD, whole)
    written = price.life(life) if price else None
    if price is None or written is None:
        return Timing(Cause.WARM, whole, cache.cold_at)
    balances = [_Balance.of(cut, cache, price, written.write) for cut in cuts]
    best = balances[0]
    if when == "pays":
        paying = [balance for balance in balances if balance.pays(cache.account)]
        best = max(paying, key=lambda balance: balance.profit, default=best)
    cause = best.cause if when == "pays" and best.pays(cache.account) else Cause.WARM
    step = price.step(cache.context + cache.growth) if cause is Cause.STEP else None
    return Timing(
        cause,
        best.cut,
        cache.cold_at,
        best.loss,
        best.loss * price.input / 1e6,
        best.loss / best.gain if best.gain > 0 else inf,
        best.calls,
        step.above if step else None,
    )


@dataclass(frozen=True, slots=True)
class _Balance:
    """What a cut in a warm cache costs and saves, in input tokens."""

    cut: Cut
    cause: Cause  # if it pays
    loss: float  # what rewriting adds to the next request
    gain: float  # what each request saves, from the next one on
    calls: float  # further calls that are expected
    is_above: bool  # the newest request was above a price step, from which the cut takes the next
    regret: float  # what is lost at most, if the session ends after the next request
    least: float  # what the next request costs at least if nothing is changed

    @classmethod
    def of(cls, cut: Cut, cache: CacheState, price: Price, write: float) -> _Balance:
        size = cache.context + cache.growth
        before, after = _step_factor(price, size), _step_factor(price, size - cut.removed)
        grown = write * cache.growth
        following = before * (price.read * cache.context + grown)
        smaller = after * (price.read * max(0, cache.context - cut.removed) + grown)
        loss = after * max(0.0, write - price.read) * cut.rewritten
        calls = cache.account.without_bsd / following if following > 0 else 0.0
        return cls(
            cut,
            Cause.PAYS if after == before else Cause.STEP,
            loss,
            following - smaller,
            LEAST_CALLS + GOES_ON * max(0.0, calls),
            after < before == _step_factor(price, cache.context - cache.growth),
            (1 + ERROR) * loss - (1 - ERROR) * price.read * cut.removed,
            price.read * cache.context,
        )

    @property
    def profit(self) -> float:
        return self.calls * self.gain - self.loss

    def pays(self, account: Account) -> bool:
        """Return whether the expected calls earn the loss, and the account can bear it."""
        if self.cut.removed <= 0 or self.gain <= 0 or self.profit < 0:
            return False
        if self.is_above and self.loss <= STEP_CALLS * self.gain:
            return True
        saved = account.saved * (1 - ERROR if account.saved > 0 else 1 + ERROR)
        return self.regret - saved <= RISK * (account.without_bsd + self.least)


def _step_factor(price: Price, size: int) -> float:
    step = price.step(size)
    return step.input if step else 1.0
