"""A session's order: what protects an entry from being cut, and which follows which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bsd.planning.context_window import Binds, LastTurn, SignatureCoverage, never
from bsd.planning.locate import Located, name_of
from bsd.planning.plan import Meter, Rate
from bsd.planning.rules import own_tool
from bsd.planning.targets import ACTIONS
from bsd.transcripts.agents.entry import EXTRACTABLE, Entry, mentions
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat, Turn, Value
from bsd.transcripts.reader import Line, Transcript, parse_entry
from bsd.transcripts.spans import value_at

TURN_OPEN = "its turn is not over, or it is the latest answer"
PINNED = "it is pinned (_extractable: false)"
WAITING = "a tool call in it has no result yet"
ASSISTANT, USER, OTHER = "assistant", "user", "other"
_CONTEXT = "context"
_LONG = 500  # characters: of arguments and objects, so much as extraction weighs, too


def read_through(source: Transcript, fmt: TranscriptFormat) -> Iterator[Located]:
    """All entries of a session, in the order of the file; lines that hold none are left out."""
    for line in source.lines():
        entry = parse_entry(line.raw)
        if entry is not None:
            yield Located(line, entry, fmt.info(entry))


def identifier(fmt: TranscriptFormat) -> Callable[[bytes], str | None]:
    """How to tell the id of the entry that a line holds."""

    def identify(raw: bytes) -> str | None:
        entry = parse_entry(raw)
        return None if entry is None else fmt.info(entry).id

    return identify


def plain_name(tool: str) -> str:
    """A tool's name without the prefix that an MCP client gave it."""
    return tool.rpartition("__")[2]


class Conversation:
    """Follows a session to its end, and knows then which of its entries are protected.

    `binds` tells which models' signatures cover what is before them.
    """

    def __init__(
        self, fmt: TranscriptFormat, protected_tools: Collection[str] = (), binds: Binds = never
    ) -> None:
        self._fmt = fmt
        self._coverage = SignatureCoverage(binds)
        self._meter = Meter()
        self._protected_tools = {name.casefold() for name in protected_tools}
        self._last_turn = LastTurn()
        self._waiting: dict[str, int] = {}  # id of a call without result → line
        self._tools: dict[str, str] = {}  # id of a call of a protected tool → its name
        self._own: set[str] = set()  # ids of calls of our own tools

    def follow(self, seen: Located) -> None:
        """Note the next entry."""
        index, info = seen.line.index, seen.info
        self._last_turn.follow(index, info)
        self._coverage.follow(index, info)
        if not info.is_header:
            self._meter.follow(seen.entry, info, self._fmt.values(seen.entry, _LONG))
        for call in info.calls:
            if call.id:
                self._waiting[call.id] = index
            if self._is_protected(call.name) and call.id:
                self._tools[call.id] = call.name
            if call.id and _is_own(seen.entry, call):
                self._own.add(call.id)
        if info.result_of is not None:
            self._waiting.pop(info.result_of, None)

    def turn_open(self, index: int) -> bool:
        """Whether a line is of an unfinished turn, or a part of the latest assistant message."""
        return self._last_turn.holds(index)

    def is_bound(self, index: int) -> bool:
        """Whether a signature that is sent covers a line."""
        return self._coverage.binds(index)

    @property
    def rate(self) -> Rate:
        """How many characters of this session are a token."""
        return self._meter.rate()

    def tokens(self, index: int, characters: int) -> int:
        """So many tokens are so many characters of text in a line: none if it is not in context."""
        return self.rate.of(characters) if self._coverage.context.sends(index) else 0

    def own_protection(self, seen: Located) -> str | None:
        """Why an entry is protected, as far as it can be told where it stands."""
        if seen.entry.get(EXTRACTABLE) is False:
            return PINNED
        info = seen.info
        names = [call.name for call in info.calls] + [info.result_tool or ""]
        names.append(self._tools.get(info.result_of or "", ""))
        for name in names:
            if self._is_protected(name):
                return f"'{name}' is a protected tool (setting protected_tools)"
        return None

    def is_own_answer(self, info: EntryInfo) -> bool:
        """Whether one of our own tools said this: it quotes what is looked for elsewhere."""
        return info.result_of in self._own or own_tool(info.result_tool)

    def protection(self, index: int) -> str | None:
        """Why a line is protected by what came after it; ask once all was followed."""
        if self.turn_open(index):
            return TURN_OPEN
        return WAITING if index in self._waiting.values() else None

    def _is_protected(self, tool: str) -> bool:
        return bool(self._protected_tools) and not self._protected_tools.isdisjoint(
            (tool.casefold(), plain_name(tool).casefold())
        )


def _is_own(entry: Entry, call: ToolCall) -> bool:
    """Whether a call is one of ours; `context` may be anybody's, unless its action is ours."""
    if plain_name(call.name) != _CONTEXT:
        return own_tool(call.name)
    arguments = value_at(entry, call.arguments) if call.arguments else None
    return isinstance(arguments, dict) and arguments.get("action") in ACTIONS


def may_change(value: Value) -> bool:
    """Whether a value is text of the conversation: neither thinking nor a call, nor never sent."""
    untold = value.fixed or value.display or value.custom
    return not (untold or value.type in {"thinking", "tool_call"})


