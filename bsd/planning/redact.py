"""Plans the removal of calls of bsd's own tools from the agent's context (SPEC §5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict
from bsd.planning.conversation import ASSISTANT, USER, EntryPlace, EntryTree
from bsd.planning.discard import content_values, put_texts, texts_for
from bsd.planning.locate import Located, identifier, name_of
from bsd.planning.originals import Return, original_of
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

# Arguments that a marked call keeps.
_KEPT_ARGUMENTS = frozenset(("action", "entry", "entry_id"))


class RedactionKind(StrEnum):
    """The two ways to redact a call."""

    CONSUMED = "consumed"  # call and result are removed
    MARKED = "marked"  # both stay, cut down to the action and its entry


@dataclass(frozen=True, slots=True)
class CallToRedact:
    """A call to redact, addressed by its id, its entry's id, or both."""

    name: str  # of the tool, as in the session
    kind: RedactionKind
    call_id: str | None = None
    entry_id: str | None = None  # of the entry that holds the call
    note: str = ""  # for marked calls: the new text of the result


@dataclass(frozen=True, slots=True)
class Redacted:
    """The result of the redaction of one call."""

    call: str  # its id, or the id of its entry
    tool: str
    entry_id: str | None
    how: Annotated[RedactionKind | None, OMIT_EMPTY] = None
    why: Annotated[
        str | None, Field(description="Why the call was left as it is, if it was"), OMIT_EMPTY
    ] = None


@dataclass(frozen=True, slots=True)
class Redaction:
    """The result of the redaction of several calls."""

    redacted: tuple[Redacted, ...] = ()
    left: tuple[Redacted, ...] = ()
    entries_removed: tuple[str, ...] = ()
    entry_ids: Internal[tuple[str, ...]] = ()  # of changed and removed entries
    operation: Annotated[
        int | None, Field(description="Number of the operation in the history")
    ] = None


def plan_redact(
    source: Transcript, fmt: TranscriptFormat, calls: Sequence[CallToRedact], stored: OriginalStore
) -> tuple[Plan, Redaction]:
    """Plan the redaction of these calls.

    A call that cannot be removed without harm to the session is marked instead. A call that cannot
    be marked either is left as it is, and the answer gives the reason.
    """
    tree = EntryTree(source, fmt)
    targets = [_find(tree, call) for call in calls]
    consumed = [target for target in targets if target.how is RedactionKind.CONSUMED]
    if consumed and any(is_too_large(line.raw) for line in source.lines()):
        for target in consumed:  # a line that cannot be parsed may refer to the call
            target.unfit("a line of the session is too large to be read")
    while True:  # each round finds calls that can only be marked, or not even that
        attempt = _Redaction(tree, fmt, stored)
        attempt.plan(targets)
        spoilt = attempt.build()
        if not spoilt:
            return attempt.finish(source, targets)
        for target, why in spoilt:
            target.unfit(why)


@dataclass(slots=True, eq=False)
class _Target:
    """A call to redact, the place where it was found, and how it is redacted."""

    call: CallToRedact
    place: EntryPlace | None = None
    found: ToolCall | None = None
    result: EntryPlace | None = None
    how: RedactionKind | None = None
    why: str | None = None  # why the call is left as it is

    def unfit(self, why: str) -> None:
        """Note that the call cannot be redacted as planned: mark it, or else leave it as it is."""
        if self.how is RedactionKind.CONSUMED:
            self.how = RedactionKind.MARKED
        else:
            self.how, self.why = None, why

    def answer(self) -> Redacted:
        """Return the result for this call."""
        entry_id = self.place.info.id if self.place else self.call.entry_id
        name = (self.found.id if self.found else None) or self.call.call_id or entry_id or ""
        return Redacted(name, self.call.name, entry_id, self.how, self.why)


