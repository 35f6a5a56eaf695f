"""What of a session is sent, what a signature covers, what its last turn is: known at its end.

Whoever goes on with a session goes back from the newest entry, each time to the one that an entry
follows, until the first, or to a compaction, which stands for all that is before it but for what
it keeps (SPEC §3). What is on no such way (what was summed up, branches that were left) takes
space in the file and none in the model's context, as long as nobody goes back to where it was.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import inf

from bsd.store.state import NO_ID, Checkpoint
from bsd.transcripts.agents.format import EntryInfo, Turn

_NOBODY, _EARLIER = -1, -2  # who is followed: nobody, or an entry before the checkpoint
_NEAR = 64  # entries: most follow one of those
Binds = Callable[[str], bool]  # whether signatures of a model cover all that is before them
_SIGNATURE = b"ignature"  # of thinking, as all dialects call it
WARNING = (
    "entry {}: a later answer carries a signature that covers it; its provider may refuse the "
    "session now (setting prefix_bound_models). An undo takes the change back."
)


def id_hash(entry_id: str) -> int:
    """Return 8 bytes that stand for an id, the same in every process."""
    return int.from_bytes(
        blake2b(entry_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    )


@dataclass(frozen=True, slots=True)
class _Compaction:
    """What one leaves in context of the entries before it, by numbers for their ids."""

    listed: tuple[int, ...]
    first: int | None
    last: int | None

    @classmethod
    def of(cls, info: EntryInfo) -> _Compaction:
        ends = [None if one is None else id_hash(one) for one in (info.kept_from, info.kept_to)]
        return cls(tuple(map(id_hash, info.kept)), *ends)


class ContextWindow:
    """Follows a session to its end, from its first line or `since` a checkpoint of it.

    Ask once all was followed. Entries are called by their rows, in the order of the file.
    """

    def __init__(self, since: Checkpoint | None = None) -> None:
        # Of each entry that was followed.
        self.lines, self.ids = array("Q"), array("Q")
        self._follows = array("q")  # the row of the entry before it
        self._answers = array("Q")  # a number for the answer that it is a part of
        self._since = since
        self._far: dict[int, int] = {}  # those that follow one further back: the number of its id
        self._compactions: dict[int, _Compaction] = {}
        self._results = array("Q")  # of calls in answers of several entries
        self._starts: list[int] = []  # of turns
        self._answered = True  # something was said since the latest start
        self._gap = False  # a line was passed over since the entry before
        self._before: tuple[str, int] | None = None  # id and row of the entry before
        self._last = _NOBODY  # the row from which it goes on
        self._order: array[int] | None = None  # rows by the numbers of their ids
        self._sent: bytearray | None = None
        self._way = bytearray()  # which entries the way back leads by, up to a compaction
        self._leads_on = False  # and on before the checkpoint
        self._compacted_before = 0

    def follow(self, index: int, info: EntryInfo) -> None:
        """Note the next entry."""
        row = len(self.lines)
        self._sent = self._order = None
        self.lines.append(index)
        self.ids.append(id_hash(info.id) if info.id else NO_ID)
        self._follows.append(self._followed(row, info))
        self._answers.append(id_hash(info.answer) if info.answer else NO_ID)
        if info.is_compaction:
            self._compactions[row] = _Compaction.of(info)
        if info.result_of is not None:
            before = self._follows[row]
            if row in self._far or (before >= 0 and self._answers[before] != NO_ID):
                self._results.append(row)
        if info.id is not None:
            self._before, self._gap = (info.id, row), False
        if info.may_be_last:
            self._last = row

    def pass_over(self) -> None:
        """Note a line that nobody has read: what follows it stands for what it follows."""
        self._gap = True

    def _followed(self, row: int, info: EntryInfo) -> int:
        if not info.names_parent:
            return self._in_line(row, info)
        parent = info.parent
        if parent is None:
            return _NOBODY
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
        return _NOBODY

    def _in_line(self, row: int, info: EntryInfo) -> int:
        """The row before an entry, in a dialect without branches; turns may be taken back."""
        if info.turn is Turn.STARTS:
            if self._answered:
                self._starts.append(row)
            self._answered = False
        elif info.turn is Turn.OPEN or info.is_assistant:
            self._answered = True
        if info.rolls_back and self._starts:
            back = self._starts[-info.rolls_back :]
            del self._starts[-info.rolls_back :]
            self._answered = True
            row = back[0]
        return row - 1 if row or self._since is None else _EARLIER

    def sent(self, row: int) -> bool:
        """Whether an entry is in context: what is sent of it now."""
        if self._sent is None:
            self._sent = self._look()
        return bool(self._sent[row])

    def compacted(self, row: int) -> bool:
        """Whether an entry stands before the latest compaction, which does not keep it."""
        return not self.sent(row) and row < self._compacted_before

    def sends(self, index: int) -> bool:
        """As `sent`, of an entry's line."""
        return self.sent(bisect_left(self.lines, index))

    def has_compacted(self, index: int) -> bool:
        """As `compacted`, of an entry's line."""
        return self.compacted(bisect_left(self.lines, index))

    @property
    def reaches_back(self) -> bool:
        """Whether something after the checkpoint may have changed what of before is in context."""
        if self._since is None:
            return False
        if self._compactions or self.leads_by(0)[1] is not self._since.on_way:
            return True
        return any(self._row_of(number) is None for number in self._far.values())

    def leads_by(self, rows: int) -> tuple[int, bool]:
        """A number for the last entry with an id among the first ones, and whether it is passed.

        Passed on the way back. If there is none among them, it is the one before the checkpoint.
        """
        if self._sent is None:
            self._sent = self._look()
        for row in range(rows - 1, -1, -1):
            if self.ids[row] != NO_ID:
                return self.ids[row], bool(self._way[row])
        return self._since.leaf if self._since else NO_ID, self._leads_on

    def _look(self) -> bytearray:
        way = sent = bytearray(len(self.lines))
        self._compacted_before = 0
        row = self._last
        while row >= 0:
            way[row] = True
            compaction = self._compactions.get(row)
            if compaction is not None:
                sent = way[:]
                kept = self._kept(row, compaction)
                if kept is None:  # then its owner does not know, either, and takes all
                    sent[:row] = b"\1" * row
                else:
                    self._compacted_before = row
                    for one in kept:
                        sent[one] = True
                break
            row = self._row_before(row)
        self._way, self._leads_on = way, row == _EARLIER
        sent = sent[:] if sent is way else sent
        self._add_siblings(sent)
        return sent

    def _row_before(self, row: int) -> int:
        """The row of the entry that one follows; an entry follows none that comes later."""
        number = self._far.get(row)
        if number is None:
            return self._follows[row]
        found = self._row_of(number)
        if found is None and self._are_earlier([number]):
            return _EARLIER
        return found if found is not None and found < row else _NOBODY

    def _kept(self, row: int, compaction: _Compaction) -> Iterable[int] | None:
        """What a compaction keeps; None if it names what is not there."""
        if compaction.listed:
            rows = {one: self._row_of(one) for one in compaction.listed}
            missing = [one for one, at in rows.items() if at is None]
            if not self._are_earlier(missing):
                return None
            return [at for at in rows.values() if at is not None]
        if compaction.first is None:
            return []
        here = self._row_before(row)
        if compaction.last is not None:
            last = self._row_of(compaction.last)
            here = _EARLIER if last is None and self._are_earlier([compaction.last]) else _NOBODY
            here = here if last is None else last
        way = []
        while here >= 0:
            way.append(here)
            if self.ids[here] == compaction.first:
                return way
            here = self._row_before(here)
        if here == _EARLIER and self._are_earlier([compaction.first]):
            return way  # as it would be if that one is on this way
        return [] if compaction.last is None else None

    def _are_earlier(self, ids: Collection[int]) -> bool:
        """Whether entries with these ids stand before the checkpoint."""
        if not ids:
            return True
        return self._since is not None and self._since.among(ids) >= set(ids)

    def _add_siblings(self, sent: bytearray) -> None:
        """Add to each answer that is sent its other parts, and the results of its calls.

        Calls made at once lie side by side; the way back leads along one of them.
        """
        answers = {one for one, there in zip(self._answers, sent, strict=True) if there}
        answers.discard(NO_ID)
        if answers:
            for row, answer in enumerate(self._answers):
                if answer in answers:
                    sent[row] = True
            for row in self._results:
                call = self._row_before(row)
                if call >= 0 and sent[call] and self._answers[call] != NO_ID:
                    sent[row] = True

    def _row_of(self, number: int) -> int | None:
        """The first entry with such an id."""
        if self._order is None:
            self._order = array("L", sorted(range(len(self.ids)), key=self.ids.__getitem__))
        at = bisect_left(self._order, number, key=self.ids.__getitem__)
        if at < len(self._order) and self.ids[self._order[at]] == number:
            return self._order[at]
        return None


