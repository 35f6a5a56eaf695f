"""The runtime settings (config.json)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from bsd.http.dependencies import Context, JsonRoute
from bsd.http.errors import JsonAnswer

router = APIRouter(prefix="/api", tags=["config"], route_class=JsonRoute)


@router.get("/config")
def show(context: Context) -> Response:
    """All runtime settings; needs no API key."""
    return JsonAnswer(context.config.current.as_json())


@router.post("/config")
def change(
    request: Request, context: Context, settings: Annotated[dict[str, Any], Body()]
) -> Response:
    """Change some; they are in force when this answers. 400 names every bad field.

    `last_*` are ignored.
    """
    new = context.config.update(settings, actor=context.actor)
    request.app.state.config_changed()
    return JsonAnswer(new.as_json())
