"""Forgets all stored data of a project's sessions for good.

This is for users who have deleted a project on purpose, for example with `claude purge`, and want
no data of it in the archive. `forget.py` forgets each session together with its parts; then the
copy of the project's memory is deleted. If a session cannot be forgotten, the run continues with
the others.

A project is a directory. Its sessions are those whose lines name the directory, or a directory
below it, as the place where they began, and those that their program keeps in a directory named
after the project.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.core.layout import Layout, SessionName, check_name
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import parent_of
from bsd.maintenance.forget import Forget, Forgotten
from bsd.maintenance.leftovers import drafts_of, is_there
from bsd.maintenance.project_memory import forget_memory, memory_copies
from bsd.maintenance.titles import ends_in
from bsd.maintenance.trashed import TrashPlace, ids, transcripts
from bsd.sessions.commit.late import Orphan, list_orphans
from bsd.store.entry_notes import FORGOTTEN
from bsd.store.index import INDEX_FILE, session_named_in
from bsd.store.search import SearchIndex, ask
from bsd.store.snapshots import snapshots_in, snapshots_of
from bsd.transcripts.agents.opening import open_file, open_transcript
from bsd.transcripts.agents.programs import program_of


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session of a project, and the files that bsd stores of it. `size`: bytes."""

    name: SessionName
    files: int
    size: int
    in_place: bool


@dataclass(frozen=True, slots=True)
class KeptProject:
    """The stored data of a project: its sessions, and the copies of its memory."""

    agents: tuple[str, ...]
    sessions: tuple[KeptSession, ...]
    memory: dict[str, tuple[int, int]]  # files and bytes by agent
    unread: dict[SessionName, BsdError]  # sessions whose directory could not be read, and why


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The result for one session: `forgotten`, or the problem."""

    name: SessionName
    forgotten: Forgotten | None
    problem: BsdError | None = None


def find_project(layout: Layout, text: str) -> KeptProject:
    """Return the stored sessions and memory of a project.

    Args:
        layout: the root.
        text: an agent's name, or the project's directory (a path with a slash, or `.`).

    Raises:
        NotFound: the project has neither stored data nor sessions.
        Invalid: `text` is not a valid name of an agent, or it is the root directory.
    """
    if is_path(text) and any(path == path.parent for path in map(PurePath, _paths(text))):
        raise Invalid(
            f"{text} is no directory of a project: every session began below it",
            hint="name the directory of one project, or an agent",
        )
    called = _agents_called(layout, text)
    names = set(_all_names(layout))
    chosen = {name for name in names if name.agent in called}
    others: set[SessionName] = set()
    unread: dict[SessionName, BsdError] = {}
    agents = set(called)
    if is_path(text):
        began, elsewhere, unread = _begun_in(layout, text, names)
        named = {*_agents_of_projects(layout, _paths(text))}
        # The programs write several directories as one name: /a/b-c and /a/b/c.
        others = {
            name
            for name in chosen & elsewhere.keys()
            if name.agent in named and name.agent in _agents_of_projects(layout, elsewhere[name])
        }
        chosen = (chosen - others) | began.keys()
        unread = {name: why for name, why in unread.items() if name not in chosen}
        agents -= {name.agent for name in others} - {name.agent for name in chosen}
        agents |= {
            name.agent for name in began if name.agent in _agents_of_projects(layout, began[name])
        }
    chosen |= {name for name in names if _is_part_of(layout, name, chosen, agents, others)}
    memory = {}
    for agent, place in memory_copies(layout):
        if agent in agents:
            sizes = [path.lstat().st_size for path in place.rglob("*") if path.is_file()]
            memory[agent] = len(sizes), sum(sizes)
    if not chosen and not memory:
        where = ", ".join(called) or text
        raise NotFound(
            f"bsd stores no data of {text}" + ("" if where == text else f" ({where})"),
            hint="`bsd archive list` and `bsd sessions` show the names of agents",
        )
    orphans, trashed = list_orphans(layout), ids(layout)
    sessions = tuple(_kept(layout, name, orphans, trashed) for name in sorted(chosen))
    found = {name.agent for name in chosen if not _parent(layout, name)} | memory.keys()
    return KeptProject(tuple(sorted(found)), sessions, memory, unread)


def forget_project(
    forgetting: Forget, layout: Layout, project: KeptProject, *, actor: str
) -> Iterator[ForgetResult]:
    """Forget the sessions of a project, parts before their sessions, then its memory.

    Generator: each step yields the result for a session.

    Raises:
        BsdError: the copy of the memory cannot be deleted.
    """
    for session in sorted(project.sessions, key=lambda each: _parent(layout, each.name) is None):
        if session.in_place and not session.files:
            continue  # only its transcript and its indexed text exist, and both stay
        try:
            yield ForgetResult(session.name, forgetting.session(session.name))
        except NotFound:  # deleted meanwhile
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


def is_path(text: str) -> bool:
    """Return whether a text names a project by its directory, and not by an agent."""
    return os.sep in text or text.startswith("~") or text in {".", ".."}


def _paths(text: str) -> tuple[str, str]:
    """Return the absolute path as typed, and the same path with its links resolved."""
    path = os.path.abspath(os.path.expanduser(text))
    return path, os.path.realpath(path)


def _agents_called(layout: Layout, text: str) -> tuple[str, ...]:
    """Return the agents that `text` may mean; these agents need not exist.

    A path means the agent whose sessions lie there, and the agents named after that directory.
    """
    if not is_path(text):
        return (check_name(text, "agent"),)
    found = [each for s in layout.sources if (each := s.agent_at(Path(_paths(text)[0])))]
    return tuple(dict.fromkeys((*found, *_agents_of_projects(layout, _paths(text)))))


def _agents_of_projects(layout: Layout, directories: Iterable[str]) -> tuple[str, ...]:
    """Return the agents to which programs assign the sessions of these directories."""
    found: list[str | None] = []
    for source in layout.sources:
        if (name_of := source.project_directory) is not None:
            found += [source.agent_at(source.path / name_of(each)) for each in directories]
    return tuple(filter(None, found))


def _directory_test(text: str) -> Callable[[str], bool]:
    """Return a predicate that is true for the project's directory and directories below it."""
    paths = set(map(PurePath, _paths(text)))

    def is_in(directory: str) -> bool:
        path = PurePath(os.path.normpath(directory))
        return not paths.isdisjoint((path, *path.parents))

    return is_in


