"""Cron expressions: five fields (minute hour day month weekday), or a name such as `@hourly`.

CronSim computes the times. This module adds the names and two forms that CronSim does not read:
ranges that pass the end of their field (`22-6`, `fri-mon`) and `?` for `*`. It knows no time zones:
`bsd.daemon.cron` handles the change of clocks.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsim import CronSim, CronSimError

_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class _Field(NamedTuple):
    first: int
    last: int
    words: list[str]  # of `first` and the values after it


_FIELDS = [
    _Field(0, 59, []),
    _Field(0, 23, []),
    _Field(1, 31, []),
    _Field(1, 12, _MONTHS),
    _Field(0, 6, _WEEKDAYS),
]
_DAY, _WEEKDAY = 2, 4
_RANGE = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?", re.ASCII)


def cron_times(expression: str, after: datetime) -> CronSim:
    """Return an iterator of the times after `after`, which has no time zone.

    The iterator ends if no time comes within 50 years. If both day and weekday are limited, a day
    needs to match only the first or only the second.

    Raises:
        ValueError: this is no cron expression, or it names a day that no month has.
    """
    text = _NAMES.get(expression.strip().lower(), expression).upper()
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError("a cron expression has five fields, or is @hourly, @daily, @weekly, …")
    try:
        return CronSim(" ".join(map(_rewritten, range(len(fields)), fields)), after)
    except CronSimError as problem:
        raise ValueError(str(problem)) from None


def matches(expression: str, moment: datetime) -> bool:
    """Return whether a whole minute is a time of the expression."""
    return next(cron_times(expression, moment - timedelta(minutes=1)), None) == moment


def is_in_every_hour(expression: str) -> bool:
    """Return whether no hour of the day is left out."""
    return len(cron_times(expression, datetime(2024, 1, 1)).hours) == 24  # noqa: DTZ001


def _rewritten(number: int, field: str) -> str:
    if field == "?" and number in {_DAY, _WEEKDAY}:
        return "*"
    return ",".join(_rewritten_term(number, term) for term in field.split(","))


def _rewritten_term(number: int, term: str) -> str:
    """Return a term as CronSim reads it; unchanged if it is not a range or has no step."""
    first, last, words = _FIELDS[number]
    if number == _WEEKDAY and re.fullmatch("L[0-7]", term):
        return f"{term[1]}L"
    found = _RANGE.fullmatch(term)
    if found is None or (found[2] is None and found[3] is None):
        return term
    low = first if found[1] == "*" else _value(found[1], first, words)
    high = last if found[2] is None else _value(found[2], first, words)
    step = int(found[3] or 1)
    if found[1] == "*" and step == 1:
        return "*"
    if number == _WEEKDAY and low == 7 and high is not None:  # Sunday, as 0
        low, high = 0, high % 7
    if low is None or high is None or max(low, high) > last + (number == _WEEKDAY) or not step:
        return term  # CronSim refuses it
    values = [*range(low, high + 1)] or [*range(low, last + 1), *range(first, high + 1)]
    return ",".join(map(str, values[::step]))


def _value(text: str, first: int, words: list[str]) -> int | None:
    if text in words:
        return first + words.index(text)
    return int(text) if text.isdecimal() else None
