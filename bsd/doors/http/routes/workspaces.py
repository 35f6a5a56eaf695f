"""Workspaces: `/api/workspaces…`. Programs are run by the library and the command line only.

Whoever reaches this API may prune a workspace, but not start a program on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from bsd.doors.http.answer import JsonAnswer, changing, reading
from bsd.doors.http.description import answers
from bsd.doors.http.requests import Wish, actor_of, described, wish
from bsd.workspaces.caretaker import Caretaker


class CreateWish(Wish):
    """Without a session id a new UUID is taken."""

    session_id: str | None = Field(None, max_length=1000)


class PruneWish(Wish):
    """What is left out is as the settings say; null: it does not count."""

    older_than_hours: float | None = Field(None, ge=0)
    max_count: int | None = Field(None, ge=0)
    max_total_bytes: int | None = Field(None, ge=0)


def routes(caretaker: Caretaker) -> APIRouter:
    router = APIRouter(tags=["workspaces"])
    _all(router, caretaker)
    _one(router, caretaker)
    return router


def _all(router: APIRouter, caretaker: Caretaker) -> None:
    @router.get("/api/workspaces", responses=answers("Workspaces"))
    async def workspaces(*, sizes: bool = False) -> Response:
        """All workspaces, the longest unused first; `sizes` looks at every file in them."""
        found = await reading(caretaker.sessions, sizes=sizes)
        rows = [one.as_json() for one in found]
        return JsonAnswer({"workspace_root": str(caretaker.place), "workspaces": rows})

    @router.post(
        "/api/workspaces",
        responses=answers("Created"),
        openapi_extra=described(CreateWish, required=False),
    )
    async def create(request: Request) -> Response:
        """Create a workspace, or open the one of this name; its age stays."""
        asked = await wish(request, CreateWish, optional=True)
        made = await changing(_for(caretaker, request).create, asked.session_id)
        return JsonAnswer(
            {"session_id": made.session_id, "path": str(made.path), "created": made.created}
        )

    @router.post(
        "/api/workspaces/prune",
        responses=answers("Pruned"),
        openapi_extra=described(PruneWish, required=False),
    )
    async def prune(request: Request, *, dry_run: bool = False) -> Response:
        """Delete what nobody uses any more, or say what would go."""
        asked = await wish(request, PruneWish, optional=True)
        rules = replace(caretaker.rules, **asked.model_dump(include=asked.model_fields_set))
        act = reading if dry_run else changing
        done = await act(_for(caretaker, request).prune, rules, dry_run=dry_run)
        return JsonAnswer(done.as_json())

    @router.post("/api/workspaces/repair", responses=answers("Repairs"))
    async def repair_all(request: Request, *, dry_run: bool = False) -> Response:
        """Make missing and broken metadata anew from the files' times."""
        return JsonAnswer(await _repair(caretaker, request, None, dry_run=dry_run))


def _one(router: APIRouter, caretaker: Caretaker) -> None:
    @router.get(
        "/api/workspaces/{session_id}",
        responses=answers("Workspace"),
    )
    async def workspace(session_id: str) -> Response:
        """One workspace, with its size."""
        return JsonAnswer((await reading(caretaker.describe, session_id)).as_json())

    @router.post(
        "/api/workspaces/{session_id}/touch",
        responses=answers("Touched"),
    )
    async def touch(request: Request, session_id: str) -> Response:
        """Note that it is used now; `metadata` is null for one without any, which gets none."""
        metadata = await changing(_for(caretaker, request).touch, session_id)
        document = metadata.as_json() if metadata else None
        return JsonAnswer({"session_id": session_id, "metadata": document})

    @router.post(
        "/api/workspaces/{session_id}/repair",
        responses=answers("Repairs"),
    )
    async def repair(request: Request, session_id: str, *, dry_run: bool = False) -> Response:
        """Make the metadata of one anew, if they are missing or broken."""
        return JsonAnswer(await _repair(caretaker, request, session_id, dry_run=dry_run))


def _for(caretaker: Caretaker, request: Request) -> Caretaker:
    return replace(caretaker, actor=actor_of(request))


async def _repair(
    caretaker: Caretaker, request: Request, session_id: str | None, *, dry_run: bool
) -> dict[str, Any]:
    act = reading if dry_run else changing
    done = await act(_for(caretaker, request).repair, session_id, dry_run=dry_run)
    return {"dry_run": dry_run, "workspaces": [one.as_json() for one in done]}
