"""What no verb answers: the agents, and entries as they are spelled or streamed from the store.

`{entry}` is an id; if it is all digits and no such id exists, the index; `%23n` always is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from starlette.responses import StreamingResponse

from bsd.care import catalog
from bsd.care.catalog import Agents
from bsd.doors.http.answer import JsonAnswer, reading
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk, entry_name
from bsd.doors.http.extracted import Content, open_content
from bsd.session.session import Session
from bsd.surgery.edit import show_entry
from bsd.surgery.view import ExtractedContent

_ENTRY = "/api/sessions/{agent}/{session}/entries/{entry}"


def routes(desk: Desk) -> APIRouter:
    router = APIRouter()
    _agents(router, desk)
    _entry(router, desk)
    _content(router, desk)
    return router


def _agents(router: APIRouter, desk: Desk) -> None:
    @router.get("/api/agents", tags=["sessions"], responses=answers(Agents))
    async def agents() -> Response:
        """All agents, those whose sessions are left alone included."""
        found = await reading(catalog.agents, desk.layout)
        return JsonAnswer(Agents(tuple(found)).as_json())


def _entry(router: APIRouter, desk: Desk) -> None:
    @router.get(_ENTRY, tags=["entries"], responses=answers("EntryDocument"))
    async def entry(agent: str, session: str, entry: str) -> Response:
        """A whole entry as it stands, for reading and editing."""

        def look() -> bytes:
            source, fmt = Session(desk.layout, desk.named(agent, session)).open()
            with source:
                shown = show_entry(source, fmt, entry_name(entry))
            head = {"entry_id": shown.entry_id, "index": shown.index, "seen": shown.seen}
            # The entry as it is spelled: numbers keep all their digits.
            return bytes(JsonAnswer(head).body)[:-1] + b',"entry":' + shown.text.encode() + b"}"

        return Response(await reading(look), media_type="application/json")


def _content(router: APIRouter, desk: Desk) -> None:
    @router.get(
        _ENTRY + "/extracted",
        tags=["entries"],
        responses=answers(ExtractedContent),
    )
    async def extracted(agent: str, session: str, entry: str) -> Response:
        """What was taken out of an entry, without putting it back."""

        def look() -> Content:
            return open_content(desk.layout, desk.named(agent, session), entry_name(entry))

        content = await reading(look)
        size = {"content-length": str(content.size)}
        return StreamingResponse(_pieces(content), media_type="application/json", headers=size)


async def _pieces(content: Content) -> AsyncIterator[bytes]:
    try:
        pieces = content.pieces()
        while (piece := await reading(next, pieces, None)) is not None:
            yield piece
    finally:
        content.close()
