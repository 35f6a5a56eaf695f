"""Hooks of agents' programs: their calls, and the answer for their model."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from bsd.http.dependencies import DaemonService, JsonRoute
from bsd.http.errors import JsonAnswer

router = APIRouter(prefix="/api/hooks", tags=["hooks"], route_class=JsonRoute)

_NOTHING: dict[int | str, dict[str, Any]] = {204: {"description": "There is nothing to say"}}


@router.post("/{kind}", responses=_NOTHING)
def receive(
    daemon: DaemonService,
    kind: Annotated[str, Path(pattern="^[a-z0-9-]+$", max_length=64)],
    said: Annotated[dict[str, Any], Body(description="The hook's JSON, as the program sends it")],
) -> Response:
    """Take note of what a hook tells; the answer is for the program that has sent it.

    A session that its program calls idle is looked at at once. A path outside the sources is
    ignored.
    """
    answer = daemon.hooks.receive(kind, said)
    return JsonAnswer(answer) if answer else Response(status_code=HTTPStatus.NO_CONTENT)
