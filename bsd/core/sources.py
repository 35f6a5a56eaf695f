"""Sources: directories of other programs' sessions, and the names of agents in them.

Every directory that contains sessions is an agent: `claude-code:-home-me-project` stands for the
directory `-home-me-project` of the source `claude-code`, `codex:2025:09:24` for `2025/09/24` of
`codex`, and `pi:.` for the directory of the source `pi` itself. The name determines the directory,
so bsd needs no list of names. Some programs archive sessions in another directory and move them
back; a session keeps its identity there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Bytes that are escaped in a name: those not allowed in names, and `:` and `+`.
_UNSAFE = re.compile(rb"[^A-Za-z0-9._@-]")
_ESCAPE = re.compile(rb"\+([0-9A-F]{2})")
_STEP = ":"
_SESSIONS = (".jsonl", ".db")  # endings of files with sessions
_ITSELF = "."  # in an agent's name: the source's own directory

# A route to directories with sessions. A step is a fixed name, any name (None), or any name that
# matches an expression. Only names that are not fixed are part of an agent's name.
RouteStep = str | re.Pattern[str] | None
Route = tuple[RouteStep, ...]


class ProgramArchive(NamedTuple):
    """The directory in which a program archives whole sessions: beside the source, for all agents.

    A session keeps its file name there; the agent is derived from the file name.
    """

    called: str  # the name of the directory
    names: Callable[[str], tuple[str, ...] | None]  # names in a file's agent; None: not a session
    status: str  # the program's word for an archived session


@dataclass(frozen=True, slots=True)
class Source:
    """A directory of another program's sessions; `kind` names the program."""

    name: str  # begins the names of its agents; contains no colon
    kind: str
    path: Path
    routes: tuple[Route, ...]  # they differ in the number of steps whose name is not fixed
    program_archive: ProgramArchive | None = None
    # Converts the path of a project to the name of the first directory on a route; keeps `*` and
    # `?`. None: the program does not store sessions by project.
    project_directory: Callable[[str], str] | None = None
    compresses: bool = False  # its program compresses transcripts, and adds `.zst` to their names

    def agent(self, *names: str) -> str:
        """Return the name of the agent for the names of the directories on a route."""
        return _STEP.join((self.name, *(map(_written, names) if names else (_ITSELF,))))

    def directory(self, agent: str) -> Path | None:
        """Return the directory of an agent; None if the agent is not in this source."""
        name, *steps = agent.split(_STEP)
        names = [] if steps == [_ITSELF] else [_read(step) for step in steps]
        route = next((each for each in self.routes if len(_open_steps(each)) == len(names)), None)
        if name != self.name or route is None or not all(map(_is_shown, names)):
            return None
        if not all(map(_fits, _open_steps(route), names)):
            return None
        left = iter(names)
        path = self.path.joinpath(
            *(step if isinstance(step, str) else next(left) for step in route)
        )
        # A directory has exactly one name: refuse other spellings.
        return path if self.agent(*names) == agent else None

    def first_directory(self, agent: str) -> str | None:
        """Return the first directory name on the path from the source to an agent's sessions."""
        directory = self.directory(agent)
        parts = () if directory is None else directory.relative_to(self.path).parts
        return parts[0] if parts else None

    def agent_at(self, directory: Path) -> str | None:
        """Return the agent whose sessions a directory contains; None if it is not on a route."""
        try:
            parts = directory.relative_to(self.path).parts
        except ValueError:
            return None
        for route in self.routes:
            if len(route) == len(parts) and all(map(_fits, route, parts)):
                steps = zip(route, parts, strict=True)
                own = [part for step, part in steps if not isinstance(step, str)]
                return self.agent(*own) if all(map(_is_shown, own)) else None
        return None

    def directories(
        self, *, strictly: bool = False, links: list[tuple[str, Path]] | None = None
    ) -> Iterator[tuple[str, Path]]:
        """Yield every directory that may contain sessions, with its agent's name; raises OSError.

        Links are not followed, directories that vanish meanwhile are skipped. The source's own
        directory is included only if it contains files that may be sessions.

        Args:
            strictly: raise OSError for every unreadable directory, not only for the topmost.
            links: this list gets the links to directories of sessions, with their agents' names.
        """
        linked: list[_RoutePlace] = []
        for place in _walk(self.path, self.routes, strictly=strictly, links=linked):
            if () in place.left and (place.names or _has_transcripts(place.path)):
                yield self.agent(*place.names), place.path
        if links is not None:
            for link in linked:
                links += (
                    (self.agent(*link.names), link.path) for rest in link.left if _leads(link, rest)
                )

    @property
    def archived_in(self) -> Path | None:
        """The directory of archived sessions; None if it is missing or a link."""
        if self.program_archive is None:
            return None
        # Its parents may be links, so they are resolved, as for all directories of sessions.
        path = Path(os.path.realpath(self.path.parent)) / self.program_archive.called
        return path if _is_directory(path) else None

    def agent_of(self, file: str) -> str | None:
        """Return the agent of an archived file; None if it is not a session."""
        names = self.program_archive.names(file) if self.program_archive else None
        return None if names is None else self.agent(*names)

    def archived_files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield each archived session file with its agent; raises OSError."""
        if directory := self.archived_in:
            with os.scandir(directory) as found:
                for file in found:
                    if agent := self.agent_of(file.name):
                        yield agent, file

    def between(self) -> Iterator[Path]:
        """Yield the directories in which new directories of the first route appear; raises OSError.

        New directories of other routes are found by the next scan.
        """
        for place in _walk(self.path, (self.routes[0][:-1],)):
            yield place.path


def names_above(agent: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names above an agent as (agent, None), including itself, and (agent, session).

    `a:b:c` is part of the agents `a` and `a:b`. It may also be part of the session `b` of `a` or of
    the session `c` of `a:b`, since the agent for the parts of a session is named AGENT:SESSION.
    """
    steps = agent.split(_STEP)
    for end in range(1, len(steps) + 1):
        above = _STEP.join(steps[:end])
        yield above, None
        if end < len(steps):
            yield above, steps[end]


