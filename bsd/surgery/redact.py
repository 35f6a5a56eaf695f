"""Plans how calls of our own tools leave the agent's sight (SPEC §5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bsd.agents.dialect import Format, ToolCall
from bsd.agents.entry import block_at, same_author, says_something
from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.errors import Conflict
from bsd.foundation.immutable import immutable
from bsd.foundation.json_text import is_too_large
from bsd.foundation.value_path import ValuePath
from bsd.store.changed_lines import gaps_of
from bsd.store.extracted import Stored
from bsd.store.history import TouchedLine
from bsd.surgery.conversation import Seen, identifier
from bsd.surgery.family_tree import ASSISTANT, USER, FamilyTree, Row
from bsd.surgery.plan import Plan, Report, Saving, Source
from bsd.surgery.redacted_line import LineChange, inline_again
from bsd.text.change import Edit
from bsd.text.elements import elements


class RedactionKind(StrEnum):
    """How a call leaves."""

    CONSUMED = "consumed"  # call and result are taken out
    MARKED = "marked"  # both stay, cut to what they did


@immutable
class Call:
    """A call to redact; its id or its entry's id, or both, say which."""

    name: str  # of the tool, as it stands in the session
    kind: RedactionKind
    call_id: str | None = None
    entry_id: str | None = None  # of the entry that holds the call
    note: str = ""  # marked: what the text of the result becomes


@immutable
class Redacted(Answer):
    """One call, and what became of it."""

    call: str  # its id, or its entry's
    tool: str
    entry_id: str | None
    how: RedactionKind | None = field(default=None, metadata=contract(omit=True))
    why: str | None = field(
        default=None, metadata=contract("Why it was left as it is, if it was", omit=True)
    )


@immutable
class Redaction(Answer):
    """All calls of one redaction."""

    redacted: tuple[Redacted, ...] = ()
    left: tuple[Redacted, ...] = ()
    entries_removed: tuple[str, ...] = ()
    entry_ids: tuple[str, ...] = field(default=(), metadata=INTERNAL)  # changed or removed
    operation: int | None = field(default=None, metadata=contract("Its number in the history"))


def plan_redact(
    source: Source, fmt: Format, calls: Sequence[Call], stored: Stored
) -> tuple[Plan, Redaction]:
    """Plan the redaction of these calls; those that cannot be are left, and the answer says why.

    A call that cannot be taken out without harm to the session is marked instead.
    """
    tree = FamilyTree(source, fmt)
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

    call: Call
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


def _find(tree: FamilyTree, call: Call) -> _Target:
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

    def __init__(self, tree: FamilyTree, fmt: Format, stored: Stored) -> None:
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
        heirs: set[Row] = set()
        if not blocks.remaining:
            gone.add(row)
        elif not blocks.has_calls:
            heirs = self._answers_after(row, gone)
            gone |= {row} if heirs else set()
        if len(heirs) > 1 or not self._may_go(gone):
            return False
        # Two answers would stand side by side: what this one still says, that one says first.
        if any(not self._inherit(row, blocks, heir, targets) for heir in heirs):
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

    def _inherit(self, row: Row, blocks: _Blocks, heir: Row, targets: Sequence[_Target]) -> bool:
        """Let another message say first what is left of this one; False if it cannot."""
        mine, theirs = self._tree.read(row), self._tree.read(heir)
        content = block_at(theirs.entry, blocks.path)
        if not isinstance(content, list) or not same_author(mine.entry, theirs.entry):
            return False
        try:
            raw = inline_again(mine, self._fmt, self._stored)
            kept = elements(raw, blocks.path, blocks.count)
        except Conflict:
            return False
        change = self._change(heir, *targets)
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

    def finish(self, source: Source, targets: Sequence[_Target]) -> tuple[Plan, Redaction]:
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
            tuple(self._names(touched)),
        )
        return self._as_plan(source, edits, touched, len(answer.redacted)), answer

    def _names(self, touched: Sequence[TouchedLine]) -> Iterator[str]:
        for one in touched:
            yield one.entry_id if one.entry_id is not None else f"#{one.index}"

    def _as_plan(
        self, source: Source, edits: Sequence[Edit], touched: Sequence[TouchedLine], calls: int
    ) -> Plan:
        size = source.identity.size
        saved = sum(edit.length - len(edit.new) for edit in edits)
        conversation = self._tree.conversation
        tokens = sum(
            conversation.tokens(one.index, edit.length - len(edit.new))
            for one, edit in zip(touched, edits, strict=True)
        )
        report = Report(
            "redact",
            entries=len(edits),
            values=calls,
            bytes_before=size,
            bytes_after=size - saved,
            savings={"tool_call": Saving(calls, saved, tokens)},
            rate=conversation.rate,
        )
        return Plan(source.identity, tuple(edits), report, touched=tuple(touched))


@immutable
class _Blocks:
    """The blocks of an entry that holds calls."""

    path: ValuePath  # of the array they stand in; () for an entry that is a call itself
    count: int
    gone: frozenset[int]
    has_calls: bool  # calls stay
    remaining: bool  # something stays that can stand alone

    @classmethod
    def of(cls, seen: Seen, targets: Sequence[_Target]) -> _Blocks:
        found = [target.found for target in targets if target.found is not None]
        if not all(call.path for call in found):
            return cls((), 0, frozenset(), has_calls=False, remaining=False)
        path = found[0].path[:-1]
        blocks = block_at(seen.entry, path)
        listed = blocks if isinstance(blocks, list) else []
        gone = frozenset(at for call in found if isinstance(at := call.path[-1], int))
        return cls(
            path,
            len(listed),
            gone,
            has_calls=len(seen.facts.calls) > len(found),
            remaining=any(says_something(b) for at, b in enumerate(listed) if at not in gone),
        )
