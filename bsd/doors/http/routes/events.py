"""What happens, as it happens: `/api/events` (server-sent events)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from bsd.doors.http.feed import STOPPING, EventStream, Feed

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
    async def events(request: Request) -> Response:
        """What happens from now on, until the server stops."""
        return EventStream(feed.listen(request.scope.get("state", {}).get(STOPPING)))

    return router
