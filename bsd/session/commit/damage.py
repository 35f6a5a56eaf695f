"""What a power cut may have made of a displaced file, and whether anything of it is lost.

Its size may have reached the disk while blocks did not, which then are zeros; or neither has, and
it ends early. Nobody misses either as long as its successor has what was there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bsd.foundation.files import open_plain
from bsd.foundation.leases import tail_hash
from bsd.session.commit.build import header_hash
from bsd.session.commit.inflight import Mark, Span

_BLOCK = 1 << 20
_PIECE = 4 << 10


def only_lacks(
    displaced: int, edits: tuple[Span, ...], size: int, successor: Mark, places: Iterable[Path]
) -> bool:
    """Whether a displaced file has no bytes but zeros and those that its successor has.

    The successor is looked for in `places`: at the path, or displaced in turn. What stands under
    the edits is not compared: it was durable elsewhere before the file was displaced.
    """
    return any(
        _is(successor, fd) and _all_stands_there(displaced, fd, edits, size)
        for place in places
        for fd in _opened(place)
    )


def lies_under(displaced: int, edits: tuple[Span, ...]) -> str:
    """What stands under the edits, as the record of the commit tells it."""
    told = hashlib.sha256()
    for edit in edits:
        hashed = hashlib.sha256()
        for start in range(edit.offset, edit.offset + edit.length, _BLOCK):
            end = min(edit.offset + edit.length, start + _BLOCK)
            hashed.update(os.pread(displaced, end - start, start))
        told.update(f"sha256:{hashed.hexdigest()}".encode())
    return told.hexdigest()


def begins_a_line(piece: bytes, session: Path, *marks: Mark) -> bool:
    """Whether a line of the session begins with `piece`, the beginning of a line."""
    for fd in _opened(session):
        if header_hash(fd) in {mark.header for mark in marks}:
            with open(fd, "rb", buffering=_BLOCK, closefd=False) as file:
                return any(line.startswith(piece) for line in file)
    return False


def ends_in_zeros(fd: int) -> bool:
    """Whether a file ends as none does that was written whole."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) == b"\0"


def _opened(path: Path) -> Iterator[int]:
    """A descriptor of what lies there, if it is a plain file that can be read."""
    with suppress(OSError):
        fd = open_plain(path)
        try:
            yield fd
        finally:
            os.close(fd)


def _is(mark: Mark, fd: int) -> bool:
    """Whether a file begins with the marked one, as it was marked."""
    known = mark.identity.size
    return (
        os.fstat(fd).st_size >= known
        and header_hash(fd) == mark.header
        and tail_hash(fd, known) == mark.tail
    )


def _all_stands_there(displaced: int, successor: int, edits: tuple[Span, ...], size: int) -> bool:
    at = there = 0
    for edit in edits:
        if not _same_or_zeros(displaced, at, successor, there, edit.offset - at):
            return False
        there += edit.offset - at + edit.new_length
        at = edit.offset + edit.length
    return _same_or_zeros(displaced, at, successor, there, size - at)


def _same_or_zeros(displaced: int, at: int, successor: int, there: int, length: int) -> bool:
    for start in range(0, length, _BLOCK):
        count = min(_BLOCK, length - start)
        left = os.pread(displaced, count, at + start)
        had = os.pread(successor, count, there + start)
        if left != had[: len(left)] and not all(_pieces_agree(left, had)):
            return False
        if len(left) < count:
            break  # it ends here
    return True


def _pieces_agree(left: bytes, had: bytes) -> Iterator[bool]:
    for start in range(0, len(left), _PIECE):
        one, other = left[start : start + _PIECE], had[start : start + _PIECE]
        zeros = one.count(0) == len(one)
        yield zeros or one == other or all(a in (0, b) for a, b in zip(one, other, strict=False))
