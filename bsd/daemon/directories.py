"""The directories that hold sessions, the abilities of their file systems, and their problems."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import why_not_followed

# Changes made on other machines, or behind the mount, make no events here.
_NO_EVENTS = {"NFS", "CIFS", "SMB2", "9p", "FUSE"}


class Trouble(StrEnum):
    """Kinds of problems of watching."""

    ROOT_MISSING = "root_missing"
    AGENTS_MISSING = "agents_missing"
    SOURCE_MISSING = "source_missing"
    NO_ACCESS = "no_access"
    OUTSIDE = "outside"  # a link that leaves the root
    LINK = "link"  # one below a source
    SYNC_COPY = "sync_copy"  # files of a program that keeps directories alike on two machines
    WATCH_LIMIT = "watch_limit"
    INSTANCE_LIMIT = "instance_limit"
    UNWATCHED = "unwatched"
    HANDLER = "handler"  # our own code failed on an event


@dataclass(frozen=True, slots=True)
class WatchProblem:
    """Something that keeps changes from being noticed at once; the scan still finds them."""

    kind: Trouble
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text} (try: {self.remedy})"


def no_access(path: Path, error: OSError) -> WatchProblem:
    """Say that `path` cannot be looked into."""
    return WatchProblem(
        Trouble.NO_ACCESS,
        f"{path} cannot be read: {error.strerror or error}",
        "run bsd as the owner of these files, or mend their permissions",
    )


@dataclass(slots=True)
class Directories:
    """The directories found in one look; paths are resolved, as events name them."""

    trees: list[Path] = field(default_factory=list)  # `agents/` and the sources
    # root, agents/ and each agent's own; of sources, the directories above their agents' own
    outer: list[Path] = field(default_factory=list)
    sessions: dict[Path, tuple[str, ...]] = field(default_factory=dict)  # agents, by directory
    archived_in: dict[Path, Source] = field(default_factory=dict)  # sessions of all its agents
    program_archive: dict[str, list[os.DirEntry[str]]] = field(
        default_factory=dict
    )  # agent → its files
    problems: list[WatchProblem] = field(default_factory=list)
    exclusions: Exclusions | None = None  # of sessions; agents that are excluded are not here
    unreadable: set[str] = field(default_factory=set)  # agents of whom nothing can be said now
    complete: bool = False  # all could be listed, so an agent that is not there is gone

    def all(self) -> set[Path]:
        """Return every directory in which a change matters."""
        return {*self.trees, *self.outer, *self.sessions, *self.archived_in}

    def agents(self) -> Iterator[tuple[str, Path | None]]:
        """All agents and their directories; None where all that is left was put away."""
        known: set[str] = set()
        for directory, agents in self.sessions.items():
            known.update(agents)
            yield from ((agent, directory) for agent in agents)
        yield from ((agent, None) for agent in self.program_archive.keys() - known)

    @contextmanager
    def files(self, agent: str, directory: Path | None) -> Iterator[Iterable[os.DirEntry[str]]]:
        """The files in the agent's directory, and archived ones; raises OSError.

        Sessions that are excluded are left out.
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
    """List the directories of all agents and sources; an unreadable one becomes a problem.

    Excluded ones are left out. Raises ConfigError if the exclusions cannot be read.
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
    if exclusions:
        _leave_out(exclusions, found)
    return found


def _leave_out(exclusions: Exclusions, found: Directories) -> None:
    for directory, agents in list(found.sessions.items()):
        found.sessions[directory] = tuple(each for each in agents if not exclusions.agent(each))
        if not found.sessions[directory]:
            del found.sessions[directory]
    for agent in filter(exclusions.agent, list(found.program_archive)):
        del found.program_archive[agent]


def _look_at_source(layout: Layout, source: Source, found: Directories) -> None:
    # Only the source itself may be reached by a link: below it none was followed.
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
            found.complete = True  # a root of other programs' sessions needs no OpenClaw
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
    """Note an agent's directory of sessions, if it has one; whether the agent may be looked at."""
    try:
        sessions = layout.sessions_dir(agent)
    except (Invalid, NotFound):
        return False  # not a name that any command could use, or just gone
    except BsdError as error:  # a link that leaves the root
        found.unreadable.add(agent)
        found.problems.append(WatchProblem(Trouble.OUTSIDE, str(error), error.hint or "use --root"))
        return False
    try:
        is_dir = stat.S_ISDIR(os.stat(sessions).st_mode)
    except (FileNotFoundError, NotADirectoryError):
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
        f"{path} is a symbolic link, and bsd follows none there",
        "replace it by a directory, or the sessions in it are not looked after",
    )


def _no_source(source: Source, error: OSError) -> WatchProblem:
    if isinstance(error, FileNotFoundError):
        return WatchProblem(
            Trouble.SOURCE_MISSING,
            f"there is no {source.path}, which the settings name as a source",
            "nothing if it is to come; else mend `path` under [[sources]] in bsd.toml",
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
            "nothing; agents are noticed when they appear",
        )
    return no_access(layout.agents, error)


class Mounts:
    """The abilities of the file systems under one root; each is asked once.

    `can_exchange` tells whether names can be exchanged in a directory; None: it is not known.
    """

    def __init__(self, can_exchange: Callable[[Path], bool | None] = lambda _: None) -> None:
        self._can_exchange = can_exchange
        self._known: dict[int, Strength] = {}
        self._where: dict[int, Path] = {}

    def of(self, path: Path) -> Strength | None:
        """Judge the file system of `path`; None if it cannot be asked now."""
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
        """Say why no events come from a directory on a device; None if they do."""
        found = self._known.get(device) or self.of(path)
        if found is not None and found.filesystem in _NO_EVENTS:
            return f"no events come from {found.filesystem}"
        return None

    def look(self, paths: Iterable[Path]) -> None:
        """Get to know the file systems of `paths`."""
        for path in paths:
            self.of(path)

    def problems(self) -> list[str]:
        """The places of sessions that cannot be changed, and a hint for each."""
        return [
            f"sessions in {self._where[device]} and elsewhere on this {found.filesystem} are left "
            f"alone: {found.why} (try: {MOVE_ELSEWHERE})"
            for device, found in list(self._known.items())
            if found.level == "none"
        ]

    def snapshot(self) -> list[dict[str, Any]]:
        """The level for each file system, as status tells it."""
        return [
            {
                "path": str(self._where[device]),
                "level": found.level,
                "filesystem": found.filesystem,
                "why": found.why,
            }
            for device, found in list(self._known.items())
        ]
