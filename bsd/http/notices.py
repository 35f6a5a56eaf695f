"""Notices of the status that the user has dismissed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from bsd.http.dependencies import Context, Input, JsonRoute
from bsd.setup.unserved import dismissed, note_dismissed

router = APIRouter(prefix="/api/notices", tags=["notices"], route_class=JsonRoute)


class DismissBody(Input):
    """Which notice is not to be shown again."""

    id: Annotated[str, Field(min_length=1, max_length=1000, description="As the status has it")]


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The notices that are not shown, by their ids."""

    dismissed: list[str]


@router.post("/dismiss")
def dismiss(context: Context, body: DismissBody) -> Dismissed:
    """Show a notice no more on the page, until it is over and comes again."""
    note_dismissed(context.layout, dismissed(context.layout) | {body.id})
    return Dismissed(sorted(dismissed(context.layout)))
