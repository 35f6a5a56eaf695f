"""Plans the undoing of an operation: each line that it changed gets its former bytes again."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import Conflict, NotFound
from bsd.planning.locate import entries, identifier, name_of
from bsd.planning.originals import OriginalLine, Return, made_again
from bsd.planning.plan import Plan
from bsd.planning.undo_effect import UndoEffect
from bsd.store.changed_lines import LinePlace, find_gaps, find_lines, gaps_of, happened
from bsd.store.entry_notes import Noting
from bsd.store.history import (
    ChangedLine,
    HistoryDamaged,
    Neighbour,
    Operation,
    TouchedLine,
    as_ended,
    undone_entries,
    with_end,
)
from bsd.store.markers import away_paths, loose_placeholders
from bsd.store.originals import Missing, OriginalStore, StoredOriginal
from bsd.store.provenance import is_marked_copy
from bsd.transcripts.agents.entry import RESTORED, Entry, Marker, standing_at
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript, parse_kept

BUDGET = 64 * 1024 * 1024  # bytes of new lines in one plan
_MOST_NAMED = 5
_RESTORING = {"restore", "in_band"}  # operations that put values back
_HOW = {Missing.GONE: "gone", Missing.FORGOTTEN: "forgotten"}


class NothingToUndo(Conflict):
    """Nothing of the operation is left in the session that an undo would change."""


class Past(Protocol):
    """The history of a session, as planners may ask it."""

    def operations(self) -> list[Operation]:
        """All operations that are kept, the oldest first."""
        ...

    def lines(self, operation: Operation) -> list[ChangedLine]:
        """The lines that an operation changed."""
        ...

    def former(
        self, operation: Operation, line: ChangedLine, now: bytes, stored: OriginalStore
    ) -> bytes | Missing:
        """The bytes that a line had before; `now` are those that it had afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Undone:
    """What is undone."""

    of: Internal[Operation]
    undone: int  # its number in the history
    action: str
    at: str
    entries: Annotated[
        tuple[str, ...],
        Field(description="Ids, or `#` and the line number of those that have none"),
    ]
    gone: Annotated[
        tuple[str, ...],
        Field(description="Entries of it that another program has thrown away since"),
    ] = ()
    operations: Annotated[
        tuple[int, ...], Field(description="By these it can be undone in turn")
    ] = ()
    stays: Annotated[
        tuple[str, ...],
        Field(description="Entries whose values were restored since: they stay as they are"),
        OMIT_EMPTY,
    ] = ()
    effect: Annotated[
        UndoEffect | None, Field(description="Of a dry run: what it would change"), OMIT_EMPTY
    ] = None


@dataclass(frozen=True, slots=True)
class PastOperation:
    """One operation of the history. Sizes are bytes of the session file."""

    schema_name: ClassVar[str] = "Deed"

    operation: int
    action: str
    at: str
    actor: str
    state: Literal["done", "undone", "partly_undone", "damaged"]
    undoes: int | None
    entries: int
    entry_ids: tuple[str, ...]
    values: int
    bytes_before: int
    bytes_after: int


def _choose(past: Past, number: int | None, passed_over: Container[int]) -> Operation:
    """Find the operation to undo: the newest that is none itself and not undone, or a named one.

    Without a name those `passed_over` are not meant. Raises NotFound, Conflict if it is undone.
    """
    operations = past.operations()
    undone = undone_entries(operations)
    if number is None:
        for operation in reversed(operations):
            is_left = undone[operation.number] < operation.entries
            if operation.act.undoes is None and is_left and operation.number not in passed_over:
                return operation
        raise Conflict(
            "nothing is left that could be undone", hint="`bsd history AGENT/SESSION` lists it all"
        )
    chosen = next((one for one in operations if one.number == number), None)
    if chosen is None:
        raise NotFound(
            f"there is no operation {number}",
            hint="`bsd history AGENT/SESSION` lists those that are kept",
        )
    if undone[number] >= chosen.entries:
        undoings = [one.number for one in operations if one.act.undoes == number]
        by = max(one for one in undoings if not undone[one])
        raise Conflict(f"{chosen} is undone already", hint=f"to do it again, undo operation {by}")
    return chosen


