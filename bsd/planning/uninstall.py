"""Plans to bring a session back to its state before bsd.

All values become inline, and every `_restored` of bsd's is removed. Pins, edits and redactions
stay. A `_restored` counts as bsd's if the note made when bsd set it says so, or else the stored
original line of its entry, or the history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from bsd.core.errors import NotFound
from bsd.planning.originals import restored_of, same_values
from bsd.planning.plan import Plan, Report, Revised
from bsd.planning.restore import BUDGET, Restored, plan_restore_all
from bsd.planning.undo import Past
from bsd.store.entry_notes import NOTHING, Stamps, learn
from bsd.store.history import ChangedLine, HistoryDamaged, TouchedLine, as_ended
from bsd.store.originals import Missing, OriginalStore, digest
from bsd.store.root_records import EntryOriginal
from bsd.transcripts.agents.entry import RESTORED
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript, parse_entry, parse_kept
from bsd.transcripts.spans import ValuePath, paths_of
from bsd.transcripts.splice import SpliceError, edit

_NEEDLE = f'"{RESTORED}"'.encode()
# A time as bsd writes it. Another program set any other value.
_OURS = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"')


class Witness(Protocol):
    """The records of a root about the entries of one session before bsd."""

    def stamps(self) -> Stamps:
        """Return the recorded stamps of this session."""
        ...

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        """Yield the recorded stamps of other sessions."""
        ...

    def originals(self, entry_ids: Collection[str]) -> Iterator[EntryOriginal]:
        """Yield the stored original lines of entries with these ids."""
        ...


@dataclass(frozen=True, slots=True)
class _Stamped:
    """An entry with a `_restored` that may be bsd's. `value` is its JSON."""

    index: int  # 0-based line number
    offset: int
    length: int  # of the line with the values that the same plan brings back
    entry_id: str
    value: bytes


def plan_leaving(  # noqa: PLR0913 - arguments of restoring, and the records of the state before
    source: Transcript,
    fmt: TranscriptFormat,
    now: float,
    stored: OriginalStore,
    witness: Witness,
    past: Past,
    *,
    budget_bytes: int = BUDGET,
    progress: Callable[[int], None] | None = None,
) -> tuple[Plan, tuple[Restored, ...]]:
    """Plan to bring back all extracted values and to remove every `_restored` that bsd set.

    The answers are those of `plan_restore_all`. A `_restored` of unknown origin stays.
    """
    revised = Revised(source, fmt)
    back, answers = plan_restore_all(source, fmt, now, stored, budget_bytes, progress)
    revised.take(back)
    stamped = list(_stamped(revised, fmt))
    known = witness.stamps()
    learn(known, back.noting.stamps)
    befores = _befores(stamped, known, witness, past, stored, revised)
    fresh = {(stamp.entry_id, stamp.value) for stamp in back.noting.stamps}
    complete = _take_out(revised, stamped, befores, fresh, budget_bytes)
    plan = revised.plan(back.report.action)
    # Every `_restored` that this plan would set is removed again, so there is no stamp to note.
    return replace(plan, noting=NOTHING, complete=back.complete and complete), answers


def _stamped(revised: Revised, fmt: TranscriptFormat) -> Iterator[_Stamped]:
    for line in revised.lines():
        if _NEEDLE not in line.raw or (entry := parse_entry(line.raw)) is None:
            continue
        value = restored_of(line.raw, entry)
        info = fmt.info(entry)
        if value is not None and _OURS.fullmatch(value) and info.id and not info.is_header:
            yield _Stamped(line.index, line.offset, len(line.raw), info.id, value)


def _take_out(
    revised: Revised,
    stamped: Sequence[_Stamped],
    befores: dict[int, bytes | None],
    fresh: Collection[tuple[str, bytes]],
    budget_bytes: int,
) -> bool:
    """Give lines back the value before their `_restored`; return whether the budget was enough.

    The budget limits only older stamps. The `fresh` ones, pairs of entry id and value set by this
    very plan, are always removed, since no record would tell of them afterwards.
    """
    new_bytes = 0
    complete = True
    edits, touched = [], []
    for at, one in enumerate(stamped):
        if at not in befores:
            continue
        if new_bytes >= budget_bytes and (one.entry_id, one.value) not in fresh:
            complete = False
            continue
        raw, before = revised.read(one.offset, one.length), befores[at]
        try:
            if before is None:
                new = edit(raw, remove=[(RESTORED,)])
            else:
                new = edit(raw, put={RESTORED: before})
        except SpliceError:
            continue
        edits.append(Edit(one.offset, one.length, new))
        touched.append(TouchedLine(one.index, one.entry_id))
        new_bytes += len(new)
    revised.take(Plan(revised.identity, tuple(edits), Report(""), touched=tuple(touched)))
    return complete


