"""What happens, as it happens: `/api/events` (server-sent events).

Each connection takes the daemon's events from its own subscription.

Streamed by Starlette's own response: sse-starlette wakes the process twice a second from its first
listener on and replaces a method of uvicorn's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bsd.daemon.status import Event, Service
from bsd.doors.http.answer import STOPPING
from bsd.doors.http.verb_routes import ApiRoute
from bsd.foundation.errors import Unavailable

MOST_LISTENERS = 32
_SIGN_OF_LIFE_SECONDS = 20.0  # proxies close what is silent for a minute
_EXAMPLE = 'event: session\ndata: {"type":"session","at":"2026-11-22T10:02:00.000Z"}\n\n'
_TYPE = "text/event-stream"
_STREAM = {
    "description": "Events of type session, job, config, state; `lost` says how many a slow "
    "listener has missed",
    "content": {_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
}
_HEADERS = {"x-accel-buffering": "no"}  # nginx would keep events back


class Feed:
    """All connections that listen, of one event loop; call it there."""

    def __init__(self, daemon: Service) -> None:
        self._daemon = daemon
        self._listeners: set[Listener] = set()

    def listen(self, stopping: asyncio.Event | None) -> Listener:
        """Listen until it is closed, or the server stops; raises Unavailable if too many do."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise Unavailable(
                f"{MOST_LISTENERS} connections listen already", hint="close one of them"
            )
        listener = Listener(self._daemon, stopping, self._listeners.discard)
        self._listeners.add(listener)
        return listener


class Listener:
    """The events for one connection."""

    def __init__(
        self,
        daemon: Service,
        stopping: asyncio.Event | None,
        forget: Callable[[Listener], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._forget = forget
        self._subscription = daemon.subscribe(self._wake)
        self._end = asyncio.ensure_future(self._end_at(stopping)) if stopping else None

    async def get(self) -> Event | None:
        """Wait for the next event; None when there will be no more."""
        while True:
            self._changed.clear()
            closed = self._subscription.closed
            if (event := self._subscription.take()) or closed:
                return event
            await self._changed.wait()

    def take_lost(self) -> int:
        """How many events were lost, because they were not taken, since it was last asked."""
        return self._subscription.take_lost()

    def close(self) -> None:
        """Listen no more."""
        self._forget(self)
        self._subscription.close()
        if self._end:
            self._end.cancel()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _end_at(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._subscription.close()


class EventStream(StreamingResponse):
    """Sends events until the other side hangs up, or there will be no more."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(_parts(listener), media_type=_TYPE, headers=_HEADERS)
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listener.close()


async def _parts(listener: Listener) -> AsyncIterator[bytes]:
    yield b": listening\n\n"
    while True:
        try:
            event = await asyncio.wait_for(listener.get(), _SIGN_OF_LIFE_SECONDS)
        except TimeoutError:
            yield b": still here\n\n"
            continue
        if lost := listener.take_lost():
            yield _part("lost", {"type": "lost", "lost": lost})
        if event is None:
            return
        yield _part(event.type, event.as_json())


def _part(type: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), orjson.dumps(data, default=str))


def routes(daemon: Service) -> list[ApiRoute]:
    feed = Feed(daemon)

    async def events(request: Request) -> Response:
        """What happens from now on, until the server stops."""
        if request.method == "HEAD":  # which has no use for a body without end
            return Response(media_type=_TYPE, headers=_HEADERS)
        return EventStream(feed.listen(request.scope.get("state", {}).get(STOPPING)))

    return [ApiRoute.of("GET /api/events", events, "events", _STREAM)]
