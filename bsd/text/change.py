"""What a commit is asked to do: bytes to replace in one file, planned on one known state of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName


class Written(NamedTuple):
    """What of a file's state changes when somebody writes, and not when its names change."""

    dev: int
    ino: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Written:
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


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


@immutable
class Edit:
    """Replace the bytes `[offset, offset + length)` of the planned file by `new`.

    One line with its line end; length 0 puts a line in, an empty `new` takes one out.
    """

    offset: int
    length: int
    new: bytes
    was: str | None = None  # `sha256:…` of those bytes, if whoever planned it knows


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
