"""What bsd takes on disk, in words; for `bsd status` and whoever leaves something in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from bsd.doors.cli.text import counted, size

_PARTS = {
    "store": "store",
    "history": "history",
    "trash": "trash",
    "orphans": "orphans",
    "databases": "databases",
    "others": "settings and audit",
    "log": "log",
}


def disk_lines(disk: Mapping[str, Any], now: float) -> Iterator[str]:
    """What all of it takes, what of it goes by itself soon, and what was saved; epoch seconds."""
    parts = [f"{name} {size(disk[key])}" for key, name in _PARTS.items() if disk[key]]
    in_flight = disk["in_flight"]
    if in_flight["bytes"]:
        parts.append(f"in flight {size(in_flight['bytes'])}")
    yield f"{size(disk['total'])}{': ' if parts else ''}{', '.join(parts)}"
    if in_flight["files"]:
        yield in_flight_line(in_flight, now)
    if disk["saved"]:
        net = disk["net"]
        word = "more than it takes" if net >= 0 else "less than it takes"
        yield f"sessions are {size(disk['saved'])} shorter: {size(abs(net))} {word}"


def in_flight_line(in_flight: Mapping[str, Any], now: float) -> str:
    """Which replaced versions of sessions are still there, and when they go."""
    what = f"{counted(in_flight['files'], 'replaced version')} of sessions"
    due_at = in_flight["due_at"]
    left = datetime.fromisoformat(due_at).timestamp() - now if due_at else 0.0
    when = f"in {max(1, round(left))} s" if left > 0 else "now"
    return f"{what} ({size(in_flight['bytes'])}) may go {when}: by the daemon, or the next command"
