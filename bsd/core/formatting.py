"""Reading and writing of times, durations, sizes, JSON and values that users type.

Times are always written as `2026-11-21T22:16:05.123Z`. Durations are `30m`, `24h`, `1d12h`, `2w`
(SPEC §4). The lifetimes of facts are also here, since settings and memory both need them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from bsd.core.errors import Invalid

# Milliseconds.
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

# Default bounds of durations.
SHORTEST = 30 * MINUTE
LONGEST = 52 * WEEK

NEVER = "never"

_LETTERS = {"w": (WEEK, "week"), "d": (DAY, "day"), "h": (HOUR, "hour"), "m": (MINUTE, "minute")}
_PART = re.compile(r"([0-9]+)([mhdw])", re.IGNORECASE)
_WHOLE = re.compile(r"\s*[0-9]+[mhdw](?:\s*[0-9]+[mhdw])*\s*", re.IGNORECASE)
# A longer number exceeds every bound, and converting it takes long.
_MOST_DIGITS = 16

_UNITS = ("KB", "MB", "GB", "TB", "PB")

_NEAR = 0.7
_SHOWN = 40  # characters of a bad value


def iso_utc(moment: float | datetime) -> str:
    """Write epoch seconds, or an aware datetime, as `2026-11-21T22:16:05.123Z`."""
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    elif moment.tzinfo is None:
        raise ValueError("a time without a time zone is ambiguous")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
        total += number * _LETTERS[unit][0]
    if total < minimum:
        raise Invalid(f"Duration too short: {_cut(text)}. Minimum: {_spell(minimum)}")
    if total > maximum:
        raise Invalid(f"Duration too long: {_cut(text)}. Maximum: {_spell(maximum)}")
    return total


def lifetime_seconds(text: str, *, minimum: int = SHORTEST, maximum: int = LONGEST) -> float | None:
    """Return a lifetime in seconds; None for `never` (no expiry). Raises Invalid."""
    if text.strip().casefold() == NEVER:
        return None
    return parse_duration(text, minimum=minimum, maximum=maximum) / 1000


def format_duration(ms: int) -> str:
    """Write milliseconds as `2d 4h`, which `parse_duration` reads; rounds down to minutes."""
    if ms < 0:
        raise ValueError(f"a duration is not negative: {ms} ms")
    parts = []
    for letter, (size, _) in _LETTERS.items():
        number, ms = divmod(ms, size)
        if number:
            parts.append(f"{number}{letter}")
    return " ".join(parts) or "0m"


def _spell(ms: int) -> str:
    """Write a bound in words and in the form to type: `30 minutes (30m)`."""
    for letter, (size, name) in _LETTERS.items():
        number, rest = divmod(ms, size)
        if number and not rest:
            return f"{number} {name}{'s' if number > 1 else ''} ({number}{letter})"
    return format_duration(ms)


def _not_a_duration(text: str) -> Invalid:
    return Invalid(
        f"Invalid duration '{_cut(text)}'. Use m, h, d, or w",
        hint="write a number and a unit, as in 30m, 24h, 7d, 2w or 1d12h",
    )


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def format_size(count: int) -> str:
    """Write a number of bytes: `999 B`, `1.2 MB` (1 KB is 1024 bytes)."""
    if abs(count) < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in _UNITS:
        amount /= 1024
        if abs(amount) < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{amount:.1f} {unit}"


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if a name in `known` is very similar to `word`, else ""."""
    near = _closest(word, known, _NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name in `known` (not empty) that is most similar to `word`."""
    folded = {name.casefold(): name for name in known}
    return folded[_closest(word, folded, 0.0)[0]]


def _closest(word: str, known: Iterable[str], cutoff: float) -> list[str]:
    return difflib.get_close_matches(word.casefold(), known, n=1, cutoff=cutoff)


def shown(value: object) -> str:
    """Return a bad value roughly as the user wrote it, truncated if it is long."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        return f"'{text}'" if text.isprintable() else ascii(text)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    try:
        return json.dumps(value)[:_SHOWN]
    except (TypeError, ValueError):
        return "that"


def document(content: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return JSON; the content may have lone surrogates and huge integers, as transcripts do.

    `default` converts a value that JSON cannot express; without it, `str` does.
    """
    try:
        return orjson.dumps(content, default, orjson.OPT_NON_STR_KEYS)
    except TypeError:  # json is slower than orjson, but writes more values
        return json.dumps(content, default=default or str, skipkeys=True).encode()


# --- facts of agents, by their decay class (seed 002) ---

# Seconds; None: never expires.
LIFETIMES: dict[str, int | None] = {
    "permanent": None,
    "stable": 90 * DAY // 1000,
    "active": 14 * DAY // 1000,
    "session": 24 * HOUR // 1000,
    "checkpoint": 4 * HOUR // 1000,
}
# Facts of these classes are refreshed when they are recalled.
REFRESHED = ("stable", "active")
# Languages that can be enabled beside English, which is always enabled.
LANGUAGES = ("de", "fr")