def tell_history(past: Past, source: Transcript | None) -> list[PastOperation]:
    """List the operations that are kept, the newest first.

    `source`, the session, tells whether one took effect whose process ended too early to say so.
    """
    changed: dict[int, tuple[str, ...]] = {}  # names only: all lines of all operations are many
    operations = []
    for operation in past.operations():
        try:
            lines = past.lines(operation)
        except (NotFound, HistoryDamaged):
            lines = []
        if not operation.pending or (source and lines and happened(source, lines)):
            operations.append(operation)
            changed[operation.number] = tuple(_name(line) for line in lines)
    undone = undone_entries(operations)
    rows = []
    for operation in reversed(operations):
        act, names = operation.act, changed[operation.number]
        state: Literal["done", "undone", "partly_undone", "damaged"]
        state = "done" if names else "damaged"
        if undone[operation.number]:
            is_all = undone[operation.number] >= operation.entries
            state = "undone" if is_all else "partly_undone"
        row = PastOperation(
            operation=operation.number,
            action=act.action,
            at=act.at,
            actor=act.actor,
            state=state,
            undoes=act.undoes,
            entries=operation.entries,
            entry_ids=names,
            values=act.values,
            bytes_before=act.bytes_before,
            bytes_after=act.bytes_after,
        )
        rows.append(row)
    return rows


def plan_undo(
    source: Transcript,
    fmt: TranscriptFormat,
    number: int | None,
    past: Past,
    stored: OriginalStore,
    budget_bytes: int = BUDGET,
) -> tuple[Plan, Undone]:
    """Plan the undoing of one operation: of all its lines that are still there, or nothing.

    Of an extraction, entries that were restored since, as a whole, stay as they are.

    Raises NotFound for an operation that is not kept, NothingToUndo if nothing of it is left, and
    Conflict if it is undone already, something stands in the way, or content it took out or would
    take out is no longer stored.
    """
    passed_over: set[int] = set()
    while True:
        operation = _choose(past, number, passed_over)
        lines = past.lines(operation)
        over = _already_undone(past, operation)
        stays = _restored_since(source, fmt, past, operation, over)
        found, gone = _find(source, fmt, past, operation, over | stays)
        if found:
            break
        if number is not None or not over:
            raise _nothing_left(operation, gone, [lines[at] for at in sorted(stays)])
        passed_over.add(operation.number)  # the rest of its lines is nowhere
    undoing = _Undoing(source, fmt, past, stored, operation)
    new_bytes, complete = 0, True
    # Between lines that come back and the others there is a tie, or they would not have gone.
    at_once = any(line.came or line.went for line in lines)
    for at, place in sorted(found.items(), key=lambda one: (one[1].offset, one[1].length > 0)):
        # Beyond the budget a line is only tried: nothing shall stop in the middle for good.
        complete = at_once or new_bytes < budget_bytes
        new_bytes += undoing.take_back(at, lines[at], place, trial=not complete)
    undoing.note_gaps()
    entries = tuple(_name(lines[touch.undoes or 0]) for touch in undoing.touched)
    answer = Undone(
        of=operation,
        undone=operation.number,
        action=operation.act.action,
        at=operation.act.at,
        entries=entries,
        gone=tuple(_name(line) for line in gone),
        stays=tuple(_name(lines[at]) for at in sorted(stays)),
    )
    return undoing.plan(complete=complete), answer


