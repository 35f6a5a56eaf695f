"""Plans how calls of our own tools leave the agent's sight (SPEC §5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict
from bsd.planning.conversation import ASSISTANT, USER, EntryTree, Row, identifier
from bsd.planning.discard import content_values, put_texts, texts_for
from bsd.planning.locate import Located, Return, name_of, original_of
from bsd.planning.plan import Plan
from bsd.planning.rules import own_tool
from bsd.store.changed_lines import gaps_of
from bsd.store.history import TouchedLine
from bsd.store.markers import away_paths
from bsd.store.originals import Missing, OriginalStore
from bsd.transcripts.agents.entry import (
    MARKER,
    REDACTED,
    Entry,
    Marker,
    same_author,
    says_something,
)
from bsd.transcripts.agents.format import ToolCall, TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript, is_too_large, parse_kept
from bsd.transcripts.spans import ValuePath, paths_of, value_at
from bsd.transcripts.splice import edit, elements, encode_string, prepend_elements, remove_elements

# What a marked call still says of itself.
_KEPT_ARGUMENTS = frozenset(("action", "entry", "entry_id"))


# --- one line ---


class CannotChange(Conflict):
    """The line cannot be changed without losing something."""


@dataclass(slots=True)
class LineChange:
    """What is to become of one line."""

    marked: list[ToolCall] = field(default_factory=list)  # calls whose arguments are cut
    note: str | None = None  # what the texts become
    redacted: bool = False
    new_parent: str | None = None
    reparented: bool = False
    content: ValuePath = ()  # where the blocks are that go or come
    blocks_out: set[int] = field(default_factory=set)
    blocks_in: list[bytes] = field(default_factory=list)  # in front of the others

    @property
    def moves_blocks(self) -> bool:
        return bool(self.blocks_out or self.blocks_in)

    def apply(self, seen: Located, fmt: TranscriptFormat, stored: OriginalStore) -> bytes:
        """Make the new line; raises CannotChange, SpliceError."""
        raw, entry = seen.line.raw, seen.entry
        if self.moves_blocks and self._shifts_extracted(entry):
            raw = inline_again(seen, fmt, stored)
            entry = parse_kept(raw) or {}
        seen = Located(seen.line, entry, fmt.info(entry))
        raw = self._put_note(raw, seen, fmt)
        for call in self.marked:
            raw = _cut_arguments(raw, entry, call)
        if self.reparented and fmt.parent_key:
            parent = b"null" if self.new_parent is None else encode_string(self.new_parent)
            raw = edit(raw, replace={(fmt.parent_key,): parent})
        if self.moves_blocks:
            raw = self._move_blocks(raw, entry)
        return raw

    def _put_note(self, raw: bytes, seen: Located, fmt: TranscriptFormat) -> bytes:
        put = {REDACTED: b"true"} if self.redacted else {}
        values = content_values(seen, fmt) if self.note is not None else []
        if not values:
            return edit(raw, put=put) if put else raw
        note = self.note or ""
        return put_texts(raw, seen.entry, texts_for(values, note, note), put)

    def _move_blocks(self, raw: bytes, entry: Entry) -> bytes:
        blocks = value_at(entry, self.content)
        if not isinstance(blocks, list):
            raise CannotChange("its content is no list of blocks")
        raw = remove_elements(raw, self.content, len(blocks), self.blocks_out)
        empty = len(blocks) == len(self.blocks_out)
        return prepend_elements(raw, self.content, self.blocks_in, empty=empty)

    def _shifts_extracted(self, entry: Entry) -> bool:
        """Whether a block moves from which something is in the store, under its old number."""
        first = 0 if self.blocks_in else min(self.blocks_out)
        depth = len(self.content)
        marker = Marker.of(entry)
        for path in paths_of(marker.keys).values() if marker else ():
            if path[:depth] == self.content and len(path) > depth:
                at = path[depth]
                if isinstance(at, int) and at >= first:
                    return True
        return False


def inline_again(seen: Located, fmt: TranscriptFormat, stored: OriginalStore) -> bytes:
    """The line with everything back that was taken out of it; raises CannotChange."""
    marker, entry_id = Marker.of(seen.entry), seen.info.id
    if marker is None or entry_id is None:
        return seen.line.raw
    original = original_of(seen.line.raw, seen.entry, marker, fmt, stored)
    if isinstance(original, Missing):
        raise CannotChange("what was extracted from it is no longer stored")
    paths = list(away_paths(seen.entry, marker).values())
    back = Return.of(seen.entry, original, fmt, paths)
    if len(back.replace) < len(paths):
        raise CannotChange("not all that was extracted from it is stored")
    return back.apply(seen.line.raw, remove=[(MARKER,)])


def _cut_arguments(raw: bytes, entry: Entry, call: ToolCall) -> bytes:
    """Leave action and entry; what somebody else's tool was given stays.

    Patterns go, too: they quote what was to go. A tool called `context` may be another's, but
    a call of one is only marked when it was ours.
    """
    path = call.arguments
    if path is None or not (own_tool(call.name) or call.name.rpartition("__")[2] == "context"):
        return raw
    arguments = value_at(entry, path)
    if isinstance(arguments, dict):
        gone = [(*path, key) for key in arguments if key not in _KEPT_ARGUMENTS]
        return edit(raw, remove=gone) if gone else raw
    if isinstance(arguments, str):
        return edit(raw, replace={path: encode_string(_cut_text(arguments))})
    return raw


def _cut_text(arguments: str) -> str:
    """Arguments that stand as JSON in a text; what is none says nothing."""
    if is_too_large(arguments.encode("utf-8", "surrogatepass")):
        return "{}"
    try:
        document: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    kept: Sequence[tuple[str, Any]] = ()
    if isinstance(document, dict):
        kept = [(key, value) for key, value in document.items() if key in _KEPT_ARGUMENTS]
        if len(kept) == len(document):
            return arguments
    return json.dumps(dict(kept), separators=(",", ":"))


# --- the calls ---


class RedactionKind(StrEnum):
    """How a call leaves."""

    CONSUMED = "consumed"  # call and result are taken out
    MARKED = "marked"  # both stay, cut to what they did


@dataclass(frozen=True, slots=True)
class CallToRedact:
    """A call to redact; its id or its entry's id, or both, say which."""

    name: str  # of the tool, as it stands in the session
    kind: RedactionKind
    call_id: str | None = None
    entry_id: str | None = None  # of the entry that holds the call
    note: str = ""  # marked: what the text of the result becomes


