"""Damaged lines of a session, which contain no entry: their numbers, and the kind of damage.

Programs and machines stop in the middle of a line, append to a torn line, or leave zero bytes in
place of text. bsd keeps such lines byte for byte; this module counts and classifies them. The
functions are pure.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from bsd.transcripts.reader import Line, is_too_large, parse_kept

MOST_LISTED = 20  # number of damaged lines listed per session
_LARGEST_LOOKED_AT = 4 << 20  # bytes; longer lines are not classified in detail
_MOST_TRIED = 64  # number of places at which a second entry may begin
_BEGINNING = re.compile(rb'\{"')
_INSIDE = b":,["  # bytes before an object that is part of another object
_SPACE = b" \t\r\n"


class Damage(StrEnum):
    """The kind of damage of a line."""

    TORN = "torn"  # part of an entry
    GLUED = "glued"  # several entries, the first of which may be torn
    ZEROS = "zeros"  # zero bytes, alone or beside text
    OTHER = "other"  # text that is not a JSON object

    @property
    def in_words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Damage.TORN: "torn",
    Damage.GLUED: "several entries in one line",
    Damage.ZEROS: "zero bytes",
    Damage.OTHER: "not a JSON object",
}


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A damaged line."""

    index: Annotated[int, Field(description="0-based line number")]
    damage: Damage


@dataclass(frozen=True, slots=True)
class DamagedLines:
    """The damaged lines of a session, which stay as they are."""

    count: int = 0
    lines: Annotated[
        tuple[DamagedLine, ...], Field(description=f"The first {MOST_LISTED} of them")
    ] = ()

    def in_words(self) -> str:
        """Return a phrase with the numbers of the damaged lines; empty if there are none."""
        if not self.count:
            return ""
        numbers: dict[Damage, list[str]] = defaultdict(list)
        for line in self.lines:
            numbers[line.damage].append(str(line.index))
        kinds = [f"{damage.in_words} ({', '.join(numbers[damage])})" for damage in numbers]
        if self.count > len(self.lines):
            kinds.append(f"and {self.count - len(self.lines):,} more")
        lines = "1 damaged line" if self.count == 1 else f"{self.count:,} damaged lines"
        kept = "kept as it is" if self.count == 1 else "kept as they are"
        return f"{lines}: {', '.join(kinds)}; {kept}"


def is_damaged(raw: bytes, entry: Any) -> bool:
    """Return whether a line is damaged; `entry` is the result of `parse_entry` for it.

    Blank lines, and lines that would take too much memory to parse, are not damaged.
    """
    return entry is None and bool(raw.strip()) and not is_too_large(raw)


def damage_of(raw: bytes) -> Damage:
    """Return the kind of damage of a damaged line."""
    if b"\0" in raw:  # valid JSON escapes them
        return Damage.ZEROS
    text = raw.strip(_SPACE)
    if len(text) <= _LARGEST_LOOKED_AT:
        behind = _behind_first_object(text)
        if behind == "":  # a complete object with values that JSON does not allow
            return Damage.OTHER
        if (behind or "").startswith("{") or _has_second_entry(text):
            return Damage.GLUED
    return Damage.TORN if text.startswith(b"{") or text.endswith(b"}") else Damage.OTHER


class DamageCount:
    """Counts the damaged lines of a session that is read line by line."""

    def __init__(self) -> None:
        self._count = 0
        self._listed: list[DamagedLine] = []

    def look_at(self, line: Line, entry: Any) -> None:
        """Count a line if it is damaged; `entry` is the result of `parse_entry` for it."""
        if not is_damaged(line.raw, entry):
            return
        self._count += 1
        if len(self._listed) < MOST_LISTED:
            self._listed.append(DamagedLine(line.index, damage_of(line.raw)))

    @property
    def lines(self) -> DamagedLines:
        """The damaged lines counted so far."""
        return DamagedLines(self._count, tuple(self._listed))


def _has_second_entry(text: bytes) -> bool:
    """Return whether an entry follows the rest of another entry."""
    tried = 0
    for found in _BEGINNING.finditer(text, 1):
        start = found.start()
        if text[start - 1] in _INSIDE + _SPACE:
            continue
        if parse_kept(text[start:]) is not None:
            return True
        tried += 1
        if tried == _MOST_TRIED:
            break
    return False


def _behind_first_object(text: bytes) -> str | None:
    """Return the text after the object at the beginning; None if that object does not end."""
    if not text.startswith(b"{"):
        return None
    try:
        decoded = text.decode("utf-8", "surrogateescape")
        _, end = json.JSONDecoder().raw_decode(decoded)
    except (ValueError, RecursionError):
        return None
    return decoded[end:].lstrip()