# --- what a later signature covers ---


def never(_model: str) -> bool:
    """No model's signatures cover anything."""
    return False


class SignatureCoverage:
    """Which entries a later signature covers: a provider that checks it refuses what is changed.

    Follows a session to its end, from its first line or `since` a checkpoint of it. A signature
    covers everything before it on its branch, but for what a compaction between took out of
    context. Nothing that follows takes that back; but what a later compaction took out of context
    is not sent, nor is the signature that covers it, as long as nobody goes back to before it.

    Of what is before the checkpoint only the ids matter: a compaction there is before every line
    that is followed, so it can take none of them out of context.
    """

    def __init__(self, binds: Binds, since: Checkpoint | None = None) -> None:
        self.context = ContextWindow(since)
        # Of each entry that was followed.
        self.lines, self.ids = self.context.lines, self.context.ids
        self._binds = lru_cache(maxsize=128)(binds)
        self._since = since
        # Lines of signatures, and how far back each reaches: ever less far, as those that a later
        # one covers with all that they cover are of no account.
        self._signed, self._reach = array("Q"), array("Q")
        # The latest compaction took everything before a line out of context. Which line that is is
        # looked up only for a signature after it, because looking for what is kept takes long.
        self._compaction: EntryInfo | None = None
        self._barrier: int | None = 0  # None: not looked for yet
        self._compacted = 0  # entries before that compaction
        self._compacted_ids: set[int] | None = None
        self._before: str | None = None  # id of the entry before

    def follow(self, index: int, info: EntryInfo) -> None:
        """Note the next entry."""
        if self._barrier != 0 and info.may_be_last and self._goes_back(info.parent):
            self._barrier = 0
        if info.is_compaction:
            self._compaction, self._barrier = info, None
            self._compacted, self._compacted_ids = len(self.ids), None
        elif info.signed_by is not None and self._binds(info.signed_by):
            self._note_signature(index)
        self._before = info.id
        self.context.follow(index, info)

    def pass_over(self, index: int, raw: bytes) -> None:
        """Note a line that is too large to be parsed: it may carry a signature, of any model."""
        self.context.pass_over()
        if _SIGNATURE in raw:
            self._note_signature(index)

    def _goes_back(self, parent: str | None) -> bool:
        """Whether an entry goes on from before the compaction: then it has it not behind it."""
        if parent is None or parent == self._before:
            return False
        if self._compacted_ids is None:
            self._compacted_ids = set(self.ids[: self._compacted])
        number = id_hash(parent)
        return number in self._compacted_ids or self._is_earlier(number)

    def _reaches_to(self) -> int:
        """The first line that a signature covers which stands here.

        What the latest compaction keeps is still sent, so a signature after it still covers that.
        """
        if self._barrier is None:
            info, own = self._compaction, self.lines[self._compacted]
            kept = (info.kept or (info.kept_from,)) if info else ()
            self._barrier = min((self._line_of(one, own) for one in kept if one), default=own)
        return self._barrier

    def _line_of(self, entry_id: str, otherwise: int) -> int:
        number = id_hash(entry_id)
        if self._is_earlier(number):
            return 0  # before all that was followed: which line it is makes no difference
        try:
            return self.lines[self.ids.index(number, 0, self._compacted)]
        except ValueError:
            return otherwise

    def _is_earlier(self, number: int) -> bool:
        return self._since is not None and bool(self._since.among([number]))

    def _note_signature(self, index: int) -> None:
        reach = self._reaches_to()
        while self._reach and self._reach[-1] >= reach:
            self._signed.pop()
            self._reach.pop()
        self._signed.append(index)
        self._reach.append(reach)

    @property
    def signed(self) -> bool:
        """Whether there are signatures that cover what is before them."""
        return bool(self._signed)

    def binds(self, index: int) -> bool:
        """Whether a line is covered and sent, or might be; ask once all was followed."""
        return self.covers(index) and not self.context.has_compacted(index)

    def covers(self, index: int) -> bool:
        """Whether a line is covered, in context or not; ask once all was followed."""
        after = bisect_right(self._signed, index)
        return after < len(self._signed) and self._reach[after] <= index


