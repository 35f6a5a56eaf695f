"""Finds the lines that an operation changed, by their bytes and not by their numbers.

For a line that the operation removed, the neighbouring lines tell where it belongs. The places of
the lines also tell whether a pending operation took effect: its process may have ended before it
recorded that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bsd.core.errors import NotFound
from bsd.store.history import ChangedLine, Gap, History, HistoryDamaged, Neighbour, Operation
from bsd.store.originals import digest
from bsd.transcripts.reader import Transcript

# Returns the id of the entry in a line, or None if it has none.
Identify = Callable[[bytes], str | None]

_ENTRY, _END = 2, 1  # points for a neighbour, or an end of the file, in its old place


@dataclass(frozen=True, slots=True)
class LinePlace:
    """The place of a line. With length 0: the place at which a removed line belongs."""

    index: int  # 0-based line number
    offset: int
    length: int


def find_lines(source: Transcript, wanted: Sequence[ChangedLine]) -> dict[int, LinePlace]:
    """Find the lines that still stand as the operation left them.

    Among equal lines, those at their old line numbers are assigned first, then the nearest.

    Returns:
        A map from the position in `wanted` to the place; lines that are not found are left out.
    """
    places = _places(
        source, {(line.now, line.now_size, line.ended) for line in wanted if not line.went}
    )
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
    """Return where removed lines belong now; keys are positions in `wanted`."""
    gaps = {number: line.gap for number, line in enumerate(wanted) if line.went and line.gap}
    if not gaps:
        return {}
    left_at = _left_at(wanted)
    best: dict[int, tuple[int, int, LinePlace]] = {}

    def compare(before: Neighbour | None, here: Neighbour | None, place: LinePlace) -> None:
        """Compare each gap with the place between two lines."""
        for number, gap in gaps.items():
            candidate = (_fit(gap, before, here), -abs(place.index - left_at[number]), place)
            if candidate[0] >= _ENTRY and (number not in best or candidate[:2] > best[number][:2]):
                best[number] = candidate

    before: Neighbour | None = None
    end = LinePlace(0, 0, 0)
    for line in source.lines():
        here = Neighbour(identify(line.raw), digest(line.raw))
        compare(before, here, LinePlace(line.index, line.offset, 0))
        before, end = here, LinePlace(line.index + 1, line.offset + len(line.raw), 0)
    compare(before, None, end)
    return {number: place for number, (_, _, place) in best.items()}


def _fit(gap: Gap, before: Neighbour | None, here: Neighbour | None) -> int:
    """Return how well the place between two lines fits a gap."""
    fit = 0
    for wanted, found in ((gap.after, before), (gap.before, here)):
        if wanted is None or found is None:
            fit += _END if wanted is found else 0
        elif wanted.is_like(found):
            fit += _ENTRY
    return fit if gap.after is not None or before is not None else fit + _END


def gaps_of(
    source: Transcript, gone: Mapping[int, object], new: Mapping[int, bytes], identify: Identify
) -> dict[int, Gap]:
    """Return, for each of the `gone` line numbers, the gap between the lines that stay.

    `new` maps the numbers of the lines that change in the same operation to their new bytes.
    """
    gaps: dict[int, Gap] = {}
    waiting: list[int] = []
    after: bytes | None = None

    def close_gap(before: bytes | None) -> None:
        if waiting:
            gaps.update(dict.fromkeys(waiting, Gap(neighbour(after), neighbour(before))))
            waiting.clear()

    def neighbour(raw: bytes | None) -> Neighbour | None:
        return None if raw is None else Neighbour(identify(raw), digest(raw))

    for line in source.lines():
        if line.index in gone:
            waiting.append(line.index)
            continue
        here = new.get(line.index, line.raw)
        close_gap(here)
        after = here
    close_gap(None)
    return gaps


def _left_at(changed: Sequence[ChangedLine]) -> list[int]:
    """Return the line numbers of `changed` after the operation; `changed` is in file order."""
    numbers, shift = [], 0
    for line in changed:
        numbers.append(line.index + shift)
        shift += line.came - line.went
    return numbers


def _places(source: Transcript, wanted: set[tuple[str, int, bool]]) -> dict[str, list[LinePlace]]:
    """Find lines by (hash, size, ended); a line without an end may have got one since."""
    hashes = {hash_ for hash_, _, _ in wanted}
    whole = {size for _, size, _ in wanted}
    begun = {size + 1 for _, size, ended in wanted if not ended}
    places: dict[str, list[LinePlace]] = defaultdict(list)
    for line in source.lines():
        size, here = len(line.raw), LinePlace(line.index, line.offset, len(line.raw))
        # Only lines of a matching length are hashed.
        if size in whole and (hash_ := digest(line.raw)) in hashes:
            places[hash_].append(here)
        begins = size in begun and line.raw.endswith(b"\n")
        if begins and (hash_ := digest(line.raw[:-1])) in hashes:
            places[hash_].append(here)
    return places


# --- operations whose process ended before it recorded whether they took effect ---


def happened(source: Transcript, changed: Sequence[ChangedLine]) -> bool:
    """Return whether an operation took effect, if no other program has changed its lines."""
    left_at = _left_at(changed)
    found = find_lines(source, changed)
    if any(place.index == left_at[number] for number, place in found.items()):
        return True
    former = [line for line in changed if not line.came]
    places = _places(source, {(line.was, line.was_size, line.ended) for line in former})
    if all(line.went for line in changed):
        # A line may equal a removed one by chance, but hardly at the same line number.
        return not all(
            any(place.index == line.index for place in places[line.was]) for line in former
        )
    return bool(found) and not any(places.values())


def _took_effect(source: Transcript, history: History, operation: Operation) -> bool:
    try:
        return happened(source, history.lines(operation))
    except (NotFound, HistoryDamaged):  # the file is incomplete, so the operation cannot have begun
        return False


def resolve_pending(history: History, source: Transcript) -> None:
    """Record for each pending operation whether it took effect.

    The caller holds bsd's own lock of the session, so no operation is in progress.
    """
    for operation in history.pending():
        history.note_effect(operation, happened=_took_effect(source, history, operation))


def undone_in(source: Transcript, history: History) -> frozenset[str]:
    """Return the ids of entries whose extraction was undone; raises Unavailable."""
    notes = history.entry_notes
    if not notes.has_undone:
        return frozenset()
    pending = history.pending()
    return notes.undone(
        {each.number for each in pending if not _took_effect(source, history, each)}
    )