def _find(
    source: Transcript,
    fmt: TranscriptFormat,
    past: Past,
    operation: Operation,
    over: Container[int],
) -> tuple[dict[int, LinePlace], list[ChangedLine]]:
    """Return the places of an operation's lines that are not undone yet, and those that are gone.

    Raises Conflict if one has changed since, or if one is gone that others are tied to.
    """
    lines = past.lines(operation)
    wanted = [at for at in range(len(lines)) if at not in over]
    places = find_lines(source, [lines[at] for at in wanted])
    places |= find_gaps(source, [lines[at] for at in wanted], identifier(fmt))
    found = {at: places[turn] for turn, at in enumerate(wanted) if turn in places}
    missing = [at for at in wanted if at not in found]
    present = {one.info.id for one in entries(source.lines(), fmt)} if missing else set()
    # Entries that the session's program has thrown away since are in no way, unless lines went or
    # came with the operation: then they belong together.
    tied = any(line.came or line.went for line in lines)
    gone = [
        at
        for at in missing
        if lines[at].entry_id and lines[at].entry_id not in present and not tied
    ]
    _check_later(past, operation, [lines[at] for at in wanted], {lines[at].entry_id for at in gone})
    if len(gone) < len(missing):
        others = [lines[at] for at in missing if at not in gone]
        raise _changed_by_others(
            operation,
            [line for line in others if line.entry_id in present],
            [line for line in others if line.entry_id not in present],
        )
    return found, [lines[at] for at in gone]


class _Undoing:
    """Takes back one line after the other."""

    def __init__(
        self,
        source: Transcript,
        fmt: TranscriptFormat,
        past: Past,
        stored: OriginalStore,
        operation: Operation,
    ) -> None:
        self._source = source
        self._fmt = fmt
        self._past = past
        self._stored = stored
        self._operation = operation
        self._edits: list[Edit] = []
        self._keeps: list[StoredOriginal] = []
        self._refs: set[str] = set()  # of these
        self._of_extraction = _began_with(past, operation).act.action in {"extract", "undo"}
        self._back: list[str] = []  # entries whose extraction is taken back with this
        self._away: list[str] = []  # entries whose values leave again
        self.touched: list[TouchedLine] = []

    def take_back(self, at: int, line: ChangedLine, place: LinePlace, *, trial: bool) -> int:
        """Give one line its former bytes; returns how many."""
        now = self._source.read(place.offset, place.length)
        former = self._past.former(self._operation, line, as_ended(line, now), self._stored)
        if isinstance(former, Missing):
            raise self._content_lost(line, former)
        was = with_end(former, line, now)
        if line.went and place.offset < self._source.identity.size and not was.endswith(b"\n"):
            was += b"\n"  # it was the last line, and others have gone on below it
        keep = self._keep(line, place, now, was)
        if not trial:
            self._edits.append(Edit(place.offset, place.length, was))
            self.touched.append(TouchedLine(place.index, line.entry_id, at))
            self._note(line.entry_id, now, was)
            if keep:
                self._keeps.append(keep)
        return len(was)

    def _note(self, entry_id: str | None, now: bytes, was: bytes) -> None:
        """Note whether values come back that were extracted, or leave again.

        Those of a restoration that is done again come back with another `_restored`.
        """
        present, former = parse_kept(now), parse_kept(was)
        if entry_id is None or present is None or former is None:
            return
        before, after = away_in(present), away_in(former)
        as_restored = present.get(RESTORED) == former.get(RESTORED)
        if after - before:
            self._away.append(entry_id)
        elif before - after and as_restored and self._of_extraction:
            self._back.append(entry_id)

    def note_gaps(self) -> None:
        """Note the neighbours of lines that go out again."""
        gone = {
            touch.index: at
            for at, (edit, touch) in enumerate(zip(self._edits, self.touched, strict=True))
            if not edit.new
        }
        if gone:
            new = {t.index: e.new for e, t in zip(self._edits, self.touched, strict=True) if e.new}
            gaps = gaps_of(self._source, gone, new, identifier(self._fmt))
            for index, at in gone.items():
                self.touched[at] = replace(self.touched[at], gap=gaps[index])

    def _keep(
        self, line: ChangedLine, place: LinePlace, now: bytes, was: bytes
    ) -> StoredOriginal | None:
        """The originals that must be in the store if values leave the line again with this."""
        entry = parse_kept(was)
        marker = Marker.of(entry) if entry else None
        entry_id = self._fmt.info(entry).id if entry else None
        if entry is None or marker is None or entry_id is None:
            return None
        paths = away_paths(entry, marker)
        present = parse_kept(now) or {}
        before = Marker.of(present)
        same_file = before and (before.ref, before.hash) == (marker.ref, marker.hash)
        if same_file and all(standing_at(present, path) for path in paths.values()):
            return None  # nothing leaves that is not away now
        # A file of the session that this was branched off from becomes one of its own; under
        # another name if that is taken.
        held = self._stored.held(marker.ref, marker.hash)
        content = self._stored.load(held or marker.ref, marker.hash)
        if isinstance(content, Missing):  # but not lost: it is inline
            content = made_again(now, was, marker.hash) or content
        original = None if isinstance(content, Missing) else OriginalLine.of(content)
        if original is None or isinstance(content, Missing):
            why = content if isinstance(content, Missing) else Missing.CORRUPT
            raise self._content_lost(line, why, marker.ref)
        if not is_marked_copy(entry, original.entry, self._fmt):
            return None  # the marker was copied from another entry: nothing of this one is away
        sizes = Return.of(present, original, self._fmt, list(paths.values())).sizes
        ref = held or self._stored.free_ref(marker.ref, self._refs)
        self._refs.add(ref)
        return StoredOriginal(
            ref=ref,
            entry_id=entry_id,
            index=place.index,
            type="",
            hash=marker.hash,
            size=len(content),
            keys=tuple(key for key, path in paths.items() if path in sizes),
            sizes=tuple(sizes[path] for path in paths.values() if path in sizes),
            line=None if held else content,
        )

    def _content_lost(self, line: ChangedLine, why: Missing, ref: str | None = None) -> Conflict:
        file = ref or line.ref
        what = f"the stored file {file}" if file else "the history"
        how = _HOW.get(why, "damaged")
        if why is Missing.UNREADABLE:
            how = f"not to be had ({self._stored.trouble()})"
        return Conflict(
            f"{self._operation} cannot be undone: {what} of {_name(line)} is {how}; "
            "nothing was changed",
            hint="`bsd verify` lists what is missing; the setting `retention` says how long "
            "extracted content is kept",
        )

    def plan(self, *, complete: bool) -> Plan:
        plan = Plan.of(
            "undo",
            self._source.identity,
            self._edits,
            self.touched,
            values=self._operation.act.values,
        )
        return replace(
            plan,
            keeps=tuple(self._keeps),
            undoes=self._operation.number,
            complete=complete,
            noting=Noting(undone=tuple(self._back), freed=tuple(self._away)),
        )


