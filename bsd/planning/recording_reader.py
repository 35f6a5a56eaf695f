"""Makes a `Recording` of a session in one pass over its lines.

Each line is parsed once and dropped. Of an entry that bsd has extracted values from, the stored
original is read. Sub-agents' lines in a session, notes and errors have no tokens: other requests
carried the former, and the latter are never sent.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from sys import intern
from typing import Any

import orjson

from bsd.planning.context_window import ContextWindow, LastTurn, id_hash
from bsd.planning.copies import are_copies
from bsd.planning.leaving_values import LeavingValues
from bsd.planning.originals import original_of
from bsd.planning.recorded import (
    TURNS,
    Beginning,
    LeaveColumns,
    ModelCall,
    Recording,
    Stretch,
)
from bsd.planning.recording_tokens import Away, RecordedSizes, set_tokens
from bsd.planning.rules import Policy, own_tool
from bsd.planning.tokens import NO_SIZE, Answers, Sizes, TextSize, size_of, size_of_value
from bsd.planning.wanted_again import SHORTEST_TEXT, WantedText
from bsd.store.originals import Missing, OriginalStore
from bsd.store.state import NO_ID
from bsd.transcripts.agents.entry import (
    MARKER,
    Entry,
    Marker,
    Usage,
    cost_of,
    model_of,
    provider_of,
    time_ms,
    usage_of,
)
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat, Turn, Value
from bsd.transcripts.agents.values import compact_json, leaf_values
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import ValuePath, value_at

# Words about odd input, keys of `Recording.notes`; `recording_tokens` has more.
NOT_SEARCHED = "texts that were too much to search for quotations"
DAMAGED = "damaged lines"
TOO_LARGE = "lines too large to be read"
MISSING = "entries whose extracted values are not stored any more"
ASIDE = "messages of sub-agents"
BACKWARDS = "times earlier than the entry before"
SAME_ID = "entries with the id of another entry"
BROKEN_OFF = "answers that broke off"

_CLOCK_SECONDS = 60.0  # lines that are written at the same time may be out of order
_MOST_TOKENS = 20_000_000  # no model accepts so large a request
_TURN_NUMBER = {turn: number for number, turn in enumerate(TURNS)}


def read_recording(
    source: Transcript,
    fmt: TranscriptFormat,
    policies: Sequence[Policy],
    stored: OriginalStore,
) -> Recording:
    """Read a session to its last line.

    Args:
        policies: the settings under which values may leave; `Recording.leaves` has one item each.
        stored: the originals of extracted values.
    """
    reader = _RecordingReader(source, fmt, policies, stored)
    for line in source.lines():
        reader.follow(line)
    return reader.finish()


@dataclass(slots=True)
class _OpenCall:
    """The request whose answer is being read."""

    entry: int
    stretch: int
    asked: float | None
    provider: str | None
    model: str | None
    open_from: int
    latest_from: int
    latest_end: int
    turn_from: int
    end: int = 0
    time: float | None = None
    usage: Usage | None = None
    cost: float = 0.0
    life: float | None = None
    output: TextSize = NO_SIZE


class _RecordingReader:
    """The state of the pass."""

    def __init__(
        self,
        source: Transcript,
        fmt: TranscriptFormat,
        policies: Sequence[Policy],
        stored: OriginalStore,
    ) -> None:
        self._source, self._fmt, self._stored = source, fmt, stored
        recording = self.recording = Recording(
            leaves=[LeaveColumns() for _ in policies], keeps_length=fmt.keeps_length
        )
        recording.stretches.append(Stretch(Beginning.START, begins=0))
        self._leaving = LeavingValues(fmt, policies, recording.values, recording.leaves)
        self._notes: Counter[str] = Counter()
        self._window, self._turn = ContextWindow(), LastTurn()
        self._groups = array("Q")  # per entry: the answer that it, or the call of its result, is in
        self._offsets, self._lengths = array("Q"), array("Q")  # of the line of each entry
        self._sizes = Sizes()  # of the entries
        self._outputs = Sizes()  # of the answer of each call
        self._answers = Answers()
        self._away: list[Away] = []
        self._own_calls: set[str] = set()
        self._wanted = WantedText()
        self._asked: dict[str, int] = {}  # id of a call without a result → hash of the call
        self._call: _OpenCall | None = None
        self._provider: str | None = None
        self._model: str | None = None  # by the newest entry that names it
        self._model_of_call: str | None = None
        self._time: float | None = None  # of the entry before
        self._pending: Beginning | None = None  # why the next call begins a stretch
        self._sent = bytearray()  # entries in context at the start of the stretch

    # --- one line ---

    def follow(self, line: Line) -> None:
        entry = parse_entry(line.raw)
        if entry is None:
            if is_too_large(line.raw):
                self._notes[TOO_LARGE] += 1
            elif line.raw.strip():
                self._notes[DAMAGED] += 1
            return
        info = self._fmt.info(entry)
        if info.is_header:
            return
        number = len(self.recording.entries)
        self._window.follow(line.index, info)
        is_aside, is_answer = info.is_message and not info.may_be_last, False
        if is_aside:
            self._notes[ASIDE] += 1
            self._groups.append(NO_ID)
        else:
            self._note_change(number, info)
            is_answer = self._follow_call(number, entry, info)
            self._turn.follow(line.index, info)
        whole = self._whole(line, entry) if MARKER in entry else entry
        values = self._fmt.values(whole, self._leaving.shortest)
        is_sent = not is_aside and not self._is_broken_off(info)
        size = size_of(whole, info, values) if is_sent or is_answer else NO_SIZE
        if is_answer and self._call is not None:
            self._call.output = self._call.output.plus(size)
        self._add(line, info, size if is_sent else NO_SIZE)
        if is_sent:
            if whole is not entry:
                self._note_away(number, entry, values)
            is_ours = info.result_of in self._own_calls
            numbers = self._leaving.add(number, whole, info, values, own_result=is_ours)
            self._follow_texts(number, whole, info, values, numbers, is_answer=is_answer)
        self._leaving.bind(number, info)

    def _add(self, line: Line, info: EntryInfo, size: TextSize) -> None:
        """Add the columns of an entry."""
        entries = self.recording.entries
        time = info.time_ms / 1000 if info.time_ms is not None else None
        if time is not None:
            if self._time is not None and time < self._time - _CLOCK_SECONDS:
                self._notes[BACKWARDS] += 1
            self._time = time
        before = entries.messages[-1] if entries.messages else 0
        entries.lines.append(line.index)
        entries.ends.append(line.offset + len(line.raw))
        entries.times.append(nan if time is None else time)
        entries.messages.append(before + info.is_message)
        entries.turns.append(_TURN_NUMBER[info.turn])
        self._offsets.append(line.offset)
        self._lengths.append(len(line.raw))
        self._sizes.append(size)
        for call in info.calls:
            if call.id and own_tool(call.name):
                self._own_calls.add(call.id)

    @staticmethod
    def _is_broken_off(info: EntryInfo) -> bool:
        """Return whether an entry is an answer that its program does not send again."""
        return info.turn is Turn.BREAKS and info.is_assistant

    def _whole(self, line: Line, entry: Entry) -> Entry:
        """Return an entry as it was before bsd extracted values from it."""
        marker = Marker.of(entry)
        if marker is None:
            return entry
        original = original_of(line.raw, entry, marker, self._fmt, self._stored)
        if isinstance(original, Missing):
            self._notes[MISSING] += 1
            return entry
        return original.entry

    def _note_away(self, number: int, entry: Entry, values: Sequence[Value]) -> None:
        """Note the size of the values that are not inline any more."""
        marker = Marker.of(entry)
        at = time_ms(marker.at) if marker else None
        if at is None:
            return
        inline = {
            value.path: value.length for value in self._fmt.values(entry, self._leaving.shortest)
        }
        size = NO_SIZE
        for value in values:
            if inline.get(value.path) != value.length:
                size = size.plus(size_of_value(value))
        self._away.append(Away(number, at / 1000, size))

    # --- contexts ---

    def _note_change(self, number: int, info: EntryInfo) -> None:
        """Note an entry after which the context is another than the one before, and more."""
        group = id_hash(info.answer) if info.answer else NO_ID
        parent = self._window.parent(number) if info.names_parent else number - 1
        if info.result_of is not None and 0 <= parent < number:
            group = group or self._groups[parent]
        self._groups.append(group)
        if info.is_compaction:
            self._pending = self._pending or Beginning.COMPACTION
        elif info.rolls_back:
            self._pending = self._pending or Beginning.ROLL_BACK
        elif self._pending is None and self._is_branch(number, parent, info):
            self._pending = Beginning.BRANCH

    def _is_branch(self, number: int, parent: int, info: EntryInfo) -> bool:
        """Return whether an entry leaves out entries in context that stand after its parent.

        Parts of one answer, and the results of its calls, may all follow one entry.
        """
        if not info.names_parent or not info.may_be_last:
            return False
        begins = self.recording.stretches[-1].begins
        group = self._groups[parent] if parent >= 0 else NO_ID
        for other in range(number - 1, max(parent, -1), -1):
            is_sibling = group != NO_ID and self._groups[other] == group
            is_sent = other >= begins or self._sent[other]
            if is_sent and not is_sibling and self._sizes.any(other):
                return True
        return False

    def _begin_stretch(self, at: int, *, same_model: bool) -> None:
        """Begin a stretch whose first request is sent with the entries before number `at`."""
        stretches, cause = self.recording.stretches, self._pending
        self._pending = None
        if cause is None and same_model:
            return
        before = self._context_before(at)
        sent, shared_until = before, 0
        if cause is not None:
            # A window computes its answers once, so ask a copy.
            sent = copy(self._window).all_sent()[:at]
        # Of the context before, a compaction keeps no beginning.
        differs = 0 if cause is Beginning.COMPACTION else self._first_difference(before, sent)
        if cause is None or differs == at:
            if same_model:
                return
            cause = Beginning.MODEL
        if cause is Beginning.BRANCH or cause is Beginning.ROLL_BACK:
            shared_until = differs
        self._sent = sent
        if cause is Beginning.COMPACTION:
            self._wanted.keep_only(lambda number: bool(sent[number]))
        kept = tuple(self._runs(sent))
        stretches.append(Stretch(cause, at, kept, shared_until))

    def _context_before(self, at: int) -> bytearray:
        """Return which entries before number `at` are in the context of the present stretch."""
        begins = self.recording.stretches[-1].begins if self.recording.stretches else 0
        return self._sent[:begins] + b"\1" * (at - begins)

    def _runs(self, sent: bytearray) -> list[tuple[int, int]]:
        """Return runs of entries in context; entries without content do not interrupt a run."""
        runs: list[tuple[int, int]] = []
        start = sent.find(1)
        while start >= 0:
            end = start
            while True:
                end = sent.find(0, end)
                end = len(sent) if end < 0 else end
                after = sent.find(1, end)
                if after < 0 or self._sizes.any(end, after):
                    break
                end = after
            runs.append((start, end))
            start = after
        return runs

    def _first_difference(self, one: bytearray, other: bytearray) -> int:
        """Return the number of the first entry with content that is in only one context."""
        if one == other:
            return len(one)
        for number, (here, there) in enumerate(zip(one, other, strict=True)):
            if here != there and self._sizes.any(number):
                return number
        return len(one)

    # --- requests ---

    def _follow_call(self, number: int, entry: Entry, info: EntryInfo) -> bool:
        """Note the request that an entry shows; return whether it is a part of its answer."""
        if info.cache is not None and info.cache.model is not None:
            self._model = info.cache.model
        if self._is_broken_off(info) and usage_of(entry) is None:
            self._notes[BROKEN_OFF] += 1
            return False
        step = self._answers.follow(entry, info)
        if step.begins:
            self._begin_call(number, entry)
        call = self._call
        if call is not None and step.usage is not None:
            call.usage = step.usage if step.usage.prompt < _MOST_TOKENS else None
            call.cost = cost_of(entry)
            if info.cache is not None:
                call.life = info.cache.life_seconds
        if call is None or not step.is_answer:
            return False
        call.end = number + 1
        if call.time is None and info.time_ms is not None:
            call.time = info.time_ms / 1000
        return True

    def _begin_call(self, number: int, entry: Entry) -> None:
        self._end_call()
        provider = provider_of(entry) or self._provider
        model = model_of(entry) or self._model
        self._wanted.begin_call(len(self.recording.calls))
        known = self._provider, self._model_of_call
        self._begin_stretch(number, same_model=known in ((None, None), (provider, model)))
        self._provider, self._model_of_call = provider, model
        latest = self._turn.latest
        self._call = _OpenCall(
            entry=number,
            stretch=len(self.recording.stretches) - 1,
            asked=self._time,
            provider=provider and intern(provider),
            model=model and intern(model),
            open_from=self._number_at(self._turn.open_from, number),
            latest_from=self._number_at(latest[0], number) if latest else number,
            latest_end=self._number_at(latest[1], number) + 1 if latest else number,
            turn_from=self._number_at(self._turn.begins, number),
        )

    def _number_at(self, line: int | None, otherwise: int) -> int:
        """Return the number of the entry in a line."""
        return otherwise if line is None else bisect_left(self.recording.entries.lines, line)

    def _end_call(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        self.recording.calls.append(
            ModelCall(
                call.entry,
                max(call.end, call.entry),
                call.stretch,
                call.time,
                call.asked,
                call.provider,
                call.model,
                call.usage,
                prompt=0,
                lean=0,
                output=0,
                cost=call.cost or None,
                life=call.life,
                open_from=call.open_from,
                latest_from=call.latest_from,
                latest_end=call.latest_end,
                turn_from=call.turn_from,
            )
        )
        self._outputs.append(call.output)

    # --- text that is wanted again ---

    def _follow_texts(
        self,
        number: int,
        entry: Entry,
        info: EntryInfo,
        values: Sequence[Value],
        numbers: Mapping[ValuePath, int],
        *,
        is_answer: bool,
    ) -> None:
        """Look for earlier text in an answer, and add the texts of an entry."""
        wanted = self._wanted
        texts = [
            (value.path, value.text)
            for value in values
            if value.text is not None
            and not value.display
            and value.type != "thinking"
            and not (value.leaf and info.calls)
        ]
        for call in info.calls:
            arguments = value_at(entry, call.arguments) if call.arguments else None
            key = _key(call.name, arguments)
            if call.id:
                self._asked[call.id] = key
            if not own_tool(call.name):
                wanted.look_for_call(key, self._is_in_context)
                texts += [
                    ((*(call.arguments or ()), *path), text) for path, text in texts_of(arguments)
                ]
        for path, text in texts:
            if is_answer:
                wanted.look_for_text(text, self._is_in_context)
            wanted.add((number, numbers.get(path, -1)), text)
        asked = None if info.result_of is None else self._asked.pop(info.result_of, None)
        if asked is not None:
            shown = [value for value in values if not value.display]
            if shown:
                largest = max(shown, key=lambda value: value.length)
                wanted.add_result(asked, (number, numbers.get(largest.path, -1)))

    def _is_in_context(self, number: int) -> bool:
        """Return whether the present request was sent with an entry."""
        begins = self.recording.stretches[-1].begins
        return number >= begins or bool(self._sent[number])

    # --- the end ---

    def finish(self) -> Recording:
        """Return the recording, after the last line."""
        self._end_call()
        self._drop_duplicates()
        self.recording.wants = self._wanted.finish(len(self.recording.calls))
        self._notes[NOT_SEARCHED] += self._wanted.dropped
        self.recording.notes.update(+self._notes)
        leaving = self._leaving
        sizes = RecordedSizes(self._sizes, leaving.sizes, self._outputs, leaving.kept, self._away)
        set_tokens(self.recording, sizes)
        return self.recording

    def _drop_duplicates(self) -> None:
        """Take back the values of entries whose id other entries have too, unless these are copies.

        bsd does not change such entries.
        """
        ids = self._window.ids
        rows: dict[int, list[int]] = {}
        twice = {one for one, other in pairwise(sorted(ids)) if one == other} - {NO_ID}
        for row, number in enumerate(ids if twice else ()):
            if number in twice:
                rows.setdefault(number, []).append(row)
        with_values = set(self.recording.values.entries) if twice else set()
        dropped: set[int] = set()
        for group in rows.values():
            if not with_values.isdisjoint(group) and not self._are_copies(group):
                dropped.update(group)
        if dropped:
            self._notes[SAME_ID] += len(dropped & with_values)
            self._leaving.drop(dropped)

    def _are_copies(self, rows: list[int]) -> bool:
        lines = (self._source.read(self._offsets[row], self._lengths[row]) for row in rows)
        entries = (entry for line in lines if (entry := parse_entry(line)) is not None)
        return are_copies(entries, self._fmt)


def _key(name: str, arguments: Any) -> int:
    """Return a hash of a call; the order of its arguments makes no difference."""
    if isinstance(arguments, str):
        arguments = parse_entry(arguments.encode("utf-8", "surrogatepass")) or arguments
    try:
        return hash((name, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)))
    except TypeError:  # lone surrogates, integers of more than 64 bits
        return hash((name, compact_json(arguments)))


def texts_of(arguments: Any) -> Iterator[tuple[ValuePath, str]]:
    """Yield the texts in the arguments of a call, which may be a JSON text themselves."""
    if isinstance(arguments, str):
        parsed = parse_entry(arguments.encode("utf-8", "surrogatepass"))
        if parsed is None:
            yield (), arguments
            return
        arguments = parsed
    for value in leaf_values(arguments, (), "tool_call", SHORTEST_TEXT):
        yield value.path, value.text or ""
