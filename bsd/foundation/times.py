"""Moments: the one form in which bsd writes them, and how well files tell them."""

from __future__ import annotations

from datetime import UTC, datetime

# Within this time of a change to a file a second one may not show in its timestamps.
UNCERTAIN_SECONDS = 2.0
UNCERTAIN_NS = int(UNCERTAIN_SECONDS * 1e9)


def iso_utc(moment: float | datetime) -> str:
    """Write epoch seconds, or an aware datetime, as `2026-11-21T22:16:05.123Z`."""
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    elif moment.tzinfo is None:
        raise ValueError("a moment without a time zone could be any of two dozen")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