def _find(tree: EntryTree, call: CallToRedact) -> _Target:
    is_named = call.call_id is not None or call.entry_id is not None
    found = tree.find(call.name, call.call_id, call.entry_id) if is_named else []
    if len(found) != 1:
        why = f"{len(found)} calls match" if found else "not found"
        return _Target(call, why=why)
    [(place, tool_call)] = found
    result = tree.result(place, tool_call)
    target = _Target(call, place, tool_call, result)
    if any(tree.conversation.turn_open(one.index) for one in (place, result) if one):
        target.why = "its turn is not over"
    else:
        target.how = call.kind
    return target


# --- the change of one line ---


@dataclass(slots=True)
class _LineChange:
    """The change of one line."""

    causes: list[_Target] = field(default_factory=list)
    marked: list[ToolCall] = field(default_factory=list)  # calls with arguments to cut
    note: str | None = None  # the new text of its values
    redacted: bool = False
    new_parent: str | None = None
    is_reparented: bool = False
    content: ValuePath = ()  # path of the array whose blocks change
    blocks_out: set[int] = field(default_factory=set)
    blocks_in: list[bytes] = field(default_factory=list)  # put before the present blocks

    def apply(self, seen: Located, fmt: TranscriptFormat, stored: OriginalStore) -> bytes:
        """Return the new line; raises Conflict."""
        raw, entry = seen.line.raw, seen.entry
        moves_blocks = bool(self.blocks_out or self.blocks_in)
        if moves_blocks and self._shifts_extracted(entry):
            raw = _inline_again(seen, fmt, stored)
            entry = parse_kept(raw) or {}
        put = {REDACTED: b"true"} if self.redacted else {}
        here = Located(seen.line, entry, fmt.info(entry))
        values = content_values(here, fmt) if self.note is not None else []
        if values:
            note = self.note or ""
            raw = put_texts(raw, entry, texts_for(values, note, note), put)
        elif put:
            raw = edit(raw, put=put)
        for call in self.marked:
            raw = _cut_arguments(raw, entry, call)
        if self.is_reparented and fmt.parent_key:
            parent = b"null" if self.new_parent is None else encode_string(self.new_parent)
            raw = edit(raw, replace={(fmt.parent_key,): parent})
        if moves_blocks:
            blocks = value_at(entry, self.content)
            if not isinstance(blocks, list):
                raise Conflict("its content is not a list of blocks")
            raw = remove_elements(raw, self.content, len(blocks), self.blocks_out)
            is_empty = len(blocks) == len(self.blocks_out)
            raw = prepend_elements(raw, self.content, self.blocks_in, empty=is_empty)
        return raw

    def _shifts_extracted(self, entry: Entry) -> bool:
        """Return whether a block with an extracted value would move: its key has the old number."""
        first = 0 if self.blocks_in else min(self.blocks_out)
        depth = len(self.content)
        marker = Marker.of(entry)
        for path in paths_of(marker.keys).values() if marker else ():
            if path[:depth] == self.content and len(path) > depth:
                at = path[depth]
                if isinstance(at, int) and at >= first:
                    return True
        return False


def _inline_again(seen: Located, fmt: TranscriptFormat, stored: OriginalStore) -> bytes:
    """Return the line with all its extracted values inline; raises Conflict."""
    marker = Marker.of(seen.entry)
    if marker is None or seen.info.id is None:
        return seen.line.raw
    original = original_of(seen.line.raw, seen.entry, marker, fmt, stored)
    if isinstance(original, Missing):
        raise Conflict("its extracted content is no longer stored")
    paths = list(away_paths(seen.entry, marker).values())
    back = Return.of(seen.entry, original, fmt, paths)
    if len(back.replace) < len(paths):
        raise Conflict("some of its extracted content is not stored")
    return back.apply(seen.line.raw, remove=[(MARKER,)])


