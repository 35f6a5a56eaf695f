"""Directories held open: their names are reached through a descriptor, and no link on the way.

A call that is given a path looks up every directory of it anew. Between a check of that path and
the call, a user who may rename in one of these directories can put a symbolic link in its place,
and the call works somewhere else. Here each directory is opened from the one above it, and a link
among them is an error. So paths must have their links resolved, as those of `layout` have.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Directories on the way need only be passed through, which takes no right to list them.
_PASSED: int = getattr(os, "O_PATH", os.O_RDONLY)


class LinkInTheWay(PermissionError):
    """A symbolic link lies where a directory of a path should be."""

    hint = "look at who put it there, then put a directory in its place"

    def __init__(self, path: str) -> None:
        super().__init__(errno.EPERM, f"{path} is a symbolic link, and none is followed here", path)


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A descriptor of a directory, for `dir_fd`; raises OSError, LinkInTheWay."""
    descriptor = _open(directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Make a directory and those above it that are missing, private and durable.

    Each belongs to the owner of the one above it. Raises OSError, LinkInTheWay.
    """
    os.close(_open(directory, make=True))


def _open(directory: Path, *, make: bool = False) -> int:
    path = os.path.abspath(directory)
    names = [name for name in path.split("/") if name]
    at, so_far = os.open("/", _PASSED | _DIRECTORY), ""
    for number, name in enumerate(names, start=1):
        so_far += f"/{name}"
        flags = _DIRECTORY | (os.O_RDONLY if number == len(names) else _PASSED)
        try:
            below = _step(at, name, so_far, flags, make=make)
        finally:
            os.close(at)
        at = below
    return at


def _step(above: int, name: str, path: str, flags: int, *, make: bool) -> int:
    try:
        return os.open(name, flags, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP} and _is_link(above, name):
            raise LinkInTheWay(path) from None
        error.filename = path
        raise
    return _make(above, name, path, flags)


def _make(above: int, name: str, path: str, flags: int) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:  # another process was quicker
        return _step(above, name, path, flags, make=False)
    below = _step(above, name, path, flags & ~_PASSED, make=False)
    try:
        os.fchmod(below, 0o700)  # a umask may have taken more than it should
        give_to_owner_of(above, below)
        os.fsync(below)
        _sync_passed(above)
    except BaseException:
        os.close(below)
        raise
    return below


def _sync_passed(directory: int) -> None:
    """Make the names durable in a directory that may have been opened to be passed through."""
    descriptor = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_to_owner_of(directory: int, descriptor: int) -> None:
    """As root, let something belong to the owner of the directory in which it lies."""
    if os.geteuid() == 0:
        found, now = os.fstat(directory), os.fstat(descriptor)
        if (found.st_uid, found.st_gid) != (now.st_uid, now.st_gid):
            os.fchown(descriptor, found.st_uid, found.st_gid)


def is_there(directory: int, name: str) -> bool:
    """Whether an open directory holds a name; a link that leads nowhere counts."""
    return look(directory, name) is not None


def look(directory: int, name: str) -> os.stat_result | None:
    """Stat a name in an open directory, no link followed; None if there is no such name."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_link(directory: int, name: str) -> bool:
    found = look(directory, name)
    return found is not None and stat.S_ISLNK(found.st_mode)
