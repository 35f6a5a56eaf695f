"""Tracks the entries in the model's context, the reach of signatures, and the last turn.

A program that continues a session follows parents back from the newest entry, either to the first
entry or to a compaction. A compaction stands for everything before it except the entries that it
keeps (SPEC §3). Entries off this path (summarised, or on an abandoned branch) take space in the
file and none in the model's context, unless a user goes back to them.

Call `follow` of `ContextWindow` and of `LastTurn` for each entry of a session, in the order of the
file. Their answers are valid after the last entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import NamedTuple

from bsd.store.state import NO_ID, Checkpoint
from bsd.transcripts.agents.format import EntryInfo, Turn

Binds = Callable[[str], bool]  # model → its signatures cover everything before them
_NONE, _EARLIER = -1, -2  # in place of a row: no parent; parent before the checkpoint
_NEAR = 64  # entries searched one by one: most parents are among them
_SIGNATURE = b"ignature"  # in the key of a thinking signature, in all formats
SILENCE_SECONDS = 86_400.0  # a turn without an end is over after this
WARNING = (
    "entry {}: a later answer carries a signature that covers it; its provider may refuse the "
    "session now (setting prefix_bound_models). An undo takes the change back."
)


def id_hash(entry_id: str) -> int:
    """Return an 8-byte number that stands for an id. It is the same in every process."""
    return int.from_bytes(
        blake2b(entry_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    )


def never(_model: str) -> bool:
    """Return False: the signatures of no model cover earlier entries."""
    return False


class _Event(Enum):
    """An event that decides how far back signatures reach."""

    COMPACTION = auto()
    BRANCH = auto()  # after a compaction, an entry whose parent is not the entry before it
    SIGNATURE = auto()


class _Way(NamedTuple):
    """The path back from the newest entry."""

    passed: bytearray  # per row: on the path, up to the compaction
    sent: bytearray  # per row: in context
    compacted: int  # rows before the compaction that ends the path; 0: none, or it keeps all
    leads_on: bool  # the path continues before the checkpoint


class ContextWindow:
    """The entries in context, and the entries that a later signature covers.

    Entries are addressed by row: their number in the order of the file, counted from the first line
    or from the checkpoint `since`.

    A signature covers everything before it on its branch, except entries that a compaction between
    the two took out of context. A provider that checks signatures refuses a session in which a
    covered entry was changed. A signature that is itself out of context is not sent, so it protects
    nothing unless a user goes back to before the compaction.
    """

    def __init__(self, binds: Binds = never, since: Checkpoint | None = None) -> None:
        self.lines, self.ids = array("Q"), array("Q")  # per row: line, hash of the id
        self._followed = bytearray()  # per row: entries may name it as their parent
        self._parents = array("q")  # per row: the row of its parent
        self._far: dict[int, int] = {}  # row → hash of its parent's id, beyond `_NEAR`
        self._answers = array("Q")  # per row: hash of its answer's id
        self._names_parents = False  # entries name their parents
        self._results = array("Q")  # rows: results of calls in answers of several entries
        self._compactions: dict[int, EntryInfo] = {}  # by row
        self._superseding: int | None = None  # the program reads no row before this one again
        # Hash of `version_of` → rows of the newest versions, which the program may still read.
        self._versions: dict[int, tuple[int, ...]] = {}
        self._first_versions: dict[int, int] = {}  # the same → row of the first version
        self._superseded: set[int] = set()  # rows of older versions, and rows that were rewound
        self._rewinds = False  # an entry rewinds to an earlier one
        self._reads_all_versions = False
        self._versions_before = False  # versions of an entry may also be before the checkpoint
        # (row, event) pairs. A signature in an unparsed line has the row of the next entry.
        self._events: list[tuple[int, _Event]] = []
        self._binds = lru_cache(maxsize=128)(binds)
        self._since = since
        self._turn_starts: list[int] = []  # rows
        self._answered = True  # the latest turn has an answer
        self._rolls_far = False  # turns that begin before the checkpoint were rolled back
        self._gap = False  # a line was skipped since the previous entry
        self._before: tuple[str, int] | None = None  # id and row of the last entry with an id
        self._last = _NONE  # the row from which the program would continue
        self.goes_back = False  # the newest entry begins a turn at an earlier place, or rolls back

    def follow(self, index: int, info: EntryInfo) -> None:
        """Add the next entry, which is in line `index`."""
        row = len(self.lines)
        self.lines.append(index)
        self.ids.append(id_hash(info.id) if info.id else NO_ID)
        self._followed.append(info.id is not None and not info.is_note)
        self._parents.append(self._parent_of(row, info))
        self._answers.append(id_hash(info.answer) if info.answer else NO_ID)
        follows_last = self._before is not None and info.parent == self._before[0]
        self.goes_back = bool(info.rolls_back or info.rewinds_to) or (
            info.turn is Turn.STARTS
            and info.names_parent
            and not (follows_last or self._is_next(info))
        )
        if self._compactions and info.may_be_last and info.parent is not None and not follows_last:
            self._events.append((row, _Event.BRANCH))
        self._note_superseded(row, info)
        if info.is_compaction or info.supersedes:
            self._compactions[row] = info
            self._events.append((row, _Event.COMPACTION))
        elif info.signed_by is not None and self._binds(info.signed_by):
            self._note_signature(row)
        self._names_parents |= info.names_parent
        if info.result_of is not None and info.names_parent:
            parent = self._parents[row]
            is_answers = parent >= 0 and self._answers[parent] != NO_ID
            if row in self._far or parent == _EARLIER or is_answers:
                self._results.append(row)
        if info.id is not None and not info.is_note:
            self._before, self._gap = (info.id, row), False
        if info.may_be_last:
            self._last = row

    def _note_superseded(self, row: int, info: EntryInfo) -> None:
        if info.supersedes:
            self._superseding = row
            self._versions.clear()
            self._first_versions.clear()
        if info.version_of is not None:
            version, read = id_hash(info.version_of), info.versions_read
            rows = (*self._versions.get(version, ()), row)
            self._reads_all_versions |= read < 1
            self._versions_before |= info.is_compaction
            self._superseded.update(rows[:-read])
            self._versions[version] = rows[-read:]
            self._first_versions.setdefault(version, row)
        self._reads_all_versions |= info.rolls_back > 0
        if info.rewinds_to is not None:
            self._rewinds = True
            # An entry that is not found stands in the entry that superseded all others, if any.
            first = 0 if self._superseding is None else self._superseding + 1
            start = self._first_versions.get(id_hash(info.rewinds_to), first)
            self._superseded.update(range(start, row))

    def _is_next(self, info: EntryInfo) -> bool:
        """Return whether the first entry with an id follows the last one before it."""
        if self._before is not None:
            return False
        parent = id_hash(info.parent) if info.parent else NO_ID
        return self._since is None or parent == self._since.leaf

    def pass_over(self, raw: bytes) -> None:
        """Add a line that is too large to be parsed. It may carry a signature of any model.

        If the parent of a later entry is not found, that entry follows the entry before this line.
        """
        self._gap = True
        if _SIGNATURE in raw:
            self._note_signature(len(self.lines))

    def _note_signature(self, row: int) -> None:
        if self._events and self._events[-1][1] is _Event.SIGNATURE:
            self._events.pop()  # the new signature covers all that the previous one does
        self._events.append((row, _Event.SIGNATURE))

    def _parent_of(self, row: int, info: EntryInfo) -> int:
        """Return the row of an entry's parent; if it is further back, note the parent in `_far`."""
        if not info.names_parent:
            return self._parent_in_line(row, info)
        parent = info.parent
        if parent is None:
            return _NONE
        if self._before is not None and parent == self._before[0]:
            return self._before[1]
        number = id_hash(parent)
        for near in range(row - 1, max(row - _NEAR, 0) - 1, -1):
            if self.ids[near] == number:
                return near
        if self._gap:
            return self._before[1] if self._before else _EARLIER
        if self._before is None and self._since is not None and number == self._since.leaf:
            return _EARLIER
        self._far[row] = number
        return _NONE

    def _parent_in_line(self, row: int, info: EntryInfo) -> int:
        """Return the row before an entry, for formats without branches.

        Rolled-back turns are skipped.
        """
        if info.turn is Turn.STARTS:
            if self._answered:
                self._turn_starts.append(row)
            self._answered = False
        elif info.turn is Turn.OPEN or info.is_assistant:
            self._answered = True
        self._rolls_far |= info.rolls_back > len(self._turn_starts)
        if info.rolls_back and self._turn_starts:
            row = self._turn_starts[-info.rolls_back :][0]
            del self._turn_starts[-info.rolls_back :]
            self._answered = True
        return row - 1 if row or self._since is None else _EARLIER

    # Answers. Valid once the last entry was followed.

    def row_at(self, index: int) -> int:
        """Return the row of the entry in line `index`."""
        return bisect_left(self.lines, index)

    def sent(self, row: int) -> bool:
        """Return whether an entry is in context: sent if the session continues as it is now."""
        return bool(self._way.sent[row])

    def all_sent(self) -> bytearray:
        """Return a copy of the answers of `sent` for all rows: 1 if the entry is in context."""
        return self._way.sent[:]

    def parent(self, row: int) -> int:
        """Return the row of the entry that an entry follows; negative if there is none."""
        return self._row_before(row)

    def compacted(self, row: int) -> bool:
        """Return whether an entry is before the latest compaction and not kept by it."""
        return row < self._way.compacted and not self._way.sent[row]

    def superseded(self, row: int) -> bool:
        """Return whether the program never reads an entry again."""
        if self._superseding is not None and row < self._superseding:
            return True
        return row in self._superseded and not self._reads_all_versions

    def covered(self, row: int) -> bool:
        """Return whether a later signature covers an entry, in context or not."""
        return bool(self._covered[row])

    def is_bound(self, row: int) -> bool:
        """Return whether a signature covers an entry and both are sent, or might be."""
        return bool(self._covered[row]) and not self.compacted(row)

    @property
    def signed(self) -> bool:
        """True if there are signatures that cover entries before them."""
        return any(event is _Event.SIGNATURE for _, event in self._events)

    @property
    def reaches_back(self) -> bool:
        """True if entries after the checkpoint may change which earlier entries are in context."""
        if self._since is None:
            return False
        if (
            self.supersedes_earlier
            or self._compactions
            or self._rolls_far
            or self.leaf(0)[1] is not self._since.on_way
        ):
            return True
        # A result follows its call, so that results of calls at once begin no branch.
        others = self._far.keys() - set(self._results)
        return any(self._row_of(self._far[row]) is None for row in others)

    @property
    def supersedes_earlier(self) -> bool:
        """True if an entry after the checkpoint may supersede entries before it."""
        if self._since is None:
            return False
        return self._superseding is not None or self._rewinds or self._versions_before

    def leaf(self, rows: int) -> tuple[int, bool]:
        """Return the last id of the first rows, as a hash, and whether the path leads through it.

        Notes do not count. If these `rows` rows have no id, the leaf of the checkpoint is returned.
        """
        for row in range(rows - 1, -1, -1):
            if self._followed[row] and self.ids[row] != NO_ID:
                return self.ids[row], bool(self._way.passed[row])
        return self._since.leaf if self._since else NO_ID, self._way.leads_on

    @cached_property
    def _way(self) -> _Way:
        passed = bytearray(len(self.lines))
        sent, compacted, row = None, 0, self._last
        while row >= 0 and sent is None:
            passed[row] = True
            if row in self._compactions:
                sent = passed[:]
                kept = self._kept(row)
                if kept is None:  # the program does not find the entry either, and sends all
                    sent[:row] = b"\1" * row
                else:
                    compacted = row
                    for one in kept:
                        sent[one] = True
            else:
                row = self._row_before(row)
        sent = passed[:] if sent is None else sent
        self._add_siblings(sent)
        for one in self._superseded if not self._reads_all_versions else ():
            sent[one] = False
        return _Way(passed, sent, compacted, row == _EARLIER)

    def _row_before(self, row: int) -> int:
        """Return the row of an entry's parent. An entry never follows a later entry."""
        number = self._far.get(row)
        if number is None:
            return self._parents[row]
        found = self._row_of(number)
        if found is not None and found < row:
            return found
        return _EARLIER if self._are_earlier([number]) else _NONE

    def _kept(self, row: int) -> Iterable[int] | None:
        """Return the rows that a compaction keeps; None if it names an entry that is missing."""
        info = self._compactions[row]
        if info.kept:
            rows = {number: self._row_of(number) for number in map(id_hash, info.kept)}
            if not self._are_earlier([number for number, at in rows.items() if at is None]):
                return None
            return [at for at in rows.values() if at is not None]
        if info.kept_from is None:
            return []
        first, here = id_hash(info.kept_from), self._row_before(row)
        if info.kept_to is not None:
            last = id_hash(info.kept_to)
            found = self._row_of(last)
            if found is None:
                found = _EARLIER if self._are_earlier([last]) else _NONE
            here = found
        way = []
        while here >= 0:
            way.append(here)
            if self.ids[here] == first:
                return way
            here = self._row_before(here)
        if here == _EARLIER and self._are_earlier([first]):
            return way  # correct if the first kept entry is on this path
        return [] if info.kept_to is None else None

    def _are_earlier(self, ids: Collection[int]) -> bool:
        """Return whether all these ids belong to entries before the checkpoint."""
        if not ids:
            return True
        return self._since is not None and self._since.among(ids) >= set(ids)

    def _add_siblings(self, sent: bytearray) -> None:
        """Mark the other parts of each sent answer, and the results of its calls, as sent.

        Calls made at the same time are siblings, and the path back leads through one of them. A
        result whose call is before the checkpoint counts as sent. All lines of a sent id count as
        sent too, since programs differ in which of these lines they take.
        """
        if self._names_parents and len(set(self.ids)) < len(self.ids):
            ids = {number for number, there in zip(self.ids, sent, strict=True) if there} - {NO_ID}
            for row, number in enumerate(self.ids):
                sent[row] |= number in ids
        answers = {answer for answer, there in zip(self._answers, sent, strict=True) if there}
        answers.discard(NO_ID)
        if not answers:
            return
        for row, answer in enumerate(self._answers):
            if answer in answers:
                sent[row] = True
        for row in self._results:
            call = self._row_before(row)
            if call == _EARLIER or (call >= 0 and sent[call] and self._answers[call] != NO_ID):
                sent[row] = True

    @cached_property
    def _covered(self) -> bytearray:
        """One byte per row: 1 if a later signature covers it.

        Only the ids of the lines before the checkpoint matter: a compaction there is before every
        row, so it takes no row out of context.
        """
        covered = bytearray(len(self.lines))
        reach, compaction = 0, 0  # rows: first covered row, latest compaction
        for row, event in self._events:
            if event is _Event.COMPACTION:
                reach, compaction = self._first_kept(row), row
            elif event is _Event.SIGNATURE:
                covered[reach:row] = b"\1" * (row - reach)
            elif (parent := self._row_before(row)) == _EARLIER or 0 <= parent < compaction:
                reach = 0  # the branch starts before the compaction
        return covered

    def _first_kept(self, row: int) -> int:
        """Return the first row still sent after a compaction: kept by it, or its own row."""
        info, first = self._compactions[row], row
        for kept in map(id_hash, info.kept or filter(None, (info.kept_from,))):
            found = 0 if self._since and self._since.among([kept]) else self._row_of(kept)
            first = first if found is None else min(first, found)
        return first

    @cached_property
    def _order(self) -> array[int]:
        return array("L", sorted(range(len(self.ids)), key=self.ids.__getitem__))

    def _row_of(self, number: int) -> int | None:
        """Return the row of the first entry with this id; None if there is none."""
        at = bisect_left(self._order, number, key=self.ids.__getitem__)
        if at < len(self._order) and self.ids[self._order[at]] == number:
            return self._order[at]
        return None


