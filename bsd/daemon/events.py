"""What happens, told to whoever listens; a slow listener delays nobody and loses the oldest."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.foundation.spelling import iso_utc

_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `type` is session, job, config or state."""

    type: str
    at: float  # epoch seconds
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"type": self.type, "at": iso_utc(self.at), **self.data}


class Subscription:
    """Events in order, for one listener, who may take them in any thread."""

    def __init__(self, wake: Callable[[], None], end: Callable[[Subscription], None]) -> None:
        self._wake = wake
        self._end = end
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._closed = False
        self._lost = 0

    def take(self) -> Event | None:
        """The next event if there is one."""
        with self._lock:
            return self._events.popleft() if self._events else None

    def take_lost(self) -> int:
        """How many events were dropped, because nobody took them, since it was last asked."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    @property
    def closed(self) -> bool:
        """Whether no more will come; those that are there can still be taken."""
        return self._closed

    def close(self) -> None:
        """End it, and wake the listener."""
        self._end(self)
        self._closed = True
        self._wake()

    def put(self, event: Event) -> None:
        with self._lock:
            first = not self._events
            self._lost += len(self._events) == _MOST_WAITING
            self._events.append(event)
        if first:
            self._wake()


class Events:
    """Hands every event to every subscription; costs nothing while nobody listens."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[Subscription] = []

    def subscribe(self, wake: Callable[[], None] = lambda: None) -> Subscription:
        """Listen from now on.

        `wake` is called, by whichever thread publishes, when the first event waits to be taken,
        and at the end. It must neither wait nor raise.
        """
        subscription = Subscription(wake, self._forget)
        with self._lock:
            self._listeners.append(subscription)
        return subscription

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def publish(self, type: str, /, **data: Any) -> None:
        """Tell everybody; `data` must be ready for JSON."""
        with self._lock:
            listeners = list(self._listeners)
        if listeners:
            event = Event(type, self._clock(), data)
            for listener in listeners:
                listener.put(event)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()

    def _forget(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._listeners:
                self._listeners.remove(subscription)
