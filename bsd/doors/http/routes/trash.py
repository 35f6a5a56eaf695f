"""What was deleted, and what is deleted for good: `/api/trash…`, `/api/retention/run`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from bsd.doors.http.answer import JsonAnswer, changing, reading
from bsd.doors.http.cleaning import forecast_all, run_all
from bsd.doors.http.description import answers
from bsd.doors.http.desk import Desk, trash_name
from bsd.doors.http.requests import actor_of
from bsd.foundation.errors import BsdError


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["trash"])
    _trash(router, desk)
    _one(router, desk)
    _retention(router, desk)
    return router


def _trash(router: APIRouter, desk: Desk) -> None:
    @router.get("/api/trash", responses=answers("TrashList"))
    async def trash() -> Response:
        """What can be brought back, and until when; the oldest first."""
        items = await reading(lambda: desk.trash().items())
        keep = desk.config.current.trash_retention
        return JsonAnswer({"keep": keep, "sessions": [item.as_json() for item in items]})

    @router.delete("/api/trash", responses=answers("Emptied"))
    async def empty(request: Request) -> Response:
        """Delete all that is in the trash for good."""
        return JsonAnswer(await changing(_empty, desk, actor_of(request)))


def _one(router: APIRouter, desk: Desk) -> None:
    @router.post(
        "/api/trash/{id}/restore",
        responses=answers("Returned"),
    )
    async def restore(request: Request, id: str) -> Response:
        """Bring a session back, with the children that went with it."""
        actor = actor_of(request)
        returned = await changing(lambda: desk.trash(actor).restore(trash_name(id)))
        return JsonAnswer(returned.as_json())

    @router.delete("/api/trash/{id}", responses=answers("Removed"))
    async def remove(request: Request, id: str) -> Response:
        """Delete one session in the trash for good."""
        actor = actor_of(request)
        item = await changing(lambda: desk.trash(actor).remove(trash_name(id)))
        desk.cleaned()
        return JsonAnswer({"deleted": True, **item.as_json()})


def _retention(router: APIRouter, desk: Desk) -> None:
    @router.post(
        "/api/retention/run",
        responses=answers("Retention"),
    )
    async def run_retention(request: Request, *, dry_run: bool = False) -> Response:
        """Delete what was kept long enough, or say what would go."""
        if dry_run:
            return JsonAnswer(await reading(forecast_all, desk))
        return JsonAnswer(await changing(run_all, desk, actor_of(request)))


def _empty(desk: Desk, actor: str) -> dict[str, Any]:
    trash = desk.trash(actor)
    gone, failed = [], {}
    for item in trash.items():
        try:
            gone.append(trash.remove(item.id))
        except BsdError as problem:  # the others shall go all the same
            failed[item.id] = problem.message
    desk.cleaned()
    return {
        "cleaned": len(gone),
        "bytes": sum(item.size + item.extracted_bytes for item in gone),
        "ids": [item.id for item in gone],
        "failed": failed,
    }
