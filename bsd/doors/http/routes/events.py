"""What happens, as it happens: `/api/events` (server-sent events)."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Response
from starlette.types import Receive, Scope, Send

from bsd.doors.http.feed import STOPPING, Feed, Listener

_SIGN_OF_LIFE_SECONDS = 20.0  # proxies close what is silent for a minute
_HEAD: list[tuple[bytes, bytes]] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back
]
_EXAMPLE = 'event: session\ndata: {"type":"session","at":"2026-11-22T10:02:00.000Z"}\n\n'


def routes(feed: Feed) -> APIRouter:
    router = APIRouter(tags=["events"])

    @router.get(
        "/api/events",
        response_model=None,
        response_class=Response,
        responses={
            200: {
                "description": "Events of type session, job, config, state; `lost` says how many "
                "a slow listener has missed",
                "content": {
                    "text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}
                },
            }
        },
    )
    async def events() -> Response:
        """What happens from now on, until the server stops."""
        return _Stream(feed)

    return router


class _Stream(Response):
    """Sends events until the listener hangs up or the server stops."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feed.listen() as listener:
            await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
            await send(_part(b": listening\n\n"))
            ends = [asyncio.ensure_future(_end_when_gone(receive, listener))]
            if stopping := scope.get("state", {}).get(STOPPING):
                ends.append(asyncio.ensure_future(_end_at(stopping, listener)))
            try:
                await _send_all(listener, send)
            finally:
                for end in ends:
                    end.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_all(listener: Listener, send: Send) -> None:
    while True:
        try:
            event = await asyncio.wait_for(listener.get(), _SIGN_OF_LIFE_SECONDS)
        except TimeoutError:
            await send(_part(b": still here\n\n"))
            continue
        if lost := listener.take_lost():
            await send(_part(_told("lost", {"type": "lost", "lost": lost})))
        if event is None:
            return
        await send(_part(_told(event.type, event.as_json())))


async def _end_when_gone(receive: Receive, listener: Listener) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.end()


async def _end_at(stopping: asyncio.Event, listener: Listener) -> None:
    await stopping.wait()
    listener.end()


def _told(type: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), orjson.dumps(data, default=str))


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
