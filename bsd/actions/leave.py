"""Uninstall bsd: list the data that only its own directory has, and delete that directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.errors import BsdError, ConfigError, Conflict, Forbidden, NotFound
from bsd.core.formatting import NEVER
from bsd.core.layout import Layout, SessionName
from bsd.core.pauses import end_pause, pauses_of
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.disk_use import disk_use
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.maintenance.purge import Purged
from bsd.maintenance.purge import purge as purge_root
from bsd.maintenance.targets import TrashedSessions
from bsd.sessions.commit.late import list_orphans
from bsd.store.archive import SessionArchive
from bsd.store.originals import SessionStore
from bsd.store.snapshots import archive_directories
from bsd.transcripts.agents.opening import has_transcript

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The data in bsd's directory after all values are restored. Sizes are bytes."""

    root: str
    bytes: Annotated[int, Field(description="Total disk use of the directory")]
    gone_sessions: Annotated[
        int, Field(description="Sessions in the archive that their program has deleted")
    ]
    gone_bytes: int
    trash_sessions: int
    trash_bytes: int
    stores: Annotated[
        int, Field(description="Number of sessions with stored values but without a transcript")
    ]
    stores_bytes: int
    orphans: Annotated[
        int, Field(description="Files of late lines that could not be put into their session")
    ]
    facts_bytes: Annotated[int, Field(description="The memory of agents")]

    @property
    def is_empty(self) -> bool:
        """True if the directory has no data that exists only there."""
        things = (self.gone_sessions, self.trash_sessions, self.stores, self.orphans)
        return not any(things) and not self.facts_bytes


def left_behind(context: ActionContext) -> LeftBehind:
    """Return the data of bsd that the sessions do not contain; changes no file.

    Raises:
        Unavailable: the data cannot be read.
    """
    layout = context.layout.with_excluded()
    gone = deleted_sessions(layout)
    trash = TrashedSessions(layout, NEVER)  # the whole trash, regardless of age
    trashed = [file.size for place in trash.places() for file in trash.look(place).files]
    stores = _without_transcript(layout, {snapshot.name for snapshot in gone})
    use: dict[str, Any] = disk_use(layout)
    facts = 0
    with suppress(OSError):
        facts = layout.facts_db.stat().st_size
    return LeftBehind(
        root=str(layout.root),
        bytes=use["total"],
        gone_sessions=len(gone),
        gone_bytes=sum(each.size for each in gone),
        trash_sessions=len(trashed),
        trash_bytes=sum(trashed),
        stores=len(stores),
        stores_bytes=sum(stores.values()),
        orphans=len(list_orphans(layout)),
        facts_bytes=0 if layout.agents.is_dir() else facts,
    )


def _without_transcript(layout: Layout, gone: Collection[SessionName]) -> dict[str, int]:
    """Return the size of stored values without a transcript, in stores and packs, by store name.

    The packs of `gone` sessions are left out: the archive has a copy of these sessions.
    """
    found: dict[str, int] = {}
    for store in stores_without_transcript(layout):
        found[store.directory.name] = store.size
    there = {layout.store_name(name) for name in (*_names(layout), *gone)}
    for directory in archive_directories(layout):
        with suppress(OSError):
            size = sum(pack.stat().st_size for pack in SessionArchive(directory).packs())
            if size and directory.name not in there:
                found[directory.name] = found.get(directory.name, 0) + size
    return found


def _names(layout: Layout) -> list[SessionName]:
    """Return all sessions that can be listed; an empty list for a root without agents."""
    with suppress(ConfigError, Forbidden):
        return list(catalog.names(layout))
    return []


def out_of_reach(layout: Layout) -> Iterator[tuple[str, BsdError]]:
    """Yield each agent or source with sessions that cannot be read now, and the reason.

    bsd may have values of these sessions, and cannot restore them now.
    """
    layout = layout.with_excluded()
    yield from catalog.unreadable(layout)
    odd: dict[str, list[Path]] = {}
    for name, path in _no_files(layout):
        if keeps_values(layout, name):
            odd.setdefault(name.agent, []).append(path)
    for agent, paths in odd.items():
        which = ", ".join(map(str, paths[:_MOST_NAMED])) + (", …" if paths[_MOST_NAMED:] else "")
        yield (
            agent,
            Conflict(
                f"bsd stores values of sessions whose path is not a regular file: {which}",
                hint="put the session's file back there, or move the object at this path away",
            ),
        )
    for source in layout.sources:
        if not source.path.is_dir() and (many := len(_stores_of(layout, source))):
            values = "1 session" if many == 1 else f"{many} sessions"
            yield (
                source.name,
                NotFound(
                    f"{source.path} does not exist, and bsd stores values of {values} of it",
                    hint="mount it; if it is gone for good, remove it from bsd.toml",
                ),
            )


def _no_files(layout: Layout) -> list[tuple[SessionName, Path]]:
    with suppress(ConfigError, Forbidden):  # a root without agents
        return list(catalog.no_files(layout))
    return []


def keeps_values(layout: Layout, name: SessionName) -> bool:
    """Return True if a file exists at the session's path and bsd stores values of the session."""
    try:
        if not has_transcript(layout, name):
            return False
        archive = SessionArchive(layout.archive_dir(name))
        return bool(SessionStore(layout, name).refs() or archive.packs())
    except (BsdError, OSError):
        return True


def _stores_of(layout: Layout, source: Source) -> set[str]:
    """Return the names of the stores and archives of a source's sessions."""
    found: set[str] = set()
    for place in (layout.extracted, layout.archive):
        with suppress(OSError):
            found.update(os.listdir(place))
    agents = ((name, layout.session_of_store(name)) for name in found)
    return {store for store, name in agents if name and layout.source_of(name.agent) == source}


def sessions_to_restore(layout: Layout) -> list[SessionName]:
    """Return all sessions, the excluded ones too: each may contain a placeholder.

    Raises ConfigError, Forbidden.
    """
    return list(catalog.names(layout.with_excluded()))


def end_all_pauses(context: ActionContext) -> tuple[str, ...]:
    """End all pauses, since paused sessions cannot be restored; return the names of the pauses."""
    names = [each.pause.name for each in pauses_of(context.layout, context.now())]
    for name in names:
        with suppress(BsdError):  # it has just ended by itself
            end_pause(context.layout, name)
    return tuple(names)


def purge(context: ActionContext) -> Purged:
    """Delete all data of bsd under its root, for good.

    Before this call, the caller restores all values and stops the daemon.

    Raises:
        Conflict: files of commits are in flight, and a program may still write to them.
    """
    layout = context.layout
    if disk_use(layout)["in_flight"]["files"]:
        raise Conflict(
            "replaced versions of sessions are still watched for late lines",
            hint="`bsd leave --purge` in a minute",
        )
    return purge_root(layout)