def _befores(
    stamped: Sequence[_Stamped],
    known: Stamps,
    witness: Witness,
    past: Past,
    stored: OriginalStore,
    revised: Revised,
) -> dict[int, bytes | None]:
    """Return the value before each `_restored`, if known.

    The keys are positions in `stamped`; the values are JSON, or None if there was no `_restored`.
    """
    found: dict[int, bytes | None] = {}

    def look_up(stamps: Stamps) -> None:
        for at, one in enumerate(stamped):
            told = stamps.get(one.entry_id, {})
            if at not in found and one.value in told:
                found[at] = told[one.value]

    def open_ones() -> dict[int, _Stamped]:
        return {at: one for at, one in enumerate(stamped) if at not in found}

    look_up(known)
    if unknown := open_ones():
        found |= _by_originals(unknown, known, witness, revised)
    if open_ones():
        for stamps in witness.stamps_elsewhere():
            look_up(stamps)
    if unknown := open_ones():
        found |= _by_history(unknown, past, stored, revised)
    return found


def _by_originals(
    unknown: dict[int, _Stamped], known: Stamps, witness: Witness, revised: Revised
) -> dict[int, bytes | None]:
    """Return the values in the stored original lines.

    An original of another session counts only if its extracted values are in the line too.
    """
    found: dict[int, bytes | None] = {}
    by_id: dict[str, list[int]] = {}
    for at, one in unknown.items():
        by_id.setdefault(one.entry_id, []).append(at)
    for original in witness.originals(by_id.keys()):
        entry = parse_kept(original.line)
        value = restored_of(original.line, entry) if entry else None
        before = known.get(original.entry_id, {}).get(value, value) if value else None
        for at in by_id[original.entry_id]:
            one = unknown[at]
            # If an entry was restored and stored again, its later original has bsd's `_restored`.
            if value == one.value or (at in found and before is not None):
                continue
            if original.own or _is_copy(revised.read(one.offset, one.length), original):
                found[at] = before
    return found


def _is_copy(raw: bytes, original: EntryOriginal) -> bool:
    """Return whether a line still holds the values that were extracted from an original line."""
    paths: list[ValuePath] = list(paths_of(original.keys).values())
    return bool(paths) and same_values(raw, original.line, paths)


@dataclass(slots=True)
class _Trail:
    """A line followed back through the history. Its bytes are read on demand."""

    at: int  # position in `stamped`
    digest: str
    read: Callable[[], bytes]

    def leads_to(self, line: ChangedLine) -> bool:
        """Return whether an operation left the line in this state."""
        if self.digest == line.now:
            return True
        return not line.ended and digest(as_ended(line, self.read())) == line.now


def _by_history(
    unknown: dict[int, _Stamped], past: Past, stored: OriginalStore, revised: Revised
) -> dict[int, bytes | None]:
    """Return the values before the operation that set each `_restored`, if the history has it."""
    found: dict[int, bytes | None] = {}
    trails = {}
    for at, one in unknown.items():
        read = partial(revised.read, one.offset, one.length)
        trails[one.entry_id] = _Trail(at, digest(read()), read)
    for operation in reversed(past.operations()):
        with suppress(NotFound, HistoryDamaged):  # without this operation
            for line in past.lines(operation):
                trail = trails.get(line.entry_id or "")
                if trail is None or trail.at in found or not trail.leads_to(line):
                    continue
                was = past.former(operation, line, as_ended(line, trail.read()), stored)
                if isinstance(was, Missing) or (entry := parse_kept(was)) is None:
                    continue
                if RESTORED not in entry:
                    found[trail.at] = None
                trails[line.entry_id or ""] = _Trail(trail.at, digest(was), partial(bytes, was))
    return found
