"""The runtime settings: `/api/config`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from bsd.doors.http.answer import JsonAnswer, in_thread
from bsd.doors.http.description import answers, body, settings_schema
from bsd.doors.http.requests import actor_of, json_object
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.pruning_fields import SETTINGS, PruningConfig

_BODY = body(
    lambda: settings_schema(SETTINGS), description="The fields to change; `last_*` are ignored."
)


def routes(config: ConfigService, changed: Callable[[], None]) -> APIRouter:
    router = APIRouter(tags=["config"])

    @router.get("/api/config", responses=answers("RuntimeConfig"))
    async def show() -> Response:
        """All runtime settings; needs no API key."""
        return _answer(await in_thread(lambda: config.current))

    @router.post(
        "/api/config",
        responses=answers("RuntimeConfig"),
        openapi_extra=_BODY,
    )
    async def change(request: Request) -> Response:
        """Change some; they are in force when this answers. 400 names every bad field."""
        wanted = await json_object(request)
        new = await in_thread(config.update, wanted, actor=actor_of(request))
        changed()
        return _answer(new)

    return router


def _answer(config: PruningConfig) -> Response:
    return JsonAnswer(config.as_json())
