"""The context tool of seed 003: list the entries of a session, and make the session smaller."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from bsd.actions.context_tool import change_context, get_context, replace_targets
from bsd.http.dependencies import Context, Input, JsonRoute, SessionPath
from bsd.planning.targets import ACTIONS, REPLACE, ContextChanged
from bsd.planning.view import Context as ContextShown

router = APIRouter(
    prefix="/api/sessions/{agent}/{session}", tags=["sessions"], route_class=JsonRoute
)

_RANGE = {
    "type": "object",
    "description": "for replace",
    "properties": {
        "start": {"type": "string", "description": "Exact text that begins the piece"},
        "end": {"type": "string", "description": "Exact text that ends the piece"},
        "replacement": {"type": "string", "description": "The text in its place"},
    },
    "required": ["start", "end", "replacement"],
}
_HASHES = {
    "type": "array",
    "description": "for discard [hash], for distill [hash, summary]",
    "items": {"type": "string"},
    "minItems": 1,
    "maxItems": 2,
}
_TARGETS: dict[str, Any] = {"minItems": 1, "items": {"anyOf": [_RANGE, _HASHES]}}


@router.get("/context")
def context(context: Context, session: SessionPath) -> ContextShown:
    """List the entries: hash, size, whether each can be extracted and whether it has been."""
    return context.query(get_context, session)


class ContextBody(Input):
    """An action and its targets; either all targets are changed or none."""

    action: Annotated[str, Field(json_schema_extra={"enum": list(ACTIONS)})]
    # Each action reads its own form, and reports the errors of each target.
    targets: Annotated[list[Any], Field(json_schema_extra=_TARGETS)]
    include_user: Annotated[bool, Field(description="Also change texts of the user.")] = False


@router.post("/context", name="change_context")
def change_context_of(
    context: Context, session: SessionPath, body: ContextBody, *, dry_run: bool = False
) -> ContextChanged:
    """Replace ranges, discard entries, or replace them by summaries; the change can be undone.

    An error lists the problems of all targets.
    """
    return context.run(
        change_context,
        session,
        body.action,
        body.targets,
        include_user=body.include_user,
        dry_run=dry_run,
    )


class ReplaceBody(Input):
    """A single replacement, or several under `targets`; either all are made or none."""

    start: str | None = None
    end: str | None = None
    replacement: str | None = None
    targets: list[Any] | None = None
    include_user: Annotated[bool, Field(description="Also change texts of the user.")] = False


@router.post("/replace")
def replace(
    context: Context, session: SessionPath, body: ReplaceBody, *, dry_run: bool = False
) -> ContextChanged:
    """Replace the text between two markers, both included (seed 003)."""
    targets = replace_targets(body.start, body.end, body.replacement, body.targets)
    return context.run(
        change_context,
        session,
        REPLACE,
        targets,
        include_user=body.include_user,
        dry_run=dry_run,
    )
