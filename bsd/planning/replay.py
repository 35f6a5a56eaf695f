"""Plays a recorded session back under other settings (SPEC §13). Pure functions.

`Timeline` holds what all settings have in common: prices, cold moments, and the moments at which
the daemon would have found the session idle. `play` then goes through the calls under one setting:
before each call it asks `timing_of`, as the daemon does, whether the values that are due leave now;
then it charges the call. Without settings, `play` returns the session without bsd.

Tokens are those of the recording's estimate. A call reads from the cache the part of its prompt
that the call before it sent in the same form, if the cache is warm; the rest is written to it, or
sent as plain input if the provider shows no cache. Answers cost the same with and without bsd and
are not counted. A session in use is left alone: a program counts as at work from the beginning of
a turn to its end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf, isnan, nan
from statistics import median
from typing import NamedTuple

from bsd.core.prices import Price, PriceTable, price_of
from bsd.planning.recorded import TYPES, Call, LeaveColumns, Recording, Stretch
from bsd.planning.timing import Account, CacheState, Cut, Timing, timing_of

_THINKING = TYPES.index("thinking")
_NEVER = 1 << 62  # number of a call that does not come
# Lifetime of a cache whose provider publishes none: the longest that any provider publishes.
_UNKNOWN_LIFE_SECONDS = 86_400.0


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


class PlayedCut(NamedTuple):
    """A cut before a call. Numbers are tokens, except `values`."""

    call: int
    at: float | None  # epoch seconds
    timing: Timing
    values: int
    removed: float
    rewritten: float  # tokens that would have been read from the cache, and are written again


@dataclass(slots=True)
class Played:
    """The calls of a session under one setting, from `first` on: a column for each property."""

    first: int
    tokens: array[float] = field(default_factory=lambda: array("d"))
    read: array[float] = field(default_factory=lambda: array("d"))
    written: array[float] = field(default_factory=lambda: array("d"))
    cost: array[float] = field(default_factory=lambda: array("d"))  # US dollars; nan: unknown
    cuts: list[PlayedCut] = field(default_factory=list)
    wanted: list[tuple[int, int, float]] = field(default_factory=list)  # (call, value, tokens)


class _Context:
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


class _Sums:
    """Numbers for entries, with the sums of ranges of entries (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._tree = array("d", bytes(8 * (size + 1)))

    def add(self, entry: int, amount: float) -> None:
        at = entry + 1
        while at < len(self._tree):
            self._tree[at] += amount
            at += at & -at

    def before(self, entry: int) -> float:
        total = 0.0
        while entry > 0:
            total += self._tree[entry]
            entry &= entry - 1
        return total

    def within(self, context: _Context, until: int) -> float:
        """Return the sum of the entries in a context before an entry."""
        runs = context.runs(until)
        return sum(self.before(end) - self.before(start) for start, end in runs)


class Timeline:
    """A recording with its prices and the moments at which the daemon would have found it idle."""

    def __init__(self, recording: Recording, conditions: Conditions) -> None:
        self.recording, self.conditions = recording, conditions
        calls = recording.calls
        self.first = min(len(calls), int(conditions.arrival * len(calls)))
        before = array("d", [0.0])
        before.extend(accumulate(recording.entries.tokens))
        self.contexts = [_Context(stretch, before) for stretch in recording.stretches]
        # Number of the first call that shows a cache, by provider; and of any provider.
        shown: dict[str | None, int] = {}
        for number, call in enumerate(calls):
            if call.usage is not None and (call.usage.read or call.usage.written):
                shown.setdefault(call.provider, number)
        self.cache_seen = 0 if conditions.assume_cache else min(shown.values(), default=_NEVER)
        # Without usage nothing tells whether a cache is in use, and money is unknown.
        self.tells = conditions.assume_cache or any(call.usage is not None for call in calls)
        self.charged: list[Charged] = []
        last: float | None = None  # when the cache was used, epoch seconds
        for call in calls:
            cached = conditions.assume_cache or call.provider in shown
            self.charged.append(self._charge(call, last, cached=cached))
            last = call.time
        self.occasions = [
            self._occasion(number) if number else None for number in range(len(calls))
        ]
        self._orders: dict[int, list[tuple[int, int]]] = {}

    def _charge(self, call: Call, last: float | None, *, cached: bool) -> Charged:
        """Return what a call costs; `last` is the time of the call before it."""
        price = None
        if call.time is not None:
            price = price_of(self.conditions.prices, call.provider, call.model, call.time)
        life = price.life(call.life) if price else None
        seconds = call.life or (life.seconds if life else _UNKNOWN_LIFE_SECONDS)
        asked = call.time if call.asked is None else call.asked
        first = call is self.recording.calls[0]
        cold = not first and last is not None and asked is not None and asked - last > seconds
        dollars = nan
        is_known = self.tells and (first or last is not None or not cached)
        if price is not None and call.time is not None and is_known:
            dollars = price.charged_at(call.time).input
        return Charged(
            price,
            dollars,
            price.read if price else 0.0,
            life.write if cached and life else 1.0,
            seconds,
            cached,
            cold,
        )

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
        """Return (number of messages from which it may leave, number in `leaves`), ascending.

        Values that are never sent are left out: they change no prompt.
        """
        known = self._orders.get(id(leaves))
        if known is None:
            values, entries = self.recording.values, self.recording.entries
            known = self._orders[id(leaves)] = sorted(
                (entries.messages[values.entries[value]] + leaves.positions[number], number)
                for number, value in enumerate(leaves.values)
                if not values.displays[value]
            )
        return known


def play(timeline: Timeline, leaves: LeaveColumns | None = None, when: str = "now") -> Played:
    """Play a session back under one setting; without `leaves`, as it is without bsd.

    Args:
        leaves: the values that leave under the setting's policy: one of `Recording.leaves`.
        when: the setting of this name.
    """
    return _Player(timeline, leaves or LeaveColumns(), when).play()


class _Player:
    """The state of a session under one setting while its calls are played."""

    def __init__(self, timeline: Timeline, leaves: LeaveColumns, when: str) -> None:
        self._timeline, self._leaves, self._when = timeline, leaves, when
        self._recording = timeline.recording
        self._played = Played(timeline.first)
        self._order = timeline.order(leaves) if leaves else []
        self._next = 0  # in `_order`
        # Numbers in `leaves`: values that leave at the next cut; that a signature binds; that stay
        # for another reason.
        self._due: list[int] = []
        self._bound: list[int] = []
        self._held: list[int] = []
        self._due_tokens, self._due_first = 0.0, 0
        self._due_in: tuple[int, int] = (0, -1)  # stretch and binding entry when they were sorted
        self._cut_at: dict[int, int] = {}  # value → number of the first call without it
        self._unbound: set[int] = set()  # entries whose signature has left
        self._gone = _Sums(len(self._recording.entries))
        self._stretch = 0
        self._removed = 0.0  # unscaled tokens that the present context lacks
        self._cached = 0.0  # tokens of the newest prompt that the next prompt may begin with
        self._context = 0.0  # tokens of the newest prompt with its answer
        self._growths: list[float] = []
        self._prompt = 0.0
        self._run = 0  # calls since the cache was last cold
        self._account = Account()

    def play(self) -> Played:
        """Play all calls, and return those from the arrival of bsd on."""
        for number, call in enumerate(self._recording.calls):
            occasion = self._timeline.occasions[number]
            if self._order and occasion is not None and number >= self._timeline.first:
                self._use(occasion, number)
            self._charge(number, call)
        self._find_wanted()
        return self._played

    # --- cuts ---

    def _use(self, occasion: Occasion, number: int) -> None:
        """Make the cuts that the rule allows before a call."""
        while self._sort_out(occasion, number):
            timing, at = self._timing(occasion, number)
            if timing.waits or not self._cut(occasion, number, timing, at):
                return

    def _sort_out(self, occasion: Occasion, number: int) -> bool:
        """Find the values that are due now; return False if there are none."""
        entries, order = self._recording.entries, self._order
        messages = entries.messages[occasion.seen - 1] if occasion.seen else 0
        while self._next < len(order) and order[self._next][0] <= messages:
            self._held.append(order[self._next][1])
            self._next += 1
        context = self._timeline.contexts[occasion.stretch]
        binding = self._binding(context, occasion.seen)
        looked_at, self._held = self._held, []
        if self._due_in != (occasion.stretch, binding):
            looked_at += self._due + self._bound
            self._due, self._bound, self._due_tokens = [], [], 0.0
            self._due_in = occasion.stretch, binding
        for leave in looked_at:
            value = self._leaves.values[leave]
            entry = self._recording.values.entries[value]
            if self._stays(leave, value, entry, occasion):
                self._held.append(leave)
            elif not context.holds(entry):  # it leaves at once, and changes no prompt
                self._cut_at[value] = number
                self._gone.add(entry, self._leaves.tokens[leave])
            elif entry < binding:
                self._bound.append(leave)
            else:
                self._due_first = min(entry, self._due_first) if self._due else entry
                self._due_tokens += self._leaves.tokens[leave]
                self._due.append(leave)
        return bool(self._due)

    def _stays(self, leave: int, value: int, entry: int, occasion: Occasion) -> bool:
        """Return whether a value stays although enough messages follow it."""
        latest_from, latest_end = occasion.latest
        if entry >= min(occasion.seen, occasion.open_from) or latest_from <= entry < latest_end:
            return True
        if entry >= occasion.turn_from and self._recording.values.types[value] == _THINKING:
            return True
        not_before = self._leaves.not_before[leave]
        return not_before > 0 and (occasion.at is None or not_before > occasion.at)

    def _binding(self, context: _Context, seen: int) -> int:
        """Return the newest entry whose signature binds the entries before it; -1: none."""
        bindings = self._leaves.bindings
        for at in range(bisect_left(bindings, seen) - 1, -1, -1):
            entry = bindings[at]
            if entry not in self._unbound and context.holds(entry):
                return entry
        return -1

    def _timing(self, occasion: Occasion, number: int) -> tuple[Timing, float | None]:
        """Return the decision of the daemon about the values that are due, and when it is made."""
        timeline, stretch = self._timeline, self._recording.stretches[occasion.stretch]
        newest, call = timeline.charged[number - 1], self._recording.calls[number - 1]
        removed = self._due_tokens * stretch.scale
        rewritten = max(0.0, self._context - self._before_first(occasion) - removed)
        cut = Cut(round(removed), round(rewritten))
        cold_at = inf if call.time is None else call.time + newest.life_seconds
        at = occasion.at
        is_warm = at is None or cold_at > at
        state = CacheState(
            in_use=number > timeline.cache_seen,
            cold_at=cold_at if is_warm else None,
            context=round(self._context),
            growth=round(median(self._growths or (0.0,))),
            calls=self._run,
            account=self._account,
        )
        timing = timing_of(cut, state, newest.price, self._when, call.life)
        if timing.waits and occasion.until is not None and cold_at <= occasion.until:
            at = cold_at
            state = replace(state, cold_at=None)
            timing = timing_of(cut, state, newest.price, self._when, call.life)
        return timing, at

    def _before_first(self, occasion: Occasion) -> float:
        """Return the tokens before the first value that is due."""
        context = self._timeline.contexts[occasion.stretch]
        kept = context.place(self._due_first) - self._gone.within(context, self._due_first)
        return context.stretch.constant + kept * context.stretch.scale

    def _cut(self, occasion: Occasion, number: int, timing: Timing, at: float | None) -> bool:
        """Take the due values out; return True if that frees values that a signature bound."""
        charged = self._timeline.charged[number]
        begins = self._before_first(occasion)
        removed = self._due_tokens * self._recording.stretches[occasion.stretch].scale
        for leave in self._due:
            value = self._leaves.values[leave]
            entry = self._recording.values.entries[value]
            self._cut_at[value] = number
            self._gone.add(entry, self._leaves.tokens[leave])
            if self._recording.values.types[value] == _THINKING:
                self._unbound.add(entry)
        rewritten = 0.0
        if occasion.stretch == self._stretch:
            if charged.cached and not charged.cold:
                rewritten = max(0.0, self._cached - begins - removed)
            self._cached = min(self._cached, begins)
            self._removed += self._due_tokens
        self._book(at, number, timing.cut)
        self._played.cuts.append(PlayedCut(number, at, timing, len(self._due), removed, rewritten))
        self._due, self._due_tokens = [], 0.0
        return self._due_in[1] in self._unbound

    def _book(self, at: float | None, number: int, cut: Cut) -> None:
        """Note the loss of a cut while the cache is warm."""
        newest, call = self._timeline.charged[number - 1], self._recording.calls[number - 1]
        age = None if at is None or call.time is None else at - call.time
        if newest.cached and (age is None or age < newest.life_seconds):
            loss = max(0.0, newest.write - newest.read) * cut.rewritten
            self._account = replace(self._account, saved=self._account.saved - loss)

    # --- calls ---

    def _charge(self, number: int, call: Call) -> None:
        """Send a call, and count it if bsd has arrived."""
        charged = self._timeline.charged[number]
        stretch = self._recording.stretches[call.stretch]
        if call.stretch != self._stretch or number == 0:
            self._change_stretch(call)
        removed = self._removed * stretch.scale
        prompt = max(0.0, call.prompt - removed)
        is_warm = charged.cached and not charged.cold
        read = min(self._cached, prompt) if is_warm else 0.0
        written = prompt - read if charged.cached else 0.0
        counts = number >= self._timeline.first
        if counts:
            played = self._played
            played.tokens.append(prompt)
            played.read.append(read)
            played.written.append(written)
            played.cost.append(charged.cost(prompt, read))
            spent = read * charged.read + (prompt - read) * charged.write
            saved = removed * (charged.read if is_warm else charged.write)
            account = self._account
            self._account = Account(account.spent + spent, account.saved + saved)
        if number and prompt > self._prompt:
            self._growths.append(prompt - self._prompt)
        self._run = self._run + 1 if is_warm else 1
        self._prompt = self._cached = prompt
        self._context = prompt + call.output

    def _change_stretch(self, call: Call) -> None:
        """Begin another context: the cache holds only the beginning that both contexts share."""
        context = self._timeline.contexts[call.stretch]
        stretch = context.stretch
        self._stretch = call.stretch
        self._removed = self._gone.within(context, call.entry)
        shared = 0.0
        if stretch.shares_constant:
            until = stretch.shared_until
            kept = context.place(until) - self._gone.within(context, until) if until else 0.0
            shared = stretch.constant + kept * stretch.scale
        self._cached = min(self._cached, shared)

    # --- values that are wanted again ---

    def _find_wanted(self) -> None:
        """Note the values that a call used again when no entry in context held their text."""
        noted: set[int] = set()
        for want in self._recording.wants:
            values = [value for _, value in want.holders]
            newest = max(values, default=-1)
            if want.call < self._played.first or min(values, default=-1) < 0 or newest in noted:
                continue
            if all(self._cut_at.get(value, _NEVER) <= want.call for value in values):
                noted.add(newest)
                self._played.wanted.append((want.call, newest, want.tokens))
