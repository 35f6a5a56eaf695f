"""The directories that contain sessions, the abilities of their file systems, and problems."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from bsd.core.errors import BsdError, Invalid, NotFound
from bsd.core.exclude import Exclusions
from bsd.core.files import is_directory
from bsd.core.filesystem import MOVE_ELSEWHERE, Strength, strength, without_exchange
from bsd.core.layout import Layout, plain_directories
from bsd.core.sources import Source
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import program_of, why_not_followed

# Changes by other machines, or below the mount, cause no events on this machine.
_NO_EVENTS = {"NFS", "CIFS", "SMB2", "9p", "FUSE"}


class Trouble(StrEnum):
    """Kinds of problems with watching."""

    ROOT_MISSING = "root_missing"
    AGENTS_MISSING = "agents_missing"
    SOURCE_MISSING = "source_missing"
    NO_ACCESS = "no_access"
    OUTSIDE = "outside"  # a link that leaves the root
    LINK = "link"  # a link below a source
    SYNC_COPY = "sync_copy"  # conflict files of a program that syncs directories
    WATCH_LIMIT = "watch_limit"
    INSTANCE_LIMIT = "instance_limit"
    UNWATCHED = "unwatched"
    HANDLER = "handler"  # bsd's own code failed on an event


@dataclass(frozen=True, slots=True)
class WatchProblem:
    """A problem that delays the detection of changes; the scan still finds them."""

    kind: Trouble
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text} (try: {self.remedy})"


def no_access(path: Path, error: OSError) -> WatchProblem:
    """Return the problem that `path` cannot be read."""
    return WatchProblem(
        Trouble.NO_ACCESS,
        f"{path} cannot be read: {error.strerror or error}",
        "run bsd as the owner of these files, or correct their permissions",
    )


@dataclass(slots=True)
class Directories:
    """The directories of all sessions at one moment; paths are resolved, as in events."""

    trees: list[Path] = field(default_factory=list)  # `agents/` and the sources
    # The root, `agents/` and the directory of each agent; for sources, the directories above those
    # of their agents.
    outer: list[Path] = field(default_factory=list)
    sessions: dict[Path, tuple[str, ...]] = field(default_factory=dict)  # directory → agents
    archived_in: dict[Path, Source] = field(default_factory=dict)  # sessions archived by a program
    program_archive: dict[str, list[os.DirEntry[str]]] = field(
        default_factory=dict
    )  # agent → its files
    databases: dict[str, SessionDatabase] = field(default_factory=dict)  # by agent
    problems: list[WatchProblem] = field(default_factory=list)
    exclusions: Exclusions | None = None  # excluded sessions; excluded agents are left out
    # Agents of the root without a directory of sessions.
    without_sessions: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)  # agents whose directory cannot be read now
    complete: bool = False  # all directories could be listed, so a missing agent is deleted

    def all(self) -> set[Path]:
        """Return every directory whose changes are relevant."""
        return {*self.trees, *self.outer, *self.sessions, *self.archived_in}

    def agents(self) -> Iterator[tuple[str, Path | None]]:
        """Yield all agents with their directories.

        None: the agent has no directory, but archived sessions, or sessions in a database.
        """
        known: set[str] = set()
        for directory, agents in self.sessions.items():
            known.update(agents)
            yield from ((agent, directory) for agent in agents)
        others = self.program_archive.keys() | self.databases.keys()
        yield from ((agent, None) for agent in others - known)

    @contextmanager
    def files(self, agent: str, directory: Path | None) -> Iterator[Iterable[os.DirEntry[str]]]:
        """Open the list of files in the agent's directory, with files that its program archived.

        Excluded sessions are left out. Raises OSError.
        """
        away = self.program_archive.get(agent, ())
        if directory is None:
            yield self._without_excluded(agent, away)
            return
        with os.scandir(directory) as entries:
            yield self._without_excluded(agent, chain(entries, away))

    def _without_excluded(
        self, agent: str, files: Iterable[os.DirEntry[str]]
    ) -> Iterable[os.DirEntry[str]]:
        exclusions = self.exclusions
        if not exclusions:
            return files
        return (
            file for file in files if not exclusions.session(agent, file.name.removesuffix(ENDING))
        )


def find_directories(layout: Layout) -> Directories:
    """List the directories of all agents and sources, without excluded agents.

    A directory that cannot be read becomes a problem. Raises ConfigError if the exclusions cannot
    be read.
    """
    exclusions = layout.exclusions()
    found = Directories(exclusions=exclusions)
    _look_at_root(layout, found)
    for source in layout.sources:
        try:
            _look_at_source(layout, source, found)
        except OSError as error:
            found.complete = False
            found.problems.append(_no_source(source, error))
    for agent in _names_of_agents(found):
        with suppress(BsdError):  # it has just become a link
            if (database := program_of(layout, agent).database()) is not None:
                found.databases[agent] = database
    if exclusions:
        _leave_out(exclusions, found)
    return found


def _names_of_agents(found: Directories) -> set[str]:
    listed = (agent for agents in found.sessions.values() for agent in agents)
    return {*listed, *found.without_sessions}


def _leave_out(exclusions: Exclusions, found: Directories) -> None:
    for directory, agents in list(found.sessions.items()):
        found.sessions[directory] = tuple(each for each in agents if not exclusions.agent(each))
        if not found.sessions[directory]:
            del found.sessions[directory]
    for agent in filter(exclusions.agent, list(found.program_archive)):
        del found.program_archive[agent]
    for agent in filter(exclusions.agent, list(found.databases)):
        del found.databases[agent]


def _look_at_source(layout: Layout, source: Source, found: Directories) -> None:
    # The path of a source may contain links. Below a source, no link is followed.
    top = Path(os.path.realpath(source.path, strict=True))
    found.trees.append(top)
    found.outer += (top / path.relative_to(source.path) for path in source.between())
    links: list[tuple[str, Path]] = []
    for agent, path in source.directories(links=links):
        found.sessions[top / path.relative_to(source.path)] = (agent,)
    for agent, link in links:
        is_excluded = found.exclusions is not None and found.exclusions.agent(agent)
        told = None if is_excluded else why_not_followed(layout, source, link)
        if told is not None:
            found.problems.append(WatchProblem(Trouble.LINK, *told))
    if source.program_archive is not None:
        _look_at_put_away(source, source.program_archive.called, found)


def _look_at_put_away(source: Source, called: str, found: Directories) -> None:
    directory = source.archived_in
    if directory is None:
        if (named := source.path.parent / called).is_symlink():
            found.problems.append(_no_links(named))
        return
    found.archived_in[directory] = source
    try:
        for agent, file in source.archived_files():
            found.program_archive.setdefault(agent, []).append(file)
    except OSError as error:
        found.complete = False
        found.problems.append(no_access(directory, error))


def _look_at_root(layout: Layout, found: Directories) -> None:
    try:
        root = os.path.realpath(layout.root, strict=True)
        found.outer.append(Path(root))
        with os.scandir(layout.agents) as entries:
            names = sorted(entry.name for entry in entries if is_directory(entry))
        agents = Path(os.path.realpath(layout.agents))
        found.outer.append(agents)
    except OSError as error:
        if layout.sources and isinstance(error, FileNotFoundError):
            found.complete = True  # a root with sources only does not need OpenClaw
        else:
            found.problems.append(_no_agents(layout, error))
        return
    found.complete = True
    inside = agents.is_relative_to(root)
    if inside:
        found.trees.append(agents)
    for name in names:
        if layout.source_of(name) is not None:
            continue
        if inside and (plain := plain_directories(agents, name)):
            own, sessions = plain
            found.sessions[sessions] = (*found.sessions.get(sessions, ()), name)
            found.outer.append(own)
        elif _look_at_sessions(layout, name, found):
            found.outer.append(Path(os.path.realpath(layout.agents / name)))


def _look_at_sessions(layout: Layout, agent: str, found: Directories) -> bool:
    """Add an agent's directory of sessions, if it has one; return False if it is not an agent."""
    try:
        sessions = layout.sessions_dir(agent)
    except (Invalid, NotFound):
        return False  # the name is not valid for an agent, or the directory was just deleted
    except BsdError as error:  # a link that leaves the root
        found.unreadable.add(agent)
        found.problems.append(WatchProblem(Trouble.OUTSIDE, str(error), error.hint or "use --root"))
        return False
    try:
        is_dir = stat.S_ISDIR(os.stat(sessions).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        found.without_sessions.add(agent)
        return True
    except OSError as error:
        found.unreadable.add(agent)
        found.problems.append(no_access(sessions, error))
        return True
    if is_dir:
        found.sessions[sessions] = (*found.sessions.get(sessions, ()), agent)
    return True


def _no_links(path: Path) -> WatchProblem:
    return WatchProblem(
        Trouble.OUTSIDE,
        f"{path} is a symbolic link, and bsd does not follow links there",
        "replace it by a directory; until then bsd ignores the sessions in it",
    )


def _no_source(source: Source, error: OSError) -> WatchProblem:
    if isinstance(error, FileNotFoundError):
        return WatchProblem(
            Trouble.SOURCE_MISSING,
            f"there is no {source.path}, which is a source in the settings",
            "wait if it will be created later; else correct `path` under [[sources]] in bsd.toml",
        )
    return no_access(source.path, error)


def _no_agents(layout: Layout, error: OSError) -> WatchProblem:
    if isinstance(error, FileNotFoundError):
        if not layout.root.exists():
            return WatchProblem(
                Trouble.ROOT_MISSING,
                f"there is no {layout.root}",
                "start OpenClaw once, or name another directory with --root",
            )
        return WatchProblem(
            Trouble.AGENTS_MISSING,
            f"there is no {layout.agents}: no agent has run yet",
            "wait; bsd detects agents when they appear",
        )
    return no_access(layout.agents, error)


class Mounts:
    """The abilities of the file systems under one root; each file system is tested once.

    `can_exchange` returns whether two names can be exchanged in a directory; None: not known.
    """

    def __init__(self, can_exchange: Callable[[Path], bool | None] = lambda _: None) -> None:
        self._can_exchange = can_exchange
        self._known: dict[int, Strength] = {}
        self._where: dict[int, Path] = {}

    def of(self, path: Path) -> Strength | None:
        """Return the strength of the file system of `path`; None if it cannot be tested now."""
        try:
            device = os.stat(path).st_dev
            if device not in self._known:
                self._known[device] = strength(path)
                self._where[device] = path
            if self._known[device].level == "weak" and self._can_exchange(path) is False:
                self._known[device] = without_exchange(self._known[device])
        except OSError:
            return None
        return self._known[device]

    def scan_only(self, path: Path, device: int) -> str | None:
        """Return why a directory on a device causes no events; None if it does."""
        found = self._known.get(device) or self.of(path)
        if found is not None and found.filesystem in _NO_EVENTS:
            return f"no events come from {found.filesystem}"
        return None

    def look(self, paths: Iterable[Path]) -> None:
        """Test the file systems of `paths`."""
        for path in paths:
            self.of(path)

    def problems(self) -> list[str]:
        """Return a sentence with a hint for each file system whose sessions cannot be changed."""
        return [
            f"bsd does not edit sessions in {self._where[device]} and elsewhere on this "
            f"{found.filesystem}: {found.why} (try: {MOVE_ELSEWHERE})"
            for device, found in list(self._known.items())
            if found.level == "none"
        ]

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the level of each file system, as the status has it."""
        return [
            {
                "path": str(self._where[device]),
                "level": found.level,
                "filesystem": found.filesystem,
                "why": found.why,
            }
            for device, found in list(self._known.items())
        ]
