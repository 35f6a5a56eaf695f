"""Dismissing notices of the status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from bsd.http.dependencies import Context, Input, JsonRoute
from bsd.setup.unserved import dismissed, note_dismissed

router = APIRouter(prefix="/api/notices", tags=["notices"], route_class=JsonRoute)


class DismissBody(Input):
    """The notice to hide."""

    id: Annotated[str, Field(min_length=1, max_length=1000, description="The id, as in the status")]


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The ids of all notices that the user has dismissed."""

    dismissed: list[str]


@router.post("/dismiss")
def dismiss(context: Context, body: DismissBody) -> Dismissed:
    """Hide a notice on the page until its cause ends and occurs again."""
    note_dismissed(context.layout, dismissed(context.layout) | {body.id})
    return Dismissed(sorted(dismissed(context.layout)))
