"""What of a session's order protects an entry from being cut, and what cutting it would save."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from bsd.agents.dialect import Facts, Format, ToolCall, Value
from bsd.agents.entry import Entry, block_at
from bsd.agents.marker import EXTRACTABLE
from bsd.foundation.immutable import immutable
from bsd.surgery.plan import Source
from bsd.surgery.rules import own_tool
from bsd.surgery.sight import Binds, LastTurn, Prefix, never
from bsd.surgery.targets import ACTIONS
from bsd.surgery.tokens import Meter, Rate
from bsd.text.reader import Line, parse_entry

TURN_OPEN = "its turn is not over, or it is the latest answer"
PINNED = "it is pinned (_extractable: false)"
_CONTEXT = "context"

_LONG = 500  # characters: of arguments and objects, so much as extraction weighs, too

WAITING = "a tool call in it has no result yet"


@immutable
class Seen:
    """An entry of a session, while its line is at hand."""

    line: Line
    entry: Entry
    facts: Facts


def read_through(source: Source, fmt: Format) -> Iterator[Seen]:
    """All entries of a session, in the order of the file; lines that hold none are left out."""
    for line in source.lines():
        entry = parse_entry(line.raw)
        if entry is not None:
            yield Seen(line, entry, fmt.facts(entry))


def identifier(fmt: Format) -> Callable[[bytes], str | None]:
    """How to tell the id of the entry that a line holds."""

    def identify(raw: bytes) -> str | None:
        entry = parse_entry(raw)
        return None if entry is None else fmt.facts(entry).id

    return identify


def plain_name(tool: str) -> str:
    """A tool's name without the prefix that an MCP client gave it."""
    return tool.rpartition("__")[2]


class Conversation:
    """Follows a session to its end, and knows then which of its entries are protected.

    `binds` tells which models' signatures cover what is before them.
    """

    def __init__(
        self, fmt: Format, protected_tools: Collection[str] = (), binds: Binds = never
    ) -> None:
        self._fmt = fmt
        self._prefix = Prefix(binds)
        self._meter = Meter()
        self._protected_tools = {name.casefold() for name in protected_tools}
        self._last_turn = LastTurn()
        self._waiting: dict[str, int] = {}  # id of a call without result → line
        self._tools: dict[str, str] = {}  # id of a call of a protected tool → its name
        self._own: set[str] = set()  # ids of calls of our own tools

    def follow(self, seen: Seen) -> None:
        """Note the next entry."""
        index, facts = seen.line.index, seen.facts
        self._last_turn.follow(index, facts)
        self._prefix.follow(index, facts)
        if not facts.is_header:
            self._meter.follow(seen.entry, facts, self._fmt.values(seen.entry, _LONG))
        for call in facts.calls:
            if call.id:
                self._waiting[call.id] = index
            if self._is_protected(call.name) and call.id:
                self._tools[call.id] = call.name
            if call.id and _is_own(seen.entry, call):
                self._own.add(call.id)
        if facts.result_of is not None:
            self._waiting.pop(facts.result_of, None)

    def turn_open(self, index: int) -> bool:
        """Whether a line is of an unfinished turn, or a part of the latest assistant message."""
        return self._last_turn.holds(index)

    def is_bound(self, index: int) -> bool:
        """Whether a signature that is sent covers a line."""
        return self._prefix.binds(index)

    @property
    def rate(self) -> Rate:
        """How many characters of this session are a token."""
        return self._meter.rate()

    def tokens(self, index: int, characters: int) -> int:
        """So many tokens are so many characters of text in a line: none if it is not in sight."""
        return self.rate.of(characters) if self._prefix.sight.sends(index) else 0

    def own_protection(self, seen: Seen) -> str | None:
        """Why an entry is protected, as far as it can be told where it stands."""
        if seen.entry.get(EXTRACTABLE) is False:
            return PINNED
        facts = seen.facts
        names = [call.name for call in facts.calls] + [facts.result_tool or ""]
        names.append(self._tools.get(facts.result_of or "", ""))
        for name in names:
            if self._is_protected(name):
                return f"'{name}' is a protected tool (setting protected_tools)"
        return None

    def is_own_answer(self, facts: Facts) -> bool:
        """Whether one of our own tools said this: it quotes what is looked for elsewhere."""
        return facts.result_of in self._own or own_tool(facts.result_tool)

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
    arguments = block_at(entry, call.arguments) if call.arguments else None
    return isinstance(arguments, dict) and arguments.get("action") in ACTIONS


def may_change(value: Value) -> bool:
    """Whether a value is text of the conversation: neither thinking nor a call, nor never sent."""
    untold = value.fixed or value.display or value.custom
    return not (untold or value.type in {"thinking", "tool_call"})


def is_users(value: Value, facts: Facts) -> bool:
    """Whether a user wrote it: changed only if somebody asks for it."""
    return value.type == "user" or facts.role == "user"
