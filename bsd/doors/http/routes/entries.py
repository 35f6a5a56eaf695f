"""Single entries: `/api/sessions/{agent}/{session}/entries…`.

`{entry}` is an id; if it is all digits and no such id exists, the index; `%23n` always is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.responses import StreamingResponse

from bsd.doors.http.answer import JsonAnswer, reading
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk, entry_name
from bsd.doors.http.entry_page import EntryFilter
from bsd.doors.http.extracted import Content, open_content
from bsd.session.session import Session
from bsd.surgery.edit import show_entry

_SHOWN, _MOST_SHOWN = 100, 1000
_LAST_LINE = 10**9
_ENTRIES = "/api/sessions/{agent}/{session}/entries"
_ENTRY = _ENTRIES + "/{entry}"


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["entries"])
    _look(router, desk)
    _content(router, desk)
    _meta(router, desk)
    return router


def _look(router: APIRouter, desk: Desk) -> None:
    @router.get(_ENTRIES, responses=answers("Entries"))
    async def entries(
        agent: str,
        session: str,
        start: Annotated[int, Query(alias="from", ge=0, le=_LAST_LINE)] = 0,
        before: Annotated[
            int | None,
            Query(ge=0, le=_LAST_LINE, description="The last ones before this line, not `from`"),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_SHOWN)] = _SHOWN,
        kinds: Annotated[
            str, Query(alias="type", max_length=1000, description="Only these types: a,b")
        ] = "",
        extracted: Annotated[
            bool | None, Query(description="Only those that are (or are not) extracted")
        ] = None,
    ) -> Response:
        """Entries from a line on, or the last ones before a line."""
        types = frozenset(kind for kind in kinds.split(",") if kind)
        wanted = EntryFilter(start, before, limit, types, extracted)
        return JsonAnswer(await reading(lambda: desk.entries(desk.named(agent, session), wanted)))

    @router.get(_ENTRY, responses=answers("EntryDocument"))
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
        responses=answers("ExtractedContent"),
    )
    async def extracted(agent: str, session: str, entry: str) -> Response:
        """What was taken out of an entry, without putting it back."""

        def look() -> Content:
            return open_content(desk.layout, desk.named(agent, session), entry_name(entry))

        content = await reading(look)
        size = {"content-length": str(content.size)}
        return StreamingResponse(_pieces(content), media_type="application/json", headers=size)


def _meta(router: APIRouter, desk: Desk) -> None:
    @router.get(_ENTRY + "/meta", responses=answers("Meta"))
    async def meta(agent: str, session: str, entry: str) -> Response:
        """What is noted on an entry."""
        return JsonAnswer(
            await reading(lambda: desk.meta(desk.named(agent, session), entry_name(entry)))
        )


async def _pieces(content: Content) -> AsyncIterator[bytes]:
    try:
        pieces = content.pieces()
        while (piece := await reading(next, pieces, None)) is not None:
            yield piece
    finally:
        content.close()
