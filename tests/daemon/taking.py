"""A queue that is asked at times of a test's choosing."""

from __future__ import annotations

from bsd.core.layout import SessionName
from bsd.daemon.queue import WorkQueue


def take_at(queue: WorkQueue, now: float) -> SessionName | None:
    """Take a session if one is ready at `now`; from then on that is the time at the queue."""
    queue._clock = lambda: now
    return queue.take(0)
