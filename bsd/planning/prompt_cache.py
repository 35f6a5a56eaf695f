"""Follows the provider's prompt cache of a session by its answers (SPEC §3a).

If an old value in context changes, the provider must read everything after it anew. `timing` says
when that pays; this module has the facts: until when the cache is warm, the size of requests, the
calls of the present warm run, and what the requests have cost.

The lifetime of a cache, counted from its last use, comes from the usage in the session, else from
the price table. If the table has several for a model, the longest applies: waiting too long never
costs more than changing nothing.
"""

from __future__ import annotations

from dataclasses import replace

from bsd.core.prices import Price, PriceTable, life_seconds_of, price_of, shipped_prices
from bsd.planning.timing import ERROR, Account, CacheState
from bsd.store.state import Accounted, CacheSeen
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import EntryInfo

# Used if no lifetime is published: a day, the longest that any provider publishes.
UNKNOWN_SECONDS = 24 * 3600.0
# The shortest lifetime that any provider publishes. If a cache is missed sooner, its program has
# changed the beginning of the request.
SHORTEST_SECONDS = 300.0
LEAST_CACHED = 4096  # tokens: no provider asks for more before it caches a prompt
# The growth of a request counts at most this many times the usual growth, so that one pasted file
# does not change what is usual.
_MOST_GROWTH = 4
_GROWTH_WEIGHT = 8  # requests over which the usual growth is averaged
# Evidence about cuts in the next request. It lacks more than they took out, by this part of the
# request before it: text has left with which they may have been made.
_LEFT_OUT = 0.05
# They took out so many times the usual growth, and it is no smaller: its program has the text yet.
_CLEAR = 2