def _began_with(past: Past, operation: Operation) -> Operation:
    """The first operation of a chain of undos; or the earliest of that chain that is kept."""
    operations = {one.number: one for one in past.operations()}
    while operation.act.undoes in operations:
        operation = operations[operation.act.undoes]
    return operation


def away_in(entry: Entry) -> set[str]:
    """The keys of the values that are out of an entry."""
    marker = Marker.of(entry)
    return set(away_paths(entry, marker)) if marker else set()


def _already_undone(past: Past, operation: Operation) -> set[int]:
    """Return the undone lines of an operation: all, none, or those reached before a crash."""
    operations = past.operations()
    undone = undone_entries(operations)
    if not undone[operation.number]:
        return set()
    lines: set[int] = set()
    for other in operations:
        if other.act.undoes == operation.number and undone[other.number] < other.entries:
            back = _already_undone(past, other)
            of = [line.undoes for line in past.lines(other)]
            lines.update(at for turn, at in enumerate(of) if at is not None and turn not in back)
    return lines


def _standing_since(
    past: Past, operation: Operation
) -> Iterator[tuple[Operation, list[ChangedLine]]]:
    """Yield the later operations that still stand, the newest first, with what is left of each.

    An undo of this operation, or of a later one, is none of them.
    """
    operations = past.operations()
    undone = undone_entries(operations)
    for later in reversed(operations):
        cancels_later = later.act.undoes is not None and later.act.undoes >= operation.number
        if (
            later.number <= operation.number
            or cancels_later
            or undone[later.number] >= later.entries
        ):
            continue
        over = _already_undone(past, later)
        yield later, [line for at, line in enumerate(past.lines(later)) if at not in over]