class LastTurn:
    """The lines of the last turn, and whether that turn is unfinished.

    A turn without a recorded end is over after a day without a new entry (`end_if_silent`): its
    program was killed or lost its connection.
    """

    def __init__(self, begins: int | None = None) -> None:
        self._begins = begins  # line in which the last turn begins
        self._open_from: int | None = None  # the turn is unfinished from this line on
        self._written_ms: float | None = None  # the newest time in those lines
        # For a turn without a recorded end: its first line, and the time at which silence ends it.
        self._silent_from: int | None = None
        self._over_at: float | None = None
        self._waiting: set[str] = set()  # ids of calls without a result
        self._latest: set[int] = set()  # lines of the latest assistant message
        self._answer: str | None = None  # the answer id of those lines

    def follow(self, index: int, info: EntryInfo) -> None:
        """Add the next entry, which is in line `index`."""
        # A user's message ends the previous turn, even if that crashed: the user no longer waits
        # for it.
        if info.turn is Turn.STARTS:
            self._begins = self._open_from = index
            self._written_ms = None
            self._waiting.clear()
        self._waiting.update(call.id for call in info.calls if call.id)
        if info.result_of is not None:
            self._waiting.discard(info.result_of)
        if info.turn is Turn.OPEN:
            self._begins = index if self._begins is None else self._begins
            self._open_from = index if self._open_from is None else self._open_from
        elif info.turn is Turn.CLOSES and not self._waiting:
            self._open_from = None
        elif info.turn is Turn.BREAKS:
            self.end()
        self._note_time(info.time_ms)
        if info.is_assistant and info.turn is not Turn.BREAKS:
            if info.answer is None or info.answer != self._answer:
                self._latest.clear()
            self._latest.add(index)
            self._answer = info.answer

    def _note_time(self, time_ms: float | None) -> None:
        if self._open_from is None:
            self._written_ms = None
        elif time_ms is not None:
            self._written_ms = max(time_ms, self._written_ms or time_ms)

    def end(self) -> None:
        """End the turn, even if its entries show no end. Later entries may continue it."""
        self._open_from = self._written_ms = None
        self._waiting.clear()

    def end_if_silent(self, now: float, mtime: float | None = None) -> None:
        """End a turn without a new entry for a day. Call it after the last entry.

        A time in the future counts as now. If no time is known, the turn stays open.

        Args:
            now: epoch seconds.
            mtime: modification time of the file in epoch seconds; used if no entry of the turn has
                a time.
        """
        written = mtime if self._written_ms is None else self._written_ms / 1000
        if self._open_from is None or written is None:
            return
        self._silent_from, self._over_at = self._open_from, min(written, now) + SILENCE_SECONDS
        if self._over_at <= now:
            self.end()

    @property
    def begins(self) -> int | None:
        """The line in which the last turn begins; None: no turn yet."""
        return self._begins

    @property
    def open_from(self) -> int | None:
        """The line from which the last turn is unfinished; None: it is over."""
        return self._open_from

    @property
    def latest(self) -> tuple[int, int] | None:
        """The first and the last line of the latest assistant message."""
        return (min(self._latest), max(self._latest)) if self._latest else None

    def over_at(self, index: int) -> float | None:
        """Return when silence ends, or has ended, the turn of a line (epoch seconds).

        None if the turn has a recorded end, and for the latest assistant message, which stays whole
        even after that time.
        """
        if self._silent_from is None or index < self._silent_from or index in self._latest:
            return None
        return self._over_at

    def is_open(self, index: int) -> bool:
        """Return whether a line belongs to an unfinished turn or the latest assistant message."""
        unfinished = self._open_from is not None and index >= self._open_from
        return unfinished or index in self._latest

    def reaches(self, index: int) -> bool:
        """Return whether a line belongs to the last turn, finished or not."""
        return self._begins is not None and index >= self._begins

    def includes(self, index: int) -> bool:
        """Return whether a line belongs to the last turn or to the latest assistant message."""
        return index in self._latest or self.reaches(index)
