"""Directories of other programs' sessions that the user has named, and names for what is in them.

Every directory that holds sessions is an agent: `claude-code:-home-me-project` stands for the
directory `-home-me-project` of the source `claude-code`, `codex:2025:09:24` for `2025/09/24` of
`codex`. The name says which directory it is, so no list of names is kept anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What no name may hold, and the two characters that mean something here.
_UNSAFE = re.compile(rb"[^A-Za-z0-9._@-]")
_ESCAPE = re.compile(rb"\+([0-9A-F]{2})")
_STEP = ":"


@dataclass(frozen=True, slots=True)
class Source:
    """One such directory. `kind` is for those who know what its owner does."""

    name: str  # how the names of its agents begin; holds no colon
    kind: str
    path: Path
    levels: int  # directories between it and a session, 1 or more

    def agent(self, *steps: str) -> str:
        """The name of the agent whose sessions lie below these directories."""
        return _STEP.join((self.name, *map(_written, steps)))

    def directory(self, agent: str) -> Path | None:
        """The directory that an agent's name stands for; None if it is none of this source."""
        name, *steps = agent.split(_STEP)
        read = [_read(step) for step in steps]
        if name != self.name or len(read) != self.levels or not all(map(_is_shown, read)):
            return None
        # One directory has one name: no other spelling of it counts.
        return self.path.joinpath(*read) if self.agent(*read) == agent else None

    def directories(self) -> Iterator[tuple[str, Path]]:
        """Every directory that may hold sessions, with its agent's name; raises OSError.

        Links are not followed. What vanishes meanwhile, or cannot be read further down, is left
        out.
        """
        for steps, path in _below(self.path, self.levels):
            if len(steps) == self.levels:
                yield self.agent(*steps), path

    def between(self) -> Iterator[Path]:
        """The directories in which others appear that may hold sessions; raises OSError."""
        yield self.path
        for steps, path in _below(self.path, self.levels - 1):
            if steps:
                yield path


def _below(top: Path, levels: int) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The directories down to so many levels below one, and how they are called from there."""
    found: list[tuple[tuple[str, ...], Path]] = [((), top)]
    for steps, path in found:  # it grows while it is walked
        if steps:
            yield steps, path
        if len(steps) == levels:
            continue
        try:
            with os.scandir(path) as entries:
                names = sorted(
                    entry.name
                    for entry in entries
                    if _is_shown(entry.name) and entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            if not steps:
                raise
            continue
        found += [((*steps, name), path / name) for name in names]


def _is_shown(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def _written(name: str) -> str:
    return _UNSAFE.sub(lambda found: b"+%02X" % found[0][0], os.fsencode(name)).decode()


def _read(text: str) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode()))
