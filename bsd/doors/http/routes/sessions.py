"""Agents, and what is done to whole sessions: `/api/agents`, `/api/sessions…`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from bsd.care import catalog
from bsd.care.catalog import Agents
from bsd.doors.http.actor import actor_of
from bsd.doors.http.answer import Answer
from bsd.doors.http.body import json_object
from bsd.doors.http.description import answers, body, settings_schema
from bsd.doors.http.desk import Desk
from bsd.doors.http.routes.threads import changing, reading
from bsd.foundation.errors import FieldError, Invalid
from bsd.foundation.pruning_fields import PER_CALL, PruningConfig
from bsd.surgery.result import SessionResult


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["sessions"])
    _agents(router, desk)
    _deletion(router, desk)
    _changes(router, desk)
    return router


def _agents(router: APIRouter, desk: Desk) -> None:
    @router.get("/api/agents", responses=answers(Agents))
    async def agents() -> Response:
        """All agents, those whose sessions are left alone included."""
        found = await reading(catalog.agents, desk.layout)
        return Answer(Agents(tuple(found)).as_json())


def _deletion(router: APIRouter, desk: Desk) -> None:
    @router.delete(
        "/api/sessions/{agent}/{session}",
        responses=answers("Deleted"),
    )
    async def delete(
        request: Request, agent: str, session: str, *, permanent: bool = False
    ) -> Response:
        """Move a session and its children to the trash, or `permanent`ly away."""
        actor = actor_of(request)

        def work() -> dict[str, Any]:
            name = desk.named(agent, session)
            return desk.trash(actor).delete(name, permanent=permanent).as_json()

        return Answer(await changing(work))


def _changes(router: APIRouter, desk: Desk) -> None:
    @router.post(
        "/api/sessions/{agent}/{session}/extract",
        responses=answers(SessionResult),
        openapi_extra=body(lambda: settings_schema(PER_CALL), required=False),
    )
    async def extract(
        request: Request, agent: str, session: str, *, dry_run: bool = False
    ) -> Response:
        """Extract what is due; the body may change settings for this call."""
        actor, overrides = actor_of(request), await json_object(request, optional=True)
        _check_overrides(overrides)

        def work() -> dict[str, Any]:
            name = desk.named(agent, session)
            return desk.extract(name, actor, overrides, dry_run=dry_run)

        return Answer(await changing(work))


def _check_overrides(overrides: dict[str, Any]) -> None:
    """Raise Invalid that names all fields which are no overrides, and all bad ones."""
    errors = [
        FieldError(name, "not a setting of one extraction")
        for name in overrides
        if name not in PER_CALL
    ]
    try:
        PruningConfig.checked({name: overrides[name] for name in PER_CALL if name in overrides})
    except Invalid as problem:
        errors += problem.errors
    if errors:
        text = "; ".join(f"{one.field}: {one.message}" for one in errors)
        raise Invalid(text, hint=f"known are {', '.join(PER_CALL)}", errors=tuple(errors))
