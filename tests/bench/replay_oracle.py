"""The least that a session can cost under a policy, if all later calls are known.

Like the daemon, the oracle may take all values that are due out of a session whenever it is idle
before a call, or wait. It tries every sequence of such cuts: after a cut, the calls that follow
depend only on the moment of that cut, so that one sequence for each moment of the last cut is
enough.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from math import isnan, nan

from bsd.planning.recorded import LeaveColumns
from bsd.planning.replay import _Player
from bsd.planning.replay_timeline import StretchContext, Timeline


@dataclass(slots=True)
class _Path:
    """The cheapest way to the present call of all those with the same last cut."""

    gone: list[tuple[int, float]]  # (entry, tokens) of the values that have left, by entry
    cost: float = 0.0
    removed: float = 0.0  # tokens that the present context lacks
    cached: float = 0.0
    due: float = 0.0  # tokens of the values that are due
    first: int = -1  # the first entry with such a value; -1: there is none
    _entries: list[int] = field(default_factory=list)
    _sums: list[float] = field(default_factory=list)

    def enter(self, context: StretchContext) -> None:
        """Begin a context, which may lack some of the values."""
        inside = [(entry, tokens) for entry, tokens in self.gone if context.holds(entry)]
        self._entries = [entry for entry, _ in inside]
        self._sums = list(accumulate((tokens for _, tokens in inside), initial=0.0))
        self.removed = self._sums[-1]

    def before(self, entry: int, context: StretchContext) -> float:
        """Return the tokens before an entry."""
        kept = context.place(entry) - self._sums[bisect_left(self._entries, entry)]
        return context.stretch.constant + kept * context.stretch.scale


def best_cost(timeline: Timeline, leaves: LeaveColumns) -> float:
    """Return the least cost of a session from bsd's arrival on; nan if a price is unknown."""
    recording = timeline.recording
    watcher = _Player(timeline, leaves, "now")  # it finds the values that are due, and never cuts
    paths = [_Path([])]
    stretch, known = -1, set[int]()
    for number, call in enumerate(recording.calls):
        occasion = timeline.occasions[number]
        context = timeline.contexts[call.stretch]
        if call.stretch != stretch:
            stretch = call.stretch
            for path in paths:
                path.enter(context)
                until = context.stretch.shared_until
                shared = path.before(until, context) if until else context.stretch.constant
                path.cached = min(path.cached, shared) if context.stretch.shares_constant else 0.0
                path.due, path.first = 0.0, -1
            known = set()
        cut: _Path | None = None
        if occasion is not None and number >= timeline.first and occasion.stretch == stretch:
            watcher._sort_out(occasion, number)
            due = {leave: _value(timeline, leaves, leave) for leave in watcher._due}
            _note_due(paths, due, known)
            known = set(due)
            cut = _cut(paths, list(due.values()), context, timeline, number)
        for path in paths:
            _charge(path, timeline, number)
        if cut is not None:
            paths.append(cut)
    return min(path.cost for path in paths)


def _value(timeline: Timeline, leaves: LeaveColumns, leave: int) -> tuple[int, float]:
    entry = timeline.recording.values.entries[leaves.values[leave]]
    return entry, leaves.tokens[leave]


def _note_due(paths: list[_Path], due: dict[int, tuple[int, float]], known: set[int]) -> None:
    """Tell the paths of values that have become due since the occasion before."""
    for leave in due.keys() - known:
        entry, tokens = due[leave]
        for path in paths:
            at = bisect_left(path.gone, (entry, tokens))
            if at < len(path.gone) and path.gone[at] == (entry, tokens):
                continue  # it has left
            path.due += tokens
            path.first = entry if path.first < 0 else min(entry, path.first)


def _cut(
    paths: list[_Path],
    due: list[tuple[int, float]],
    context: StretchContext,
    timeline: Timeline,
    number: int,
) -> _Path | None:
    """Return the cheapest way to cut now and to make the next call; None if nothing is due."""
    best: _Path | None = None
    for path in paths:
        if path.first < 0:
            continue
        after = _Path([], path.cost)
        after.cached = min(path.cached, path.before(path.first, context))
        after.removed = path.removed + path.due
        _charge(after, timeline, number)
        if best is None or after.cost < best.cost:
            best, best.gone = after, sorted({*path.gone, *due})
    if best is not None:
        cached = best.cached
        best.enter(context)
        best.cached = cached
    return best


def _charge(path: _Path, timeline: Timeline, number: int) -> None:
    call, charged = timeline.recording.calls[number], timeline.charged[number]
    scale = timeline.recording.stretches[call.stretch].scale
    prompt = max(0.0, call.prompt - path.removed * scale)
    is_warm = charged.cached and not charged.cold
    if number >= timeline.first:
        cost = charged.cost(prompt, min(path.cached, prompt) if is_warm else 0.0)
        path.cost += nan if isnan(cost) else cost
    path.cached = prompt
