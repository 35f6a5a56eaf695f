"""The runtime settings (config.json)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from bsd.core.config import PruningConfig
from bsd.http.dependencies import Context, JsonRoute

router = APIRouter(prefix="/api", tags=["config"], route_class=JsonRoute)


@router.get("/config")
def show(context: Context) -> PruningConfig:
    """Return all runtime settings; no API key is needed."""
    return context.config.current


@router.post("/config")
def change(
    request: Request,
    context: Context,
    settings: Annotated[dict[str, Any], Body(description="Some of the settings, with new values.")],
) -> PruningConfig:
    """Change settings; they are in force when the answer arrives. 400 names every bad field.

    `last_*` fields are ignored.
    """
    new = context.config.update(settings, actor=context.actor)
    request.app.state.config_changed()
    return new
