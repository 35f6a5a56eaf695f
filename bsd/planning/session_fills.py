"""Attributes each byte of a session's lines to one kind of content.

Arguments of calls count towards their tool, members that the format names
(`TranscriptFormat.fillings`) towards that name, other values towards their type. The rest of a line
is the JSON around them: ids, times, keys, braces and escapes. Names of kinds are words for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import Field

from bsd.transcripts.agents.entry import Entry, proof_size
from bsd.transcripts.agents.format import (
    SETUP,
    EntryInfo,
    Filling,
    TranscriptFormat,
    Value,
    line_of_type,
    with_tool,
)
from bsd.transcripts.agents.values import compact_json
from bsd.transcripts.spans import ValuePath, value_at

MEDIA = "images and documents"
_THINKING = "thinking"
_CALLS, _RESULTS = "tool calls", "tool results"
_NEVER_SENT = "never sent"
_JSON_AROUND = "JSON around the values"
_UNREADABLE = "lines that cannot be read"


@dataclass(frozen=True, slots=True)
class Fill:
    """The share of one kind of content in a session. Sizes are bytes."""

    what: Annotated[str, Field(description="Name of the kind, such as `tool results: Bash`")]
    bytes: int
    extracted_bytes: int
    share: Annotated[float, Field(description="Part of the session's bytes, 0 to 1")]


class EntryContent(NamedTuple):
    """The kinds of content in one entry."""

    kinds: list[str]  # one per value, in order
    result: int  # bytes of a tool result that are sent to the model


class Fills:
    """Adds up the kinds of content of a session, entry by entry."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self.extracted: Counter[str] = Counter()  # kind → extracted bytes
        # By kind of which only the newest line is read: the sums before that line.
        self._before_newest: dict[str, tuple[int, int]] = {}

    def take_unreadable(self, raw: bytes) -> None:
        """Count a line that holds no entry."""
        self._bytes[_UNREADABLE if raw.strip() else _JSON_AROUND] += len(raw)

    def take(
        self,
        raw: bytes,
        entry: Entry,
        info: EntryInfo,
        fmt: TranscriptFormat,
        values: Sequence[Value],
        tool: str,
    ) -> EntryContent:
        """Count each byte of a line to one kind.

        Args:
            raw: the line with its line end.
            tool: name of the tool whose result this is; empty if it is no result or the tool is
                unknown.
        """
        places = [
            Filling(call.arguments, with_tool(_CALLS, call.name))
            for call in info.calls
            if call.arguments
        ]
        places += fmt.fillings(entry)
        whole = next((place for place in places if not place.path), None)
        if whole is not None:
            self._supersede(whole)
            self._bytes[whole.what] += len(raw)
            return EntryContent([whole.what] * len(values), 0)
        parts = [(place.what, len(compact_json(value_at(entry, place.path)))) for place in places]
        kinds, result = [], 0
        for value in values:
            kind = _kind_at(value.path, places) if places else None
            if kind is None:
                kind, size = _kind_of(value, tool, info), _size_of(value)
                parts.append((kind, size))
                result += size if value.type == "tool_result" and not value.display else 0
            kinds.append(kind)
        parts.append((_THINKING, proof_size(entry)))
        left = len(raw)
        for kind, size in parts:
            fitting = min(size, left)  # another program may write a number in fewer bytes
            self._bytes[kind] += fitting
            left -= fitting
        self._bytes[_JSON_AROUND] += left
        return EntryContent(kinds, result)

    def _supersede(self, newest: Filling) -> None:
        """Count the previous line of this kind, of which only the newest is read, as superseded."""
        if newest.superseded is None:
            return
        what = newest.what
        if (before := self._before_newest.get(what)) is not None:
            for sums, least in zip((self._bytes, self.extracted), before, strict=True):
                sums[newest.superseded] += sums[what] - least
                sums[what] = least
        self._before_newest[what] = self._bytes[what], self.extracted[what]

    def rows(self) -> tuple[Fill, ...]:
        """Return the kinds, largest first, extracted bytes included."""
        total = self._bytes.total()
        found = [
            Fill(
                kind,
                self._bytes[kind],
                self.extracted[kind],
                round(self._bytes[kind] / total, 4) if total else 0.0,
            )
            for kind in self._bytes.keys() | self.extracted.keys()
        ]
        found = [fill for fill in found if fill.bytes or fill.extracted_bytes]
        return tuple(
            sorted(found, key=lambda fill: (-fill.bytes - fill.extracted_bytes, fill.what))
        )


def _kind_at(path: ValuePath, places: Sequence[Filling]) -> str | None:
    """Return the name of the content that a value belongs to; None if it counts by itself."""
    return next((place.what for place in places if path[: len(place.path)] == place.path), None)


def _kind_of(value: Value, tool: str, info: EntryInfo) -> str:
    if value.display:
        return _NEVER_SENT
    if value.shape.is_block:
        return MEDIA
    match value.type:
        case "thinking":
            return _THINKING
        case "tool_call":
            return _CALLS
        case "tool_result":
            return with_tool(_RESULTS, tool)
        case "user":
            return "prompts"
        case "assistant":
            return "assistant text"
        case "system":
            return SETUP
    return line_of_type(info.kind)


def _size_of(value: Value) -> int:
    """Return the bytes of a value as JSON without quotes. For a picture, count its base64."""
    return value.length if value.text is None else len(compact_json(value.text)) - 2
