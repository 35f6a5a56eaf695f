"""Single entries: `/api/sessions/{agent}/{session}/entries…`.

`{entry}` is an id; if it is all digits and no such id exists, the index; `%23n` always is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.description import answers, body
from bsd.doors.http.desk import Desk, entry_name
from bsd.doors.http.edit_wish import EDIT_SCHEMA, read_edit
from bsd.doors.http.extracted import Content, open_content
from bsd.doors.http.routes.threads import changing, reading
from bsd.session.session import Session
from bsd.surgery.edit import Edited, show_entry
from bsd.surgery.view import ExtractedContent

_ENTRY = "/api/sessions/{agent}/{session}/entries/{entry}"


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["entries"])
    _look(router, desk)
    _content(router, desk)
    _changes(router, desk)
    return router


def _look(router: APIRouter, desk: Desk) -> None:
    @router.get(_ENTRY, responses=answers("EntryDocument"))
    async def entry(agent: str, session: str, entry: str) -> Response:
        """A whole entry as it stands, for reading and editing."""

        def look() -> bytes:
            source, fmt = Session(desk.layout, desk.named(agent, session)).open()
            with source:
                shown = show_entry(source, fmt, entry_name(entry))
            head = {"entry_id": shown.entry_id, "index": shown.index, "seen": shown.seen}
            # The entry as it is spelled: numbers keep all their digits.
            return bytes(Answer(head).body)[:-1] + b',"entry":' + shown.text.encode() + b"}"

        return Response(await reading(look), media_type="application/json")


def _content(router: APIRouter, desk: Desk) -> None:
    @router.get(
        _ENTRY + "/extracted",
        responses=answers(ExtractedContent),
    )
    async def extracted(agent: str, session: str, entry: str) -> Response:
        """What was taken out of an entry, without putting it back."""

        def look() -> Content:
            return open_content(desk.layout, desk.named(agent, session), entry_name(entry))

        content = await reading(look)
        size = {"content-length": str(content.size)}
        return StreamingResponse(_pieces(content), media_type="application/json", headers=size)


def _changes(router: APIRouter, desk: Desk) -> None:

    @router.put(
        _ENTRY,
        responses=answers(Edited),
        openapi_extra=body(lambda: EDIT_SCHEMA),
    )
    async def edit(request: Request, agent: str, session: str, entry: str) -> Response:
        """Change values of an entry; all other bytes stay."""
        actor, asked = actor_of(request), read_edit(await request.body())

        def work() -> dict[str, Any]:
            name = desk.named(agent, session)
            return desk.surgeon(actor).edit(name, entry_name(entry), asked.wish, asked.seen)

        return Answer(await changing(work))


async def _pieces(content: Content) -> AsyncIterator[bytes]:
    try:
        pieces = content.pieces()
        while (piece := await reading(next, pieces, None)) is not None:
            yield piece
    finally:
        content.close()
