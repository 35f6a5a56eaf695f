"""Forgets all sessions of a project for good, wherever something is kept of them.

For users who have deleted a project on purpose, with `claude purge` for example: the archive then
keeps nothing of the project. Each session is forgotten as a single one is (`forget.py`),
with the sessions that are parts of it; then the copy of the project's memory. A session that cannot
be forgotten stops no other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.core.layout import Layout, SessionName, check_name
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import parent_of
from bsd.maintenance.forget import Forget, Forgotten
from bsd.maintenance.leftovers import drafts_of, is_there
from bsd.maintenance.project_memory import forget_memory, memory_copies
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.sessions.commit.late import Orphan, list_orphans
from bsd.store.entry_notes import FORGOTTEN
from bsd.store.index import INDEX_FILE, session_named_in
from bsd.store.search import SearchIndex, ask
from bsd.store.snapshots import snapshots_in
from bsd.transcripts.agents.programs import program_of


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session of a project, and how much is kept of it. `size`: bytes."""

    name: SessionName
    files: int
    size: int
    in_place: bool


@dataclass(frozen=True, slots=True)
class KeptProject:
    """The stored data of a project: sessions, and copies of its memory by agent (files, bytes)."""

    agents: tuple[str, ...]
    sessions: tuple[KeptSession, ...]
    memory: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The result for one session: `forgotten`, or the problem."""

    name: SessionName
    forgotten: Forgotten | None
    problem: BsdError | None = None


def find_project(layout: Layout, text: str) -> KeptProject:
    """Return the sessions and the memory that are kept of a project.

    Args:
        layout: the root.
        text: an agent's name, or the directory of the project.

    Raises:
        NotFound: nothing is kept of it, and no session of it is there.
        Invalid: the text is neither.
    """
    agents = _agents_called(layout, text)
    chosen = sorted({name for name in _all_names(layout) if _is_of(layout, name, agents)})
    memory = {}
    for agent, place in memory_copies(layout):
        if agent in agents:
            sizes = [path.lstat().st_size for path in place.rglob("*") if path.is_file()]
            memory[agent] = len(sizes), sum(sizes)
    if not chosen and not memory:
        where = ", ".join(agents)
        raise NotFound(
            f"nothing is kept of {text}" + ("" if where == text else f" ({where})"),
            hint="`bsd archive list` and `bsd sessions` show names of agents",
        )
    orphans, trashed = list_orphans(layout), ids(layout)
    sessions = tuple(_kept(layout, name, orphans, trashed) for name in chosen)
    found = {name.agent for name in chosen} | memory.keys()
    return KeptProject(tuple(each for each in agents if each in found), sessions, memory)


def forget_project(
    forgetting: Forget, layout: Layout, project: KeptProject, *, actor: str
) -> Iterator[ForgetResult]:
    """Forget the sessions of a project one by one, parts before their sessions; then its memory.

    Raises:
        BsdError: the copy of the memory cannot be deleted.
    """
    for session in sorted(project.sessions, key=lambda each: _is_part(layout, each.name) is None):
        if session.in_place and not session.files:
            continue  # its indexed text stands in its transcript
        try:
            yield ForgetResult(session.name, forgetting.session(session.name))
        except NotFound:  # it went meanwhile
            continue
        except (BsdError, OSError) as error:
            yield ForgetResult(session.name, None, os_problem(error, f"forgetting {session.name}"))
    for agent in project.memory:
        try:
            files, size = forget_memory(layout, agent)
        except OSError as error:
            raise os_problem(error, f"forgetting the memory of {agent}") from error
        AuditLog(layout.audit_file).record(
            actor=actor,
            action="archive_forget",
            agent=agent,
            memory=True,
            files_removed=files,
            bytes_removed=size,
        )


def _agents_called(layout: Layout, text: str) -> tuple[str, ...]:
    """Return the agents that a user may mean; there need not be any."""
    is_path = os.sep in text or text.startswith("~") or text in {".", ".."}
    if not is_path:
        return (check_name(text, "agent"),)
    path = os.path.abspath(os.path.expanduser(text))
    found: list[str] = []
    for source in layout.sources:
        directories = [Path(path)]  # the program's own directory of that project, perhaps
        if (name_of := source.project_directory) is not None:
            directories += [source.path / name_of(each) for each in (path, os.path.realpath(path))]
        found += filter(None, map(source.agent_at, directories))
    if not found:
        raise Invalid(
            f"no program in bsd.toml has sessions by their directory: {text}",
            hint="name an agent, as `bsd sessions` shows it",
        )
    return tuple(dict.fromkeys(found))


def _is_of(layout: Layout, name: SessionName, agents: tuple[str, ...]) -> bool:
    if name.agent in agents:
        return True
    parent = _is_part(layout, name)
    return parent is not None and parent.agent in agents


def _is_part(layout: Layout, name: SessionName) -> SessionName | None:
    """Return the session that a session is a part of, if it is one's."""
    with suppress(BsdError):
        parent = parent_of(layout, program_of(layout, name.agent))
        return SessionName.parse(parent) if parent else None
    return None


def _all_names(layout: Layout) -> Iterator[SessionName]:
    """Yield the names of all sessions that are there, or of which something is kept."""
    with suppress(ConfigError):  # a root without agents
        yield from catalog.names(layout)
    for top in (layout.extracted, layout.archive, layout.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            for store in sorted(os.listdir(layout.refuse_outside(top))):
                if (name := layout.session_of_store(store)) is not None:
                    yield name
                    continue
                # A name that was cut stands whole in the files there.
                if (name := session_named_in(top / store / INDEX_FILE)) is not None:
                    yield name
                if top == layout.archive:
                    yield from (copy.name for copy in snapshots_in(top / store))
    for id_ in ids(layout):
        if (name := TrashPlace(layout.trash_dir(), id_).name(layout)) is not None:
            yield name
    for orphan in list_orphans(layout):
        with suppress(BsdError):
            yield SessionName.parse(orphan.session)
    none: list[str] = []
    yield from map(SessionName.parse, ask(layout.search_db, _indexed, none))


def _indexed(index: SearchIndex) -> list[str]:
    return [name for agent in index.agents() for name in index.files(agent)]


def _kept(
    layout: Layout, name: SessionName, orphans: Sequence[Orphan], trashed: Sequence[str]
) -> KeptSession:
    places = [layout.store_dir(name), layout.archive_dir(name), layout.history_dir(name)]
    places += drafts_of(layout, name)
    trash, store = layout.trash_dir(), layout.store_name(name)
    for id_ in trashed:
        if id_.rpartition("_")[0] == store:
            places += TrashPlace(trash, id_).parts
    sizes = [each.size for each in orphans if each.session == str(name)]
    for place in places:
        for path in place.rglob("*") if place.is_dir() else [place]:
            with suppress(OSError):
                if path.name != FORGOTTEN and stat.S_ISREG((found := path.lstat()).st_mode):
                    sizes.append(found.st_size)
    in_place = False
    with suppress(BsdError):
        in_place = is_there(layout, name)
    return KeptSession(name, len(sizes), sum(sizes), in_place)
