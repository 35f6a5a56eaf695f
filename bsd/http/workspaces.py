"""Workspaces (seed 004): a caller may prune one, but not start a program on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field

from bsd.http.dependencies import Actor, Input, JsonRoute
from bsd.workspaces import actions
from bsd.workspaces.actions import (
    CreatedWorkspace,
    Repairs,
    TouchedWorkspace,
    WorkspaceRoot,
    Workspaces,
)
from bsd.workspaces.listing import Workspace
from bsd.workspaces.prune import PruneResult

router = APIRouter(prefix="/api/workspaces", tags=["workspaces"], route_class=JsonRoute)


async def _root(request: Request, actor: Actor) -> WorkspaceRoot:
    root: WorkspaceRoot = request.app.state.workspaces
    return replace(root, actor=actor)


Root = Annotated[WorkspaceRoot, Depends(_root)]
_Id = Annotated[str, Path(pattern=r"^[^/\\]+$")]


@router.get("")
def workspaces(
    root: Root,
    *,
    sizes: Annotated[bool, Query(description="Look at every file, and tell their sizes.")] = False,
) -> Workspaces:
    """All workspaces, the longest unused first; `sizes` looks at every file in them."""
    return actions.list_workspaces(root, sizes=sizes)


class WorkspaceBody(Input):
    """Which workspace; without a session id a new one is made up."""

    session_id: Annotated[str | None, Field(max_length=1000)] = None


@router.post("")
def create(root: Root, body: WorkspaceBody | None = None) -> CreatedWorkspace:
    """Create a workspace, or open the one of this name; its age stays."""
    return actions.create(root, body.session_id if body else None)


class WorkspacePruneBody(Input):
    """Limits; one that is left out is as the settings say, and null is no limit."""

    older_than_hours: Annotated[
        float | None, Field(ge=0, allow_inf_nan=False, description="Unused for so long.")
    ] = None
    max_count: Annotated[int | None, Field(ge=0, description="Let at most so many stay.")] = None
    max_total_bytes: Annotated[
        int | None, Field(ge=0, description="Let so many bytes in all of them stay.")
    ] = None


@router.post("/prune")
def prune(
    root: Root, body: WorkspacePruneBody | None = None, *, dry_run: bool = False
) -> PruneResult:
    """Delete unused workspaces, or say which would go."""
    limits = body.model_dump(exclude_unset=True) if body else {}
    return actions.prune(root, replace(root.rules, **limits), dry_run=dry_run)


@router.post("/repair")
def repair_all(root: Root, *, dry_run: bool = False) -> Repairs:
    """Make missing and broken metadata anew from the files' times."""
    return actions.repair(root, dry_run=dry_run)


@router.get("/{session_id}")
def workspace(root: Root, session_id: _Id) -> Workspace:
    """One workspace, with its size."""
    return actions.show(root, session_id)


@router.post("/{session_id}/touch")
def touch(root: Root, session_id: _Id) -> TouchedWorkspace:
    """Note that it is used now; `metadata` is null for one without any, which gets none."""
    return actions.touch(root, session_id)


@router.post("/{session_id}/repair")
def repair(root: Root, session_id: _Id, *, dry_run: bool = False) -> Repairs:
    """Make the metadata of one anew, if they are missing or broken."""
    return actions.repair(root, session_id, dry_run=dry_run)
