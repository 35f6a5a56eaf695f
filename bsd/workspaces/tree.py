"""Walking a directory tree by open directories: measuring it, removing it.

One descriptor is open at a time, however deep a tree is; no link is followed, and nothing on
another mount is touched.
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
_BLOCK = 512  # bytes, the unit of st_blocks everywhere


class Obstacle(Exception):
    """Something in a tree that keeps the tree from being removed: where, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class Links:
    """Counts removed names of files with several names: their bytes come free with the last."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], int] = {}  # at first sight
        self._gone: Counter[tuple[int, int]] = Counter()

    def freed(self, found: Measure) -> int:
        """Count a tree as removed; returns the bytes that come free by that."""
        amount = found.bytes
        for inode, (names, blocks, here) in found.linked.items():
            self._gone[inode] += here
            if self._gone[inode] >= self._names.setdefault(inode, names):
                amount += blocks * _BLOCK
        return amount


@dataclass(slots=True)
class Measure:
    """The size of a tree. Bytes are those that the disk has given out: holes count for nothing.

    `linked`: files with several names, by (device, inode): the number of their names, their blocks,
    and their names in this tree. They are not in `bytes`.
    """

    bytes: int = 0
    files: int = 0
    newest: float | None = None  # modification of files that are no directories, epoch seconds
    oldest: float | None = None
    linked: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)

    def add(self, found: os.stat_result) -> None:
        """Count an entry that is no directory."""
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
        """Return the bytes of all files, each once, also of files with names elsewhere."""
        return self.bytes + sum(blocks * _BLOCK for _, blocks, _ in self.linked.values())


class _Step(Enum):
    ENTER = "enter"
    FILE = "file"
    LEAVE = "leave"


def measure(top: int, *, skip: str | None = None) -> Measure:
    """Measure a tree whose top is open; raises Obstacle if it could not be removed.

    `skip`: a name at the top whose times do not count (its bytes do).
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
    """Return the bytes of a tree in which programs work; unreadable directories are left out.

    Raises Obstacle if a directory was moved meanwhile.
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
    """Remove everything in a tree whose top is open; raises Obstacle, OSError."""
    for step, name, directory, _ in _walk(top):
        if step is _Step.FILE:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        elif step is _Step.ENTER:
            mode = os.fstat(directory).st_mode
            if mode & 0o300 != 0o300:
                with suppress(PermissionError):  # not ours: the next step tells
                    os.fchmod(directory, stat.S_IMODE(mode) | 0o700)
        elif name:
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=directory)


def remove_inside(parent: int, name: str) -> None:
    """Remove a directory and everything in it; does nothing if it is missing."""
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
    """Return True if an ordinary user may empty this directory, after a chmod if needed."""
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
    """Yield (step, name, open directory, levels) for each name, contents before their directory.

    ENTER comes with the directory itself, FILE and LEAVE with the directory that holds the name.
    The levels lead from the top to that directory. `lenient` skips directories that cannot be
    entered.
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
    """Return the names in a directory, and whether each is a directory.

    All at once, since the descriptor is closed while the walk is further down.
    """
    try:
        with os.scandir(directory) as found:
            return iter([(one.name, one.is_dir(follow_symlinks=False)) for one in found])
    except PermissionError:
        raise Obstacle(_place(levels, name), "permission denied") from None


def _descend(directory: int, name: str, device: int, levels: list[_Level]) -> int | None:
    try:
        below = os.open(name, _DIRECTORY, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):  # gone meanwhile, or replaced
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
        raise Obstacle(_place(levels, ""), "it was moved meanwhile")
    return above


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def _place(levels: list[_Level], name: str) -> str:
    names = [level.name for level in levels[1:]]
    return "/".join([*names, name] if name else names) or "."
