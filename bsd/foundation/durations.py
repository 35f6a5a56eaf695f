"""Durations as people write them: `30m`, `24h`, `1d12h`, `2w` (SPEC §4)."""

from __future__ import annotations

import re

from bsd.foundation.errors import Invalid

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

SHORTEST = 30 * MINUTE
LONGEST = 52 * WEEK

_UNITS = {"w": (WEEK, "week"), "d": (DAY, "day"), "h": (HOUR, "hour"), "m": (MINUTE, "minute")}
_PART = re.compile(r"([0-9]+)([mhdw])", re.IGNORECASE)
_WHOLE = re.compile(r"\s*[0-9]+[mhdw](?:\s*[0-9]+[mhdw])*\s*", re.IGNORECASE)
# More digits than this are beyond every bound, and turning them into a number takes long.
_MOST_DIGITS = 16


def parse_duration(text: str, *, minimum: int = SHORTEST, maximum: int = LONGEST) -> int:
    """Return the milliseconds that `text` stands for; bounds are in milliseconds, inclusive.

    Raises Invalid for anything but numbers with the units m, h, d, w (each at most once), and
    for a duration out of bounds.
    """
    if not _WHOLE.fullmatch(text):
        raise _not_a_duration(text)
    total = 0
    seen = set()
    for digits, letter in _PART.findall(text):
        unit = letter.lower()
        if unit in seen:
            raise _not_a_duration(text)
        seen.add(unit)
        number = int((digits.lstrip("0") or "0")[:_MOST_DIGITS])
        total += number * _UNITS[unit][0]
    if total < minimum:
        raise Invalid(f"Duration too short: {_short(text)}. Minimum: {_spell(minimum)}")
    if total > maximum:
        raise Invalid(f"Duration too long: {_short(text)}. Maximum: {_spell(maximum)}")
    return total


def format_duration(ms: int) -> str:
    """Write milliseconds as `2d 4h`, which `parse_duration` reads; a part of a minute is cut."""
    if ms < 0:
        raise ValueError(f"a duration is not negative: {ms} ms")
    parts = []
    for letter, (size, _) in _UNITS.items():
        number, ms = divmod(ms, size)
        if number:
            parts.append(f"{number}{letter}")
    return " ".join(parts) or "0m"


def _spell(ms: int) -> str:
    """A bound in words and as one would type it: `30 minutes (30m)`."""
    for letter, (size, name) in _UNITS.items():
        number, rest = divmod(ms, size)
        if number and not rest:
            return f"{number} {name}{'s' if number > 1 else ''} ({number}{letter})"
    return format_duration(ms)


def _not_a_duration(text: str) -> Invalid:
    return Invalid(
        f"Invalid duration '{_short(text)}'. Use m, h, d, or w",
        hint="write a number and a unit, as in 30m, 24h, 7d, 2w or 1d12h",
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