# --- the last turn ---


class LastTurn:
    """Which entries belong to the last turn, and to one that is not finished: follows a session."""

    def __init__(self, begins: int | None = None) -> None:
        self._begins = begins  # line at which the last turn begins
        self._open_from: int | None = None  # line from which on it is not finished
        self._waiting: set[str] = set()  # ids of its calls without results
        self._latest: set[int] = set()  # lines of the latest assistant message
        self._answer: str | None = None  # what those have in common

    def follow(self, index: int, info: EntryInfo) -> None:
        """Note the next entry, and its line number."""
        # A user's message ends what came before it, even a turn that crashed: whoever speaks
        # again does not wait for it.
        if info.turn is Turn.STARTS:
            self._begins = self._open_from = index
            self._waiting.clear()
        if info.calls:
            self._waiting.update([call.id for call in info.calls if call.id])
        if info.result_of is not None:
            self._waiting.discard(info.result_of)
        if info.turn is Turn.OPEN:
            if self._begins is None:
                self._begins = index
            if self._open_from is None:
                self._open_from = index
        elif info.turn is Turn.CLOSES and not self._waiting:
            self._open_from = None
        if info.is_assistant:
            self._follow_answer(index, info.answer)

    def _follow_answer(self, index: int, answer: str | None) -> None:
        if answer is None or answer != self._answer:
            self._latest.clear()
        self._latest.add(index)
        self._answer = answer

    @property
    def earliest(self) -> float:
        """The first line that one of these questions is answered for with yes."""
        starts = (one for one in (self._begins, self._open_from) if one is not None)
        return min((*starts, *self._latest), default=inf)

    def holds(self, index: int) -> bool:
        """Whether a line is of an unfinished turn, or a part of the latest assistant message."""
        unfinished = self._open_from is not None and index >= self._open_from
        return unfinished or index in self._latest

    def reaches(self, index: int) -> bool:
        """Whether a line is of the last turn, finished or not."""
        return self._begins is not None and index >= self._begins

    def includes(self, index: int) -> bool:
        """Whether a line is of the last turn, or a part of the latest assistant message."""
        return index in self._latest or self.reaches(index)
