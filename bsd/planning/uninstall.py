"""Plans to bring a session back to its state before bsd: values inline, no `_restored` of ours.

Pins, edits and redactions stay. The note that was made when bsd set a `_restored` tells that it is
bsd's; else the original line that is kept of its entry does, or the history.
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
# A moment as bsd writes it; another program has set any other.
_OURS = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"')


class Witness(Protocol):
    """The records of a root that tell how entries of one session were before bsd."""

    def stamps(self) -> Stamps:
        """Return the stamps that were noted of this session."""
        ...

    def stamps_elsewhere(self) -> Iterator[Stamps]:
        """Yield the stamps that were noted of other sessions."""
        ...

    def originals(self, entry_ids: Collection[str]) -> Iterator[EntryOriginal]:
        """The original lines that are kept of entries of these ids."""
        ...


@dataclass(frozen=True, slots=True)
class _Stamped:
    """An entry with a `_restored` that may be ours. `value` is JSON as it stands there."""

    index: int  # 0-based line number
    offset: int
    length: int  # of the line as it will be: other values may come back with the same plan
    entry_id: str
    value: bytes


def plan_leaving(  # noqa: PLR0913 - as for restoring, and the state before
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
    """Plan the return of everything that is away, and that no trace of it stays.

    The answers are those of `plan_restore_all`. A `_restored` of which nothing tells stays.
    """
    revised = Revised(source)
    back, answers = plan_restore_all(source, fmt, now, stored, budget_bytes, progress)
    revised.take(back)
    stamped = list(_stamped(revised, fmt))
    known = witness.stamps()
    learn(known, back.noting.stamps)
    befores = _befores(stamped, known, witness, past, stored, revised)
    fresh = {(stamp.entry_id, stamp.value) for stamp in back.noting.stamps}
    complete = _take_out(revised, stamped, befores, fresh, budget_bytes)
    plan = revised.plan(back.report.action)
    # No `_restored` that this would set stays, so there is nothing to note of it.
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
    """Give lines back the values they had before; whether the budget was enough for all of them.

    The budget limits only stamps that stood there already. `fresh` ones, an entry's id and the
    value that this very plan sets, are never left, since no record would tell of them afterwards.
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
    """The value that each one replaced, as far as it is known: position → value, or None."""
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
    """The value in the original lines. An id is not enough for one from another's store."""
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
            # An entry that came back and was stored again has bsd's in a later original.
            if value == one.value or (at in found and before is not None):
                continue
            if original.own or _is_copy(revised.read(one.offset, one.length), original):
                found[at] = before
    return found


def _is_copy(raw: bytes, original: EntryOriginal) -> bool:
    """Whether a line has the values that left an original line, so that it is one of its copies."""
    paths: list[ValuePath] = list(paths_of(original.keys).values())
    return bool(paths) and same_values(raw, original.line, paths)


@dataclass(slots=True)
class _Trail:
    """A line on its way back through the history. Its bytes are read when they are needed."""

    at: int  # position among the stamped
    digest: str
    read: Callable[[], bytes]

    def leads_to(self, line: ChangedLine) -> bool:
        """Whether an operation left the line like this."""
        if self.digest == line.now:
            return True
        return not line.ended and digest(as_ended(line, self.read())) == line.now


def _by_history(
    unknown: dict[int, _Stamped], past: Past, stored: OriginalStore, revised: Revised
) -> dict[int, bytes | None]:
    """The values in lines before the operation that set their `_restored`, if it is kept."""
    found: dict[int, bytes | None] = {}
    trails = {}
    for at, one in unknown.items():
        read = partial(revised.read, one.offset, one.length)
        trails[one.entry_id] = _Trail(at, digest(read()), read)
    for operation in reversed(past.operations()):
        with suppress(NotFound, HistoryDamaged):  # it tells nothing
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
