"""Lines of a transcript with their offsets, never the whole file in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it stands in the file."""

    index: int  # 0-based line number, all lines counted
    offset: int  # bytes from the start of the file
    raw: bytes  # with its line end, if it has one
