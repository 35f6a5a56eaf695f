"""Pauses: for a time, bsd reads the paused sessions but does not edit them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from bsd.actions.pauses import PauseList, end_pause, list_pauses, pause
from bsd.http.dependencies import Context, Input, JsonRoute

router = APIRouter(prefix="/api/pauses", tags=["pauses"], route_class=JsonRoute)

_Name = Annotated[
    str,
    Field(max_length=500, description="An agent, a source (all its agents), or AGENT/SESSION"),
]


class PauseBody(Input):
    """The agent, source or session to pause, and for how long."""

    name: _Name
    length: Annotated[
        str | None, Field(max_length=100, description="For example 2h; null: without an end")
    ] = None


class PauseEndBody(Input):
    """The pause to end."""

    name: _Name


@router.get("")
def pauses(context: Context) -> PauseList:
    """List the pauses in force."""
    return list_pauses(context)


@router.post("")
def begin(context: Context, body: PauseBody) -> PauseList:
    """Begin a pause, or change its end; returns all pauses."""
    return pause(context, body.name, body.length)


@router.post("/end")
def end(context: Context, body: PauseEndBody) -> PauseList:
    """End a pause; returns the remaining pauses."""
    return end_pause(context, body.name)
