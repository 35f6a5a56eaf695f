"""The trash: sessions are deleted into it, come back out of it, or go for good (SPEC §7).

And retention: what was kept long enough is archived or deleted, there and elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bsd.actions.verb import RootHands, Verb, argument, route
from bsd.core.clock import Ages, look, trust
from bsd.core.definition import Answer, contract
from bsd.core.errors import BsdError
from bsd.maintenance.retention import Retention, RetentionRun, forecast_all
from bsd.maintenance.trashed import Deleted, Returned, Trashed

ID = argument("What `bsd trash list` shows.", metavar="ID", positional=True)


@dataclass(frozen=True, slots=True)
class Delete:
    """A session, with its children."""

    permanent: bool = field(
        default=False,
        metadata=argument("Delete it for good, past the trash.", query=True),
    )


@dataclass(frozen=True, slots=True)
class ListTrash:
    """Nothing but the trash."""


@dataclass(frozen=True, slots=True)
class RestoreFromTrash:
    """One session in the trash; its children come with it."""

    id: str = field(metadata=ID)


@dataclass(frozen=True, slots=True)
class DeleteFromTrash:
    """One session in the trash, alone."""

    id: str = field(metadata=ID)


@dataclass(frozen=True, slots=True)
class EmptyTrash:
    """All that is in the trash."""


@dataclass(frozen=True, slots=True)
class TrashList(Answer):
    """What can be brought back, and until when; the oldest first."""

    keep: str = field(metadata=contract("The setting trash_retention"))
    sessions: tuple[Trashed, ...]


@dataclass(frozen=True, slots=True)
class Removed(Answer):
    """What was deleted for good."""

    item: Trashed = field(metadata=contract(inline=True))
    deleted: bool = field(init=False, default=True)


@dataclass(frozen=True, slots=True)
class Emptied(Answer):
    """What was deleted for good, and by its id why something was not."""

    cleaned: int
    bytes: int
    ids: list[str]
    failed: dict[str, str]


def _list(hands: RootHands, _: ListTrash) -> TrashList:
    items = hands.trash(writes=False).items()
    keep = hands.config.current.trash_retention
    return TrashList(keep, tuple(items))


def _remove(hands: RootHands, asked: DeleteFromTrash) -> Removed:
    item = hands.trash(writes=True).remove(asked.id)
    hands.cleaned()
    return Removed(item)


def _empty(hands: RootHands, _: EmptyTrash) -> Emptied:
    trash = hands.trash(writes=True)
    gone: list[Trashed] = []
    failed: dict[str, str] = {}
    for item in trash.items():
        if hands.stopping():
            break
        try:
            gone.append(trash.remove(item.id))
        except BsdError as problem:  # the others shall go all the same
            failed[item.id] = problem.message
    hands.cleaned()
    amount = sum(item.size + item.extracted_bytes for item in gone)
    return Emptied(len(gone), amount, [item.id for item in gone], failed)


DELETE = Verb(
    name="delete",
    arguments=Delete,
    answer=Deleted,
    act=lambda hands, name, asked, _: hands.trash(writes=True).delete(
        name, permanent=asked.permanent
    ),
    changes=True,
    route=route(
        "DELETE …", "delete", "Move a session and its children to the trash, or `permanent`ly away."
    ),
    about="""
    With the session go what was taken out of it, its history, its entries in sessions.json, and
    its child sessions of all generations. All of it comes back with `bsd trash restore`, for as
    long as the setting `trash_retention` says. A session in use is refused.
    """,
    examples=(
        "bsd delete main/4f2a",
        "bsd delete main/4f2a --permanent --yes",
    ),
)
TRASH_LIST = Verb(
    name="trash_list",
    arguments=ListTrash,
    answer=TrashList,
    ask=_list,
    route=route(
        "GET /api/trash", "trash", "What can be brought back, and until when; the oldest first."
    ),
)
TRASH_RESTORE = Verb(
    name="restore_from_trash",
    arguments=RestoreFromTrash,
    answer=Returned,
    ask=lambda hands, asked: hands.trash(writes=True).restore(asked.id),
    changes=True,
    route=route(
        "POST /api/trash/{id}/restore",
        "restore",
        "Bring a session back, with the children that went with it.",
    ),
)
TRASH_DELETE = Verb(
    name="delete_from_trash",
    arguments=DeleteFromTrash,
    answer=Removed,
    ask=_remove,
    changes=True,
    route=route("DELETE /api/trash/{id}", "remove", "Delete one session in the trash for good."),
)
TRASH_EMPTY = Verb(
    name="empty_trash",
    arguments=EmptyTrash,
    answer=Emptied,
    ask=_empty,
    changes=True,
    route=route("DELETE /api/trash", "empty", "Delete all that is in the trash for good."),
)


# --- retention ---


@dataclass(frozen=True, slots=True)
class CleanUp:
    """One run over everything that is kept for a time."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would go, and when; change nothing.", query=True),
    )
    forget: bool = field(
        default=False,
        metadata=argument("Delete extracted content for good instead of archiving it.", query=True),
    )
    trust_clock: bool = field(
        default=False,
        metadata=argument("The clock is right, though it was put forward.", people_only=True),
    )


def _clean_up(hands: RootHands, asked: CleanUp) -> Retention:
    layout, config, clock = hands.layout, hands.config, hands.clock
    if asked.dry_run:
        ages = Ages(clock()) if asked.trust_clock else look(layout, clock, keep=False)
        return forecast_all(layout, config.current, ages, forget=asked.forget)
    if asked.trust_clock:
        trust(layout)
    started = clock()
    run = RetentionRun(layout, actor=hands.actor, clock=clock, stopping=hands.stopping)
    done = run.clean_all(config.current, forget=asked.forget)
    hands.cleaned()
    if done.held is not None:
        return done
    try:
        config.note_run("last_retention_run_at", started)
    except BsdError as problem:  # what has gone is told all the same
        return replace(done, problem=problem.message)
    return done


RETENTION = Verb(
    name="retention",
    arguments=CleanUp,
    answer=Retention,
    ask=_clean_up,
    changes=True,
    route=route(
        "POST /api/retention/run",
        "run_retention",
        "Archive or delete what was kept long enough, or say what would go.",
        tag="trash",
    ),
)
