"""The interface between a transcript's format and the rest of bsd (SPEC §§3, 12).

A format reads parsed entries and describes them with the types of this module. It does no I/O.
Code outside of `bsd/transcripts/agents/` never asks which format it is.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from bsd.transcripts.agents.entry import Entry, Usage, is_placeholder, text_of
from bsd.transcripts.agents.unknown_forms import binding_member
from bsd.transcripts.spans import ValuePath, value_at

# SPEC §3, "type of a value"; None is a value without type, to which only a `*` rule applies.
VALUE_TYPES = ("thinking", "tool_call", "tool_result", "assistant", "user", "system")


class Shape(StrEnum):
    """The way in which a placeholder replaces a value."""

    __hash__ = str.__hash__  # Enum's own is written in Python

    TEXT = "text"  # a string becomes the placeholder
    WHOLE = "whole"  # an array, object or scalar becomes the placeholder string
    BLOCK = "block"  # a content block becomes a text block with the placeholder
    INPUT = "input"  # the same, in a format whose text blocks are called `input_text`
    PART = "part"  # the same, in a format whose text blocks have no type: `{"text": …}`

    @property
    def is_block(self) -> bool:
        return self is Shape.BLOCK or self is Shape.INPUT or self is Shape.PART

    def holding(self, string: bytes) -> bytes:
        """Return the JSON that replaces the value: a JSON string, or a block with it."""
        if not self.is_block:
            return string
        if self is Shape.PART:
            return b'{"text":%b}' % string
        kind = b"text" if self is Shape.BLOCK else b"input_text"
        return b'{"type":"%b","text":%b}' % (kind, string)


class Turn(StrEnum):
    """The effect of an entry on its turn."""

    NONE = "none"  # not part of a turn
    STARTS = "starts"  # a user message
    OPEN = "open"  # the turn continues: tool call, tool result, anything waiting for an answer
    CLOSES = "closes"  # an assistant message that ends its turn
    # An error or an abort ends the turn, even if calls wait for an answer. A message with this
    # effect is not sent again by its program.
    BREAKS = "breaks"

    @property
    def is_end(self) -> bool:
        return self is Turn.CLOSES or self is Turn.BREAKS


@dataclass(frozen=True, slots=True)
class Value:
    """A value that could be extracted from its entry."""

    path: ValuePath
    shape: Shape
    type: str | None
    display: bool  # never sent to the model
    length: int  # characters that would be extracted, including a removed signature
    leaf: bool = False  # part of arguments, details or an object: min_value_length always applies
    custom: bool = False  # state of an extension: only by a rule that names its customType
    removes: tuple[ValuePath, ...] = ()  # members that are removed with it, without a placeholder
    text: str | None = None  # the current text; None: not a string, or not loaded
    fixed: bool = False  # read-only, because its program relies on it
    once_superseded: bool = False  # it may leave only when its entry is superseded


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in an entry."""

    id: str
    name: str
    path: ValuePath
    arguments: ValuePath | None = None  # path of its arguments, if it has any
    answered: bool = False  # the entry also holds its result


