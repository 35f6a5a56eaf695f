"""Past times as users type them: `yesterday`, `today`, `2h`, `14:30`, `2026-11-25`."""

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
    """Return the time (epoch seconds) that a text names.

    `today` and `yesterday` mean midnight in this machine's time zone, which also applies to times
    without a zone. A duration such as `2h` or `1d12h` is subtracted from `now`. `14:30` is the most
    recent time at which the clock showed 14:30.

    Args:
        now: epoch seconds.
        field: the name of the input, for the error.

    Raises:
        Invalid: the text is not a time, or names a time in the future.
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
        raise _invalid(f"{text[:40]!r} is not a time in the past", field)
    if moment > now:
        raise _invalid(f"{text[:40]!r} is in the future", field)
    return moment


def parse_until(text: str, now: float) -> float:
    """Return the end (epoch seconds) of the period that a text names.

    For a day (`today`, `yesterday`, a date) this is the midnight after it; for any other text it is
    the time itself, as `parse_past` returns it.

    Raises:
        Invalid: the text is not a time, or names a time in the future.
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
    # A day does not always have 24 hours, so the time zone is applied last.
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