@dataclass(frozen=True, slots=True)
class Redacted:
    """One call, and what became of it."""

    call: str  # its id, or its entry's
    tool: str
    entry_id: str | None
    how: Annotated[RedactionKind | None, OMIT_EMPTY] = None
    why: Annotated[
        str | None, Field(description="Why it was left as it is, if it was"), OMIT_EMPTY
    ] = None


@dataclass(frozen=True, slots=True)
class Redaction:
    """All calls of one redaction."""

    redacted: tuple[Redacted, ...] = ()
    left: tuple[Redacted, ...] = ()
    entries_removed: tuple[str, ...] = ()
    entry_ids: Internal[tuple[str, ...]] = ()  # changed or removed
    operation: Annotated[int | None, Field(description="Its number in the history")] = None


def plan_redact(
    source: Transcript, fmt: TranscriptFormat, calls: Sequence[CallToRedact], stored: OriginalStore
) -> tuple[Plan, Redaction]:
    """Plan the redaction of these calls; those that cannot be are left, and the answer says why.

    A call that cannot be taken out without harm to the session is marked instead.
    """
    tree = EntryTree(source, fmt)
    targets = [_find(tree, call) for call in calls]
    consumed = [target for target in targets if target.how is RedactionKind.CONSUMED]
    if consumed and any(is_too_large(line.raw) for line in source.lines()):
        for target in consumed:  # what cannot be read may follow them
            target.unfit("a line of the session is too large to be read")
    while True:  # each round, one more call is found to be unfit: for leaving, or altogether
        attempt = _Redaction(tree, fmt, stored)
        attempt.plan(targets)
        spoilt = attempt.build()
        if not spoilt:
            break
        for target, why in spoilt:
            target.unfit(why)
    return attempt.finish(source, targets)


@dataclass(slots=True, eq=False)
class _Target:
    """A call, found or not, and how it shall leave."""

    call: CallToRedact
    row: Row | None = None
    found: ToolCall | None = None
    result: Row | None = None
    how: RedactionKind | None = None
    why: str | None = None  # it is left as it is

    def unfit(self, why: str) -> None:
        """It cannot leave as was meant: mark it, or if not even that can be, leave it."""
        if self.how is RedactionKind.CONSUMED:
            self.how = RedactionKind.MARKED
        else:
            self.how, self.why = None, why

    def told(self) -> Redacted:
        entry_id = self.row.id if self.row else self.call.entry_id
        name = (self.found.id if self.found else None) or self.call.call_id or entry_id or ""
        return Redacted(name, self.call.name, entry_id, self.how, self.why)


