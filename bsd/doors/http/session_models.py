"""What the answers about sessions hold, as OpenAPI describes them; see `bsd.doors.http.models`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bsd.doors.models import Document


class EntryDocument(Document):
    """A whole entry, numbers as they are spelled, for somebody to edit."""

    entry_id: str | None
    index: int
    seen: str = Field(description="Hash of the line; an edit may say what it was made on")
    entry: dict[str, Any]


class Deleted(Document):
    deleted: bool
    session: str
    moved_to_trash: bool
    trash_id: str | None
    children_deleted: int
    bytes: int
    extracted_files: int
    extracted_bytes: int
    sessions: list[dict[str, Any]]


class TrashItem(Document):
    id: str
    session: str
    original_agent: str
    original_session_id: str
    original_path: str
    trashed_at: str
    expires_at: str | None
    parent: str | None
    entry_count: int
    size: int
    extracted_files: int
    extracted_bytes: int
    keys: list[str]
    problem: str | None = Field(
        description="Why its meta file is of no use: it can only be deleted for good"
    )


class TrashList(Document):
    keep: str = Field(description="The setting trash_retention")
    sessions: list[TrashItem]


class Returned(Document):
    restored: bool
    id: str
    session: str
    sessions: list[str]
    bytes: int
    extracted_files: int
    extracted_bytes: int
    keys_taken: list[str]
    not_restored: dict[str, str]


class Removed(TrashItem):
    deleted: bool


class Emptied(Document):
    cleaned: int
    bytes: int
    ids: list[str]
    failed: dict[str, str]


class Retention(Document):
    """What was deleted, or with dry_run what would be."""

    dry_run: bool
    keep: str
    held: str | None = Field(description="Why nothing is deleted: the clock is not believed")
    cleaned: int
    bytes: int
    history: dict[str, Any]
    trash: dict[str, Any]
