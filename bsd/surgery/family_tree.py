"""Which entry follows which, which call has which result: the session as redaction sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bsd.agents.dialect import Facts, Format, ToolCall, Turn
from bsd.agents.entry import Entry, mentions
from bsd.surgery.conversation import Conversation, Seen, read_through
from bsd.surgery.plan import Source
from bsd.text.reader import Line, parse_entry

ASSISTANT, USER, OTHER = "assistant", "user", "other"


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
        return self.id if self.id is not None else f"#{self.index}"


class FamilyTree:
    """All entries of one session, and how they hang together."""

    def __init__(self, source: Source, fmt: Format) -> None:
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

    def _add(self, seen: Seen) -> None:
        facts, line = seen.facts, seen.line
        self.conversation.follow(seen)
        row = Row(
            line.index,
            line.offset,
            len(line.raw),
            facts.id,
            facts.parent,
            _speaker(facts),
            facts.calls,
            facts.result_of,
            facts.kind == "tool_result" and not facts.calls,
            facts.result_tool,
        )
        self.rows.append(row)
        self._mentioned.update(mentions(seen.entry))
        if row.id is not None:
            self._by_id[row.id].append(row)
        if facts.parent is not None:
            self._children[facts.parent].append(row)

    def read(self, row: Row) -> Seen:
        """An entry again, in full."""
        raw = self._source.read(row.offset, row.length)
        entry: Entry = parse_entry(raw) or {}
        return Seen(Line(row.index, row.offset, raw), entry, self._fmt.facts(entry))

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


def _speaker(facts: Facts) -> str | None:
    if not facts.is_message:
        return None
    if facts.is_assistant:
        return ASSISTANT
    return USER if facts.turn is Turn.STARTS else OTHER