def is_users(value: Value, info: EntryInfo) -> bool:
    """Whether a user wrote it: changed only if somebody asks for it."""
    return value.type == "user" or info.role == "user"


# --- who follows whom ---


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What stays at hand of one entry."""

    index: int  # 0-based line number
    offset: int
    length: int
    id: str | None
    parent: str | None
    speaker: str | None  # who speaks in it, in a dialect that has turns; None: no message
    calls: tuple[ToolCall, ...]
    result_of: str | None
    is_result: bool
    tool: str | None  # whose result it is

    @property
    def name(self) -> str:
        return name_of(self.id, self.index)


class EntryTree:
    """All entries of one session, and how they hang together."""

    def __init__(self, source: Transcript, fmt: TranscriptFormat) -> None:
        self._source = source
        self._fmt = fmt
        self.rows: list[Row] = []
        self.conversation = Conversation(fmt)
        self._by_id: dict[str, list[Row]] = defaultdict(list)
        self._children: dict[str, list[Row]] = defaultdict(list)
        self._mentioned: set[str] = set()
        for seen in read_through(source, fmt):
            self._add(seen)
        self._parents: dict[Row, Row] = {}
        self._followers: dict[Row, list[Row]] = defaultdict(list)
        for before, row in pairwise(self.rows):
            # Where no parent is named, or one that is not there, the file's order is all there is.
            parent = self._named_parent(row) or before
            self._parents[row] = parent
            self._followers[parent].append(row)

    def _add(self, seen: Located) -> None:
        info, line = seen.info, seen.line
        self.conversation.follow(seen)
        row = Row(
            line.index,
            line.offset,
            len(line.raw),
            info.id,
            info.parent,
            _speaker(info),
            info.calls,
            info.result_of,
            info.kind == "tool_result" and not info.calls,
            info.result_tool,
        )
        self.rows.append(row)
        self._mentioned.update(mentions(seen.entry))
        if row.id is not None:
            self._by_id[row.id].append(row)
        if info.parent is not None:
            self._children[info.parent].append(row)

    def read(self, row: Row) -> Located:
        """An entry again, in full."""
        raw = self._source.read(row.offset, row.length)
        entry: Entry = parse_entry(raw) or {}
        return Located(Line(row.index, row.offset, raw), entry, self._fmt.info(entry))

    def find(
        self, name: str, call_id: str | None, entry_id: str | None
    ) -> list[tuple[Row, ToolCall]]:
        """The calls that may be meant."""
        return [
            (row, call)
            for row in self.rows
            for call in row.calls
            if (entry_id is None or row.id == entry_id)
            and (call.id == call_id if call_id is not None else call.name == name)
        ]

    def result(self, row: Row, call: ToolCall) -> Row | None:
        """The entry that answers a call; without ids (flat entries only) the next one there is."""
        loose: Row | None = None
        begun = blocked = False
        for other in self.rows:
            if other is row:
                begun = True
                continue
            if not begun:
                continue
            if any(again.id == call.id for again in other.calls):
                break  # the id is used a second time
            if call.id and other.result_of == call.id:
                return other
            blocked = blocked or bool(other.calls)
            fits = other.is_result and other.result_of is None and other.tool in {None, call.name}
            if not call.path and fits and not blocked:
                loose = loose or other
        return loose

    def is_free(self, row: Row) -> bool:
        """Whether no entry but its children names this one, and no other has its id."""
        if row.id is None:
            return True
        return len(self._by_id[row.id]) == 1 and row.id not in self._mentioned

    def children(self, row: Row) -> list[Row]:
        return self._children.get(row.id, []) if row.id is not None else []

    def _named_parent(self, row: Row) -> Row | None:
        if row.parent is None:
            return None
        older = [one for one in self._by_id.get(row.parent, ()) if one.index < row.index]
        return older[-1] if older else None

    def message_before(self, row: Row, gone: Collection[Row]) -> Row | None:
        """The message that this one follows once those are gone."""
        here = self._parents.get(row)
        while here is not None and (here in gone or here.speaker is None):
            here = self._parents.get(here)
        return here

    def messages_from(self, row: Row, gone: Collection[Row]) -> Iterator[Row]:
        """The first message on every branch from this entry on, which may be it itself."""
        waiting = [row]
        while waiting:
            here = waiting.pop()
            if here.speaker is not None and here not in gone:
                yield here
            else:
                waiting += self._followers.get(here, ())

    def followers(self, gone: Collection[Row]) -> Iterator[Row]:
        """Entries that stay, and follow one that goes."""
        for row in gone:
            yield from (one for one in self._followers.get(row, ()) if one not in gone)

    def left_behind(self, gone: Collection[Row]) -> Iterator[tuple[Row, str | None]]:
        """Entries whose parent goes, and the id of the one that they follow then."""
        for row in gone:
            for child in self.children(row):
                if child not in gone:
                    yield child, self._next_parent(row, gone)

    def _next_parent(self, row: Row, gone: Collection[Row]) -> str | None:
        here: Row | None = row
        while here is not None and here in gone:
            parent = here.parent
            here = self._named_parent(here)
            if here is None:
                return parent
        return here.id if here is not None else None


def _speaker(info: EntryInfo) -> str | None:
    if not info.is_message:
        return None
    if info.is_assistant:
        return ASSISTANT
    return USER if info.turn is Turn.STARTS else OTHER
