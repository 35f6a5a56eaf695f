"""Server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from bsd.daemon.status import Event, Subscription
from bsd.http.dependencies import DaemonService

router = APIRouter(prefix="/api", tags=["events"])


class Listener:
    """The events of one connection."""

    def __init__(self, daemon: DaemonService) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.subscription: Subscription = daemon.state.events.subscribe(self._wake)

    async def next_event(self) -> Event | None:
        """Wait for the next event; None if the daemon has ended the subscription."""
        while True:
            self._changed.clear()
            closed = self.subscription.closed
            if (event := self.subscription.take()) or closed:
                return event
            await self._changed.wait()

    def _wake(self) -> None:
        """Called by the thread that publishes."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)


async def _listen(daemon: DaemonService) -> AsyncIterator[Listener]:
    listener = Listener(daemon)
    try:
        yield listener
    finally:
        listener.subscription.close()


@router.get("/events", response_class=EventSourceResponse)
async def events(listener: Annotated[Listener, Depends(_listen)]) -> AsyncIterator[ServerSentEvent]:
    """Stream events until the server stops; earlier events are not sent.

    Types of events: session, job, config, state. `lost` gives the number of events that a slow
    listener has missed.
    """
    yield ServerSentEvent(comment="listening")
    while event := await listener.next_event():
        if lost := listener.subscription.take_lost():
            yield ServerSentEvent(event="lost", data={"type": "lost", "lost": lost})
        yield ServerSentEvent(event=event.type, data=event.as_json())