def _find(tree: EntryTree, call: CallToRedact) -> _Target:
    target = _Target(call)
    named = call.call_id is not None or call.entry_id is not None
    found = tree.find(call.name, call.call_id, call.entry_id) if named else []
    if not found:
        target.why = "not found"
    elif len(found) > 1:
        target.why = f"{len(found)} calls are called that"
    else:
        [(row, tool_call)] = found
        result = tree.result(row, tool_call)
        target.row, target.found, target.result = row, tool_call, result
        if any(tree.conversation.turn_open(one.index) for one in (row, result) if one):
            target.why = "its turn is not over"
        else:
            target.how = call.kind
    return target


class _Redaction:
    """One attempt: which lines go, and what the others become."""

    def __init__(self, tree: EntryTree, fmt: TranscriptFormat, stored: OriginalStore) -> None:
        self._tree = tree
        self._fmt = fmt
        self._stored = stored
        self._gone: dict[Row, list[_Target]] = {}
        self._changes: dict[Row, LineChange] = {}
        self._causes: dict[Row, list[_Target]] = {}
        self._new: dict[int, bytes] = {}

    def plan(self, targets: Sequence[_Target]) -> None:
        """Say of every call what its redaction changes, the last entry first.

        So whatever follows an entry is known by the time it is its turn.
        """
        by_row: dict[Row, list[_Target]] = {}
        for target in targets:
            if target.row is not None and target.how is not None:
                by_row.setdefault(target.row, []).append(target)
        for row in sorted(by_row, key=lambda one: one.index, reverse=True):
            consumed = [one for one in by_row[row] if one.how is RedactionKind.CONSUMED]
            if consumed and not self._consume(row, consumed):
                for target in consumed:
                    target.how = RedactionKind.MARKED
            for target in by_row[row]:
                if target.how is RedactionKind.MARKED:
                    self._mark(row, target)
        for row, parent in self._tree.left_behind(self._gone):
            causes = [one for parents in self._parents(row) for one in self._gone[parents]]
            change = self._change(row, *causes)
            change.reparented, change.new_parent = True, parent

    def _parents(self, row: Row) -> list[Row]:
        return [gone for gone in self._gone if gone.id is not None and gone.id == row.parent]

    def _change(self, row: Row, *causes: _Target) -> LineChange:
        self._causes.setdefault(row, []).extend(causes)
        return self._changes.setdefault(row, LineChange())

    def _mark(self, row: Row, target: _Target) -> None:
        change = self._change(row, target)
        change.redacted = True
        if target.found is not None:
            change.marked.append(target.found)
        if target.result is not None:
            result = self._change(target.result, target)
            result.redacted = True
            result.note = target.call.note or f"[done: {target.call.name}]"

    def _consume(self, row: Row, targets: Sequence[_Target]) -> bool:
        """Take calls and results out of one entry, if that leaves a session that holds."""
        gone = {target.result for target in targets if target.result is not None}
        blocks = _Blocks.of(self._tree.read(row), targets)
        answers: set[Row] = set()
        if not blocks.remaining:
            gone.add(row)
        elif not blocks.has_calls:
            answers = self._answers_after(row, gone)
            gone |= {row} if answers else set()
        if len(answers) > 1 or not self._may_go(gone):
            return False
        # Two answers would stand side by side: what this one still says, that one says first.
        if any(not self._hand_on(row, blocks, one, targets) for one in answers):
            return False
        for one in gone:
            self._gone.setdefault(one, []).extend(targets)
        if row not in gone:
            change = self._change(row, *targets)
            change.content, change.blocks_out = blocks.path, set(blocks.gone)
        return True

    def _answers_after(self, row: Row, gone: set[Row]) -> set[Row]:
        """Assistant messages that would follow this one at once."""
        if row.speaker != ASSISTANT:
            return set()
        return {
            follower
            for before, follower in self._new_neighbours(gone)
            if before is row and follower.speaker == ASSISTANT
        }

    def _may_go(self, gone: set[Row]) -> bool:
        """Whether nobody points at these entries, and no user's message would follow another."""
        return all(map(self._tree.is_free, gone)) and not any(
            before is not None and before.speaker == follower.speaker == USER
            for before, follower in self._new_neighbours(gone)
        )

    def _new_neighbours(self, gone: set[Row]) -> Iterator[tuple[Row | None, Row]]:
        """Messages that follow one another once these entries are gone too."""
        all_gone = gone | self._gone.keys()
        for child in self._tree.followers(gone):
            before = self._tree.message_before(child, all_gone)
            for follower in self._tree.messages_from(child, all_gone):
                yield before, follower

    def _hand_on(self, row: Row, blocks: _Blocks, to: Row, targets: Sequence[_Target]) -> bool:
        """Let another message say first what is left of this one; False if it cannot."""
        mine, theirs = self._tree.read(row), self._tree.read(to)
        content = value_at(theirs.entry, blocks.path)
        if not isinstance(content, list) or not same_author(mine.entry, theirs.entry):
            return False
        try:
            raw = inline_again(mine, self._fmt, self._stored)
            kept = elements(raw, blocks.path, blocks.count)
        except Conflict:
            return False
        change = self._change(to, *targets)
        change.content = blocks.path
        still = [block for at, block in enumerate(kept) if at not in blocks.gone]
        change.blocks_in = [*still, *change.blocks_in]
        return True

    def build(self) -> list[tuple[_Target, str]]:
        """Make the new lines; returns the calls on whose account one cannot be made, and why."""
        for row, change in self._changes.items():
            if row in self._gone:
                continue
            seen = self._tree.read(row)
            try:
                new = change.apply(seen, self._fmt, self._stored)
            except Conflict as error:
                why = f"entry {row.name} cannot be changed: {error.message}"
                return [(target, why) for target in self._causes[row]]
            if new != seen.line.raw:
                self._new[row.index] = new
        return []

    def finish(self, source: Transcript, targets: Sequence[_Target]) -> tuple[Plan, Redaction]:
        """The plan, and what is told of each call."""
        for target in targets:
            rows = [one for one in (target.row, target.result) if one is not None]
            if target.how is RedactionKind.MARKED and not any(
                one.index in self._new for one in rows
            ):
                target.how, target.why = None, "already redacted"
        gone = {row.index: row for row in self._gone}
        gaps = gaps_of(source, gone, self._new, identifier(self._fmt)) if gone else {}
        changed = [row for row in self._changes if row.index in self._new]
        edits, touched = [], []
        for row in sorted([*gone.values(), *changed], key=lambda one: one.index):
            edits.append(Edit(row.offset, row.length, self._new.get(row.index, b"")))
            touched.append(TouchedLine(row.index, row.id, gap=gaps.get(row.index)))
        answer = Redaction(
            tuple(target.told() for target in targets if target.how),
            tuple(target.told() for target in targets if not target.how),
            tuple(row.name for row in sorted(self._gone, key=lambda one: one.index)),
            tuple(name_of(one.entry_id, one.index) for one in touched),
        )
        return self._as_plan(source, edits, touched, len(answer.redacted)), answer

    def _as_plan(
        self, source: Transcript, edits: Sequence[Edit], touched: Sequence[TouchedLine], calls: int
    ) -> Plan:
        conversation = self._tree.conversation
        tokens = sum(
            conversation.tokens(one.index, edit.length - len(edit.new))
            for one, edit in zip(touched, edits, strict=True)
        )
        plan = Plan.of("redact", source.identity, edits, touched, values=calls)
        return plan.saving("tool_call", tokens, conversation.rate)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of an entry that holds calls."""

    path: ValuePath  # of the array they stand in; () for an entry that is a call itself
    count: int
    gone: frozenset[int]
    has_calls: bool  # calls stay
    remaining: bool  # something stays that can stand alone

    @classmethod
    def of(cls, seen: Located, targets: Sequence[_Target]) -> _Blocks:
        found = [target.found for target in targets if target.found is not None]
        if not all(call.path for call in found):
            return cls((), 0, frozenset(), has_calls=False, remaining=False)
        path = found[0].path[:-1]
        blocks = value_at(seen.entry, path)
        listed = blocks if isinstance(blocks, list) else []
        gone = frozenset(at for call in found if isinstance(at := call.path[-1], int))
        return cls(
            path,
            len(listed),
            gone,
            has_calls=len(seen.info.calls) > len(found),
            remaining=any(says_something(b) for at, b in enumerate(listed) if at not in gone),
        )
