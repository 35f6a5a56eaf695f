"""Recipes for the former bytes of a line, made from data that is stored elsewhere anyway.

The history does not copy bytes that the present line or a stored file contains. Therefore, content
that retention deletes does not survive in the history either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import NamedTuple

from bsd.transcripts.spans import ValuePath
from bsd.transcripts.splice import SpliceError, find

_WORTH_LOOKING = 64  # bytes: shorter pieces are kept without a search


class Place(StrEnum):
    """The source of a piece's bytes."""

    NOW = "now"  # in the line as the operation left it
    STORED = "stored"  # in a stored file
    KEPT = "kept"  # in the history's own file


class Piece(NamedTuple):
    """The bytes `[start, end)` of one source."""

    place: Place
    start: int
    end: int


Recipe = tuple[Piece, ...]


def whole_file(size: int) -> Recipe:
    """Return the recipe of a line that equals a stored file, byte for byte."""
    return (Piece(Place.STORED, 0, size),)


def write_recipe(was: bytes, now: bytes) -> tuple[Recipe, bytes]:
    """Return how to make `was` from `now`, and the bytes to keep: all between common ends."""
    limit = min(len(was), len(now))
    head = _greatest(limit, lambda length: was[:length] == now[:length])
    tail = _greatest(limit - head, lambda length: was[len(was) - length :] == now[-length:])
    kept = was[head : len(was) - tail]
    pieces = (
        Piece(Place.NOW, 0, head),
        Piece(Place.KEPT, 0, len(kept)),
        Piece(Place.NOW, len(now) - tail, len(now)),
    )
    return tuple(piece for piece in pieces if piece.end > piece.start), kept


def write_recipe_with(
    was: bytes, now: bytes, stored: bytes, paths: Collection[ValuePath]
) -> tuple[Recipe, bytes]:
    """Return a recipe as `write_recipe`, which also takes the values at `paths` from `stored`."""
    pieces: list[Piece] = []
    kept = bytearray()
    done = used = 0  # bytes of `was` and of `now`

    def add_between(end: int) -> None:
        """Add the bytes before the next value."""
        nonlocal used
        between = was[done:end]
        if len(between) > _WORTH_LOOKING and (at := now.find(between, used)) >= 0:
            used = at + len(between)
            pieces.append(Piece(Place.NOW, at, used))
        elif between:
            pieces.append(Piece(Place.KEPT, len(kept), len(kept) + len(between)))
            kept.extend(between)

    for start, end, there in _shared(was, stored, paths):
        add_between(start)
        pieces.append(Piece(Place.STORED, there, there + end - start))
        done = end
    add_between(len(was))
    return tuple(pieces), bytes(kept)


def follow(recipe: Recipe, now: bytes, stored: bytes, kept: bytes) -> bytes:
    """Return the former line. The caller checks its hash, since wrong sources go unnoticed."""
    source = {Place.NOW: now, Place.STORED: stored, Place.KEPT: kept}
    return b"".join(source[place][start:end] for place, start, end in recipe)


def _greatest(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the greatest length up to `limit` for which `holds`; it also holds for all below."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _shared(
    was: bytes, stored: bytes, paths: Collection[ValuePath]
) -> Iterator[tuple[int, int, int]]:
    """Yield the values that stand in both, in order: start and end in `was`, start in `stored`."""
    found = []
    for path in paths:
        try:
            (start, end), (there, until) = find(was, [path])[path], find(stored, [path])[path]
        except SpliceError:  # missing in one, or ambiguous: the history keeps the bytes
            continue
        if was[start:end] == stored[there:until]:
            found.append((start, end, there))
    done = 0
    for start, end, there in sorted(found):
        if start >= done:  # otherwise the value lies inside the previous one
            yield start, end, there
            done = end
