"""Where the lines that an operation changed stand now: found by their bytes, not their places.

A line that was taken out stands nowhere; where it belongs is told by the lines beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bsd.core.errors import NotFound
from bsd.store.extracted import digest
from bsd.store.history import (
    ChangedLine,
    Gap,
    History,
    HistoryDamaged,
    KeptOperation,
    Neighbour,
)
from bsd.transcripts.reader import Transcript

# The id of the entry that a line holds, if it has one.
Identify = Callable[[bytes], str | None]

_ENTRY, _END = 2, 1  # how much it tells that a neighbour, or an end of the file, is where it was


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a line is, or with length 0 where it would be put in."""

    index: int  # 0-based line number
    offset: int
    length: int


def find_lines(source: Transcript, wanted: Sequence[ChangedLine]) -> dict[int, LinePlace]:
    """Which of these lines still stand as the operation left them: position in `wanted` → place.

    Of several equal lines each is found once, the one at its old line number first.
    """
    standing = [line for line in wanted if not line.went]
    places = _places(source, {(line.now, line.now_size, line.ended) for line in standing})
    left_at = _left_at(wanted)
    found: dict[int, LinePlace] = {}
    for at_old_place in (True, False):
        for number, line in enumerate(wanted):
            candidates = places[line.now]
            if line.went or number in found or not candidates:
                continue
            index = left_at[number]
            nearest = min(candidates, key=lambda place: abs(place.index - index))
            if nearest.index == index or not at_old_place:
                candidates.remove(nearest)
                found[number] = nearest
    return found


def find_gaps(
    source: Transcript, wanted: Sequence[ChangedLine], identify: Identify
) -> dict[int, LinePlace]:
    """Where lines that the operation took out belong now: position in `wanted` → place."""
    left_at = _left_at(wanted)
    gaps = {number: line.gap for number, line in enumerate(wanted) if line.went and line.gap}
    best: dict[int, tuple[int, int, LinePlace]] = {}
    for before, here, place in _between(source, identify) if gaps else ():
        for number, gap in gaps.items():
            found = (_fit(gap, before, here), -abs(place.index - left_at[number]), place)
            if found[0] >= _ENTRY and (number not in best or found[:2] > best[number][:2]):
                best[number] = found
    return {number: place for number, (_, _, place) in best.items()}


def gaps_of(
    source: Transcript, gone: Mapping[int, object], new: Mapping[int, bytes], identify: Identify
) -> dict[int, Gap]:
    """What will be beside each of these lines when they are gone: line number → gap.

    `new` are the lines that change with them, by line number.
    """
    gaps: dict[int, Gap] = {}
    waiting: list[int] = []
    after: bytes | None = None

    def neighbour(raw: bytes | None) -> Neighbour | None:
        return None if raw is None else Neighbour(identify(raw), digest(raw))

    for line in source.lines():
        if line.index in gone:
            waiting.append(line.index)
            continue
        here = new.get(line.index, line.raw)
        if waiting:
            gap = Gap(neighbour(after), neighbour(here))
            gaps |= dict.fromkeys(waiting, gap)
            waiting.clear()
        after = here
    if waiting:
        gaps |= dict.fromkeys(waiting, Gap(neighbour(after), None))
    return gaps


def happened(source: Transcript, changed: Sequence[ChangedLine]) -> bool:
    """Whether an operation took effect, if nobody but its author may have changed these lines."""
    found = find_lines(source, changed)
    left_at = _left_at(changed)
    if any(place.index == left_at[number] for number, place in found.items()):
        return True
    former = [line for line in changed if not line.came]
    places = _places(source, {(line.was, line.was_size, line.ended) for line in former})
    if all(line.went for line in changed):
        # Another line may look like one that went, but hardly where that one stood.
        return not all(
            any(place.index == line.index for place in places[line.was]) for line in former
        )
    return bool(found) and not any(places.values())


def took_effect(source: Transcript, history: History, operation: KeptOperation) -> bool:
    """Whether an operation did whose process ended before it could note it."""
    try:
        return happened(source, history.lines(operation))
    except (NotFound, HistoryDamaged):  # never complete, so nothing followed
        return False


def undone_in(source: Transcript, history: History) -> frozenset[str]:
    """The entries of a session whose extraction is taken back; raises Unavailable.

    Of an operation whose process ended before it could note it, the session tells.
    """
    if not history.entry_notes.undone.is_there:
        return frozenset()
    in_vain = {one.number for one in history.pending() if not took_effect(source, history, one)}
    return history.entry_notes.undone.entries(in_vain)


def _left_at(changed: Sequence[ChangedLine]) -> list[int]:
    """The line numbers at which an operation left its lines, which are in the file's order."""
    numbers, shift = [], 0
    for line in changed:
        numbers.append(line.index + shift)
        shift += line.came - line.went
    return numbers


def _between(
    source: Transcript, identify: Identify
) -> Iterator[tuple[Neighbour | None, Neighbour | None, LinePlace]]:
    """Every place between two lines, and before the first and after the last one."""
    before: Neighbour | None = None
    end = LinePlace(0, 0, 0)
    for line in source.lines():
        here = Neighbour(identify(line.raw), digest(line.raw))
        yield before, here, LinePlace(line.index, line.offset, 0)
        before, end = here, LinePlace(line.index + 1, line.offset + len(line.raw), 0)
    yield before, None, end


def _fit(gap: Gap, before: Neighbour | None, here: Neighbour | None) -> int:
    fit = 0
    for wanted, found in ((gap.after, before), (gap.before, here)):
        if wanted is None or found is None:
            fit += _END if wanted is found else 0
        elif wanted.is_like(found):
            fit += _ENTRY
    return fit if gap.after is not None or before is not None else fit + _END


def _places(source: Transcript, wanted: set[tuple[str, int, bool]]) -> dict[str, list[LinePlace]]:
    sizes: dict[int, list[bool]] = defaultdict(list)
    hashes = {hash_ for hash_, _, _ in wanted}
    for _, size, ended in wanted:
        sizes[size].append(True)
        if not ended:  # others may have ended the line since
            sizes[size + 1].append(False)
    places: dict[str, list[LinePlace]] = defaultdict(list)
    for line in source.lines():
        # Only a line of the right length is worth hashing.
        for whole in set(sizes.get(len(line.raw), ())):
            if not whole and not line.raw.endswith(b"\n"):
                continue
            hash_ = digest(line.raw if whole else line.raw[:-1])
            if hash_ in hashes:
                places[hash_].append(LinePlace(line.index, line.offset, len(line.raw)))
    return places


def settle(history: History, source: Transcript) -> None:
    """Tell what became of operations whose process ended before it could note it.

    The caller holds bsd's own lock of the session, so nobody is in the middle of one.
    """
    for operation in history.pending():
        history.settle(operation, happened=took_effect(source, history, operation))
