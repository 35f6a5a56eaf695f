"""The outline of a session: its prompts, tools, context, and kinds of content.

One pass over the lines parses each line once and keeps only totals. `SessionMeter` continues where
it stopped, so reading appended lines takes time for these lines only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.core.models import ContextLimit, context_limit_of
from bsd.planning.context_window import ContextWindow
from bsd.planning.plan import Rate
from bsd.planning.session_fills import MEDIA, Fill, Fills
from bsd.planning.tokens import NO_SIZE, Meter, Sizes
from bsd.planning.view import guard_of, has_grown, time_text
from bsd.transcripts.agents.entry import (
    MARKER,
    Entry,
    Marker,
    Sent,
    context_limit,
    model_of,
    sent_tokens,
    time_ms,
)
from bsd.transcripts.agents.format import (
    EntryInfo,
    Rank,
    Title,
    TranscriptFormat,
    Turn,
    Value,
)
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import Line, Transcript, parse_entry
from bsd.transcripts.spans import paths_of

# Shorter texts in details and in objects are not counted as values.
_LEAST_DETAIL = 32  # characters
_PROGRESS_STEP = 1 << 20  # bytes

# Returns the bytes of the values that a marker names, by key; empty if unknown.
SizesOf = Callable[[Marker], Mapping[str, int]]
# Returns the entry before extraction; None if it is not available.
OriginalEntry = Callable[[Line, Entry, Marker], Entry | None]


@dataclass(frozen=True, slots=True)
class PromptInOutline:
    """A prompt of the user, with the entries up to the next prompt."""

    index: Annotated[int, Field(description="0-based line number")]
    id: str | None
    time: str | None
    text: Annotated[str, Field(description="Its first 200 characters, on one line")]
    last_answer: Annotated[
        int | None, Field(description="Line of the last text of the model before the next prompt")
    ]
    seconds: Annotated[
        float | None, Field(description="From the prompt to the last entry before the next prompt")
    ]
    entries: int


@dataclass(frozen=True, slots=True)
class ToolInOutline:
    """The calls of one tool. Sizes are bytes."""

    name: str
    calls: int
    errors: int
    timed_calls: Annotated[int, Field(description="Calls of known duration")]
    seconds: Annotated[
        float,
        Field(description="Total duration of these: as the program noted, or up to the result"),
    ]
    bytes: Annotated[int, Field(description="Of its results in the session")]
    extracted_bytes: Annotated[int, Field(description="Of its results, extracted")]


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """The newest answer whose number of sent tokens the session records."""

    index: int
    time: str | None
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextInOutline:
    """The content that is sent to the model if the session continues as it is now."""

    tokens: int
    source: Annotated[
        str,
        Field(
            description="usage: the newest recorded usage; less: the same, less an estimate of the "
            "values extracted since; estimate: from the characters in context"
        ),
    ]
    estimate: Annotated[
        int,
        Field(description="Tokens of the texts in context, without the program's own instructions"),
    ]
    limit: Annotated[
        int | None, Field(description="The most tokens that the model accepts; null: unknown")
    ]
    limit_reason: Annotated[str | None, Field(description="Source of the limit, in words")]
    most_seen: Annotated[
        int | None,
        Field(description="The most tokens that were sent; the limit is not lower"),
    ]
    model: str | None
    since: Annotated[int, Field(description="The first line after the last compaction")]
    extracted_tokens: Annotated[
        int, Field(description="Estimated tokens extracted from entries in context")
    ]
    last_usage: RecordedUsage | None


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The results of a `SessionMeter`."""

    lines: int
    entries: int
    prompts: tuple[PromptInOutline, ...]
    tools: tuple[ToolInOutline, ...]
    context: ContextInOutline
    fills: tuple[Fill, ...]
    extracted_bytes: int


@dataclass(slots=True)
class _Prompt:
    index: int
    id: str | None
    time_ms: float | None
    text: str
    last_answer: int | None = None
    last_ms: float | None = None
    entries: int = 0
    is_answered: bool = False


@dataclass(slots=True)
class _Tool:
    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    bytes: int = 0
    extracted: int = 0


@dataclass(slots=True)
class _CallMade:
    name: str
    index: int
    time_ms: float | None
    seconds: float | None = None  # duration; None: not known yet
    is_noted: bool = False  # duration noted by the program, not derived from the result


@dataclass(frozen=True, slots=True)
class _Away:
    """Characters extracted from an entry that is sent to the model."""

    row: int
    characters: int
    time_ms: float | None  # when they were extracted


