"""Measuring and removing a directory tree through open directories.

Only one descriptor is open at a time, however deep the tree is. Links are not followed, and other
mounts are not entered.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import Enum

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512  # bytes; the unit of st_blocks on all systems


class Obstacle(Exception):
    """A part of a tree that prevents its removal: `where` (a path in the tree) and `why`."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class Links:
    """Counts removed names of files with several names; the last name frees their bytes."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], int] = {}  # number of names, before any was removed
        self._gone: Counter[tuple[int, int]] = Counter()

    def freed(self, found: Measure) -> int:
        """Count a tree as removed; return the bytes that this frees."""
        amount = found.bytes
        for inode, (names, blocks, here) in found.linked.items():
            self._gone[inode] += here
            if self._gone[inode] >= self._names.setdefault(inode, names):
                amount += blocks * _BLOCK
        return amount


@dataclass(slots=True)
class Measure:
    """The size of a tree. Bytes are disk usage: holes do not count.

    `linked`: files with several names, by (device, inode), as (number of names, blocks, number of
    names in this tree). Their bytes are not included in `bytes`.
    """

    bytes: int = 0
    files: int = 0
    newest: float | None = None  # mtime of entries that are not directories, epoch seconds
    oldest: float | None = None
    linked: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)

    def add(self, found: os.stat_result) -> None:
        """Count an entry that is not a directory."""
        self.files += 1
        self.newest = max(found.st_mtime, self.newest or found.st_mtime)
        self.oldest = min(found.st_mtime, self.oldest or found.st_mtime)
        if found.st_nlink <= 1:
            self.bytes += found.st_blocks * _BLOCK
            return
        inode = (found.st_dev, found.st_ino)
        here = self.linked[inode][2] if inode in self.linked else 0
        self.linked[inode] = (found.st_nlink, found.st_blocks, here + 1)

    @property
    def all_bytes(self) -> int:
        """The bytes of all files, each counted once, including files with names elsewhere."""
        return self.bytes + sum(blocks * _BLOCK for _, blocks, _ in self.linked.values())


class _Step(Enum):
    ENTER = "enter"
    FILE = "file"
    LEAVE = "leave"


def measure(top: int, *, skip: str | None = None) -> Measure:
    """Measure a tree whose top is open; raises Obstacle if the tree could not be removed.

    `skip`: a name at the top whose times are ignored (its bytes count).
    """
    found = Measure()
    ordinary = os.geteuid() != 0
    for step, name, directory, levels in _walk(top):
        if step is _Step.FILE:
            _count(found, name, directory, levels, skip)
        elif step is _Step.ENTER:
            status = os.fstat(directory)
            found.bytes += status.st_blocks * _BLOCK
            if ordinary and not _removable(status, directory):
                why = "a directory of another user that may not be written to"
                raise Obstacle(_place(levels, name), why)
    return found


def held_bytes(top: int) -> int:
    """Return the bytes of a tree while programs use it; skips unreadable directories.

    Raises Obstacle if a directory is moved during the walk.
    """
    found = Measure()
    for step, name, directory, _ in _walk(top, lenient=True):
        with suppress(FileNotFoundError, PermissionError):
            if step is _Step.FILE:
                found.add(os.stat(name, dir_fd=directory, follow_symlinks=False))
            elif step is _Step.ENTER:
                found.bytes += os.fstat(directory).st_blocks * _BLOCK
    return found.all_bytes


def _count(
    found: Measure, name: str, directory: int, levels: list[_Level], skip: str | None
) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    except PermissionError:
        raise Obstacle(_place(levels, name), "permission denied") from None
    times = found.newest, found.oldest
    found.add(status)
    if name == skip and len(levels) == 1:
        found.newest, found.oldest = times


def remove(top: int) -> None:
    """Remove the content of a tree whose top is open; raises Obstacle, OSError."""
    for step, name, directory, _ in _walk(top):
        if step is _Step.FILE:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        elif step is _Step.ENTER:
            mode = os.fstat(directory).st_mode
            if mode & 0o300 != 0o300:
                with suppress(PermissionError):  # another user's; the next step reports it
                    os.fchmod(directory, stat.S_IMODE(mode) | 0o700)
        elif name:
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=directory)


def remove_inside(parent: int, name: str) -> None:
    """Remove a directory and its content; has no effect if it is missing."""
    try:
        top = os.open(name, _DIRECTORY, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        remove(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _removable(status: os.stat_result, directory: int) -> bool:
    """Return True if this (ordinary) user may empty a directory, after a chmod if needed."""
    if status.st_uid == os.geteuid():
        return True
    effective = os.access in os.supports_effective_ids
    return os.access(".", os.W_OK | os.X_OK, dir_fd=directory, effective_ids=effective)


@dataclass(slots=True)
class _Level:
    name: str
    identity: tuple[int, int]
    names: Iterator[tuple[str, bool]]


def _walk(top: int, *, lenient: bool = False) -> Iterator[tuple[_Step, str, int, list[_Level]]]:
    """Yield (step, name, open directory, levels) for each name; LEAVE comes after the content.

    For ENTER, the open directory is the named directory itself; for FILE and LEAVE, it is the
    directory that contains the name. `levels` lead from the top to the containing directory.

    Args:
        lenient: skip directories that cannot be entered.
    """
    here = os.dup(top)
    levels: list[_Level] = []
    try:
        device = os.fstat(here).st_dev
        yield _Step.ENTER, "", here, levels
        levels.append(_Level("", _identity(here), _entries(here, levels, "")))
        while levels:
            level = levels[-1]
            name, is_directory = next(level.names, ("", False))
            if not name:
                levels.pop()
                if levels:
                    above = _climb(here, levels)
                    os.close(here)
                    here = above
                yield _Step.LEAVE, level.name, here, levels
            elif is_directory:
                below = None
                with suppress(Obstacle) if lenient else nullcontext():
                    below = _descend(here, name, device, levels)
                if below is None:
                    continue
                os.close(here)
                here = below
                yield _Step.ENTER, name, here, levels
                names: Iterator[tuple[str, bool]] = iter(())
                with suppress(Obstacle) if lenient else nullcontext():
                    names = _entries(here, levels, name)
                levels.append(_Level(name, _identity(here), names))
            else:
                yield _Step.FILE, name, here, levels
    finally:
        os.close(here)


def _entries(directory: int, levels: list[_Level], name: str) -> Iterator[tuple[str, bool]]:
    """Return the names in a directory, each with "is a directory".

    Reads all names at once, since the descriptor is closed while the walk is further down.
    """
    try:
        with os.scandir(directory) as found:
            return iter([(one.name, one.is_dir(follow_symlinks=False)) for one in found])
    except PermissionError:
        raise Obstacle(_place(levels, name), "permission denied") from None


def _descend(directory: int, name: str, device: int, levels: list[_Level]) -> int | None:
    try:
        below = os.open(name, _DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):  # just deleted or replaced
        return None
    except PermissionError:
        raise Obstacle(_place(levels, name), "permission denied") from None
    if os.fstat(below).st_dev != device:
        os.close(below)
        raise Obstacle(_place(levels, name), "another file system is mounted here")
    return below


def _climb(here: int, levels: list[_Level]) -> int:
    above = os.open("..", _DIRECTORY, dir_fd=here)
    if _identity(above) != levels[-1].identity:
        os.close(above)
        raise Obstacle(_place(levels, ""), "it has just been moved")
    return above


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def _place(levels: list[_Level], name: str) -> str:
    names = [level.name for level in levels[1:]]
    return "/".join([*names, name] if name else names) or "."
