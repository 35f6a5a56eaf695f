"""What the answers about workspaces hold, as OpenAPI describes them; see `models`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bsd.doors.models import Document


class Workspace(Document):
    """One workspace, with the fields of its metadata; without any, `reason` says why."""

    session_id: str
    created_at: str | None = None
    updated_at: str | None = None
    version: int | None = None
    execution_count: int | None = None
    last_error: str | None = None
    age_hours: float | None
    reason: str | None = Field(description="Why its age cannot be told, such as missing_metadata")
    detail: str | None
    bytes: int | None = Field(description="What the disk has given out for it, if asked for")


class Workspaces(Document):
    workspace_root: str
    workspaces: list[Workspace]


class Created(Document):
    session_id: str
    path: str
    created: bool = Field(description="False: it was there")


class Touched(Document):
    session_id: str
    metadata: dict[str, Any] | None


class Pruned(Document):
    """What was deleted, or would be; skipped sessions and errors are left as they are."""

    deleted_sessions: list[str]
    skipped_sessions: dict[str, str] = Field(description="id → reason")
    reclaimed_bytes: int
    errors: dict[str, str] = Field(description="id → message")
    dry_run: bool
    details: dict[str, str] = Field(description="id → the reason in words")
    leftovers: int = Field(description="Taken away by a broken-off pruning, deleted by this one")


class Repair(Document):
    session_id: str
    repaired: bool
    reason: str | None
    detail: str | None
    metadata: dict[str, Any] | None
    error: str | None
    dry_run: bool


class Repairs(Document):
    dry_run: bool
    workspaces: list[Repair]