def _cut_arguments(raw: bytes, entry: Entry, call: ToolCall) -> bytes:
    """Return the line with only action and entry left in the call's arguments.

    Other arguments go too, since patterns quote the text that the call removed. Arguments of
    another program's tool stay. A tool named `context` may be another program's, but only bsd's
    calls of it are ever marked.
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
    """Return the kept arguments of a call with JSON text as arguments; `{}` if it is no object."""
    if is_too_large(arguments.encode("utf-8", "surrogatepass")):
        return "{}"
    try:
        document: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(document, dict):
        return "{}"
    kept = {key: value for key, value in document.items() if key in _KEPT_ARGUMENTS}
    return arguments if len(kept) == len(document) else json.dumps(kept, separators=(",", ":"))


# --- the redaction of a session ---


class _Redaction:
    """One attempt: the lines that go, and the new forms of the others."""

    def __init__(self, tree: EntryTree, fmt: TranscriptFormat, stored: OriginalStore) -> None:
        self._tree = tree
        self._fmt = fmt
        self._stored = stored
        self._gone: dict[EntryPlace, list[_Target]] = {}
        self._changes: dict[EntryPlace, _LineChange] = {}
        self._new: dict[int, bytes] = {}

    def plan(self, targets: Sequence[_Target]) -> None:
        """Determine the changes for every call, from the last entry to the first.

        In this order, the changes of all later entries are known when an entry is planned.
        """
        by_place: dict[EntryPlace, list[_Target]] = {}
        for target in targets:
            if target.place is not None and target.how is not None:
                by_place.setdefault(target.place, []).append(target)
        for place in sorted(by_place, key=lambda one: one.index, reverse=True):
            consumed = [one for one in by_place[place] if one.how is RedactionKind.CONSUMED]
            if consumed and not self._consume(place, consumed):
                for target in consumed:
                    target.how = RedactionKind.MARKED
            for target in by_place[place]:
                if target.how is RedactionKind.MARKED:
                    self._mark(place, target)
        for place, parent in self._tree.left_behind(self._gone):
            causes = [
                target
                for gone, why in self._gone.items()
                if gone.info.id is not None and gone.info.id == place.info.parent
                for target in why
            ]
            change = self._change(place, *causes)
            change.is_reparented, change.new_parent = True, parent

    def _change(self, place: EntryPlace, *causes: _Target) -> _LineChange:
        change = self._changes.setdefault(place, _LineChange())
        change.causes.extend(causes)
        return change

    def _mark(self, place: EntryPlace, target: _Target) -> None:
        change = self._change(place, target)
        change.redacted = True
        if target.found is not None:
            change.marked.append(target.found)
        if target.result is not None:
            result = self._change(target.result, target)
            result.redacted = True
            result.note = target.call.note or f"[done: {target.call.name}]"

    def _consume(self, place: EntryPlace, targets: Sequence[_Target]) -> bool:
        """Remove calls and results of one entry. Return False if that would break the session."""
        gone = {target.result for target in targets if target.result is not None}
        blocks = _Blocks.of(self._tree.read(place), targets)
        answers: set[EntryPlace] = set()
        if not blocks.remaining:
            gone.add(place)
        elif not blocks.has_calls:
            answers = self._answers_after(place, gone)
            gone |= {place} if answers else set()
        if len(answers) > 1 or not self._may_go(gone):
            return False
        # Two answers would be adjacent: prepend the rest of this answer to the other.
        if any(not self._hand_on(place, blocks, one, targets) for one in answers):
            return False
        for one in gone:
            self._gone.setdefault(one, []).extend(targets)
        if place not in gone:
            change = self._change(place, *targets)
            change.content, change.blocks_out = blocks.path, set(blocks.gone)
        return True

    def _answers_after(self, place: EntryPlace, gone: set[EntryPlace]) -> set[EntryPlace]:
        """Return the assistant messages that would directly follow this one."""
        if place.speaker != ASSISTANT:
            return set()
        return {
            follower
            for before, follower in self._new_neighbours(gone)
            if before is place and follower.speaker == ASSISTANT
        }

    def _may_go(self, gone: set[EntryPlace]) -> bool:
        """Return whether these entries can go.

        They can if no entry refers to them and no user's message would then follow another.
        """
        return all(map(self._tree.is_free, gone)) and not any(
            before is not None and before.speaker == follower.speaker == USER
            for before, follower in self._new_neighbours(gone)
        )

    def _new_neighbours(
        self, gone: set[EntryPlace]
    ) -> Iterator[tuple[EntryPlace | None, EntryPlace]]:
        """Yield (previous, next) messages that are adjacent once these entries are gone as well."""
        all_gone = gone | self._gone.keys()
        for child in self._tree.followers(gone):
            before = self._tree.message_before(child, all_gone)
            for follower in self._tree.messages_from(child, all_gone):
                yield before, follower

    def _hand_on(
        self, place: EntryPlace, blocks: _Blocks, to: EntryPlace, targets: Sequence[_Target]
    ) -> bool:
        """Put the rest of this message before the content of `to`; return False if it cannot be."""
        mine, theirs = self._tree.read(place), self._tree.read(to)
        content = value_at(theirs.entry, blocks.path)
        if not isinstance(content, list) or not same_author(mine.entry, theirs.entry):
            return False
        try:
            raw = _inline_again(mine, self._fmt, self._stored)
            kept = elements(raw, blocks.path, blocks.count)
        except Conflict:
            return False
        change = self._change(to, *targets)
        change.content = blocks.path
        still = [block for at, block in enumerate(kept) if at not in blocks.gone]
        change.blocks_in = [*still, *change.blocks_in]
        return True

    def build(self) -> list[tuple[_Target, str]]:
        """Make the new lines.

        Return the calls whose lines cannot be changed, each with the reason.
        """
        for place, change in self._changes.items():
            if place in self._gone:
                continue
            seen = self._tree.read(place)
            try:
                new = change.apply(seen, self._fmt, self._stored)
            except Conflict as error:
                why = f"entry {place.name} cannot be changed: {error.message}"
                return [(target, why) for target in change.causes]
            if new != seen.line.raw:
                self._new[place.index] = new
        return []

    def finish(self, source: Transcript, targets: Sequence[_Target]) -> tuple[Plan, Redaction]:
        """Return the plan, and the result for each call."""
        for target in targets:
            places = [one for one in (target.place, target.result) if one is not None]
            is_changed = any(one.index in self._new for one in places)
            if target.how is RedactionKind.MARKED and not is_changed:
                target.how, target.why = None, "already redacted"
        gone = {place.index: place for place in self._gone}
        gaps = gaps_of(source, gone, self._new, identifier(self._fmt)) if gone else {}
        changed = [place for place in self._changes if place.index in self._new]
        conversation = self._tree.conversation
        edits, touched, tokens = [], [], 0
        for place in sorted([*gone.values(), *changed], key=lambda one: one.index):
            new = self._new.get(place.index, b"")
            edits.append(Edit(place.offset, place.length, new))
            touched.append(TouchedLine(place.index, place.info.id, gap=gaps.get(place.index)))
            tokens += conversation.tokens(place.index, place.length - len(new))
        answer = Redaction(
            tuple(target.answer() for target in targets if target.how),
            tuple(target.answer() for target in targets if not target.how),
            tuple(gone[index].name for index in sorted(gone)),
            tuple(name_of(one.entry_id, one.index) for one in touched),
        )
        calls = len(answer.redacted)
        plan = Plan.of("redact", source, self._fmt, edits, touched, values=calls)
        return plan.saving("tool_call", tokens, conversation.rate), answer


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The content blocks of an entry with calls."""

    path: ValuePath  # of their array; () if the entry itself is a call
    count: int
    gone: frozenset[int]
    has_calls: bool  # some calls stay
    remaining: bool  # a block stays that is a message by itself

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
