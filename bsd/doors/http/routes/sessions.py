"""Agents and whole sessions: `/api/agents`, `/api/sessions…`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from bsd.care import catalog
from bsd.care.catalog import children
from bsd.doors.http.answer import JsonAnswer, reading
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk
from bsd.doors.http.entry_page import EntryFilter
from bsd.doors.http.listing import Filter

_LISTED, _MOST_LISTED = 100, 1000
_FOUND, _MOST_FOUND = 20, 200
FIRST_PAGE = 100

_Text = Annotated[str | None, Query(max_length=1000)]


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["sessions"])
    _lists(router, desk)
    _one(router, desk)
    _told(router, desk)
    return router


def _lists(router: APIRouter, desk: Desk) -> None:
    @router.get("/api/agents", responses=answers("Agents"))
    async def agents() -> Response:
        """All agents, those whose sessions are left alone included."""
        found = await reading(catalog.agents, desk.layout)
        return JsonAnswer({"agents": [asdict(info) for info in found]})

    @router.get("/api/sessions", responses=answers("Sessions"))
    async def sessions(
        agent: _Text = None,
        status: Annotated[
            str | None,
            Query(max_length=1000, description="As in the list; or stale or active, by age"),
        ] = None,
        q: Annotated[
            str | None,
            Query(
                max_length=1000,
                description="Words in the name, the title, the label, a model's name or the text, "
                "extracted text included",
            ),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = _LISTED,
        cursor: _Text = None,
    ) -> Response:
        """Sessions, the newest first.

        One that changes while somebody pages comes (again) at the end: none is left out.
        """
        wanted = Filter(agent, status, q)
        return JsonAnswer(await reading(desk.page, wanted, limit, cursor))

    @router.get("/api/search", responses=answers("Found"))
    async def search(
        q: Annotated[str, Query(max_length=1000, description='Words, "several words", begin*')],
        agent: _Text = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_FOUND)] = _FOUND,
    ) -> Response:
        """Entries that hold all the words, the best first, extracted ones included."""
        return JsonAnswer(await reading(desk.search, q, agent, limit))


def _one(router: APIRouter, desk: Desk) -> None:
    @router.get(
        "/api/sessions/{agent}/{session}",
        responses=answers("SessionDetail"),
    )
    async def session(
        agent: str,
        session: str,
        limit: Annotated[int, Query(ge=0, le=_MOST_LISTED, description="Entries")] = FIRST_PAGE,
    ) -> Response:
        """One session with the first page of its entries; with none it need not be read."""

        def look() -> dict[str, Any]:
            name = desk.named(agent, session)
            page: dict[str, Any] = {"entries": [], "next": 0, "previous": None}
            if limit:
                page = desk.entries(name, EntryFilter(limit=limit))
            return desk.describe(name) | {"children": children(desk.layout, name)} | page

        return JsonAnswer(await reading(look))


def _told(router: APIRouter, desk: Desk) -> None:
    """What is told about one session beside its entries."""

    @router.get(
        "/api/sessions/{agent}/{session}/summary",
        responses=answers("Summary"),
    )
    async def summary(agent: str, session: str) -> Response:
        """What was asked for and done, by plain rules on the words; no model is asked."""
        return JsonAnswer(await reading(lambda: desk.summary(desk.named(agent, session))))

    @router.get(
        "/api/sessions/{agent}/{session}/history",
        responses=answers("HistoryList"),
    )
    async def history(agent: str, session: str) -> Response:
        """The operations that can be undone, the newest first."""

        def look() -> dict[str, Any]:
            name = desk.named(agent, session)
            return {"session": str(name), "operations": desk.surgeon().history(name)}

        return JsonAnswer(await reading(look))