class SessionMeter:
    """Follows a session line by line and adds up its parts.

    Results are available at any time, and more lines may follow.
    """

    def __init__(self, fmt: TranscriptFormat) -> None:
        self._fmt = fmt
        self._sizes: SizesOf = lambda _: {}
        self._original: OriginalEntry = lambda *_: None
        self._identity: Identity | None = None  # of the file when it was last read
        self._end, self._guard = 0, b""  # offset after the last line, hash of its end
        self._is_torn = False  # the last line lacks its line end and may grow
        self._lines = self._entries = 0
        self._prompts: list[_Prompt] = []
        self._tools: defaultdict[str, _Tool] = defaultdict(_Tool)
        self._calls: dict[str, _CallMade] = {}
        self._started: list[tuple[float, int]] = []  # (time, line) of each call
        self._subagents: dict[str, int] = {}  # session of a sub-agent → line of the call
        self._window, self._meter = ContextWindow(), Meter()
        self._content = Sizes()  # per row: what is sent to the model
        self._turn_from = 0  # row with which the last turn begins
        self._away: list[_Away] = []
        self._since = 0
        self._usage: tuple[int, float | None, int] | None = None  # (line, time, tokens)
        self._limit: int | None = None  # as recorded in the session
        self._most_seen = 0  # most tokens sent to the present model
        self._model: str | None = None
        self._fills = Fills()

    @property
    def memory(self) -> int:
        """The approximate bytes of memory in use."""
        return 120 * self._entries + 400 * (len(self._calls) + len(self._prompts)) + 4096

    def knows(self, source: Transcript) -> bool:
        """Return whether the meter has read this file, or a beginning of it."""
        if self._identity is None or self._identity == source.identity:
            return True
        if self._is_torn:
            return False
        return has_grown(source, self._identity, self._end, self._guard)

    def read(
        self,
        source: Transcript,
        sizes: SizesOf,
        original: OriginalEntry,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Read the lines that were not read yet; see `knows`.

        After an exception the meter must not be used any more.

        Args:
            sizes: returns the sizes of extracted values.
            original: reads an entry before extraction; called for prompts only.
            progress: called with the bytes that were read so far.
        """
        if self._identity == source.identity:
            return
        self._sizes, self._original, told = sizes, original, self._end
        for line in source.lines(self._end, self._lines):
            self._follow(line)
            self._end = line.offset + len(line.raw)
            self._is_torn = not line.raw.endswith(b"\n")
            if self._end - told >= _PROGRESS_STEP:
                told = self._end
                progress(told)
        self._identity, self._guard = source.identity, guard_of(source, self._end)
        self._sizes, self._original = (lambda _: {}), (lambda *_: None)

    def _follow(self, line: Line) -> None:
        self._lines = line.index + 1
        entry = parse_entry(line.raw)
        if entry is None:
            self._fills.take_unreadable(line.raw)
            return
        info = self._fmt.info(entry)
        self._entries += 1
        marker = Marker.of(entry) if MARKER in entry else None
        values = self._fmt.values(entry, 1 if marker else _LEAST_DETAIL)
        tool = "" if info.is_header else self._note_calls(line, entry, info)
        counted = self._fills.take(line.raw, entry, info, self._fmt, values, tool)
        if info.result_of is not None:
            self._tools[tool].bytes += counted.result
        if info.is_header:
            return
        self._note_prompt(line, entry, info, marker)
        self._note_answer(line.index, values)
        self._note_context(line.index, entry, info, values)
        if marker:
            self._note_extracted(line, info, marker, values, counted.kinds, tool)

    # --- parts of an entry ---

    def _note_calls(self, line: Line, entry: Entry, info: EntryInfo) -> str:
        """Note calls and results. Return the tool whose result this is, or an empty text."""
        tool = self._note_call_or_result(line, entry, info)
        self._note_started(entry)
        return tool

    def _note_call_or_result(self, line: Line, entry: Entry, info: EntryInfo) -> str:
        for call in info.calls:
            self._tools[call.name].calls += 1
            if call.id:
                self._calls[call.id] = _CallMade(call.name, line.index, info.time_ms)
            if info.time_ms is not None:
                self._started.append((info.time_ms, line.index))
        if info.result_of is None:
            return info.result_tool or ""
        asked = self._calls.get(info.result_of)
        name = info.result_tool or (asked.name if asked else "")
        tool = self._tools[name]
        tool.errors += any(flag for _, flag in self._fmt.error_flags(entry))
        if asked and asked.time_ms is not None and info.time_ms is not None:
            seconds = max(0.0, info.time_ms - asked.time_ms) / 1000
            if seconds >= self._fmt.least_call_seconds:
                self._note_seconds(asked, seconds, is_noted=False)
        return name

    def _note_seconds(self, call: _CallMade, seconds: float, *, is_noted: bool) -> None:
        """Note the duration of a call. The first duration noted by the program has precedence."""
        if call.is_noted or (call.seconds is not None and not is_noted):
            return
        tool = self._tools[call.name]
        tool.timed += call.seconds is None
        tool.seconds += seconds - (call.seconds or 0.0)
        call.seconds, call.is_noted = seconds, is_noted

    def _note_started(self, entry: Entry) -> None:
        """Note the duration of a call and the sub-agent that it started, if the entry has them."""
        if (told := self._fmt.call_seconds(entry)) and (call := self._calls.get(told[0])):
            self._note_seconds(call, told[1], is_noted=True)
        if (started := self._fmt.subagent(entry)) and (call := self._calls.get(started.call)):
            self._subagents.setdefault(started.session, call.index)

    def _note_prompt(
        self, line: Line, entry: Entry, info: EntryInfo, marker: Marker | None
    ) -> None:
        current = self._prompts[-1] if self._prompts else None
        title = self._prompt_in(line, entry, info, marker)
        # Some programs record a prompt twice: as sent and as typed.
        is_again = current and title and title.text == current.text and not current.is_answered
        if title and not is_again:
            self._prompts.append(_Prompt(line.index, info.id, info.time_ms, title.text))
        elif current:
            current.entries += 1
            current.last_ms = info.time_ms or current.last_ms
            current.is_answered |= bool(info.calls) or info.is_assistant

    def _prompt_in(
        self, line: Line, entry: Entry, info: EntryInfo, marker: Marker | None
    ) -> Title | None:
        if info.role != "user" and info.turn is not Turn.STARTS:
            return None
        if info.is_message and not info.may_be_last:  # the model's prompt for a sub-agent
            return None
        title = self._fmt.title(entry)
        if title is None and marker and (whole := self._original(line, entry, marker)):
            title = self._fmt.title(whole)
        return title if title and title.rank is Rank.PROMPT else None

    def _note_answer(self, index: int, values: list[Value]) -> None:
        is_text = any(
            value.type == "assistant" and not value.display and value.text and value.text.strip()
            for value in values
        )
        if is_text and self._prompts:
            self._prompts[-1].last_answer = index

    def _note_context(self, index: int, entry: Entry, info: EntryInfo, values: list[Value]) -> None:
        self._window.follow(index, info)
        if info.turn is Turn.STARTS:
            self._turn_from = len(self._content)
        self._content.append(self._meter.follow(entry, info, values))
        if info.is_compaction:
            self._since = index + 1
        is_answer = info.is_assistant or info.cache is not None or info.role == "assistant"
        usage = sent_tokens(entry) if is_answer or info.role is None else None
        if usage is None and info.cache is not None and info.cache.usage is not None:
            usage = Sent(info.cache.usage.prompt, with_answer=False)
        if info.is_message and not info.may_be_last:
            return  # a sub-agent's entry within the session
        self._note_model(entry, info, is_answer=is_answer)
        seen = self._fmt.tokens_before(entry) or 0 if info.is_compaction else 0
        if usage:
            self._usage = index, info.time_ms, usage.tokens
            self._limit = context_limit(entry) or self._limit
            seen = usage.tokens
        self._most_seen = max(self._most_seen, seen)

    def _note_model(self, entry: Entry, info: EntryInfo, *, is_answer: bool) -> None:
        """Note the model from here on. A line that replaces an answer names no model."""
        if not (is_answer and info.turn is not Turn.BREAKS) and "modelId" not in entry:
            return
        if (model := model_of(entry)) and model != self._model:
            self._model, self._limit, self._most_seen = model, None, 0

    def _note_extracted(
        self,
        line: Line,
        info: EntryInfo,
        marker: Marker,
        values: list[Value],
        kinds: list[str],
        tool: str,
    ) -> None:
        paths = paths_of(marker.keys)
        known = self._sizes(marker)
        # If a value's size is unknown: an equal share of the bytes that the line lost.
        share = max(0, marker.size - len(line.raw)) // max(1, len(paths))
        by_path = {value.path: (value, kind) for value, kind in zip(values, kinds, strict=True)}
        characters = 0
        for key, path in paths.items():
            size = known.get(key, share)
            # No value at this path: a block, replaced by a text block.
            value, kind = by_path.get(path, (None, MEDIA))
            if value is not None and _is_sent(value):
                characters += size
            self._fills.extracted[kind] += size
            if info.result_of is not None and not (value and value.display):
                self._tools[tool].extracted += size
        if characters:
            self._away.append(_Away(len(self._content) - 1, characters, time_ms(marker.at)))

    # --- answers ---

    @property
    def subagents(self) -> Mapping[str, int]:
        """The sessions of sub-agents that results name, each with the line of its call."""
        return self._subagents

    def call_before(self, moment_ms: float) -> int | None:
        """Return the line of the last call made up to a time; None if there is none."""
        started = sorted(self._started)
        at = bisect_right(started, (moment_ms, self._lines))
        return started[at - 1][1] if at else None

    def parts(self) -> SessionParts:
        """Return the parts of the lines read so far."""
        return SessionParts(
            lines=self._lines,
            entries=self._entries,
            prompts=tuple(map(_prompt, self._prompts)),
            tools=tuple(self._tool_rows()),
            context=self._context(),
            fills=self._fills.rows(),
            extracted_bytes=self._fills.extracted.total(),
        )

    def _tool_rows(self) -> Iterator[ToolInOutline]:
        largest = sorted(
            self._tools.items(), key=lambda item: item[1].bytes + item[1].extracted, reverse=True
        )
        for name, tool in largest:
            yield ToolInOutline(
                name=name,
                calls=tool.calls,
                errors=tool.errors,
                timed_calls=tool.timed,
                seconds=round(tool.seconds, 3),
                bytes=tool.bytes,
                extracted_bytes=tool.extracted,
            )

    def _context(self) -> ContextInOutline:
        window = copy(self._window)  # a window computes its answers once, so ask a copy
        rate = self._meter.rate()
        away = [one for one in self._away if window.sent(one.row)]
        estimate = self._estimate(window)
        tokens, source = self._tokens(rate, away) or (estimate, "estimate")
        usage = None
        if self._usage:
            index, at, sent_then = self._usage
            usage = RecordedUsage(index, time_text(at), sent_then)
        limit = self._context_limit()
        return ContextInOutline(
            tokens=tokens,
            source=source,
            estimate=estimate,
            limit=limit.tokens if limit else None,
            limit_reason=limit.reason if limit else None,
            most_seen=self._most_seen or None,
            model=self._model,
            since=self._since,
            extracted_tokens=rate.tokens(sum(one.characters for one in away)),
            last_usage=usage,
        )

    def _estimate(self, window: ContextWindow) -> int:
        """Return the estimated tokens of the content in context."""
        sent = turn = NO_SIZE
        for row in range(len(self._content)):
            if window.sent(row):
                sent = sent.plus(self._content[row])
                turn = turn.plus(self._content[row]) if row >= self._turn_from else turn
        estimate = self._meter.estimate()
        return int(estimate.tokens(sent) + estimate.tokens_in_turn(turn))

    def _context_limit(self) -> ContextLimit | None:
        if self._limit is not None:
            return ContextLimit(self._limit, "as the session says")
        return context_limit_of(self._model, self._most_seen) if self._model else None

    def _tokens(self, rate: Rate, away: list[_Away]) -> tuple[int, str] | None:
        """Return the tokens of the newest usage; None without one since the last compaction."""
        if self._usage is None or self._usage[0] < self._since:
            return None
        _, at, tokens = self._usage
        later = [
            one.characters
            for one in away
            if at is not None and one.time_ms is not None and one.time_ms > at
        ]
        if not later:
            return tokens, "usage"
        return max(0, tokens - rate.tokens(sum(later))), "less"


def _prompt(prompt: _Prompt) -> PromptInOutline:
    seconds = None
    if prompt.time_ms is not None and prompt.last_ms is not None:
        seconds = round(max(0.0, prompt.last_ms - prompt.time_ms) / 1000, 3)
    return PromptInOutline(
        index=prompt.index,
        id=prompt.id,
        time=time_text(prompt.time_ms),
        text=prompt.text,
        last_answer=prompt.last_answer,
        seconds=seconds,
        entries=prompt.entries,
    )


def _is_sent(value: Value) -> bool:
    """Return whether a value counts as extracted from the context."""
    return not value.display and value.type != "thinking"
