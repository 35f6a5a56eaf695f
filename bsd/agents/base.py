"""What the rest of bsd may know of a transcript's dialect (SPEC §§3, 12).

A format reads parsed entries and answers in these words. It does no I/O, and nothing outside
`bsd/agents/` asks which format it is.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Protocol

from bsd.agents.titles import Title
from bsd.foundation.immutable import immutable
from bsd.foundation.value_path import ValuePath

Entry = dict[str, Any]

# SPEC §3, "type of a value"; None is a value of no type, which only a `*` rule can trigger.
VALUE_TYPES = ("thinking", "tool_call", "tool_result", "assistant", "user", "system")


class Shape(StrEnum):
    """How a value is replaced by its placeholder."""

    TEXT = "text"  # a string becomes the placeholder
    WHOLE = "whole"  # an array, object or scalar becomes the placeholder string
    BLOCK = "block"  # a content block becomes a text block that holds the placeholder
    INPUT = "input"  # the same, in a dialect whose blocks of text are called `input_text`

    @property
    def is_block(self) -> bool:
        return self is Shape.BLOCK or self is Shape.INPUT

    def holding(self, string: bytes) -> bytes:
        """What takes the value's place: a JSON string, or a block with it."""
        if not self.is_block:
            return string
        kind = b"text" if self is Shape.BLOCK else b"input_text"
        return b'{"type":"%b","text":%b}' % (kind, string)


class Turn(StrEnum):
    """What an entry does to the turn it stands in."""

    NONE = "none"  # not part of a turn
    STARTS = "starts"  # a user message
    OPEN = "open"  # a turn that goes on: tool call, tool result, anything waiting for an answer
    CLOSES = "closes"  # an assistant message that ends its turn


@immutable
class Value:
    """One value that could leave its entry."""

    path: ValuePath
    shape: Shape
    type: str | None
    display: bool  # never sent to the model
    length: int  # characters that would leave, a removed signature included
    leaf: bool = False  # part of arguments, details or an object: min_value_length always holds
    custom: bool = False  # state of an extension: only by a rule that names its customType
    removes: tuple[ValuePath, ...] = ()  # members that leave with it, without a placeholder
    text: str | None = None  # the present text; None: not a string, or no longer at hand
    fixed: bool = False  # only to be read: its owner relies on it as it is


@immutable
class ToolCall:
    """A call found in an entry."""

    id: str
    name: str
    path: ValuePath


@immutable
class Facts:
    """What one entry is, beside the values it holds."""

    id: str | None  # `__id`, else `id`; None if there is none or it is no string
    kind: str  # for people: `tool_result`, `assistant`, `model_change`, …
    is_message: bool  # takes part in the conversation: counts for positions
    is_header: bool = False  # the line that makes a file a session: never judged, never edited
    is_assistant: bool = False  # an assistant message of a dialect that has turns
    turn: Turn = Turn.NONE
    role: str | None = None
    time_ms: float | None = None  # when it was written, by seed 000's sources
    signed_by: str | None = None  # model whose thinking signature this assistant message carries
    answer: str | None = None  # of an answer that is several entries: what they share
    may_be_last: bool = True  # what is written next may follow it
    rolls_back: int = 0  # so many of the latest turns are taken back
    is_compaction: bool = False
    # A compaction's: which of the entries before it stay in sight. By their ids, or from one to
    # another; if only the first is named, up to the compaction itself.
    kept: tuple[str, ...] = ()
    kept_from: str | None = None
    kept_to: str | None = None
    calls: tuple[ToolCall, ...] = ()
    result_of: str | None = None  # id of the call that this entry answers
    result_tool: str | None = None  # name of the tool that this entry is a result of


@immutable
class NotOurs:
    """A file that is left alone, and why."""

    reason: str
    reads: Format | None = None  # its dialect, if its lines are understood all the same


class Format(Protocol):
    """A dialect of transcripts."""

    name: str

    def facts(self, entry: Entry) -> Facts:
        """Say what an entry is."""
        ...

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        """What stands in the line of each entry of this id; None: the id itself, as a text."""
        ...

    def title(self, entry: Entry) -> Title | None:
        """Say how an entry would call its session: a name that it gives, or what was asked."""
        ...

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        """List the values that could leave, in the entry's order.

        Leaves of arguments, details and objects are values only from `at_least` characters; an
        object without such a leaf is one if it is that long as a whole.
        """
        ...
