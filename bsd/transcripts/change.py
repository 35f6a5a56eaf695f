"""The order to a commit: bytes to replace in one file, planned on one known state of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bsd.core.layout import SessionName

_PACKED = struct.Struct("=QQQQ")
_LARGEST = (1 << 64) - 1  # a time before 1970 is negative, one after 2262 too large when signed


class Written(NamedTuple):
    """The part of a file's state that changes with a write, and not when its names change."""

    dev: int
    ino: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Written:
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def packed(self) -> bytes:
        """The same in a third of the memory, to keep very many and only compare them."""
        return _PACKED.pack(self.dev, self.ino, self.size, self.mtime_ns & _LARGEST)


def packed(stat: os.stat_result) -> bytes:
    """`Written.of(stat).packed()`, in half the time."""
    return _PACKED.pack(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns & _LARGEST)


@dataclass(frozen=True, slots=True)
class Identity:
    """Tells one state of one file from every other (DESIGN §4)."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Identity:
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)

    @property
    def written(self) -> Written:
        return Written(self.dev, self.ino, self.size, self.mtime_ns)

    @property
    def mtime(self) -> float | None:
        """When the file was last written, in epoch seconds; None for a session in memory."""
        return self.mtime_ns / 1e9 if self.mtime_ns else None


class Readable(Protocol):
    """A file whose bytes can be had."""

    def read(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes `[offset, offset + length)` of the planned file by `new`.

    One line with its line end; length 0 puts a line in, an empty `new` takes one out.
    """

    offset: int
    length: int
    new: bytes
    was: str | None = None  # `sha256:…` of those bytes, if the planner knows it


def edited(source: Readable, edits: Sequence[Edit], start: int, end: int) -> bytes:
    """The bytes `[start, end)` of a file after `edits`, which are those of a `Change`."""
    pieces, read, written = [], 0, 0
    for edit in edits:
        if written + edit.offset - read >= end:
            break
        kept = edit.offset - read
        pieces.append(_part(source, read, kept, start - written, end - written))
        written += kept
        pieces.append(edit.new[max(0, start - written) : max(0, end - written)])
        written += len(edit.new)
        read = edit.offset + edit.length
    if written < end:
        pieces.append(_part(source, read, end - written, start - written, end - written))
    return b"".join(pieces)


def _part(source: Readable, offset: int, length: int, start: int, end: int) -> bytes:
    """Return the bytes from `start` to `end`, counted from the first, of `length` at `offset`."""
    start, end = max(0, start), min(length, end)
    return source.read(offset + start, end - start) if start < end else b""


@dataclass(frozen=True, slots=True)
class Change:
    """Edits of one session file, in ascending order, without overlap.

    `planned_at_ns` (epoch) is the time just before `planned_on` was read: a file that was younger
    than its timestamps can tell apart is refused, and only the planner knows when it looked.
    """

    path: Path
    planned_on: Identity
    edits: tuple[Edit, ...]
    session: SessionName
    planned_at_ns: int
    # The new bytes are late lines of others, which stand nowhere else: undoing would lose them.
    carries_late: bool = False
    # The time of the last change stays: else the owner takes the session for its latest one.
    keeps_mtime: bool = False

    def __post_init__(self) -> None:
        end = 0
        for edit in self.edits:
            if edit.length < 0 or edit.offset < end:
                raise ValueError(f"edits overlap or are out of order at byte {edit.offset}")
            end = edit.offset + edit.length
        if end > self.planned_on.size:
            raise ValueError(f"edits reach byte {end} of a file of {self.planned_on.size}")