class CacheUse(NamedTuple):
    """A request and its use of the provider's prompt cache, as an entry reports it."""

    model: str | None = None  # the model that answers from here on; None: the entry does not say
    in_use: bool = False  # the answer read from a cache or wrote to it
    # Seconds that written tokens stay cached after their last use, if the entry says so.
    life_seconds: float | None = None
    provider: str | None = None  # None: the entry does not say
    usage: Usage | None = None  # of the request; entries of one answer repeat it


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """The properties of an entry, other than its values."""

    id: str | None  # `__id`, else `id`; None if missing or not a string
    kind: str  # for users: `tool_result`, `assistant`, `model_change`, …
    is_message: bool  # part of the conversation: counts for positions
    parent: str | None = None  # id of the preceding entry
    names_parent: bool = False  # whether it has the member that names its parent, which may be null
    is_header: bool = False  # the line that makes a file a session: never judged, never edited
    is_assistant: bool = False  # an assistant message, in a format that has turns
    turn: Turn = Turn.NONE
    role: str | None = None
    time_ms: float | None = None  # time of writing, from the sources in seed 000
    signed_by: str | None = None  # model of the thinking signature in this assistant message
    answer: str | None = None  # id that the entries of one answer share
    may_be_last: bool = True  # the next line may follow it
    is_note: bool = False  # a record of the program that no entry names as its parent
    rolls_back: int = 0  # number of latest turns that are rolled back
    # Once this entry follows, the program never reads these earlier entries again. They are out of
    # context, and all their values count as `display`.
    supersedes: bool = False  # all earlier entries
    version_of: str | None = None  # earlier entries with the same value here: versions of this one
    # Of these versions, the program may still read so many of the newest; 0: it may read all, now
    # and from now on.
    versions_read: int = 1
    rewinds_to: str | None = None  # the first entry with this `version_of`, and all since
    is_compaction: bool = False
    # For a compaction: the earlier entries that stay in context, as a list of ids or as a range. If
    # only the first is named, the range ends at the compaction.
    kept: tuple[str, ...] = ()
    kept_from: str | None = None
    kept_to: str | None = None
    calls: tuple[ToolCall, ...] = ()
    result_of: str | None = None  # id of the call that this entry answers
    result_tool: str | None = None  # name of the tool whose result this entry is
    cache: CacheUse | None = None


# Kinds of content that fill a session (`Filling`), in addition to those by type and tool.
SETUP = "system and setup text"
ADDED = "text that the program adds"
SUMMARIES = "summaries of compactions"
ATTACHMENTS = "attachments"
# Kinds of content that is not sent to the model.
PROGRAM_NOTES = "never sent: notes of the program"
RESULT_COPIES = "never sent: copies of results"
SUPERSEDED_SUMMARIES = "never sent: superseded compactions"
TOKEN_COUNTS = "never sent: token counts"  # noqa: S105 - not a password
EXTENSION_STATE = "never sent: state of extensions"


class Filling(NamedTuple):
    """A member that fills bytes of an entry and counts as a whole, with the values in it."""

    path: ValuePath  # empty: the whole line
    what: str  # the kind of content, for users
    # The kind of content as soon as a later line has content of kind `what`: the program reads only
    # the newest. None: it reads all.
    superseded: str | None = None


@dataclass(frozen=True, slots=True)
class StartedSubagent:
    """A sub-agent that a call started."""

    call: str  # id of the call
    session: str  # one of the ids by which the program knows the sub-agent's session


class Continued(NamedTuple):
    """The beginning of a session that stands in the file of another session."""

    session: str  # the id by which the program finds the other session's file
    end: int  # bytes of that file that belong to this session, with the beginning of that session


@dataclass(frozen=True, slots=True)
class NotOurs:
    """The result of `detect` for a file that bsd does not change."""

    reason: str
    reads: TranscriptFormat | None = None  # the format that understands its lines, if any
    hint: str | None = None  # how the user can make it a file that bsd changes, if possible
    # The program's own file in a form that bsd does not know, such as one of a newer version; the
    # daemon then tells the user to update bsd. False for files of other programs, empty files, and
    # forms that bsd knows and leaves alone. The reason names the version, if the file states it.
    is_unknown_form: bool = False


