"""The trash: sessions are deleted into it, come back out of it, or go for good (SPEC §7)."""

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
    """What can be brought back, and until when; the oldest first."""

    keep: Annotated[str, Field(description="The setting trash_retention")]
    sessions: tuple[Trashed, ...]


@dataclass(frozen=True, kw_only=True)
class Removed(Trashed):
    """What was deleted for good."""

    schema_name: ClassVar[str] = "Removed"

    deleted: bool = True


@dataclass(frozen=True, slots=True)
class Emptied:
    """What was deleted for good, and by its id why something was not."""

    cleaned: int
    bytes: int
    ids: list[str]
    failed: dict[str, str]


def delete_session(
    context: ActionContext, session: SessionName, *, permanent: bool = False
) -> Deleted:
    """Delete a session and its children: into the trash, or for good.

    Raises:
        NotFound: there is no such session.
        Busy: one of them is in use.
    """
    return context.trash().delete(session, permanent=permanent)


def list_trash(context: ActionContext) -> TrashList:
    """List what can be brought back, and until when; the oldest first."""
    items = context.trash().items()
    return TrashList(context.config.current.trash_retention, tuple(items))


def restore_from_trash(context: ActionContext, id: str) -> Returned:
    """Bring a session back, with the children that went with it.

    Raises:
        NotFound: there is nothing of this id in the trash.
        Conflict: there is such a session by now.
    """
    return context.trash().restore(id)


def delete_from_trash(context: ActionContext, id: str) -> Removed:
    """Delete one session in the trash for good, and none of its children; raises NotFound."""
    item = context.trash().remove(id)
    context.cleaned()
    known = {one.name: getattr(item, one.name) for one in fields(item) if one.init}
    return Removed(**known)


def empty_trash(context: ActionContext) -> Emptied:
    """Delete all that is in the trash for good, until the context says that it is `stopping`."""
    trash = context.trash()
    gone: list[Trashed] = []
    failed: dict[str, str] = {}
    for item in trash.items():
        if context.stopping():
            break
        try:
            gone.append(trash.remove(item.id))
        except BsdError as problem:  # the others shall go all the same
            failed[item.id] = problem.message
    context.cleaned()
    amount = sum(item.size + item.extracted_bytes for item in gone)
    return Emptied(len(gone), amount, [item.id for item in gone], failed)
