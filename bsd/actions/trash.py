"""The trash: move sessions into it, restore them from it, delete them for good (SPEC §7)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.maintenance.trashed import Deleted, Returned, Trashed


@dataclass(frozen=True, slots=True)
class TrashList:
    """The sessions in the trash, with the time of their deletion; the oldest first."""

    keep: Annotated[str, Field(description="The setting trash_retention")]
    sessions: tuple[Trashed, ...]


@dataclass(frozen=True, kw_only=True)
class Removed(Trashed):
    """A session that was deleted from the trash for good."""

    schema_name: ClassVar[str] = "Removed"

    deleted: bool = True


@dataclass(frozen=True, slots=True)
class Emptied:
    """The sessions that were deleted for good; `failed` has the reason for others, by id."""

    cleaned: int
    bytes: int
    ids: list[str]
    failed: dict[str, str]


def delete_session(
    context: ActionContext, session: SessionName, *, permanent: bool = False
) -> Deleted:
    """Delete a session and its children: move them into the trash, or delete them for good.

    Raises:
        NotFound: there is no such session.
        Busy: one of these sessions is in use.
    """
    return context.trash().delete(session, permanent=permanent)


def list_trash(context: ActionContext) -> TrashList:
    """List the sessions in the trash, with the time of their deletion; the oldest first."""
    items = context.trash().items()
    return TrashList(context.config.current.trash_retention, tuple(items))


def restore_from_trash(context: ActionContext, id: str) -> Returned:
    """Restore a session with the children that were deleted together with it.

    Raises:
        NotFound: the trash has no session with this id.
        Conflict: a session of this name exists again.
    """
    return context.trash().restore(id)


def delete_from_trash(context: ActionContext, id: str) -> Removed:
    """Delete one session in the trash for good, without its children; raises NotFound."""
    item = context.trash().remove(id, everywhere=True)
    context.cleaned()
    known = {one.name: getattr(item, one.name) for one in fields(item) if one.init}
    return Removed(**known)


def empty_trash(context: ActionContext) -> Emptied:
    """Delete all sessions in the trash for good, until `context.stopping()` becomes true."""
    trash = context.trash()
    gone: list[Trashed] = []
    failed: dict[str, str] = {}
    for item in trash.items():
        if context.stopping():
            break
        try:
            gone.append(trash.remove(item.id, everywhere=True))
        except BsdError as problem:  # continue with the other sessions
            failed[item.id] = problem.message
    context.cleaned()
    amount = sum(item.size + item.extracted_bytes for item in gone)
    return Emptied(len(gone), amount, [item.id for item in gone], failed)
