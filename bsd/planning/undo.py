"""Plans to undo an operation: each line that it changed gets its former bytes back."""

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
from bsd.planning.timing_members import CutReason, cause_of
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
_RESTORING = {"restore", "in_band"}  # actions that put values back
_HOW = {Missing.GONE: "gone", Missing.FORGOTTEN: "forgotten"}


class NothingToUndo(Conflict):
    """An undo of the operation would change nothing in the session."""


class Past(Protocol):
    """The history of a session, as planners read it."""

    def operations(self) -> list[Operation]:
        """Return all stored operations, oldest first."""
        ...

    def lines(self, operation: Operation) -> list[ChangedLine]:
        """Return the lines that an operation changed."""
        ...

    def former(
        self, operation: Operation, line: ChangedLine, now: bytes, stored: OriginalStore
    ) -> bytes | Missing:
        """Return the bytes of a line before the operation; `now` has the bytes after it."""
        ...


@dataclass(frozen=True, slots=True)
class Undone:
    """The operation that an undo reverses, and its entries."""

    of: Internal[Operation]
    undone: int  # its number in the history
    action: str
    at: str
    entries: Annotated[
        tuple[str, ...],
        Field(description="Ids, or `#` and the line number of entries without an id"),
    ]
    gone: Annotated[
        tuple[str, ...],
        Field(description="Entries of the operation that another program removed since"),
    ] = ()
    operations: Annotated[
        tuple[int, ...],
        Field(description="Operations of this undo; undo them to reverse it"),
    ] = ()
    stays: Annotated[
        tuple[str, ...],
        Field(description="Entries that stay as they are, since their values were restored"),
        OMIT_EMPTY,
    ] = ()
    effect: Annotated[
        UndoEffect | None,
        Field(description="Dry run only: the changes that it would make"),
        OMIT_EMPTY,
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
    cut_reason: CutReason = None


def _choose(past: Past, number: int | None, passed_over: Container[int]) -> Operation:
    """Return the operation to undo: the named one, or else the newest that can be undone.

    Without a number, undos, undone operations and those in `passed_over` are skipped.

    Raises:
        NotFound: the history has no operation of this number.
        Conflict: the operation is undone already, or none is left to undo.
    """
    operations = past.operations()
    undone = undone_entries(operations)
    if number is None:
        for operation in reversed(operations):
            is_left = undone[operation.number] < operation.entries
            if operation.act.undoes is None and is_left and operation.number not in passed_over:
                return operation
        raise Conflict(
            "there is no operation left to undo",
            hint="`bsd history AGENT/SESSION` lists all operations",
        )
    chosen = next((one for one in operations if one.number == number), None)
    if chosen is None:
        raise NotFound(
            f"there is no operation {number}",
            hint="`bsd history AGENT/SESSION` lists the stored operations",
        )
    if undone[number] >= chosen.entries:
        undoings = [one.number for one in operations if one.act.undoes == number]
        by = max(one for one in undoings if not undone[one])
        raise Conflict(f"{chosen} is undone already", hint=f"to do it again, undo operation {by}")
    return chosen


def tell_history(past: Past, source: Transcript | None) -> list[PastOperation]:
    """Return the stored operations, newest first.

    Args:
        source: the session. It tells whether an operation took effect if its process ended before
            recording that.
    """
    changed: dict[int, tuple[str, ...]] = {}  # names only, since all lines would need much memory
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
            cut_reason=cause_of(act.cut_reason),
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
    """Plan to undo one operation, either on all its lines that still exist or on none.

    When an extraction is undone, entries that were restored completely since then stay as they are.

    Args:
        number: of the operation; None: the newest that can be undone.
        budget_bytes: bytes of new lines in one plan. If more are due, the plan is not `complete`.

    Raises:
        NotFound: the history has no such operation.
        NothingToUndo: no line of the operation is left to undo.
        Conflict: the operation is undone already, a later change prevents the undo, or content that
            it extracted or would extract is no longer stored.
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
        passed_over.add(operation.number)  # its remaining lines are gone
    undoing = _Undoing(source, fmt, past, stored, operation)
    new_bytes, complete = 0, True
    # Lines that were added or removed belong together with the others, so undo all at once.
    at_once = any(line.came or line.went for line in lines)
    for at, place in sorted(found.items(), key=lambda one: (one[1].offset, one[1].length > 0)):
        # Beyond the budget, lines are only tried, so that an error shows before any line changes.
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
    """Return the places of an operation's lines that are not undone yet, and its missing lines.

    Raises Conflict if a line has changed since, or if a missing line belongs together with others.
    """
    lines = past.lines(operation)
    wanted = [at for at in range(len(lines)) if at not in over]
    places = find_lines(source, [lines[at] for at in wanted])
    places |= find_gaps(source, [lines[at] for at in wanted], identifier(fmt))
    found = {at: places[turn] for turn, at in enumerate(wanted) if turn in places}
    missing = [at for at in wanted if at not in found]
    present = {one.info.id for one in entries(source.lines(), fmt)} if missing else set()
    # Entries that the session's program removed since do not prevent an undo, unless the operation
    # added or removed lines: then its lines belong together.
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
    """Makes the plan of an undo, line by line."""

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
        self._refs: set[str] = set()  # stored files of these originals
        self._of_extraction = _began_with(past, operation).act.action in {"extract", "undo"}
        self._back: list[str] = []  # entries whose extraction is undone
        self._away: list[str] = []  # entries from which values are extracted again
        self.touched: list[TouchedLine] = []

    def take_back(self, at: int, line: ChangedLine, place: LinePlace, *, trial: bool) -> int:
        """Give one line its former bytes; return their number.

        `trial`: add nothing to the plan, only raise Conflict if the line cannot be undone.
        """
        now = self._source.read(place.offset, place.length)
        former = self._past.former(self._operation, line, as_ended(line, now), self._stored)
        if isinstance(former, Missing):
            raise self._content_lost(line, former)
        was = with_end(former, line, now)
        if line.went and place.offset < self._source.size and not was.endswith(b"\n"):
            was += b"\n"  # it was the last line, and lines were added after it
        keep = self._keep(line, place, now, was)
        if not trial:
            self._edits.append(Edit(place.offset, place.length, was))
            self.touched.append(TouchedLine(place.index, line.entry_id, at))
            self._note(line.entry_id, now, was)
            if keep:
                self._keeps.append(keep)
        return len(was)

    def _note(self, entry_id: str | None, now: bytes, was: bytes) -> None:
        """Note whether extracted values come back or leave again.

        If a restoration is done again, its values come back with another `_restored`.
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
        """Note the neighbours of lines that are removed again."""
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
        """Return the original that must be stored if values leave the line again; else None."""
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
            return None  # no further value leaves
        # A stored file of the session from which this one branched off is copied into its own
        # store, under another name if the name is taken.
        held = self._stored.held(marker.ref, marker.hash)
        content = self._stored.load(held or marker.ref, marker.hash)
        if isinstance(content, Missing):  # not stored, but still inline
            content = made_again(now, was, marker.hash) or content
        original = None if isinstance(content, Missing) else OriginalLine.of(content)
        if original is None or isinstance(content, Missing):
            why = content if isinstance(content, Missing) else Missing.CORRUPT
            raise self._content_lost(line, why, marker.ref)
        if not is_marked_copy(entry, original.entry, self._fmt):
            return None  # the marker was copied from another entry
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
        if why in {Missing.UNREACHABLE, Missing.UNREADABLE}:
            how = f"unavailable ({self._stored.trouble()})"
        return Conflict(
            f"{self._operation} cannot be undone: {what} of {_name(line)} is {how}; "
            "nothing was changed",
            hint="`bsd verify` lists missing content; the setting `retention` says how long "
            "extracted content is kept",
        )

    def plan(self, *, complete: bool) -> Plan:
        plan = Plan.of(
            "undo",
            self._source,
            self._fmt,
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
    """Return the first operation of a chain of undos, or the earliest one still in the history."""
    operations = {one.number: one for one in past.operations()}
    while operation.act.undoes in operations:
        operation = operations[operation.act.undoes]
    return operation


def away_in(entry: Entry) -> set[str]:
    """Return the keys of an entry's extracted values."""
    marker = Marker.of(entry)
    return set(away_paths(entry, marker)) if marker else set()


def _already_undone(past: Past, operation: Operation) -> set[int]:
    """Return the undone lines of an operation: all, none, or those undone before a crash."""
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
    """Yield later operations still in effect, newest first, each with its lines still in effect.

    Undos of this operation, or of a later one, are left out.
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
    """Return the lines of an extraction that were restored since, and not changed otherwise.

    All their values are inline, so there are none to bring back, and they do not prevent the undo.
    """
    if operation.act.action != "extract":
        return set()
    lines = past.lines(operation)
    restored: set[str | None] = set()
    changed: set[str | None] = set()  # by other operations
    for later, found in _standing_since(past, operation):
        ids = restored if later.act.action in _RESTORING else changed
        ids.update(line.entry_id for line in found)
    wanted = {line.entry_id for at, line in enumerate(lines) if at not in over}
    candidates = (restored & wanted) - changed - {None}
    if not candidates:
        return set()
    present: set[str | None] = set()
    away: set[str | None] = set()  # ids with at least one copy that is not whole
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
    """Raise Conflict if a later operation still in effect changed one of these lines.

    This holds even if the bytes are as this operation left them, since the later operation could
    not be undone afterwards. Of entries in `gone`, only those that the later operation removed
    count.
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
            # If a neighbour was removed, the line would come back at the wrong place.
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
        f"no change of {operation} is left to undo: the values of {_list(list(map(_name, stays)))} "
        "were restored since",
        hint="`bsd history AGENT/SESSION` lists the operations on the session",
    )


def _changed_by_others(
    operation: Operation,
    changed_lines: Sequence[ChangedLine],
    gone_lines: Sequence[ChangedLine],
) -> Conflict:
    """Return the error for lines that another program changed or removed since the operation."""
    changed, gone = ([_name(line) for line in lines] for lines in (changed_lines, gone_lines))
    what = [f"{_list(changed)} changed"] * bool(changed) + [f"{_list(gone)} gone"] * bool(gone)
    return Conflict(
        f"{operation} cannot be undone: another program has changed the session since "
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
