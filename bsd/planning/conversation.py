"""The entries of a session in order: their protection from edits, their parents and followers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bsd.planning.context_window import Binds, ContextWindow, LastTurn, never
from bsd.planning.locate import Located, entries, name_of
from bsd.planning.plan import Rate
from bsd.planning.rules import own_tool
from bsd.planning.targets import ACTIONS
from bsd.planning.tokens import Meter
from bsd.transcripts.agents.entry import EXTRACTABLE, Entry, mentions
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat, Turn, Value
from bsd.transcripts.reader import Line, Transcript
from bsd.transcripts.spans import value_at

ASSISTANT, USER, OTHER = "assistant", "user", "other"
_CONTEXT = "context"
_LONG = 500  # characters: shorter arguments and objects are not metered, as in extraction


def plain_name(tool: str) -> str:
    """Return a tool's name without the prefix that an MCP client adds."""
    return tool.rpartition("__")[2]


class Conversation:
    """Follows a session to its last entry and tells which entries are protected from edits.

    Args:
        protected_tools: names of tools whose calls and results are never changed.
        binds: tells whether the signatures of a model cover the entries before them.
    """

    def __init__(
        self, fmt: TranscriptFormat, protected_tools: Collection[str] = (), binds: Binds = never
    ) -> None:
        self._fmt = fmt
        self._context = ContextWindow(binds)
        self._last_turn = LastTurn()
        self._meter = Meter()
        self._protected_tools = {name.casefold() for name in protected_tools}
        self._waiting: dict[str, int] = {}  # id of a call without a result → line
        self._tools: dict[str, str] = {}  # id of a call of a protected tool → tool name
        self._own: set[str] = set()  # ids of calls of bsd's tools

    def follow(self, seen: Located) -> None:
        """Add the next entry."""
        index, info = seen.line.index, seen.info
        self._last_turn.follow(index, info)
        self._context.follow(index, info)
        if not info.is_header:
            self._meter.follow(seen.entry, info, self._fmt.values(seen.entry, _LONG))
        for call in info.calls:
            if not call.id:
                continue
            self._waiting[call.id] = index
            if self._is_protected(call.name):
                self._tools[call.id] = call.name
            if _is_own(seen.entry, call):
                self._own.add(call.id)
        if info.result_of is not None:
            self._waiting.pop(info.result_of, None)

    def own_protection(self, seen: Located) -> str | None:
        """Return why an entry is protected, judged by the entry itself and those before it."""
        if seen.entry.get(EXTRACTABLE) is False:
            return "it is pinned (_extractable: false)"
        info = seen.info
        names = [call.name for call in info.calls] + [info.result_tool or ""]
        names.append(self._tools.get(info.result_of or "", ""))
        for name in names:
            if self._is_protected(name):
                return f"'{name}' is a protected tool (setting protected_tools)"
        return None

    def is_own_answer(self, info: EntryInfo) -> bool:
        """Return whether an entry is a result of a bsd tool, which quotes text of other entries."""
        return info.result_of in self._own or own_tool(info.result_tool)

    def end_if_silent(self, now: float | None, mtime: float | None) -> None:
        """End the last turn if it had no new entry for a day. Call it after the last entry.

        Args:
            now: epoch seconds; None: a turn without a recorded end stays open.
            mtime: modification time of the file in epoch seconds.
        """
        if now is not None:
            self._last_turn.end_if_silent(now, mtime)

    # Answers. Valid once the last entry was followed.

    def turn_open(self, index: int) -> bool:
        """Return whether a line belongs to an unfinished turn or the latest assistant message."""
        return self._last_turn.is_open(index)

    def protection(self, index: int) -> str | None:
        """Return why later entries protect a line from changes; None if they do not."""
        if self.turn_open(index):
            return "its turn is not over, or it is the latest answer"
        waits = index in self._waiting.values()
        return "a tool call in it has no result yet" if waits else None

    def is_bound(self, index: int) -> bool:
        """Return whether a signature that is sent covers a line."""
        return self._context.is_bound(self._context.row_at(index))

    @property
    def rate(self) -> Rate:
        """Characters per token in this session."""
        return self._meter.rate()

    def tokens(self, index: int, characters: int) -> int:
        """Estimate the tokens of `characters` characters in a line; 0 if it is not in context."""
        is_sent = self._context.sent(self._context.row_at(index))
        return self.rate.tokens(characters) if is_sent else 0

    def _is_protected(self, tool: str) -> bool:
        return bool(self._protected_tools) and not self._protected_tools.isdisjoint(
            (tool.casefold(), plain_name(tool).casefold())
        )


def _is_own(entry: Entry, call: ToolCall) -> bool:
    """Return whether a call is of one of bsd's tools.

    Other programs may have a tool named `context`, with other actions.
    """
    if plain_name(call.name) != _CONTEXT:
        return own_tool(call.name)
    arguments = value_at(entry, call.arguments) if call.arguments else None
    return isinstance(arguments, dict) and arguments.get("action") in ACTIONS


def may_change(value: Value) -> bool:
    """Return whether a value is text of the conversation: not thinking, not a call, not unsent."""
    is_unsent = value.fixed or value.display or value.custom
    return not (is_unsent or value.type in {"thinking", "tool_call"})


def is_users(value: Value, info: EntryInfo) -> bool:
    """Return whether a user wrote a value. It is changed only if the caller asks for that."""
    return value.type == "user" or info.role == "user"


