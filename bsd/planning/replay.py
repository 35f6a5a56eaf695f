"""Plays a recorded session back under other settings (SPEC §13). Pure functions.

`Timeline` holds what all settings have in common: prices, cold moments, and the moments at which
the daemon would have found the session idle. `play` then goes through the calls under one setting:
before each call it asks `best_timing`, as the daemon does, which of the values that are due leave
now; then it charges the call. Without settings, `play` returns the session without bsd.

Tokens are those of the recording's estimate. A call reads from the cache the part of its prompt
that the call before it sent in the same form, if the cache is warm; the rest is written to it, or
sent as plain input if the provider shows no cache. Answers cost the same with and without bsd and
are not counted. A session in use is left alone: a program counts as at work from the beginning of
a turn to its end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from bsd.core.prices import Price
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.recorded import TYPES, Beginning, LeaveColumns, ModelCall
from bsd.planning.replay_timeline import NEVER, Occasion, StretchContext, Timeline
from bsd.planning.timing import Cut, Timing, best_timing
from bsd.planning.worth import LONGEST_WAIT_SECONDS, is_worth_writing
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import CacheUse, EntryInfo

_THINKING = TYPES.index("thinking")


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

    def within(self, context: StretchContext, until: int) -> float:
        """Return the sum of the entries in a context before an entry."""
        runs = context.runs(until)
        return sum(self.before(end) - self.before(start) for start, end in runs)


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
        # Numbers in `leaves`: values that are due, in the order of the session; values that a
        # signature binds; values that stay for another reason.
        self._due: list[int] = []
        self._bound: list[int] = []
        self._held: list[int] = []
        self._due_tokens = 0.0
        self._fresh = 0  # number in `_due` from which all have become due at this occasion
        self._due_in: tuple[int, int] = (0, -1)  # stretch and binding entry when they were sorted
        self._cut_at: dict[int, int] = {}  # value → number of the first call without it
        # Characters: of the values that have left; of values out of context that leave with the
        # next commit. Since when a saving has been too small for one, in epoch seconds; if commits
        # save no bytes, the time of the last.
        self._saved = self._outside = 0
        self._small_since: float | None = None
        self._unbound: set[int] = set()  # entries whose signature has left
        self._gone = _Sums(len(self._recording.entries))
        self._stretch = 0
        self._removed = 0.0  # unscaled tokens that the present context lacks
        self._cached = 0.0  # tokens of the newest prompt that the next prompt may begin with
        self._cache = PromptCache(prices=timeline.conditions.prices)
        self._has_arrived = False

    def play(self) -> Played:
        """Play all calls, and return those from the arrival of bsd on."""
        for number, call in enumerate(self._recording.calls):
            occasion = self._timeline.occasions[number]
            self._follow_broken_off(number)
            if self._order and occasion is not None and number >= self._timeline.first:
                self._arrive()
                self._use(occasion, number)
            self._charge(number, call)
        self._find_wanted()
        return self._played

    # --- cuts ---

    def _arrive(self) -> None:
        """Begin to count what calls cost, as the daemon does when it first looks at a session."""
        if not self._has_arrived:
            self._has_arrived, cache = True, self._cache
            self._cache = PromptCache(cache.seen, self._timeline.conditions.prices, cache.accounted)

    def _use(self, occasion: Occasion, number: int) -> None:
        """Make the cuts that the rule allows before a call.

        The daemon looks at the session when it is quiet, when its cache gets cold, and when a small
        saving has waited for long enough.
        """
        quiet = self._timeline.conditions.quiet
        now, written = occasion.at or 0.0, (occasion.at or quiet) - quiet
        until = occasion.until or now
        while now <= until:
            self._use_moment(occasion, number, now, written)
            cold_at, since = self._cache.warm_until(now, written), self._small_since
            waited = None if since is None else since + LONGEST_WAIT_SECONDS
            now = min((time for time in (cold_at, waited) if time and time > now), default=inf)

    def _use_moment(self, occasion: Occasion, number: int, now: float, written: float) -> None:
        """Make the cuts that the rule allows now (epoch seconds); `written`: the last write."""
        while self._sort_out(occasion, number):
            start, timing = len(self._due), None
            if self._due:
                start, timing, price = self._decide(occasion, now, written)
            if not self._commits(occasion, start, now) or timing is None or timing.waits:
                return
            self._book(timing, price)
            if not self._cut(occasion, number, timing, start, now):
                return

    def _decide(
        self, occasion: Occasion, now: float, written: float
    ) -> tuple[int, Timing, Price | None]:
        """Return which of the due values leave, as their first number, and why."""
        starts = self._starts()
        cuts = self._cuts(occasion, starts)
        cache = self._cache
        state, price, life = cache.state(now, written), cache.price(now), cache.life_seen(now)
        timing = best_timing(cuts, state, price, self._when, life)
        if timing.waits:
            return len(self._due), timing, price
        start = next(at for at, cut in zip(starts, cuts, strict=True) if cut is timing.cut)
        return start, timing, price

    def _commits(self, occasion: Occasion, start: int, now: float) -> bool:
        """Return whether the daemon commits a plan, with the due values from `start` on.

        Values out of context leave with it.
        """
        values, entries = self._recording.values, self._recording.entries
        leaving = (self._leaves.values[leave] for leave in self._due[start:])
        saved = self._outside + sum(values.characters[value] for value in leaving)
        if not saved:
            return False
        if self._recording.keeps_length:  # at most once in a time, as `tasks.is_worth`
            since = self._small_since
            if since is not None and now - since < LONGEST_WAIT_SECONDS:
                return False
            self._small_since = now
            return True
        size = entries.ends[occasion.seen - 1] if occasion.seen else 0
        waited = 0.0 if self._small_since is None else now - self._small_since
        if not is_worth_writing(saved, size - self._saved - saved, waited):
            self._small_since = now if self._small_since is None else self._small_since
            return False
        self._saved, self._outside, self._small_since = self._saved + saved, 0, None
        return True

    def _sort_out(self, occasion: Occasion, number: int) -> bool:
        """Find the values that may leave now; return False if there are none."""
        entries, order = self._recording.entries, self._order
        messages = entries.messages[occasion.seen - 1] if occasion.seen else 0
        while self._next < len(order) and order[self._next][0] <= messages:
            self._held.append(order[self._next][1])
            self._next += 1
        context = self._timeline.contexts[occasion.stretch]
        binding = self._binding(context, occasion.seen)
        looked_at, self._held, fresh = self._held, [], list[int]()
        values = self._recording.values
        if self._due_in != (occasion.stretch, binding):
            looked_at += self._due + self._bound
            self._due, self._bound, self._due_tokens = [], [], 0.0
            self._due_in = occasion.stretch, binding
        for leave in looked_at:
            value = self._leaves.values[leave]
            entry = values.entries[value]
            unsent = not context.holds(entry)
            if self._stays(leave, value, entry, occasion) or (
                unsent and self._recording.keeps_length
            ):
                self._held.append(leave)
            elif values.displays[value] or unsent:
                self._outside += values.characters[value]  # it leaves at once; no prompt changes
                self._cut_at[value] = number
                self._gone.add(entry, self._leaves.tokens[leave])
            elif entry < binding:
                self._bound.append(leave)
            else:
                self._due_tokens += self._leaves.tokens[leave]
                fresh.append(leave)
        self._fresh = len(self._due)
        if fresh:
            self._due += sorted(fresh)
            if self._fresh and self._due[self._fresh] < self._due[self._fresh - 1]:
                self._due.sort()
        return bool(self._due or self._outside)

    def _stays(self, leave: int, value: int, entry: int, occasion: Occasion) -> bool:
        """Return whether a value stays although enough messages follow it."""
        latest_from, latest_end = occasion.latest
        if entry >= min(occasion.seen, occasion.open_from) or latest_from <= entry < latest_end:
            return True
        if entry >= occasion.turn_from and self._recording.values.types[value] == _THINKING:
            return True
        not_before = self._leaves.not_before[leave]
        return not_before > 0 and (occasion.at is None or not_before > occasion.at)

    def _binding(self, context: StretchContext, seen: int) -> int:
        """Return the newest entry whose signature binds the entries before it; -1: none."""
        bindings = self._leaves.bindings
        for at in range(bisect_left(bindings, seen) - 1, -1, -1):
            entry = bindings[at]
            if entry not in self._unbound and context.holds(entry):
                return entry
        return -1

    def _starts(self) -> list[int]:
        """Return the numbers in `_due` at which cuts may begin.

        All values may leave, or those from one on that has become due since the last decision.
        """
        fresh = range(self._fresh or len(self._due), len(self._due))
        return [0, *(at for at in fresh if self._entry(at) != self._entry(at - 1))]

    def _entry(self, at: int) -> int:
        """Return the entry of a due value."""
        return self._recording.values.entries[self._leaves.values[self._due[at]]]

    def _cuts(self, occasion: Occasion, starts: list[int]) -> list[Cut]:
        """Return the cuts that begin at some of the due values, in the same order."""
        scale = self._recording.stretches[occasion.stretch].scale
        context = self._cache.seen.context - self._cache.accounted.unseen
        removed, end, found = 0.0, len(self._due), list[Cut]()
        for start in reversed(starts):
            removed += self._tokens(start, end) if start else self._due_tokens - removed
            end = start
            leaves = removed * scale
            after = context - self._before(occasion, start)
            # As the daemon does if its estimates do not fit together.
            rewritten = after - leaves if after >= leaves else context
            found.append(Cut(round(leaves), round(rewritten)))
        return found[::-1]

    def _tokens(self, start: int, end: int) -> float:
        """Return the unscaled tokens of some of the due values."""
        return sum(self._leaves.tokens[leave] for leave in self._due[start:end])

    def _before(self, occasion: Occasion, start: int) -> float:
        """Return the tokens in context before one of the due values."""
        context = self._timeline.contexts[occasion.stretch]
        first = self._entry(start)
        kept = context.place(first) - self._gone.within(context, first)
        return context.stretch.constant + kept * context.stretch.scale

    def _cut(self, occasion: Occasion, number: int, timing: Timing, start: int, now: float) -> bool:
        """Take the due values out from `start` on; return True if that frees bound values."""
        charged = self._timeline.charged[number]
        begins = self._before(occasion, start)
        tokens = self._tokens(start, len(self._due)) if start else self._due_tokens
        removed = tokens * self._recording.stretches[occasion.stretch].scale
        for leave in self._due[start:]:
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
            self._removed += tokens
        values, moment = len(self._due) - start, None if occasion.at is None else now
        cut = PlayedCut(number, moment, timing, values, removed, rewritten)
        self._played.cuts.append(cut)
        del self._due[start:]
        self._due_tokens -= tokens
        return self._due_in[1] in self._unbound

    def _book(self, timing: Timing, price: Price | None) -> None:
        """Enter a cut into the session's account, as the daemon does."""
        counted, removed = self._cache.accounted, timing.cut.removed
        self._cache.accounted = replace(
            counted,
            saved=counted.saved - (timing.loss or 0.0) * (price.input if price else 0.0),
            removed=counted.removed + removed,
            unseen=counted.unseen + removed,
        )

    # --- calls ---

    def _charge(self, number: int, call: ModelCall) -> None:
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
        self._cached = prompt
        if number >= self._timeline.first:
            played = self._played
            played.tokens.append(prompt)
            played.read.append(read)
            played.written.append(written)
            played.cost.append(charged.cost(prompt, read))
        if self._order:
            plain = prompt - read - written
            output = call.usage.output if call.usage else call.output
            usage = Usage(round(plain), round(read), round(written), output)
            self._follow(number, call, usage)

    def _follow(self, number: int, call: ModelCall, usage: Usage) -> None:
        """Tell the daemon's account of a call, as its answer would record it."""
        use = CacheUse(
            call.model,
            in_use=bool(usage.read or usage.written),
            life_seconds=call.life,
            provider=call.provider,
            usage=usage if self._timeline.tells else None,
        )
        time_ms = None if call.time is None else call.time * 1000
        answer = EntryInfo(
            None,
            "assistant",
            is_message=True,
            is_assistant=True,
            time_ms=time_ms,
            answer=str(number),
            cache=use,
        )
        self._cache.follow(answer)

    def _follow_broken_off(self, number: int) -> None:
        """Tell the daemon's account of a request before a call that broke off."""
        time = self._timeline.broken_off[number]
        if time is not None and self._order:
            answer = EntryInfo(
                None, "assistant", is_message=True, is_assistant=True, time_ms=time * 1000
            )
            self._cache.follow(answer)

    def _change_stretch(self, call: ModelCall) -> None:
        """Begin another context: the cache holds only the beginning that both contexts share."""
        context = self._timeline.contexts[call.stretch]
        stretch = context.stretch
        self._stretch = call.stretch
        leaves_out = (Beginning.COMPACTION, Beginning.BRANCH, Beginning.ROLL_BACK)
        if stretch.cause in leaves_out and self._order:
            is_compaction = stretch.cause is Beginning.COMPACTION
            time_ms = None if call.asked is None else call.asked * 1000
            change = EntryInfo(
                None,
                stretch.cause.value,
                is_message=False,
                time_ms=time_ms,
                is_compaction=is_compaction,
            )
            self._cache.follow(change, goes_back=not is_compaction)
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
            if all(self._cut_at.get(value, NEVER) <= want.call for value in values):
                noted.add(newest)
                self._played.wanted.append((want.call, newest, want.tokens))
