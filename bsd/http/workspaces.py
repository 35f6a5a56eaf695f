"""Workspaces (seed 004): list, create, prune, repair. Programs cannot be started over HTTP."""

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
    sizes: Annotated[bool, Query(description="Read the size of every file.")] = False,
) -> Workspaces:
    """List all workspaces, longest unused first; `sizes` reads the size of every file."""
    return actions.list_workspaces(root, sizes=sizes)


class WorkspaceBody(Input):
    """The workspace to create; without a session id, a new id is generated."""

    session_id: Annotated[str | None, Field(max_length=1000)] = None


@router.post("")
def create(root: Root, body: WorkspaceBody | None = None) -> CreatedWorkspace:
    """Create a workspace, or open an existing one without changing its age."""
    return actions.create(root, body.session_id if body else None)


class WorkspacePruneBody(Input):
    """Limits of a prune; a missing field takes the setting, null means no limit."""

    older_than_hours: Annotated[
        float | None, Field(ge=0, allow_inf_nan=False, description="Delete if unused for longer.")
    ] = None
    max_count: Annotated[int | None, Field(ge=0, description="Most workspaces to keep.")] = None
    max_total_bytes: Annotated[
        int | None, Field(ge=0, description="Most bytes to keep in all workspaces together.")
    ] = None


@router.post("/prune")
def prune(
    root: Root, body: WorkspacePruneBody | None = None, *, dry_run: bool = False
) -> PruneResult:
    """Delete unused workspaces; `dry_run` only lists them."""
    limits = body.model_dump(exclude_unset=True) if body else {}
    return actions.prune(root, replace(root.rules, **limits), dry_run=dry_run)


@router.post("/repair")
def repair_all(root: Root, *, dry_run: bool = False) -> Repairs:
    """Rebuild missing and broken metadata from the times of the files."""
    return actions.repair(root, dry_run=dry_run)


@router.get("/{session_id}")
def workspace(root: Root, session_id: _Id) -> Workspace:
    """Return a workspace, with its size."""
    return actions.show(root, session_id)


@router.post("/{session_id}/touch")
def touch(root: Root, session_id: _Id) -> TouchedWorkspace:
    """Record that a workspace is in use now; `metadata` is null if it has no metadata."""
    return actions.touch(root, session_id)


@router.post("/{session_id}/repair")
def repair(root: Root, session_id: _Id, *, dry_run: bool = False) -> Repairs:
    """Rebuild the metadata of a workspace, if they are missing or broken."""
    return actions.repair(root, session_id, dry_run=dry_run)