@dataclass(frozen=True, slots=True, eq=False)
class EntryPlace:
    """The place and the properties of an entry, without its content."""

    index: int  # 0-based line number
    offset: int
    length: int
    info: EntryInfo

    @property
    def name(self) -> str:
        """The entry's name in answers."""
        return name_of(self.info.id, self.index)

    @property
    def speaker(self) -> str | None:
        """The speaker, in a format that has turns; None if the entry is not a message."""
        if not self.info.is_message:
            return None
        if self.info.is_assistant:
            return ASSISTANT
        return USER if self.info.turn is Turn.STARTS else OTHER


class EntryTree:
    """All entries of one session, with their parents and followers."""

    def __init__(self, source: Transcript, fmt: TranscriptFormat) -> None:
        self._source = source
        self._fmt = fmt
        self.places: list[EntryPlace] = []
        self.conversation = Conversation(fmt)
        self._by_id: dict[str, list[EntryPlace]] = defaultdict(list)
        self._children: dict[str, list[EntryPlace]] = defaultdict(list)
        self._mentioned: set[str] = set()
        for seen in entries(source.lines(), fmt):
            line, info = seen.line, seen.info
            self.conversation.follow(seen)
            place = EntryPlace(line.index, line.offset, len(line.raw), info)
            self.places.append(place)
            self._mentioned.update(mentions(seen.entry))
            if info.id is not None:
                self._by_id[info.id].append(place)
            if info.parent is not None:
                self._children[info.parent].append(place)
        self._parents: dict[EntryPlace, EntryPlace] = {}
        self._followers: dict[EntryPlace, list[EntryPlace]] = defaultdict(list)
        for before, place in pairwise(self.places):
            # If an entry names no parent, or a missing one, its parent is the entry before it.
            parent = self._named_parent(place) or before
            self._parents[place] = parent
            self._followers[parent].append(place)

    def read(self, place: EntryPlace) -> Located:
        """Read an entry again, in full."""
        line = Line(place.index, place.offset, self._source.read(place.offset, place.length))
        return Located.of(line, self._fmt) or Located(line, {}, self._fmt.info({}))

    def find(
        self, name: str, call_id: str | None, entry_id: str | None
    ) -> list[tuple[EntryPlace, ToolCall]]:
        """Return the calls that match `call_id`, or else the tool name, and `entry_id` if given."""
        return [
            (place, call)
            for place in self.places
            for call in place.info.calls
            if (entry_id is None or place.info.id == entry_id)
            and (call.id == call_id if call_id is not None else call.name == name)
        ]

    def result(self, place: EntryPlace, call: ToolCall) -> EntryPlace | None:
        """Return the entry that answers a call.

        Without ids (flat entries only) it is the next result.
        """
        loose: EntryPlace | None = None
        blocked = False
        for other in self.places[self.places.index(place) + 1 :]:
            info = other.info
            if any(again.id == call.id for again in info.calls):
                break  # a later call reuses the id
            if call.id and info.result_of == call.id:
                return other
            blocked = blocked or bool(info.calls)
            is_result = info.kind == "tool_result" and not info.calls and info.result_of is None
            if not call.path and is_result and info.result_tool in {None, call.name}:
                loose = loose or (None if blocked else other)
        return loose

    def is_free(self, place: EntryPlace) -> bool:
        """Return whether only children refer to an entry, and its id is unique."""
        id_ = place.info.id
        return id_ is None or (len(self._by_id[id_]) == 1 and id_ not in self._mentioned)

    def _named_parent(self, place: EntryPlace) -> EntryPlace | None:
        if place.info.parent is None:
            return None
        older = [one for one in self._by_id.get(place.info.parent, ()) if one.index < place.index]
        return older[-1] if older else None

    def message_before(self, place: EntryPlace, gone: Collection[EntryPlace]) -> EntryPlace | None:
        """Return the message before `place` once the entries in `gone` are removed."""
        here = self._parents.get(place)
        while here is not None and (here in gone or here.speaker is None):
            here = self._parents.get(here)
        return here

    def messages_from(
        self, place: EntryPlace, gone: Collection[EntryPlace]
    ) -> Iterator[EntryPlace]:
        """Yield the first message of each branch from `place` on, which may be `place` itself."""
        waiting = [place]
        while waiting:
            here = waiting.pop()
            if here.speaker is not None and here not in gone:
                yield here
            else:
                waiting += self._followers.get(here, ())

    def followers(self, gone: Collection[EntryPlace]) -> Iterator[EntryPlace]:
        """Yield the entries that stay and follow an entry that goes."""
        for place in gone:
            yield from (one for one in self._followers.get(place, ()) if one not in gone)

    def left_behind(self, gone: Collection[EntryPlace]) -> Iterator[tuple[EntryPlace, str | None]]:
        """Yield the entries whose parent goes, each with the id of its next remaining ancestor."""
        for place in gone:
            for child in self._children.get(place.info.id, ()) if place.info.id else ():
                if child not in gone:
                    yield child, self._next_parent(place, gone)

    def _next_parent(self, place: EntryPlace, gone: Collection[EntryPlace]) -> str | None:
        here: EntryPlace | None = place
        while here is not None and here in gone:
            parent = here.info.parent
            here = self._named_parent(here)
            if here is None:
                return parent
        return here.info.id if here is not None else None
