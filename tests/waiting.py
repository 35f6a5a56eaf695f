"""Waiting for what somebody else does: until it is so, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_SECONDS = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.25  # seconds; who looks all the time is work, too

Found = TypeVar("Found")


def wait_for(
    look: Callable[[], Found], what: str = "it", seconds: float = DEADLINE_SECONDS
) -> Found:
    """Wait until `look` finds something true, and return it."""
    deadline = time.monotonic() + seconds
    pause = _SHORTEST_PAUSE
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, _LONGEST_PAUSE)
    return found
