"""The calls of a recording with their prices, and the moments at which bsd may cut.

Whether the cache was warm at a call is read off the recorded usage where it shows that, else it
follows from the lifetime: by the usage, by a request that missed the cache, or by the price table.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isnan, nan
from typing import NamedTuple

from bsd.core.prices import CacheLife, Price, PriceTable, price_of
from bsd.planning.prompt_cache import LEAST_CACHED, SHORTEST_SECONDS, UNKNOWN_SECONDS
from bsd.planning.recorded import TURNS, LeaveColumns, ModelCall, Recording, Stretch
from bsd.transcripts.agents.format import Turn

_BREAKS = TURNS.index(Turn.BREAKS)
# Number of a call that does not come.
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Conditions:
    """The surroundings in which sessions are played back."""

    prices: PriceTable
    quiet: float = 2.0  # seconds without a write after which a session is idle
    in_turns: bool = False  # sessions count as idle within turns too
    arrival: float = 0.0  # bsd arrives after this share of the calls; costs are counted from there
    assume_cache: bool = False  # all providers have a cache, also those that show none


class Charged(NamedTuple):
    """What a call costs, apart from the number of its tokens."""

    price: Price | None  # outside peak hours
    input: float  # US dollars per million tokens, at the time of the call; nan: unknown
    read: float  # relative to an input token
    write: float  # likewise; 1 if the provider charges nothing for it, or shows no cache
    life_seconds: float
    cached: bool  # the provider has a cache
    cold: bool  # the cache of the call before it is gone

    def cost(self, prompt: float, read: float) -> float:
        """Return the US dollars of a prompt of which `read` tokens are cached; nan: unknown."""
        if self.price is None or isnan(self.input):
            return nan
        step = self.price.step(int(prompt))
        factor = self.input * (step.input if step else 1.0)
        return (read * self.read + (prompt - read) * self.write) * factor / 1e6


class Occasion(NamedTuple):
    """The last time before a call at which the session was idle."""

    seen: int  # the session ends before this entry
    at: float | None  # epoch seconds: since when it is idle; None: unknown
    until: float | None  # epoch seconds: the next write
    turn_from: int  # first entry of the last turn
    open_from: int  # first entry of the unfinished turn
    latest: tuple[int, int]  # entries of the latest answer: [from, to)
    stretch: int


class StretchContext:
    """The places of entries in the context of one stretch. Places are in unscaled tokens."""

    def __init__(self, stretch: Stretch, before: array[float]) -> None:
        self.stretch = stretch
        self._before = before  # per entry: tokens of all entries before it
        self._starts = [start for start, _ in stretch.kept]
        sizes = [before[end] - before[start] for start, end in stretch.kept]
        self._offsets = list(accumulate(sizes, initial=0.0))

    def holds(self, entry: int) -> bool:
        """Return whether an entry is in context, or will be once it is written."""
        if entry >= self.stretch.begins:
            return True
        run = bisect_right(self._starts, entry) - 1
        return run >= 0 and entry < self.stretch.kept[run][1]

    def place(self, entry: int) -> float:
        """Return the tokens of the entries in context before an entry."""
        begins = self.stretch.begins
        if entry >= begins:
            return self._offsets[-1] + self._before[entry] - self._before[begins]
        run = bisect_right(self._starts, entry) - 1
        if run < 0:
            return 0.0
        start, end = self.stretch.kept[run]
        return self._offsets[run] + self._before[min(entry, end)] - self._before[start]

    def runs(self, until: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of entries in context that come before an entry: [from, to)."""
        for start, end in self.stretch.kept:
            if start < until:
                yield start, min(end, until)
        if self.stretch.begins < until:
            yield self.stretch.begins, until


