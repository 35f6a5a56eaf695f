"""A disk that remembers what would survive a power cut, for tests of the order of fsync calls.

`Disk` watches one directory. A file survives a power cut if no write to it follows its last fsync,
and if each directory above it held the name at that directory's last fsync. All files that exist
when watching begins count as synced. Only functions of `os` are patched; the watcher needs no
knowledge of the program. It detects writes by size and mtime: a file may be leased, and opening it
would wait for the lease.

    with Disk(root) as disk:
        bsd("retention")
    assert disk.lost("archive/**") == []
    for removal in disk.removals("extracted/**"):
        assert removal.lost("archive/**") == []

SQLite and syncfs(2) do not call `os.fsync`: name paths of other files, and few of them at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.calls_of_os import path_of

_Listing = dict[str, int]  # names, with their inodes


@dataclass(frozen=True, slots=True)
class Moment:
    """The files that a power cut would lose right before a name is removed or replaced."""

    call: str
    path: str  # below the directory that is watched
    _lost: frozenset[str]
    _there: frozenset[str]

    def lost(self, *patterns: str) -> list[str]:
        """Return the paths whose files would be missing or have other content."""
        return _matching(self._lost, patterns)

    def kept(self, *patterns: str) -> list[str]:
        """Return the paths of present files that would survive."""
        return _matching(self._there - self._lost, patterns)


class Disk:
    """Watches `top` from `with` on, until the block ends."""

    def __init__(self, top: Path) -> None:
        self._top = top.resolve()
        self._content: dict[int, tuple[int, int]] = {}  # of files: size and mtime when synced
        self._names: dict[int, _Listing] = {}  # of directories, at their last fsync
        self._moments: list[Moment] = []
        self._unsynced: list[str] = []
        self._gone = 0  # stands for inodes that are free again
        self._inside = False
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        for directory, _, files in os.walk(self._top):
            self._note(Path(directory))
            for name in files:
                self._note(Path(directory, name))
        for name in ("fsync", "fdatasync"):
            self._patch.setattr(os, name, self._syncing(getattr(os, name)))
        self._patch.setattr(os, "utime", self._dating(os.utime))
        for name in ("unlink", "remove", "rmdir", "rename", "replace", "link"):
            self._patch.setattr(os, name, self._watched(name, getattr(os, name)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patch.undo()

    # --- queries ---

    def lost(self, *patterns: str) -> list[str]:
        """Return the present files that a power cut would remove or change now."""
        return _matching(self._lost_now(), patterns)

    def back(self, *patterns: str) -> list[str]:
        """Return the deleted files that a power cut would bring back now."""
        found = set()
        for path in self._synced(self._top, ""):
            if not os.path.lexists(self._top / path):
                found.add(path)
        return _matching(found, patterns)

    def removals(self, *patterns: str) -> list[Moment]:
        """Return the moments right before matching files were removed, by any call."""
        gone = ("unlink", "remove", "rename", "replace")
        return [one for one in self._moments if one.call in gone and _is_like(one.path, patterns)]

    def named_before_synced(self, *patterns: str) -> list[str]:
        """Return the files that got a name before their content was synced."""
        return _matching(self._unsynced, patterns)

    # --- recording ---

    def _syncing(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def sync(descriptor: Any) -> None:
            original(descriptor)
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            self._note(Path(f"/proc/self/fd/{number}"))

        return sync

    def _dating(self, original: Callable[..., None]) -> Callable[..., None]:
        def utime(path: Any, *times: Any, **more: Any) -> None:
            here = (
                Path(f"/proc/self/fd/{path}") if isinstance(path, int) else path_of((path,), more)
            )
            clean = here.is_file() and self._is_content_synced(here)
            original(path, *times, **more)
            if clean:
                self._note(here)

        return utime

    def _watched(self, name: str, original: Callable[..., None]) -> Callable[..., None]:
        def call(*paths: Any, **more: Any) -> None:
            if not self._inside:
                self._inside = True
                try:
                    self._before(name, _named(paths, more))
                finally:
                    self._inside = False
            inodes = [_inode_alone(path) for path in _named(paths, more)]
            original(*paths, **more)
            gone = inodes[-1] if name in ("rename", "replace") else inodes[0]
            if gone is not None and name != "link":
                self._take_away(gone)

        return call

    def _take_away(self, inode: int) -> None:
        """Record that an inode is free, since the next file may get its number."""
        self._gone -= 1
        for listing in self._names.values():
            for name, number in listing.items():
                if number == inode:
                    listing[name] = self._gone
        self._content.pop(inode, None)
        if inode in self._names:
            self._names[self._gone] = self._names.pop(inode)

    def _before(self, call: str, paths: list[Path]) -> None:
        first, last = paths[0], paths[-1]
        if call in ("rename", "replace", "link"):
            if not self._is_below(last):
                return
            if first.is_file() and not self._is_content_synced(first):
                self._unsynced.append(self._relative(last))
        if self._is_below(first):
            lost = frozenset(self._lost_now())
            there = frozenset(self._all_below(self._top))
            self._moments.append(Moment(call, self._relative(first), lost, there))

    def _is_below(self, path: Path) -> bool:
        return path.is_relative_to(self._top)

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self._top))

    def _note(self, path: Path) -> None:
        """Record the present state of a file or a directory as durable."""
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = _listing(path)
        elif path.is_file():
            self._content[inode] = _state(path)

    # --- the state after a power cut ---

    def _is_content_synced(self, path: Path) -> bool:
        size, mtime = _state(path)
        known = self._content.get(path.stat().st_ino)
        return known is not None and known[0] == size and known[1] >= mtime

    def _lost_now(self) -> set[str]:
        found: set[str] = set()
        for directory, names, files in os.walk(self._top):
            known = self._names.get(os.stat(directory).st_ino, {})
            for name in [*names, *files]:
                path = Path(directory, name)
                if known.get(name) != path.lstat().st_ino:
                    found |= self._all_below(path)
                elif path.is_file() and not self._is_content_synced(path):
                    found.add(self._relative(path))
        return found

    def _all_below(self, path: Path) -> set[str]:
        if path.is_symlink() or not path.is_dir():
            return {self._relative(path)}
        return {self._relative(one) for one in path.rglob("*") if not one.is_dir()}

    def _synced(self, directory: Path | int, above: str) -> Iterator[str]:
        """Yield the paths that the synced names lead to."""
        inode = directory if isinstance(directory, int) else directory.stat().st_ino
        for name, number in self._names.get(inode, {}).items():
            if number in self._names:
                yield from self._synced(number, f"{above}{name}/")
            else:
                yield f"{above}{name}"


def _listing(directory: Path) -> _Listing:
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _inode_alone(path: Path) -> int | None:
    """Return the inode at a path, if it has no other name."""
    with suppress(OSError):
        found = path.lstat()
        return found.st_ino if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1 else None
    return None


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _named(paths: tuple[Any, ...], more: dict[str, Any]) -> list[Path]:
    return [path_of(paths, more, position) for position in range(min(2, len(paths)))]


def _is_like(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _matching(paths: Any, patterns: tuple[str, ...]) -> list[str]:
    return sorted(path for path in paths if _is_like(path, patterns))
