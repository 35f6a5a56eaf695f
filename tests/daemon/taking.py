"""A queue that is asked at times chosen by the test."""

from __future__ import annotations

from bsd.core.layout import SessionName
from bsd.daemon.queue import WorkQueue


def take_at(queue: WorkQueue, now: float) -> SessionName | None:
    """Take a session if one is ready at `now`; this becomes the queue's time."""
    queue._clock = lambda: now
    return queue.take(0)
