"""Turns the sizes of a recording into tokens, and compares them with the recorded tokens."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import median
from typing import NamedTuple

from bsd.planning.recorded import TYPES, Beginning, Deviation, ModelCall, Recording, Stretch
from bsd.planning.tokens import NO_SIZE, Estimate, Request, Requests, Sizes, TextSize, fit

# Words about odd input, keys of `Recording.notes`.
NO_USAGE = "answers without recorded tokens"
ODD_USAGE = "answers whose recorded tokens cannot be true"
NO_TIME = "answers without a time"
SMALLER = "requests much smaller than the session before them: their program left content out"

# Recorded tokens are not those of this context if they are so many times more or less.
_ODD = 10.0
_MUCH = 1.5
_LEAST_COMPARED = 2
_THINKING = TYPES.index("thinking")


class Away(NamedTuple):
    """The values that bsd has extracted from an entry, and when."""

    entry: int
    at: float  # epoch seconds
    size: TextSize


class _Context(NamedTuple):
    """The content of a request."""

    whole: TextSize  # without bsd
    turn: TextSize  # the part of it that belongs to the last turn
    lean: TextSize  # what bsd had extracted


class _Contexts:
    """The content of each request, in columns: a session may have many requests."""

    def __init__(self, recording: Recording, sizes: RecordedSizes) -> None:
        self._columns = [Sizes(sums=True) for _ in range(3)]
        for context in _contexts(recording, sizes):
            for column, size in zip(self._columns, context, strict=True):
                column.append(size)

    def from_call(self, start: int, end: int | None = None) -> Iterator[_Context]:
        """Yield the contents of the requests of a range."""
        for at in range(start, len(self._columns[0]) if end is None else end):
            yield _Context(*(column[at] for column in self._columns))


@dataclass(slots=True)
class RecordedSizes:
    """The sizes that a reader has collected."""

    entries: Sizes
    values: Sizes
    outputs: Sizes  # of the answer of each call
    kept: list[array[int]]  # per policy and leaving value: characters that stay
    away: list[Away]


def set_tokens(recording: Recording, sizes: RecordedSizes) -> None:
    """Set all tokens of a recording, and its deviation."""
    contexts = _Contexts(recording, sizes)
    estimates = _estimates(recording, contexts)
    recording.deviation = _deviation(recording, contexts)
    _set_calls(recording, sizes, contexts, estimates)
    _merge_stretches(recording)
    models = [call.model for call in recording.calls]
    main = estimates[max(set(models), key=models.count)] if models else fit(Requests(), None)
    recording.characters_per_token, recording.measured = main.characters, main.measured
    by_stretch = {call.stretch: estimates[call.model] for call in recording.calls}
    recording.stretches = [
        _with_estimate(stretch, by_stretch.get(number, main), main)
        for number, stretch in enumerate(recording.stretches)
    ]
    entries = sizes.entries
    recording.entries.tokens.extend(main.tokens(entries[at]) for at in range(len(entries)))
    values = sizes.values
    recording.values.tokens.extend(main.tokens(values[at]) for at in range(len(values)))
    if main.thinking.in_turn:  # thinking leaves after its turn, when it is not sent any more
        for at, type_ in enumerate(recording.values.types):
            recording.values.displays[at] |= type_ == _THINKING
    recording.wants = [
        want._replace(
            tokens=round(recording.values.tokens[max(value for _, value in want.holders)])
        )
        for want in recording.wants
    ]
    for leaves, kept in zip(recording.leaves, sizes.kept, strict=True):
        leaves.tokens.extend(
            max(0.0, recording.values.tokens[value] - characters / main.characters)
            for value, characters in zip(leaves.values, kept, strict=True)
        )


def _with_estimate(stretch: Stretch, estimate: Estimate, main: Estimate) -> Stretch:
    scale = main.characters / estimate.characters
    return stretch._replace(constant=round(estimate.constant), scale=scale)


# --- contexts ---


def _contexts(recording: Recording, sizes: RecordedSizes) -> Iterator[_Context]:
    """Yield the content of each request."""
    lean = list(_lean(recording, sizes.away))
    present, at, turn_from = -1, 0, -1
    whole = turn = NO_SIZE
    for call, extracted in zip(recording.calls, lean, strict=True):
        stretch = recording.stretches[call.stretch]
        if call.stretch != present:
            present, at, turn_from = call.stretch, stretch.begins, -1
            whole = _sum(sizes.entries, stretch.kept)
        more = sizes.entries.sum(at, call.entry)
        whole = whole.plus(more)
        if call.turn_from != turn_from:
            turn_from = call.turn_from
            runs = (*stretch.kept, (stretch.begins, call.entry))
            turn = _sum(sizes.entries, [(max(start, turn_from), end) for start, end in runs])
        else:
            turn = turn.plus(more)
        at = call.entry
        yield _Context(whole, turn, extracted)


def _sum(sizes: Sizes, runs: Sequence[tuple[int, int]]) -> TextSize:
    total = NO_SIZE
    for start, end in runs:
        total = total.plus(sizes.sum(start, end))
    return total


def _lean(recording: Recording, away: Sequence[Away]) -> Iterator[TextSize]:
    """Yield, for each call, the size of the values that bsd had extracted from its context."""
    if not away:
        yield from (NO_SIZE for _ in recording.calls)
        return
    calls = recording.calls
    first = 0
    while first < len(calls):
        end = first
        while end < len(calls) and calls[end].stretch == calls[first].stretch:
            end += 1
        yield from _lean_in(recording.stretches[calls[first].stretch], calls[first:end], away)
        first = end


def _lean_in(
    stretch: Stretch, calls: Sequence[ModelCall], away: Sequence[Away]
) -> Iterator[TextSize]:
    entries = [call.entry for call in calls]
    # A clock may go back, but an extracted value does not come back with it.
    times = list(accumulate((_time(call) for call in calls), max))
    begins: defaultdict[int, TextSize] = defaultdict(lambda: NO_SIZE)
    for one in away:
        is_kept = any(start <= one.entry < end for start, end in stretch.kept)
        if is_kept or one.entry >= stretch.begins:
            at = max(bisect_left(entries, one.entry + 1), bisect_left(times, one.at))
            begins[at] = begins[at].plus(one.size)
    total = NO_SIZE
    for number in range(len(calls)):
        if number in begins:
            total = total.plus(begins[number])
        yield total


def _time(call: ModelCall) -> float:
    """Return when a request was sent; without a time, before everything."""
    time = call.asked if call.asked is not None else call.time
    return -inf if time is None else time


# --- estimates ---


def _estimates(
    recording: Recording, contexts: _Contexts, end: int | None = None
) -> dict[str | None, Estimate]:
    """Return the estimate for each model, fitted to the calls before number `end`."""
    requests: defaultdict[str | None, Requests] = defaultdict(Requests)
    for call, context in zip(recording.calls[:end], contexts.from_call(0, end), strict=True):
        columns = requests[call.model]
        if call.usage is not None:
            sent = context.whole.less(context.lean)
            columns.append(Request(call.usage.prompt, call.stretch, sent, context.turn))
    return {
        model: _with_constant(fit(columns, model), columns) for model, columns in requests.items()
    }


def _with_constant(estimate: Estimate, requests: Requests) -> Estimate:
    """Return an estimate with the tokens that are sent beside the transcript."""
    if not len(requests):
        return estimate
    beside = (
        one.tokens - estimate.tokens(one.context) - estimate.tokens_in_turn(one.turn)
        for one in requests.rows(0, len(requests))
    )
    return estimate._replace(constant=max(0.0, median(beside)))


def _prompt(context: _Context, estimate: Estimate) -> tuple[float, float]:
    """Return the tokens of a request without bsd, and the tokens that bsd had extracted."""
    whole = estimate.tokens(context.whole) + estimate.tokens_in_turn(context.turn)
    return estimate.constant + whole, estimate.tokens(context.lean)


def _deviation(recording: Recording, contexts: _Contexts) -> Deviation | None:
    """Fit the estimate to the first half of the calls, and measure it on the second half."""
    half = len(recording.calls) // 2
    estimates = _estimates(recording, contexts, half)
    shares = []
    for call, context in zip(recording.calls[half:], contexts.from_call(half), strict=True):
        estimate = estimates.get(call.model)
        if estimate is None or call.usage is None:
            continue
        prompt, lean = _prompt(context, estimate)
        if not _is_odd(call.usage.prompt, prompt - lean):
            shares.append(abs(prompt - lean - call.usage.prompt) / call.usage.prompt)
    if len(shares) < _LEAST_COMPARED:
        return None
    shares.sort()
    return Deviation(len(shares), median(shares), shares[int(0.9 * (len(shares) - 1))])


def _is_odd(recorded: int, estimate: float) -> bool:
    return recorded > _ODD * max(estimate, 1.0) or recorded * _ODD < estimate


def _set_calls(
    recording: Recording,
    sizes: RecordedSizes,
    contexts: _Contexts,
    estimates: Mapping[str | None, Estimate],
) -> None:
    """Set the tokens of the calls, and leave out those that were no request of this context.

    In a session that records tokens, an answer without them is a text of its program.
    """
    notes = Counter(recording.notes)
    charged = sum(call.usage is not None for call in recording.calls)
    needs_usage = 2 * charged >= len(recording.calls)
    calls: list[ModelCall] = []
    numbers: dict[int, int] = {}
    for number, (call, context) in enumerate(
        zip(recording.calls, contexts.from_call(0), strict=True)
    ):
        estimate = estimates[call.model]
        prompt, lean = _prompt(context, estimate)
        is_odd = call.usage is not None and _is_odd(call.usage.prompt, prompt - lean)
        notes[ODD_USAGE] += is_odd
        notes[NO_USAGE] += call.usage is None
        if is_odd or (needs_usage and call.usage is None):
            continue
        notes[NO_TIME] += call.time is None
        if call.usage is not None:
            content = prompt - lean - estimate.constant
            notes[SMALLER] += content > _MUCH * call.usage.prompt
        written = estimate.tokens(sizes.outputs[number])
        output = max(written, call.usage.output if call.usage else 0)
        numbers[number] = len(calls)
        calls.append(call._replace(prompt=round(prompt), lean=round(lean), output=round(output)))
    recording.notes = +notes
    recording.calls = calls
    recording.wants = [
        want._replace(call=numbers[want.call]) for want in recording.wants if want.call in numbers
    ]


def _merge_stretches(recording: Recording) -> None:
    """Drop stretches without calls, and join stretches that only a call left out had divided."""
    stretches: list[Stretch] = []
    calls: list[ModelCall] = []
    pending: Beginning | None = None  # the strongest cause since the call before
    before: ModelCall | None = None
    number = -1  # of the call's stretch before, in the former list
    for call in recording.calls:
        is_same = before is not None and _model(before) == _model(call)
        for skipped in recording.stretches[number + 1 : call.stretch + 1]:
            if skipped.cause is not Beginning.MODEL or pending is None:
                pending = skipped.cause
        number = max(number, call.stretch)
        if pending is not None and not (pending is Beginning.MODEL and is_same):
            stretch = recording.stretches[call.stretch]
            stretches.append(stretch._replace(cause=pending, shares_constant=is_same))
        pending, before = None, call
        calls.append(call._replace(stretch=len(stretches) - 1))
    recording.stretches, recording.calls = stretches, calls


def _model(call: ModelCall) -> tuple[str | None, str | None]:
    return call.provider, call.model