class Timeline:
    """A recording with its prices and the moments at which the daemon would have found it idle."""

    def __init__(self, recording: Recording, conditions: Conditions) -> None:
        self.recording, self.conditions = recording, conditions
        calls = recording.calls
        self.first = min(len(calls), int(conditions.arrival * len(calls)))
        before = array("d", [0.0])
        before.extend(accumulate(recording.entries.tokens))
        self.contexts = [StretchContext(stretch, before) for stretch in recording.stretches]
        # Number of the first call that shows a cache, by provider; and of any provider.
        shown: dict[str | None, int] = {}
        for number, call in enumerate(calls):
            if call.usage is not None and (call.usage.read or call.usage.written):
                shown.setdefault(call.provider, number)
        self.cache_seen = 0 if conditions.assume_cache else min(shown.values(), default=NEVER)
        # Without usage nothing tells whether a cache is in use, and money is unknown.
        self.tells = conditions.assume_cache or any(call.usage is not None for call in calls)
        # Per call: when a request before it broke off, which has used the cache, too; None: none.
        pairs = list(pairwise(calls))
        first: list[None] = [None] if calls else []
        self.broken_off = [*first, *(self._broken_off(*pair) for pair in pairs)]
        self._gaps = [*first, *(self._gap(*pair, at) for at, pair in enumerate(pairs, 1))]
        self._shown = [*first, *(_shows_warm(*pair) for pair in pairs)]
        self._missed = {} if conditions.assume_cache else self._missed_after()
        self.charged: list[Charged] = []
        for number, call in enumerate(calls):
            cached = conditions.assume_cache or call.provider in shown
            self.charged.append(self._charge(number, call, cached=cached))
        self.occasions = [
            self._occasion(number) if number else None for number in range(len(calls))
        ]
        self._orders: dict[int, list[tuple[int, int]]] = {}

    def _broken_off(self, before: ModelCall, call: ModelCall) -> float | None:
        """Return when the last request between two calls broke off; None: there is none."""
        entries = self.recording.entries
        found = (
            entries.times[entry]
            for entry in range(call.entry - 1, before.end - 1, -1)
            if entries.turns[entry] == _BREAKS and not isnan(entries.times[entry])
        )
        return next(found, None)

    def _gap(self, before: ModelCall, call: ModelCall, number: int) -> float | None:
        """Return the seconds since the last use of the cache before a call; None: unknown.

        0 if the clock went back.
        """
        asked = call.time if call.asked is None else call.asked
        last = self.broken_off[number] or before.time
        return None if last is None or asked is None else max(0.0, asked - last)

    def _missed_after(self) -> dict[str | None, float]:
        """Return the shortest time after which a request found the cache cold, by provider."""
        found: dict[str | None, float] = {}
        calls = self.recording.calls
        for call, gap, is_warm in zip(calls, self._gaps, self._shown, strict=True):
            if is_warm is False and gap is not None and gap >= SHORTEST_SECONDS:
                found[call.provider] = min(gap, found.get(call.provider, gap))
        return found

    def _charge(self, number: int, call: ModelCall, *, cached: bool) -> Charged:
        """Return what a call costs."""
        price = None
        if call.time is not None:
            price = price_of(self.conditions.prices, call.provider, call.model, call.time)
        life, seconds = self._life(call, price)
        gap = self._gaps[number]
        is_warm = None if self.conditions.assume_cache else self._shown[number]
        if is_warm is None:
            is_warm = gap is None or gap <= seconds
        dollars = nan
        is_known = self.tells and (number == 0 or gap is not None or not cached)
        if price is not None and call.time is not None and is_known:
            dollars = price.charged_at(call.time).input
        return Charged(
            price,
            dollars,
            price.read if price else 0.0,
            life.write if cached and life else 1.0,
            seconds,
            cached,
            not is_warm,
        )

    def _life(self, call: ModelCall, price: Price | None) -> tuple[CacheLife | None, float]:
        """Return the lifetime that a provider publishes and that the usage shows; its seconds."""
        seconds, missed = call.life, self._missed.get(call.provider)
        if seconds is None and missed is not None:
            lives = price.lives if price else ()
            fitting = [life.seconds for life in lives if life.seconds <= missed]
            seconds = max(fitting, default=lives[0].seconds if lives else missed)
        life = price.life(seconds) if price else None
        return life, seconds or (life.seconds if life else UNKNOWN_SECONDS)

    def _occasion(self, number: int) -> Occasion | None:
        """Return the last time between a call and the call before it at which it was idle."""
        calls, entries = self.recording.calls, self.recording.entries
        call, before = calls[number], calls[number - 1]
        is_over = call.open_from >= before.end
        newest = call.entry - 1
        if not self.conditions.in_turns:
            if not is_over:
                return None
            newest = min(newest, call.open_from)
        written = before.time
        found: tuple[int, float, float] | None = None
        for entry in range(before.end, newest + 1):
            time = entries.times[entry]
            if isnan(time):
                continue
            if written is not None and time - written >= self.conditions.quiet:
                found = entry, written + self.conditions.quiet, time
            written = time if written is None else max(written, time)
        if found is None:
            if written is not None or not is_over or newest < before.end:
                return None
            found = min(call.open_from, newest), nan, nan  # nothing here has a time
        seen, at, until = found
        turn_from = before.turn_from if seen <= call.turn_from else call.turn_from
        stretch = call.stretch
        if seen <= self.recording.stretches[stretch].begins:
            stretch = before.stretch
        return Occasion(
            seen,
            None if isnan(at) else at,
            None if isnan(until) else until,
            turn_from,
            call.open_from,
            (call.latest_from, call.latest_end),
            stretch,
        )

    def unpriced(self) -> dict[str, int]:
        """Return the models whose price is not known, with the number of their calls."""
        found: dict[str, int] = {}
        for call, charged in zip(self.recording.calls, self.charged, strict=True):
            if charged.price is None and self.tells and call.time is not None:
                model = call.model or "an unnamed model"
                found[model] = found.get(model, 0) + 1
        return found

    def recorded_cost(self, number: int) -> float:
        """Return the US dollars of a call's input by its recorded usage; nan: unknown."""
        usage, charged = self.recording.calls[number].usage, self.charged[number]
        if usage is None or charged.price is None:
            return nan
        step = charged.price.step(usage.prompt)
        tokens = usage.input + charged.read * usage.read + charged.write * usage.written
        return tokens * charged.input * (step.input if step else 1.0) / 1e6

    def order(self, leaves: LeaveColumns) -> list[tuple[int, int]]:
        """Return (number of messages from which it may leave, number in `leaves`), ascending."""
        known = self._orders.get(id(leaves))
        if known is None:
            values, entries = self.recording.values, self.recording.entries
            known = self._orders[id(leaves)] = sorted(
                (entries.messages[values.entries[value]] + leaves.positions[number], number)
                for number, value in enumerate(leaves.values)
            )
        return known


def _shows_warm(before: ModelCall, call: ModelCall) -> bool | None:
    """Return whether the recorded usage shows that the cache was warm; None: it does not tell."""
    if before.usage is None or call.usage is None or before.stretch != call.stretch:
        return None
    if 2 * call.usage.read >= before.usage.prompt:
        return True
    missed = not call.usage.read and before.usage.prompt >= LEAST_CACHED
    return False if missed else None