class _RoutePlace(NamedTuple):
    """A directory on a route."""

    path: Path
    names: tuple[str, ...]  # of the directories on the route whose name is not fixed
    left: tuple[Route, ...]  # the remaining steps of each route


def _walk(
    top: Path,
    routes: tuple[Route, ...],
    *,
    strictly: bool = False,
    links: list[_RoutePlace] | None = None,
) -> Iterator[_RoutePlace]:
    """Yield all existing directories on these routes, topmost first; `links` gets links."""
    found = [_RoutePlace(top, (), routes)]
    for place in found:  # the loop appends to it
        yield place
        try:
            for below, is_link in _next(place):
                if not is_link:
                    found.append(below)
                elif links is not None:
                    links.append(below)
        except (FileNotFoundError, NotADirectoryError):
            if place is found[0]:
                raise
        except OSError:
            if strictly or place is found[0]:
                raise


def _next(place: _RoutePlace) -> Iterator[tuple[_RoutePlace, bool]]:
    """Yield the directories and links one step further on a route, each with "is a link"."""
    for step in dict.fromkeys(route[0] for route in place.left if route):
        left = tuple(route[1:] for route in place.left if route and route[0] == step)
        if isinstance(step, str):
            path = place.path / step
            if (mode := _mode(path)) is not None and (stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                yield _RoutePlace(path, place.names, left), stat.S_ISLNK(mode)
            continue
        for name, is_link in _directories_in(place.path):
            if _fits(step, name):
                yield _RoutePlace(place.path / name, (*place.names, name), left), is_link


def _directories_in(path: Path) -> list[tuple[str, bool]]:
    """Return the names of directories and links in a directory, each with "is a link"."""
    with os.scandir(path) as entries:
        return sorted(
            (entry.name, entry.is_symlink())
            for entry in entries
            if _is_shown(entry.name) and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
        )


def _leads(link: _RoutePlace, rest: Route) -> bool:
    """Return True if a link leads to a directory that could contain sessions."""
    fixed = [step for step in rest if isinstance(step, str)]
    return len(fixed) == len(rest) and os.path.isdir(link.path.joinpath(*fixed))


def _has_transcripts(directory: Path) -> bool:
    """Return True if a directory has files that may be transcripts, or a database with them."""
    with suppress(OSError), os.scandir(directory) as entries:
        return any(_is_shown(entry.name) and entry.name.endswith(_SESSIONS) for entry in entries)
    return False


def _open_steps(route: Route) -> list[RouteStep]:
    """Return the steps whose names are part of an agent's name."""
    return [step for step in route if not isinstance(step, str)]


def _fits(step: RouteStep, name: str) -> bool:
    if isinstance(step, re.Pattern):
        return step.fullmatch(name) is not None
    return step is None or step == name


def _is_directory(path: Path) -> bool:
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    with suppress(OSError):
        return os.lstat(path).st_mode
    return None


def _is_shown(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def _written(name: str) -> str:
    return _UNSAFE.sub(lambda found: b"+%02X" % found[0][0], os.fsencode(name)).decode()


def _read(text: str) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode()))
