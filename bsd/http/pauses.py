"""Pauses: sessions that bsd looks at, but does not edit for a while."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from bsd.actions.pauses import PauseList, end_pause, list_pauses, pause
from bsd.http.dependencies import Context, Input, JsonRoute

router = APIRouter(prefix="/api/pauses", tags=["pauses"], route_class=JsonRoute)

_Name = Annotated[
    str,
    Field(max_length=500, description="An agent, a source with all its agents, or AGENT/SESSION"),
]


class PauseBody(Input):
    """What is paused, and for how long."""

    name: _Name
    length: Annotated[
        str | None, Field(max_length=100, description="As in 2h; null: until it is ended")
    ] = None


class PauseEndBody(Input):
    """Which pause ends."""

    name: _Name


@router.get("")
def pauses(context: Context) -> PauseList:
    """List the pauses in force."""
    return list_pauses(context)


@router.post("")
def begin(context: Context, body: PauseBody) -> PauseList:
    """Begin a pause, or give it another end; answers all pauses."""
    return pause(context, body.name, body.length)


@router.post("/end")
def end(context: Context, body: PauseEndBody) -> PauseList:
    """End a pause; answers the others."""
    return end_pause(context, body.name)
