"""What happens, told to whoever listens; a slow listener delays nobody and loses the oldest."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsd.foundation.times import iso_utc

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
    """Events in order, for one listener."""

    def __init__(self, end: Callable[[Subscription], None]) -> None:
        self._end = end
        self._changed = threading.Condition()
        self._events: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._closed = False
        self.lost = 0  # events that were dropped since nobody took them

    def get(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None after `timeout` seconds or when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed, timeout)
            return self._events.popleft() if self._events else None

    def get_nowait(self) -> Event | None:
        """Take the next event if there is one."""
        with self._changed:
            return self._events.popleft() if self._events else None

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End it; whoever waits in `get` returns."""
        self._end(self)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, event: Event) -> None:
        with self._changed:
            self.lost += len(self._events) == _MOST_WAITING
            self._events.append(event)
            self._changed.notify()


class Events:
    """Hands every event to every subscription; costs nothing while nobody listens."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[Subscription] = []

    def subscribe(self) -> Subscription:
        subscription = Subscription(self._forget)
        with self._lock:
            self._listeners.append(subscription)
        return subscription

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