class PromptCache:
    """Follows a session entry by entry.

    Args:
        seen: the facts from the entries before the first one that is followed.
        prices: the prices that bsd knows.
        accounted: what was counted of the session so far; None: bsd arrives now, and what stands
            in the session is not counted.

    Attributes:
        seen: the facts from all entries so far, for a checkpoint.
        accounted: what the requests have cost since bsd's arrival. Answers that it has counted
            before are not counted again.
    """

    def __init__(
        self,
        seen: CacheSeen | None = None,
        prices: PriceTable | None = None,
        accounted: Accounted | None = None,
    ) -> None:
        self.seen = seen or CacheSeen()
        self.accounted = accounted or Accounted()
        self._arrives = accounted is None
        self._prices = prices or shipped_prices()

    def follow(self, info: EntryInfo, *, goes_back: bool = False) -> None:
        """Add the next entry; `goes_back`: it leaves out of context what precedes it."""
        seen, use = self.seen, info.cache
        if goes_back:
            self._forget_cuts(info.time_ms)
        if info.is_compaction:
            seen = replace(seen, is_compacted=True)
            self._forget_cuts(info.time_ms)
        if use is not None:
            changes = use.model is not None and use.model != seen.model
            changes |= use.provider is not None and use.provider != seen.provider
            if changes:  # another model's cache
                seen = replace(
                    seen,
                    model=use.model or seen.model,
                    provider=use.provider or seen.provider,
                    life_seconds=None,
                    missed_after=None,
                    calls=0,
                )
            if use.life_seconds is not None and use.life_seconds != seen.life_seconds:
                seen = replace(seen, life_seconds=use.life_seconds)
            if use.in_use and not seen.in_use:
                seen = replace(seen, in_use=True)
            if use.usage is not None:
                self.seen = seen
                seen = self._after_request(info, use.usage)
        if info.is_assistant and info.time_ms is not None and info.time_ms != seen.used_ms:
            seen = replace(seen, used_ms=info.time_ms)
        self.seen = seen

    def _after_request(self, info: EntryInfo, usage: Usage) -> CacheSeen:
        """Return the facts after a request; an answer of several entries counts once."""
        seen = self.seen
        used_ms = seen.used_ms if info.time_ms is None else info.time_ms
        last = Usage(*seen.usage) if seen.usage else None
        is_same = info.answer == seen.answer if info.answer is not None else usage == last
        if is_same:  # a later part states the output more exactly
            self._note_time(info.time_ms)
            return replace(seen, usage=tuple(usage), used_ms=used_ms)
        gap = None
        if seen.used_ms is not None and info.time_ms is not None:
            gap = (info.time_ms - seen.used_ms) / 1000
        is_new_run = seen.calls == 0
        if gap is not None and info.time_ms is not None:
            is_new_run |= gap > self._life_seconds(info.time_ms / 1000)
        has_missed = last is not None and 2 * usage.read < last.prompt
        self._charge(info.time_ms, usage, last, is_cold=is_new_run and has_missed)
        missed_after = seen.missed_after
        if gap is not None and seen.calls and not seen.is_compacted and last is not None:
            if not usage.read and last.prompt >= LEAST_CACHED and gap >= SHORTEST_SECONDS:
                missed_after = min(gap, missed_after or gap)
            elif not has_missed and missed_after is not None and gap >= missed_after:
                missed_after = None  # something else had changed the request then
        grown, growth = seen.grown, seen.growth
        if last is None or seen.is_compacted:
            grown += usage.prompt
        elif (more := usage.prompt - last.prompt) > 0:
            grown += more
            bounded = min(more, _MOST_GROWTH * growth) if growth else more
            growth += (bounded - growth) / _GROWTH_WEIGHT if growth else bounded
        else:  # values left, or another branch goes on: what was added cannot be seen
            grown += int(growth)
        return replace(
            seen,
            used_ms=used_ms,
            usage=tuple(usage),
            answer=info.answer,
            grown=grown,
            growth=growth,
            calls=1 if is_new_run else seen.calls + 1,
            missed_after=missed_after,
            is_compacted=False,
        )

    # --- the account ---

    def _is_counted(self, time_ms: float | None) -> bool:
        return self._arrives or time_ms is None or time_ms <= self.accounted.until_ms

    def _note_time(self, time_ms: float | None) -> None:
        if time_ms is not None and time_ms > self.accounted.until_ms:
            self.accounted = replace(self.accounted, until_ms=time_ms)

    def _forget_cuts(self, time_ms: float | None) -> None:
        """Note that text has left the context with which bsd's cuts may have been made."""
        if not self._is_counted(time_ms):
            self.accounted = replace(self.accounted, removed=0, unseen=0)
            self._note_time(time_ms)

    def _charge(
        self, time_ms: float | None, usage: Usage, seen: Usage | None, *, is_cold: bool
    ) -> None:
        """Count a request that was not counted before, with what bsd's cuts have saved of it.

        `seen`: the request before it, if any.
        """
        is_counted = self._is_counted(time_ms)
        self._note_time(time_ms)
        if is_counted or time_ms is None:
            return
        counted = self.accounted = replace(self.accounted, removed=self._removed(usage))
        shrunk = seen.prompt - usage.prompt if seen else usage.prompt
        if shrunk > 2 * counted.unseen + _MOST_GROWTH * self.seen.growth:
            # More has left than bsd has taken out: the program goes on from an earlier entry, or
            # this is another session. What bsd had taken out may have left as well.
            counted = replace(counted, removed=0)
        price = self.price(time_ms / 1000)
        life = price.life(self.life_seen(time_ms / 1000)) if price else None
        if price is None:
            self.accounted = replace(self.accounted, removed=counted.removed, unseen=0)
            return
        written = life.write if life else 1.0
        spent = usage.input + price.read * usage.read + written * usage.written
        more = counted.removed * (written if is_cold else price.read)
        with_cuts, without = (
            step.input if (step := price.step(tokens)) else 1.0
            for tokens in (usage.prompt, usage.prompt + counted.removed)
        )
        self.accounted = replace(
            self.accounted,
            spent=counted.spent + price.input * spent * with_cuts,
            saved=counted.saved + price.input * ((spent + more) * without - spent * with_cuts),
            removed=counted.removed,
            unseen=0,
        )

    def _removed(self, usage: Usage) -> int:
        """Return the tokens that bsd's cuts have taken out of a request, as far as it shows them.

        A program may go on with the text that it has in memory, or from an earlier place. Savings
        of cuts that are not in effect would let the rule risk more than it may.
        """
        seen, counted = self.seen, self.accounted
        if seen.usage is None or seen.is_compacted or not counted.removed:
            return counted.removed
        last = Usage(*seen.usage)
        lost = last.prompt - usage.prompt
        if lost > (1 + ERROR) * counted.unseen + _LEFT_OUT * last.prompt:
            return 0
        is_clear = counted.unseen > _CLEAR * seen.growth > 0
        return counted.removed - counted.unseen if is_clear and lost <= 0 else counted.removed

    # --- prices and lifetimes ---

    def price(self, at: float) -> Price | None:
        """Return the prices of the session's model at a time in epoch seconds."""
        return price_of(self._prices, self.seen.provider, self.seen.model, at)

    def life_seen(self, at: float) -> float | None:
        """Return the lifetime in seconds that usage, or a request that missed the cache, shows.

        None if the session shows none. `at` is in epoch seconds.
        """
        seen = self.seen
        if seen.life_seconds is not None or seen.missed_after is None:
            return seen.life_seconds
        price = self.price(at)
        lives = [life.seconds for life in price.lives] if price else []
        if not lives:
            return seen.missed_after
        return max((each for each in lives if each <= seen.missed_after), default=lives[0])

    def _life_seconds(self, at: float) -> float:
        if (seen := self.life_seen(at)) is not None:
            return seen
        return life_seconds(self.seen.model, at, self._prices, self.seen.provider)

    # --- answers, once the last entry was followed ---

    def warm_until(self, now: float, written: float) -> float | None:
        """Return when the cache gets cold; None if it is cold now or no cache is in use.

        A time further ahead than the cache lives comes from a wrong clock. It is ignored, so that
        no session waits for it.

        Args:
            now: epoch seconds, like the result.
            written: when the session's file was last written, in epoch seconds.
        """
        if not self.seen.in_use:
            return None
        life = self._life_seconds(now)
        used_ms = self.seen.used_ms
        times = [written] if used_ms is None else [used_ms / 1000, written]
        used = next((time for time in times if time <= now + life), None)
        return used + life if used is not None and used + life > now else None

    def state(self, now: float, written: float) -> CacheState:
        """Return the state of the cache, for the rule; the arguments are those of `warm_until`."""
        seen, counted = self.seen, self.accounted
        price = self.price(now)
        account = Account()
        if price is not None and price.input > 0:
            account = Account(counted.spent / price.input, counted.saved / price.input)
        return CacheState(
            seen.in_use,
            self.warm_until(now, written),
            max(0, seen.context - counted.unseen),
            int(seen.growth),
            account,
        )


def life_seconds(
    model: str, at: float, prices: PriceTable | None = None, provider: str | None = None
) -> float:
    """Return how long a model's cache lives after its last use, if usage does not tell it.

    If the provider is not one of those that publish prices, the model's name decides. `at` is in
    epoch seconds.
    """
    for each in dict.fromkeys((provider, None)):
        life = life_seconds_of(prices or shipped_prices(), each, model, at)
        if life is not None:
            return life
    return UNKNOWN_SECONDS
