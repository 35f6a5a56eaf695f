"""The blocks of an entry in an exported file: texts, thinking, calls, results, pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bsd.core.formatting import iso_utc
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat, Value
from bsd.transcripts.agents.values import Media, media_of
from bsd.transcripts.spans import ValuePath, value_at

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
# Control characters, and characters that change the direction of the following text.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
_WHO = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_TEXTS = frozenset(("user", "assistant", "system"))


class BlockKind(StrEnum):
    """The kind of a block."""

    TEXT = "text"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an entry. Its text is plain text.

    `title` is the name of a tool. `summary` is shown while the text is folded.
    """

    kind: BlockKind
    text: str
    title: str = ""
    media: Media | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class ExportedEntry:
    """One entry with all of its values."""

    index: int
    entry: Entry
    info: EntryInfo
    format: TranscriptFormat

    @property
    def who(self) -> str:
        """The speaker, in words."""
        if self.info.result_of is not None or self.info.result_tool:
            return "Tool result"
        role = self.info.role or self.info.kind
        return _WHO.get(role, shown(role).replace("_", " ").capitalize())

    @property
    def time(self) -> str:
        """The time of the entry, to the second, in ISO 8601; empty if the entry has none."""
        if self.info.time_ms is None:
            return ""
        try:
            return iso_utc(self.info.time_ms / 1000)
        except (ValueError, OverflowError, OSError):
            return ""

    def blocks(self) -> list[Block]:
        """Return its blocks in order; an entry that is bookkeeping of its program has none."""
        if self.info.is_header:
            return []
        found: list[tuple[ValuePath, Block]] = []
        arguments = [call.arguments for call in self.info.calls if call.arguments]
        for call in self.info.calls:
            value = value_at(self.entry, call.arguments) if call.arguments else ""
            text = shown(value if isinstance(value, str) else _json(value))
            # The first argument is the most telling: a command, a file, search words.
            members = value.values() if isinstance(value, dict) else ()
            first = next((each for each in members if isinstance(each, str)), text)
            block = Block(BlockKind.CALL, text, shown(call.name), summary=shown(first))
            found.append((call.path, block))
        for value in self.format.values(self.entry, 1):
            is_argument = any(value.path[: len(path)] == path for path in arguments)
            if not (value.display or value.custom or is_argument):
                found.append((value.path, self._block(value)))
        found.sort(
            key=lambda each: [f"{step:09d}" if isinstance(step, int) else step for step in each[0]]
        )
        return [block for _, block in found if block.text.strip() or block.media]

    def _block(self, value: Value) -> Block:
        content = value_at(self.entry, value.path)
        if media := media_of(content):
            return Block(BlockKind.PICTURE, "", media=media)
        text = content if isinstance(content, str) else _json(content)
        if value.type == "thinking":
            return Block(BlockKind.THINKING, shown(text))
        if value.type in _TEXTS:
            return Block(BlockKind.TEXT, shown(text))
        return Block(BlockKind.RESULT, shown(text), shown(self.info.result_tool or ""))


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """One session of an exported file."""

    session: str
    title: str
    entries: Iterator[ExportedEntry]


def shown(text: str) -> str:
    """Return a text without terminal escapes, and with U+FFFD for deceptive characters."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _UNWANTED.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 secret`, `2 secrets`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""
