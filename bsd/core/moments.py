"""Future times as users type them, in local time: `tonight`, `+24h`, `2026-11-27T06:00`."""

from __future__ import annotations

from datetime import datetime, timedelta

from bsd.core.errors import Invalid
from bsd.core.formatting import LONGEST, MINUTE, parse_duration, shown

NIGHT_ENDS = 6  # o'clock


def parse_moment(text: str, now: float) -> float:
    """Return the time that a text names, in epoch seconds; not before `now`.

    Args:
        text: `now`; `tonight` (the next 6:00 in the morning); `tomorrow` (the end of tomorrow);
            `+24h` (from now); or an ISO 8601 date, with or without a time.
        now: epoch seconds.

    Raises:
        Invalid: the text has another form, or the time has passed or is more than 52 weeks away.
    """
    word = text.strip().casefold()
    here = datetime.fromtimestamp(now).astimezone()
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    match word:
        case "now":
            return now
        case "tonight":
            end = midnight + timedelta(hours=NIGHT_ENDS)
            naive = here.replace(tzinfo=None)
            return (end if naive < end else end + timedelta(days=1)).timestamp()
        case "tomorrow":
            return (midnight + timedelta(days=2)).timestamp()
    if word.startswith("+"):
        return now + parse_duration(word[1:], minimum=MINUTE) / 1000
    try:
        moment = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise Invalid(
            f"{shown(text)} is not a time",
            hint="tonight, tomorrow, +24h, 2026-11-27 or 2026-11-27T06:00",
        ) from None
    if not now <= moment <= now + LONGEST / 1000:
        when = "has passed" if moment < now else "is more than 52 weeks away"
        raise Invalid(f"{shown(text)} {when}", hint="tonight, +24h, or a later date")
    return moment