# Members that tie entries, calls and results together, anywhere in a message.
TIES = frozenset(
    (
        *("id", "__id", "type", "parentId", "role", "customType", "version", "firstKeptEntryId"),
        *("toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "callId", "call_id"),
        *("signature", "encrypted_content"),
    )
)
# Members in which the result of a call says whether the call failed.
_ERROR_FLAGS = (("isError",), ("is_error",), ("message", "isError"), ("message", "is_error"))
# Tools that run their argument in a shell, with any prefix before their names.
_SHELLS = frozenset(
    ("exec", "bash", "shell", "terminal", "run_command", "execute_command", "run_shell_command")
)
# Tools that write a file, and the names of the argument with its path.
_WRITERS = frozenset(("write", "create", "write_file", "create_file", "file_write"))
_PATHS = ("path", "file_path", "filePath", "filename", "file")


class TranscriptFormat(ABC):
    """A format of transcripts. Subclasses override the methods that apply to their lines."""

    name: str
    parent_key: str | None = "parentId"  # the member that names the preceding entry
    ties: frozenset[str] = TIES  # members that tie entries together, which no edit may change
    # Members that may differ between copies of an entry: they name the session of origin.
    origin_members: frozenset[str] = frozenset()
    # A copied session names its origins in headers, and its lines follow without gaps, so that the
    # place of each copied line is known.
    tells_origin: bool = False
    # The program keeps byte offsets into its sessions. An edited line keeps its length: white space
    # fills the room that extracted values leave, and bsd adds only its marker.
    keeps_length: bool = False
    # A shorter time between a call and its result only measures the writing of the lines.
    least_call_seconds: float = 0.0
    # Members of a line whose names sound like a checksum or a number of bytes, but that bind
    # nothing that bsd changes.
    unbound_members: frozenset[str] = frozenset()

    def why_unknown_form(self, entry: Entry) -> str | None:
        """Return why a line has a form that bsd does not know; None if it has not.

        bsd calls it for each line that it reads in order to edit, and leaves the session alone if
        there is a reason. Formats with a version in each line, or in headers between lines, check
        it here, and call this method too. A line of an unknown type is no reason: it stays byte for
        byte.
        """
        name = binding_member(entry, self.unbound_members)
        return None if name is None else f"a line with the unknown member {name!r:.40}"

    @abstractmethod
    def info(self, entry: Entry) -> EntryInfo:
        """Return the properties of an entry."""

    @abstractmethod
    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        """List the values that could be extracted, in the entry's order.

        Args:
            entry: the parsed line.
            at_least: the least number of characters of a string in arguments, details and objects.
                An object without such a string is a value if it is that long as a whole.
        """

    def made_of(self, entry_id: str) -> re.Pattern[bytes] | None:
        """Return a pattern for the lines of entries with this id; None: search for the id."""
        return None

    def origins(self, entry: Entry) -> tuple[str, ...]:
        """Return the ids of sessions that an entry names: its own session, then its origins."""
        return ()

    def renews_id(self, entry: Entry, was: str) -> bool:
        """Return whether a program may have rewritten the entry of id `was` as this entry."""
        return False

    def value_name(self, entry: Entry, path: ValuePath) -> Hashable | None:
        """Return a name that a value keeps where its program copies it into another entry.

        None: it has no such name, and stands in another entry only if the whole entry was copied.
        """
        return None

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives its session: a name, or the first prompt."""
        return None

    def directory(self, entry: Entry) -> str | None:
        """Return the working directory of the program, if an entry states it."""
        return None

    def continues(self, entry: Entry) -> Continued | None:
        """Return the beginning of the session, if its header says that another file holds it."""
        return None

    def parent_session(self, entry: Entry) -> str | None:
        """Return the id of the session of which this one is a fork, if a header names it."""
        return None

    def error_flags(self, entry: Entry) -> Iterator[tuple[ValuePath, bool]]:
        """Yield the paths at which a result says whether its call failed, with the flags."""
        for path in _ERROR_FLAGS:
            flag = value_at(entry, path)
            if isinstance(flag, bool):
                yield path, flag

    def fillings(self, entry: Entry) -> Iterable[Filling]:
        """Return the members of an entry that fill bytes in addition to its values."""
        return ()

    def call_seconds(self, entry: Entry) -> tuple[str, float] | None:
        """Return the id of a call and its duration in seconds, if an entry states them."""
        return None

    def tokens_before(self, entry: Entry) -> int | None:
        """Return the number of tokens in context before a compaction, if its entry states it."""
        return None

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        """Return the sub-agent that a call started, if an entry names both."""
        return None

    def command(self, tool: str, arguments: Any) -> Any:
        """Return the shell command of a call, as a string or a list of words; None: not a shell."""
        if tool.rpartition("__")[2].casefold() not in _SHELLS or not isinstance(arguments, dict):
            return None
        return arguments.get("command", arguments.get("cmd"))

    def file_written(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Return the path of a file that a call wrote as a whole; None for any other call."""
        if tool.casefold() not in _WRITERS:
            return None
        return next((path for key in _PATHS if (path := text_of(arguments.get(key)))), None)


# --- titles of sessions: a given name, else the first prompt ---

LONGEST_TITLE = 200  # characters
_JOINERS = "\u200c\u200d"  # emoji and several scripts need them
_LOOKED_AT = 20_000  # characters of a prompt that are examined
# Texts that programs put around a prompt or before it: `<system-reminder>…</system-reminder>`.
_WRAPPED = re.compile(r"\s*<([a-z]+[-_][a-z_-]*)\b[^<>]*>.*?</\1>\s*", re.DOTALL)
_OPEN_WRAPPER = re.compile(r"\s*</?[a-z]+[-_][a-z_-]*\b[^<>]*>")
_COMMAND_ALONE = re.compile(r"/[A-Za-z][\w:-]*\s*")


class Rank(IntEnum):
    """The rank of a title. The best rank wins; then the first prompt, or else the last name."""

    PROMPT = 0
    SUMMARY = 1  # a program's summary of an earlier part
    MADE = 2  # by a model, for the whole session
    GIVEN = 3  # by a user


class Title(NamedTuple):
    """A title that an entry gives its session."""

    text: str
    rank: Rank


def better(old: Title | None, new: Title | None) -> Title | None:
    """Return the title that wins; `new` is from a later line."""
    if old is None or new is None:
        return new or old
    later = new.rank > old.rank or (new.rank == old.rank and new.rank is not Rank.PROMPT)
    return new if later else old


def named(value: Any, rank: Rank) -> Title | None:
    """Return the title in a member of an entry, or None."""
    text = in_short(value) if isinstance(value, str) else ""
    return Title(text, rank) if text else None


def asked(texts: list[str], before: re.Pattern[str] | None = None) -> Title | None:
    """Return the title that a prompt of these texts gives; None if no text was typed by a user.

    `before` matches the text that the program puts in front of a prompt.
    """
    for text in texts:
        if (words := _typed(text[:_LOOKED_AT], before)) and not is_placeholder(words):
            return Title(words, Rank.PROMPT)
    return None


def _typed(text: str, before: re.Pattern[str] | None) -> str | None:
    """Return the words that a user typed, on one line; None if there is only a command."""
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
    """Return a text as a title: on one line, of limited length, without invisible characters."""
    words = " ".join(text[: 4 * LONGEST_TITLE].split())
    line = words
    if not words.isprintable():
        line = "".join(c for c in words if c.isprintable() or c in _JOINERS)
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


_LONGEST_PATH = 4096  # characters


_LONGEST_NAME = 60  # characters of a type or tool in the name of a kind of content


def line_of_type(kind: str) -> str:
    """Return the kind of content of lines whose type a format does not know."""
    return f"lines of type {in_short(kind)[:_LONGEST_NAME]}"


def with_tool(what: str, tool: str) -> str:
    """Return the kind of content of calls or results of one tool."""
    return f"{what}: {in_short(tool)[:_LONGEST_NAME]}" if tool else what


def path_text(value: Any) -> str | None:
    """Return an absolute path that a user can read and type; None for any other value."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATH or not value.startswith("/"):
        return None
    return value if value.isprintable() else None


def texts_in(content: Any) -> list[str]:
    """Return the texts of a content that is a string, or a list of blocks with `text`."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    found = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in found if isinstance(text, str)]
