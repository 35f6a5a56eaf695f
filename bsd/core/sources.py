"""Directories of other programs' sessions that the user has named, and names for what is in them.

Every directory that holds sessions is an agent: `claude-code:-home-me-project` stands for the
directory `-home-me-project` of the source `claude-code`, `codex:2025:09:24` for `2025/09/24` of
`codex`. The name says which directory it is, so no list of names is kept anywhere. Some programs
put sessions away into another directory, and take them back: they are the same sessions there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# What no name may hold, and the two characters that mean something here.
_UNSAFE = re.compile(rb"[^A-Za-z0-9._@-]")
_ESCAPE = re.compile(rb"\+([0-9A-F]{2})")
_STEP = ":"

# A way down to directories that hold sessions: each step has this name, or may have any (None).
# Only the latter are part of an agent's name.
Route = tuple[str | None, ...]


class ProgramArchive(NamedTuple):
    """Where a program puts whole sessions away: one directory beside the source, for all agents.

    A session keeps its name there: that of its file says whose it is.
    """

    called: str  # how that directory is called
    names: Callable[[str], tuple[str, ...] | None]  # of a file's agent; None: it is no session
    status: str  # the program's word for a session that lies there


@dataclass(frozen=True, slots=True)
class Source:
    """A directory of another program's sessions; `kind` names the program."""

    name: str  # how the names of its agents begin; holds no colon
    kind: str
    path: Path
    routes: tuple[Route, ...]  # each with another number of steps that may have any name
    program_archive: ProgramArchive | None = None

    def agent(self, *names: str) -> str:
        """The name of the agent whose sessions lie below these directories."""
        return _STEP.join((self.name, *map(_written, names)))

    def directory(self, agent: str) -> Path | None:
        """The directory that an agent's name stands for; None if it is none of this source."""
        name, *steps = agent.split(_STEP)
        names = [_read(step) for step in steps]
        route = next((each for each in self.routes if each.count(None) == len(names)), None)
        if name != self.name or route is None or not all(map(_is_shown, names)):
            return None
        left = iter(names)
        path = self.path.joinpath(*(next(left) if step is None else step for step in route))
        # One directory has one name: no other spelling of it counts.
        return path if self.agent(*names) == agent else None

    def agent_at(self, directory: Path) -> str | None:
        """The agent whose sessions a directory holds; None if none of this source's has it."""
        try:
            parts = directory.relative_to(self.path).parts
        except ValueError:
            return None
        for route in self.routes:
            fits = len(route) == len(parts) and all(
                step in (None, part) for step, part in zip(route, parts, strict=True)
            )
            if fits:
                own = [part for step, part in zip(route, parts, strict=True) if step is None]
                return self.agent(*own) if all(map(_is_shown, own)) else None
        return None

    def directories(self, *, strictly: bool = False) -> Iterator[tuple[str, Path]]:
        """Every directory that may hold sessions, with its agent's name; raises OSError.

        Links are not followed. What vanishes meanwhile is left out, and, unless this is asked
        `strictly`, what cannot be read further down.
        """
        for place in _walk(self.path, self.routes, strictly=strictly):
            if () in place.left:
                yield self.agent(*place.names), place.path

    @property
    def archived_in(self) -> Path | None:
        """The directory of sessions that were put away, if there is one now; no link is."""
        if self.program_archive is None:
            return None
        # Above it links may lie: its names are resolved, as those of all directories of sessions.
        path = Path(os.path.realpath(self.path.parent)) / self.program_archive.called
        return path if _is_directory(path) else None

    def agent_of(self, file: str) -> str | None:
        """Return the agent of an archived file; None if it is not a session."""
        names = self.program_archive.names(file) if self.program_archive else None
        return None if names is None else self.agent(*names)

    def archived_files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each file that was put away, and its agent; raises OSError."""
        if directory := self.archived_in:
            with os.scandir(directory) as found:
                for file in found:
                    if agent := self.agent_of(file.name):
                        yield agent, file

    def between(self) -> Iterator[Path]:
        """The directories in which those of the first route appear; raises OSError.

        Directories at the end of other routes are found by the next scan.
        """
        for place in _walk(self.path, (self.routes[0][:-1],)):
            yield place.path


class _RoutePlace(NamedTuple):
    """A directory on a route."""

    path: Path
    names: tuple[str, ...]  # of those on the way to it that may have any
    left: tuple[Route, ...]  # what is still to go


def _walk(top: Path, routes: tuple[Route, ...], *, strictly: bool = False) -> Iterator[_RoutePlace]:
    """All directories on these routes that are there, the topmost first."""
    found = [_RoutePlace(top, (), routes)]
    for place in found:  # it grows while it is walked
        yield place
        try:
            found += _next(place)
        except (FileNotFoundError, NotADirectoryError):
            if place is found[0]:
                raise
        except OSError:
            if strictly or place is found[0]:
                raise


def _next(place: _RoutePlace) -> list[_RoutePlace]:
    steps = dict.fromkeys(route[0] for route in place.left if route)
    found = []
    for step in steps:
        left = tuple(route[1:] for route in place.left if route and route[0] == step)
        if step is None:
            found += [
                _RoutePlace(place.path / name, (*place.names, name), left)
                for name in _directories_in(place.path)
            ]
        elif _is_directory(path := place.path / step):
            found.append(_RoutePlace(path, place.names, left))
    return found


def _directories_in(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if _is_shown(entry.name) and entry.is_dir(follow_symlinks=False)
        )


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_shown(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def _written(name: str) -> str:
    return _UNSAFE.sub(lambda found: b"+%02X" % found[0][0], os.fsencode(name)).decode()


def _read(text: str) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode()))
