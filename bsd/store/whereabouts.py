"""Where the lines that an operation changed stand now: found by their bytes, not their places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bsd.store.extracted import digest
from bsd.store.history import ChangedLine
from bsd.transcript.reader import Line


class Lines(Protocol):
    """A session, to be read through."""

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """Where a line is."""

    index: int  # 0-based line number
    offset: int
    length: int


def find_lines(source: Lines, wanted: Sequence[ChangedLine]) -> dict[int, Found]:
    """Which of these lines still stand as the operation left them: position in `wanted` → place.

    Of several equal lines each is found once, the one at its old line number first.
    """
    places = _places(source, {(line.now, line.now_size, line.ended) for line in wanted})
    found: dict[int, Found] = {}
    for at_old_place in (True, False):
        for number, line in enumerate(wanted):
            candidates = places[line.now]
            if number in found or not candidates:
                continue
            nearest = min(candidates, key=lambda place: abs(place.index - line.index))
            if nearest.index == line.index or not at_old_place:
                candidates.remove(nearest)
                found[number] = nearest
    return found


def happened(source: Lines, changed: Sequence[ChangedLine]) -> bool:
    """Whether an operation took effect, if nobody but its author may have changed these lines."""
    found = find_lines(source, changed)
    if any(place.index == changed[number].index for number, place in found.items()):
        return True
    former = {(line.was, line.was_size, line.ended) for line in changed}
    return bool(found) and not any(_places(source, former).values())


def _places(source: Lines, wanted: set[tuple[str, int, bool]]) -> dict[str, list[Found]]:
    sizes: dict[int, list[bool]] = defaultdict(list)
    hashes = {hash_ for hash_, _, _ in wanted}
    for _, size, ended in wanted:
        sizes[size].append(True)
        if not ended:  # others may have ended the line since
            sizes[size + 1].append(False)
    places: dict[str, list[Found]] = defaultdict(list)
    for line in source.lines():
        # Only a line of the right length is worth hashing.
        for whole in set(sizes.get(len(line.raw), ())):
            if not whole and not line.raw.endswith(b"\n"):
                continue
            hash_ = digest(line.raw if whole else line.raw[:-1])
            if hash_ in hashes:
                places[hash_].append(Found(line.index, line.offset, len(line.raw)))
    return places
