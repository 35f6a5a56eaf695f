"""Hooks of agents' programs: receive a call, answer with text for the model."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from bsd.http.dependencies import DaemonService, JsonRoute
from bsd.http.errors import JsonAnswer

router = APIRouter(prefix="/api/hooks", tags=["hooks"], route_class=JsonRoute)

_NOTHING: dict[int | str, dict[str, Any]] = {204: {"description": "No text for the model"}}


@router.post("/{kind}", responses=_NOTHING)
def receive(
    daemon: DaemonService,
    kind: Annotated[str, Path(pattern="^[a-z0-9-]+$", max_length=64)],
    said: Annotated[dict[str, Any], Body(description="The hook's JSON, as the program sends it")],
) -> Response:
    """Handle a hook's call; the answer is in the form that the program expects.

    If the program reports that a session is idle, bsd checks the session at once. A path outside
    the sources is ignored.
    """
    answer = daemon.hooks.receive(kind, said)
    return JsonAnswer(answer) if answer else Response(status_code=HTTPStatus.NO_CONTENT)
