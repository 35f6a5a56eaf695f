"""Moments in the past as people name them: `yesterday`, `today`, `2h`, `14:30`, `2026-11-25`."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from bsd.core.errors import FieldError, Invalid
from bsd.core.formatting import MINUTE, WEEK, parse_duration

FORMS = "yesterday, today, 2h, 3d, 14:30, 2026-11-25 or 2026-11-25T14:30"
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_DATE = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}")
_LONGEST_AGO = 5200 * WEEK  # milliseconds: a hundred years


def parse_past(text: str, now: float, field: str = "since") -> float:
    """Return the moment (epoch seconds) that a text names.

    `today` and `yesterday` begin at midnight of this machine's time zone, in which moments without
    a zone are read, too. A length of time such as `2h` or `1d12h` is that long ago. `14:30` is the
    last time that the clock said so.

    Args:
        now: epoch seconds.
        field: the name of the input, for the error.

    Raises:
        Invalid: the text names no moment, or one in the future.
    """
    words = text.strip()
    here = datetime.fromtimestamp(now).astimezone()
    moment = _day(words, here)
    if moment is None:
        moment = _clock_time(words, here)
    if moment is None:
        moment = _calendar(words)
    if moment is None:
        moment = _ago(words, now)
    if moment is None:
        raise _invalid(f"{text[:40]!r} is no moment in the past", field)
    if moment > now:
        raise _invalid(f"{text[:40]!r} is in the future", field)
    return moment


def parse_until(text: str, now: float) -> float:
    """Return the moment (epoch seconds) at which the time ends that a text names.

    A day ends at its midnight, `today` and a date among them; any other text names the moment
    itself, as `parse_past` reads it.

    Raises:
        Invalid: the text names no moment, or one in the future.
    """
    moment = parse_past(text, now, "until")
    words = text.strip().casefold()
    if words not in {"today", "yesterday"} and not _DATE.fullmatch(words):
        return moment
    date = datetime.fromtimestamp(moment).astimezone().date() + timedelta(days=1)
    return datetime(date.year, date.month, date.day).astimezone().timestamp()


def _day(words: str, here: datetime) -> float | None:
    days = {"today": 0, "yesterday": 1}.get(words.casefold())
    if days is None:
        return None
    date = here.date() - timedelta(days=days)
    # A day does not always have 24 hours, so the time zone comes last.
    return datetime(date.year, date.month, date.day).astimezone().timestamp()


def _clock_time(words: str, here: datetime) -> float | None:
    found = _CLOCK.fullmatch(words)
    if found is None:
        return None
    clock = time(int(found[1]), int(found[2]))
    moment = datetime.combine(here.date(), clock).astimezone()
    if moment > here:
        moment = datetime.combine(here.date() - timedelta(days=1), clock).astimezone()
    return moment.timestamp()


def _calendar(words: str) -> float | None:
    try:
        return datetime.fromisoformat(words).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _ago(words: str, now: float) -> float | None:
    try:
        return now - parse_duration(words, minimum=MINUTE, maximum=_LONGEST_AGO) / 1000
    except Invalid:
        return None


def _invalid(message: str, field: str) -> Invalid:
    return Invalid(message, hint=f"one of {FORMS}", errors=(FieldError(field, message),))
