"""Waiting until a condition holds, with a deadline; and how long anything in the suite may take.

A deadline ends a test that hangs and shows the place. It is no measure of speed: a test must
pass on a machine that is twenty times slower, so all limits come from one generous figure. No
test asserts how long a step took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# The longest wait for one condition, process or answer. `timeout` in pyproject.toml, which ends a
# whole test, is three times as long.
DEADLINE_SECONDS = 300.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.25  # seconds; constant checking is load, too

Found = TypeVar("Found")


def wait_for(look: Callable[[], Found], what: str = "it") -> Found:
    """Wait until `look` finds something true, and return it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = _SHORTEST_PAUSE
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, _LONGEST_PAUSE)
    return found
