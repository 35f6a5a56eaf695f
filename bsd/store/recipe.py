"""How a line's former bytes are made again from what is kept elsewhere anyway.

What can be had from the line as it is now, or from the session's stored files, is not kept twice:
so content that retention deletes is not kept by the history either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import NamedTuple

from bsd.foundation.value_path import ValuePath
from bsd.text.splice import SpliceError, find

_WORTH_LOOKING = 64  # bytes: shorter pieces are simply kept


class Place(StrEnum):
    """Where a piece's bytes are."""

    NOW = "now"  # in the line as the operation left it
    STORED = "stored"  # in a stored file
    KEPT = "kept"  # in the history itself


class Piece(NamedTuple):
    """Bytes `[start, end)` of one of these."""

    place: Place
    start: int
    end: int


Recipe = tuple[Piece, ...]


def whole_file(size: int) -> Recipe:
    """The former line is a stored file, byte for byte."""
    return (Piece(Place.STORED, 0, size),)


def write_recipe(was: bytes, now: bytes) -> tuple[Recipe, bytes]:
    """Say how `was` is made from `now`, and what must be kept for it: all between their ends."""
    limit = min(len(was), len(now))
    head = _common(limit, lambda length: was[:length] == now[:length])
    tail = _common(limit - head, lambda length: was[len(was) - length :] == now[-length:])
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
    """The same, where a stored file has the values of some paths."""
    pieces: list[Piece] = []
    kept = bytearray()
    done = seen = 0
    for start, end, there in _shared(was, stored, paths):
        seen = _between(was[done:start], now, seen, pieces, kept)
        pieces.append(Piece(Place.STORED, there, there + end - start))
        done = end
    _between(was[done:], now, seen, pieces, kept)
    return tuple(pieces), bytes(kept)


def follow(recipe: Recipe, now: bytes, stored: bytes, kept: bytes) -> bytes:
    """Make the former line; wrong ingredients make a wrong one, so check its hash."""
    source = {Place.NOW: now, Place.STORED: stored, Place.KEPT: kept}
    return b"".join(source[place][start:end] for place, start, end in recipe)


def _common(limit: int, equal: Callable[[int], bool]) -> int:
    """The greatest length up to `limit` for which `equal` holds: it holds for all below, too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if equal(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _shared(
    was: bytes, stored: bytes, paths: Collection[ValuePath]
) -> Iterator[tuple[int, int, int]]:
    """Values that stand in both, in order: start and end in `was`, start in `stored`."""
    found = []
    for path in paths:
        try:
            (start, end), (there, until) = find(was, [path])[path], find(stored, [path])[path]
        except SpliceError:  # not in both, or not to be told apart: kept as it stands
            continue
        if was[start:end] == stored[there:until]:
            found.append((start, end, there))
    done = 0
    for start, end, there in sorted(found):
        if start >= done:  # a value inside another is there already
            yield start, end, there
            done = end


def _between(was: bytes, now: bytes, seen: int, pieces: list[Piece], kept: bytearray) -> int:
    """Add what stands between two values; returns how far `now` has been used."""
    if len(was) > _WORTH_LOOKING and (at := now.find(was, seen)) >= 0:
        pieces.append(Piece(Place.NOW, at, at + len(was)))
        return at + len(was)
    if was:
        pieces.append(Piece(Place.KEPT, len(kept), len(kept) + len(was)))
        kept += was
    return seen
