"""Hands events on to connections: one thread for all of them, and none while nobody listens."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from bsd.foundation.errors import Unavailable

STOPPING = "stopping"  # in the state of a request: the asyncio.Event that the server ends
MOST_LISTENERS = 32
_MOST_WAITING = 1000


class Event(Protocol):
    """Something that happened (`bsd.daemon.events.Event`)."""

    @property
    def type(self) -> str: ...

    def as_json(self) -> dict[str, Any]: ...


class Subscription(Protocol):
    """Events in order (`bsd.daemon.events.Subscription`)."""

    def get(self) -> Event | None:
        """Wait for the next event; None when closed."""
        ...

    def close(self) -> None: ...


class Listener:
    """The events for one connection; whoever takes too few of them loses the oldest."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._changed = asyncio.Event()
        self._ended = False
        self._lost = 0

    async def get(self) -> Event | None:
        """Wait for the next event; None when there will be no more."""
        await self._changed.wait()
        event = self._events.popleft() if self._events else None
        if not self._events and not self._ended:
            self._changed.clear()
        return event

    def take_lost(self) -> int:
        """How many events were lost since it was last asked."""
        lost, self._lost = self._lost, 0
        return lost

    def put(self, event: Event) -> None:
        self._lost += len(self._events) == _MOST_WAITING
        self._events.append(event)
        self._changed.set()

    def end(self) -> None:
        """Let whoever listens go, once the events that are there are taken."""
        self._ended = True
        self._changed.set()


class Feed:
    """All connections that listen. Belongs to one event loop at a time; call it there."""

    def __init__(self, subscribe: Callable[[], Subscription]) -> None:
        self._subscribe = subscribe
        self._subscription: Subscription | None = None
        self._listeners: list[Listener] = []

    @contextmanager
    def listen(self) -> Iterator[Listener]:
        """Listen for as long as the block lasts; raises Unavailable if too many do."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise Unavailable(
                f"{MOST_LISTENERS} connections listen already", hint="close one of them"
            )
        listener = Listener()
        self._listeners.append(listener)
        try:
            if self._subscription is None:
                self._subscription = subscription = self._subscribe()
                loop = asyncio.get_running_loop()
                threading.Thread(
                    target=self._pump, args=(loop, subscription), name="bsd-events", daemon=True
                ).start()
            yield listener
        finally:
            self._listeners.remove(listener)
            if not self._listeners and self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _pump(self, loop: asyncio.AbstractEventLoop, subscription: Subscription) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while (event := subscription.get()) is not None:
                loop.call_soon_threadsafe(self._hand_on, subscription, event)
            loop.call_soon_threadsafe(self._hand_on, subscription, None)

    def _hand_on(self, subscription: Subscription, event: Event | None) -> None:
        if subscription is not self._subscription:
            return  # what those who listen now have subscribed to came later
        for listener in self._listeners:
            if event is None:
                listener.end()
            else:
                listener.put(event)