def _restored_since(
    source: Transcript,
    fmt: TranscriptFormat,
    past: Past,
    operation: Operation,
    over: Container[int],
) -> set[int]:
    """Return the lines of an extraction that were restored since, and by nothing else changed.

    All their values are inline, so nothing of them is to come back, and nothing is in the way.
    """
    if operation.act.action != "extract":
        return set()
    lines = past.lines(operation)
    restored: set[str | None] = set()
    changed: set[str | None] = set()  # otherwise
    for later, found in _standing_since(past, operation):
        ids = restored if later.act.action in _RESTORING else changed
        ids.update(line.entry_id for line in found)
    wanted = {line.entry_id for at, line in enumerate(lines) if at not in over}
    candidates = (restored & wanted) - changed - {None}
    if not candidates:
        return set()
    present: set[str | None] = set()
    away: set[str | None] = set()  # of several copies of an entry, one may not be whole
    for one in entries(source.lines(), fmt):
        if one.info.id in candidates:
            present.add(one.info.id)
            if away_in(one.entry) or loose_placeholders(one.entry, fmt):
                away.add(one.info.id)
    whole = present - away
    return {at for at, line in enumerate(lines) if at not in over and line.entry_id in whole}


def _check_later(
    past: Past, operation: Operation, lines: Sequence[ChangedLine], gone: Container[str | None]
) -> None:
    """Raise Conflict if a later operation that still stands changed one of these lines.

    Even if the bytes are as this one left them: a later operation could not be undone then. Of
    entries that are `gone` only those matter that it took out itself.
    """
    ids = {line.entry_id for line in lines} - {None}
    beside = {one for line in lines if line.gap for one in line.gap.neighbours}
    hashes = {line.now for line in lines}
    for later, changed in _standing_since(past, operation):
        touched = [
            _name(line)
            for line in changed
            if (line.entry_id in ids and (line.went or line.entry_id not in gone))
            or (line.entry_id is None and line.was in hashes)
            # Where its neighbour went, a line would come back to the wrong place.
            or (line.went and any(map(Neighbour(line.entry_id, line.was).is_like, beside)))
        ]
        if touched:
            raise Conflict(
                f"{operation} cannot be undone: {later} changed {_list(touched)} afterwards",
                hint=f"undo operation {later.number} first",
            )


def _nothing_left(
    operation: Operation, gone: Sequence[ChangedLine], stays: Sequence[ChangedLine]
) -> NothingToUndo:
    if not stays:
        problem = _changed_by_others(operation, [], gone)
        return NothingToUndo(problem.message, hint=problem.hint)
    return NothingToUndo(
        f"nothing is left to undo of {operation}: the values of {_list(list(map(_name, stays)))} "
        "were restored since",
        hint="`bsd history AGENT/SESSION` lists what was done to the session",
    )


def _changed_by_others(
    operation: Operation,
    changed_lines: Sequence[ChangedLine],
    gone_lines: Sequence[ChangedLine],
) -> Conflict:
    """Say which lines are not as the operation left them, though bsd did nothing to them since."""
    changed, gone = ([_name(line) for line in lines] for lines in (changed_lines, gone_lines))
    what = [f"{_list(changed)} changed"] * bool(changed) + [f"{_list(gone)} gone"] * bool(gone)
    return Conflict(
        f"{operation} cannot be undone: another program has been at the session since "
        f"({', '.join(what)})",
        hint="`bsd show AGENT/SESSION` shows its entries as they are; "
        "older operations may still be undone by their number",
    )


def _name(line: ChangedLine) -> str:
    return name_of(line.entry_id, line.index)


def _list(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = len(unique) - _MOST_NAMED
    return ", ".join(unique[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
