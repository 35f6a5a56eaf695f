"""A change of one session file: the bytes to replace, planned on one known state of the file."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bsd.core.layout import SessionName

_PACKED = struct.Struct("=QQQQ")
_LARGEST = (1 << 64) - 1  # times before 1970 are negative; times after 2262 exceed a signed integer


class Written(NamedTuple):
    """The part of a file's state that changes with each write, but not with a rename or link."""

    dev: int
    ino: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Written:
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def packed(self) -> bytes:
        """Return the same data in a third of the memory, to store and compare many of them."""
        return _PACKED.pack(self.dev, self.ino, self.size, self.mtime_ns & _LARGEST)


def packed(stat: os.stat_result) -> bytes:
    """Return `Written.of(stat).packed()` in half the time."""
    return _PACKED.pack(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns & _LARGEST)


@dataclass(frozen=True, slots=True)
class Identity:
    """Distinguishes a state of a file from all other states and files (DESIGN §4)."""

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
        """Time of the last write in epoch seconds; None for a session in memory."""
        return self.mtime_ns / 1e9 if self.mtime_ns else None


class Readable(Protocol):
    """A source of bytes, such as a file."""

    def read(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the bytes `[offset, offset + length)` of the planned file by `new`.

    The bytes are one line with its line end. With length 0 the edit inserts a line; with an empty
    `new` it removes the line.
    """

    offset: int
    length: int
    new: bytes
    was: str | None = None  # `sha256:…` of the replaced bytes, if the planner knows it


def edited(source: Readable, edits: Sequence[Edit], start: int, end: int) -> bytes:
    """Return the bytes `[start, end)` of a file after `edits`, which are sorted by offset."""
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
    """Return the part `[start, end)` of the `length` bytes that begin at `offset`."""
    start, end = max(0, start), min(length, end)
    return source.read(offset + start, end - start) if start < end else b""


@dataclass(frozen=True, slots=True)
class Change:
    """Edits of one session file, in ascending order, without overlap.

    `planned_at_ns` (epoch nanoseconds) is the time just before `planned_on` was read, which only
    the planner knows. A commit refuses a file whose last change is so close to this time that its
    timestamps cannot tell the states apart.
    """

    path: Path
    planned_on: Identity
    edits: tuple[Edit, ...]
    session: SessionName
    planned_at_ns: int
    # The new bytes are late lines, which exist nowhere else, so that undo would lose them.
    carries_late: bool = False
    # The mtime stays, or the program would take the session for its most recent.
    keeps_mtime: bool = False
    # The program keeps byte offsets into the file, so no line may move.
    keeps_length: bool = False

    def __post_init__(self) -> None:
        end = 0
        for edit in self.edits:
            if self.keeps_length and len(edit.new) != edit.length:
                raise ValueError(f"the edit at byte {edit.offset} moves the lines after it")
            if edit.length < 0 or edit.offset < end:
                raise ValueError(f"edits overlap or are out of order at byte {edit.offset}")
            end = edit.offset + edit.length
        if end > self.planned_on.size:
            raise ValueError(f"edits reach byte {end} of a file of {self.planned_on.size}")
