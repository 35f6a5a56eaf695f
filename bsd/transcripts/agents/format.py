"""The interface of a transcript's format to the rest of bsd (SPEC §§3, 12).

A format reads parsed entries and answers in these words. It does no I/O, and nothing outside
`bsd/transcripts/agents/` asks which format it is.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from bsd.transcripts.agents.entry import Entry, is_placeholder, text_of
from bsd.transcripts.spans import ValuePath, value_at

# SPEC §3, "type of a value"; None is a value of no type, which only a `*` rule can trigger.
VALUE_TYPES = ("thinking", "tool_call", "tool_result", "assistant", "user", "system")


class Shape(StrEnum):
    """How a value is replaced by its placeholder."""

    __hash__ = str.__hash__  # Enum's own is written in Python

    TEXT = "text"  # a string becomes the placeholder
    WHOLE = "whole"  # an array, object or scalar becomes the placeholder string
    BLOCK = "block"  # a content block becomes a text block that holds the placeholder
    INPUT = "input"  # the same, in a dialect whose blocks of text are called `input_text`

    @property
    def is_block(self) -> bool:
        return self is Shape.BLOCK or self is Shape.INPUT

    def holding(self, string: bytes) -> bytes:
        """Return the JSON that takes the value's place: a JSON string, or a block with it."""
        if not self.is_block:
            return string
        kind = b"text" if self is Shape.BLOCK else b"input_text"
        return b'{"type":"%b","text":%b}' % (kind, string)


class Turn(StrEnum):
    """The effect of an entry on its turn."""

    NONE = "none"  # not part of a turn
    STARTS = "starts"  # a user message
    OPEN = "open"  # a turn that goes on: tool call, tool result, anything waiting for an answer
    CLOSES = "closes"  # an assistant message that ends its turn
    # An error or an abort: the turn is over, even if calls wait for an answer. If a message, its
    # program does not send that again.
    BREAKS = "breaks"

    @property
    def is_end(self) -> bool:
        return self is Turn.CLOSES or self is Turn.BREAKS


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call found in an entry."""

    id: str
    name: str
    path: ValuePath
    arguments: ValuePath | None = None  # where they stand, if it has any


class CacheUse(NamedTuple):
    """The use of the provider's prompt cache, as an entry tells it."""

    model: str | None = None  # that answers from here on; None: the entry does not say
    in_use: bool = False  # the answer read from a cache, or wrote to one
    # Seconds for which written tokens stay cached from their last use on, if the entry says so.
    life_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """The properties of one entry, beside the values it holds."""

    id: str | None  # `__id`, else `id`; None if there is none or it is no string
    kind: str  # for people: `tool_result`, `assistant`, `model_change`, …
    is_message: bool  # takes part in the conversation: counts for positions
    parent: str | None = None  # id of the entry that it follows
    names_parent: bool = False  # whether it says so; one that follows none may say that, too
    is_header: bool = False  # the line that makes a file a session: never judged, never edited
    is_assistant: bool = False  # an assistant message of a dialect that has turns
    turn: Turn = Turn.NONE
    role: str | None = None
    time_ms: float | None = None  # when it was written, by seed 000's sources
    signed_by: str | None = None  # model whose thinking signature this assistant message carries
    answer: str | None = None  # of an answer that is several entries: the id they share
    may_be_last: bool = True  # the next line may follow it
    is_note: bool = False  # a record of the program's own that no entry names as its parent
    rolls_back: int = 0  # so many of the latest turns are taken back
    is_compaction: bool = False
    # A compaction's: which of the entries before it stay in context. By their ids, or from one to
    # another; if only the first is named, up to the compaction itself.
    kept: tuple[str, ...] = ()
    kept_from: str | None = None
    kept_to: str | None = None
    calls: tuple[ToolCall, ...] = ()
    result_of: str | None = None  # id of the call that this entry answers
    result_tool: str | None = None  # name of the tool that this entry is a result of
    cache: CacheUse | None = None