def _begun_in(
    layout: Layout, text: str, names: Collection[SessionName]
) -> tuple[dict[SessionName, set[str]], dict[SessionName, set[str]], dict[SessionName, BsdError]]:
    """Return the sessions that began in or below a directory, and the other sessions.

    Parts of other sessions are left out: they are forgotten with their session.

    Returns:
        The sessions that began there and those that began elsewhere, each with its directories,
        and the unreadable sessions.
    """
    found: dict[SessionName, set[str]] = {}
    elsewhere: dict[SessionName, set[str]] = {}
    unread: dict[SessionName, BsdError] = {}
    trashed, is_in = list(transcripts(layout)), _directory_test(text)
    for name in sorted(names):
        if _parent(layout, name) is not None:
            continue
        try:
            directories = _directories_of(layout, name, trashed)
        except (BsdError, OSError) as error:
            unread[name] = os_problem(error, f"reading {name}")
            continue
        if directories and all(map(is_in, directories)):
            found[name] = directories
        elif not any(map(is_in, directories)) and directories:
            elsewhere[name] = directories
    return found, elsewhere, unread


def _directories_of(
    layout: Layout, name: SessionName, trashed: Collection[tuple[SessionName, TrashPlace]]
) -> set[str]:
    """Return the directories in which a session began, by its transcript, snapshots and trash.

    Empty if no line names a directory. Raises BsdError, OSError.
    """
    program = program_of(layout, name.agent)
    found = {copy.working_directory for copy in snapshots_of(layout, name)}
    opened = [partial(open_file, place.transcript) for each, place in trashed if each == name]
    for open_it in (*opened, partial(open_transcript, layout, name)):
        with suppress(NotFound), open_it() as source:
            found.add(ends_in(source, program).directory)
    return set(filter(None, found))


def _is_part_of(
    layout: Layout,
    name: SessionName,
    sessions: Collection[SessionName],
    agents: Collection[str],
    others: Collection[SessionName],
) -> bool:
    """Return whether a session is a part of one of these, or of one of an agent but for others."""
    parent = _parent(layout, name)
    if parent is None or parent in others:
        return False
    return parent in sessions or parent.agent in agents


def _parent(layout: Layout, name: SessionName) -> SessionName | None:
    """Return the session of which a session is a part, if any."""
    with suppress(BsdError):
        parent = parent_of(layout, program_of(layout, name.agent))
        return SessionName.parse(parent) if parent else None
    return None


def _all_names(layout: Layout) -> Iterator[SessionName]:
    """Yield the names of all sessions that exist or have stored data; names may repeat."""
    with suppress(ConfigError):  # a root without agents
        yield from catalog.names(layout)
    for top in (layout.extracted, layout.archive, layout.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            for store in sorted(os.listdir(layout.refuse_outside(top))):
                if (name := layout.session_of_store(store)) is not None:
                    yield name
                    continue
                # The directory's name holds a shortened name; the files in it hold the whole name.
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