# Names of kinds of content that fill a session (`Filling`), beside those by type and tool.
SETUP = "system and setup text"
ADDED = "text that the program adds"
SUMMARIES = "summaries of compactions"
ATTACHMENTS = "attachments"
# Of content that no model is sent.
PROGRAM_NOTES = "never sent: notes of the program"
RESULT_COPIES = "never sent: copies of results"
TOKEN_COUNTS = "never sent: token counts"  # noqa: S105 - no password
EXTENSION_STATE = "never sent: state of extensions"


class Filling(NamedTuple):
    """A member that fills bytes of an entry and counts as a whole, with the values inside it."""

    path: ValuePath  # empty: the whole line
    what: str  # the kind of content, for people


@dataclass(frozen=True, slots=True)
class StartedSubagent:
    """A sub-agent that a call has started."""

    call: str  # its id
    session: str  # by one of the ids that its program knows it by


@dataclass(frozen=True, slots=True)
class NotOurs:
    """A file that is left alone, and why."""

    reason: str
    reads: TranscriptFormat | None = None  # its dialect, if its lines are understood all the same
    hint: str | None = None  # a way to make it one that bsd edits, if there is one


# Members that tie entries, calls and results together, at any place of a message.
TIES = frozenset(
    (
        *("id", "__id", "type", "parentId", "role", "customType", "version", "firstKeptEntryId"),
        *("toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "callId", "call_id"),
        *("signature", "encrypted_content"),
    )
)
# Where the result of a call says whether that has failed.
_ERROR_FLAGS = (("isError",), ("is_error",), ("message", "isError"), ("message", "is_error"))
# Tools that run their argument in a shell, with any prefix before their name.
_SHELLS = frozenset(("exec", "bash", "shell", "terminal", "run_command", "execute_command"))
# Tools that write a file, and their names for its path.
_WRITERS = frozenset(("write", "create", "write_file", "create_file", "file_write"))
_PATHS = ("path", "file_path", "filePath", "filename", "file")


class TranscriptFormat(ABC):
    """A format of transcripts. A format overrides only the methods that it has an answer for."""

    name: str
    parent_key: str | None = "parentId"  # the member that names the entry which one follows
    ties: frozenset[str] = TIES  # members that no edit may change: they hold all together
    # Members in which lines of one entry may differ: they say from which session it was copied.
    origin_members: frozenset[str] = frozenset()
    # Copies name the sessions that they are of, each by its header, and lines are copied behind it
    # without gaps: so a copied line has a known place.
    tells_origin: bool = False
    # A shorter time from a call to its result was spent writing, and tells nothing about the tool.
    least_call_seconds: float = 0.0

    @abstractmethod
    def info(self, entry: Entry) -> EntryInfo:
        """Return the properties of an entry."""

    @abstractmethod
    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        """List the values that could leave, in the entry's order.

        Leaves of arguments, details and objects are values only from `at_least` characters; an
        object without such a leaf is one if it is that long as a whole.
        """

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        """Return a pattern in the line of each entry of this id; None: the id itself, as a text."""
        return None

    def origins(self, entry: Entry) -> tuple[str, ...]:
        """Ids of the sessions that an entry names: that of its own first, then its origins."""
        return ()

    def renews_id(self, entry: Entry, was: str) -> bool:
        """Whether an entry may be that of the id `was`, written anew by its program."""
        return False

    def title(self, entry: Entry) -> Title | None:
        """Return the title in an entry for its session: a name that it sets, or the prompt."""
        return None

    def directory(self, entry: Entry) -> str | None:
        """Return the working directory of the program, if an entry says so."""
        return None

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        """Where a result says whether its call has failed, and the flag."""
        for path in _ERROR_FLAGS:
            flag = value_at(entry, path)
            if isinstance(flag, bool):
                yield path, flag

    def fillings(self, entry: Entry) -> Iterable[Filling]:
        """Name the members of an entry that fill bytes beside its values; none in another."""
        return ()

    def call_seconds(self, entry: Entry) -> tuple[str, float] | None:
        """Return the id of a call and the seconds that it took, if an entry says so."""
        return None

    def tokens_before(self, entry: Entry) -> int | None:
        """Return the tokens that stood in context before a compaction, if its entry says so."""
        return None

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        """Return the sub-agent that a call has started, if an entry names both."""
        return None

    def command(self, tool: str, arguments: Any) -> Any:
        """Return the shell command of a call: a text, or a list of words; None: no such call."""
        if tool.rpartition("__")[2].casefold() not in _SHELLS or not isinstance(arguments, dict):
            return None
        return arguments.get("command", arguments.get("cmd"))

    def file_written(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Return the path of a file that a call wrote as a whole; None: it is no such call."""
        if tool.casefold() not in _WRITERS:
            return None
        return next((path for key in _PATHS if (path := text_of(arguments.get(key)))), None)


# --- titles of sessions: a name that was given, else the first prompt ---

LONGEST_TITLE = 200  # characters
_JOINERS = "\u200c\u200d"  # emoji and several scripts need them
_LOOKED_AT = 20_000  # characters of a prompt
# Texts that programs put around or before a person's: `<system-reminder>…</system-reminder>`.
_WRAPPED = re.compile(r"\s*<([a-z]+[-_][a-z_-]*)\b[^<>]*>.*?</\1>\s*", re.DOTALL)
_OPEN_WRAPPER = re.compile(r"\s*</?[a-z]+[-_][a-z_-]*\b[^<>]*>")
_COMMAND_ALONE = re.compile(r"/[A-Za-z][\w:-]*\s*")


class Rank(IntEnum):
    """The rank of a title. The first prompt counts, and of names the last of the best rank."""

    PROMPT = 0
    SUMMARY = 1  # a program's summary of an earlier part
    MADE = 2  # by a model, for the whole
    GIVEN = 3  # by a person


class Title(NamedTuple):
    """How an entry would call its session."""

    text: str
    rank: Rank


def better(old: Title | None, new: Title | None) -> Title | None:
    """Return the title that counts of two; `new` is from a later line."""
    if old is None or new is None:
        return new or old
    later = new.rank > old.rank or (new.rank == old.rank and new.rank is not Rank.PROMPT)
    return new if later else old


def named(value: Any, rank: Rank) -> Title | None:
    """The title that a member of an entry gives, if it gives one."""
    text = in_short(value) if isinstance(value, str) else ""
    return Title(text, rank) if text else None


def asked(texts: list[str], before: re.Pattern[str] | None = None) -> Title | None:
    """The title that a prompt of these texts would be; None if nothing in it is a person's words.

    `before` matches the text that the program in question puts in front of them.
    """
    for text in texts:
        if (words := _typed(text[:_LOOKED_AT], before)) and not is_placeholder(words):
            return Title(words, Rank.PROMPT)
    return None


def _typed(text: str, before: re.Pattern[str] | None) -> str | None:
    """Return the words that a person typed, on one line; None if none, or a command alone."""
    text = text.strip()
    while True:
        found = _WRAPPED.match(text) or (before.match(text) if before else None)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    if _OPEN_WRAPPER.match(text) or _COMMAND_ALONE.fullmatch(text):
        return None
    return in_short(text) or None


def in_short(text: str) -> str:
    """A text as a title: on one line, of limited length, without invisible characters."""
    words = " ".join(text[: 4 * LONGEST_TITLE].split())
    line = words
    if not words.isprintable():
        line = "".join(c for c in words if c.isprintable() or c in _JOINERS)
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


_LONGEST_PATH = 4096  # characters


_LONGEST_NAME = 60  # characters of a type or tool in the name of a kind of content


def line_of_type(kind: str) -> str:
    """Name the content of lines of a type that a format does not know."""
    return f"lines of type {in_short(kind)[:_LONGEST_NAME]}"


def with_tool(what: str, tool: str) -> str:
    """Name the content of calls or results of one tool."""
    return f"{what}: {in_short(tool)[:_LONGEST_NAME]}" if tool else what


def path_text(value: Any) -> str | None:
    """An absolute path that a user can read and type; None for anything else."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATH or not value.startswith("/"):
        return None
    return value if value.isprintable() else None


def texts_in(content: Any) -> list[str]:
    """The texts of a content that is a string, or a list of blocks with `text`."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    found = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in found if isinstance(text, str)]
