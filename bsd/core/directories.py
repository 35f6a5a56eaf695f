"""Directories opened without following links; names in them are reached through the descriptor.

A system call with a path looks up every directory in the path again. Between a check of the path
and the call, another user with write access to one of these directories can replace it by a
symbolic link, and the call works elsewhere. Here each directory is opened from its parent, and a
link is an error. Callers therefore pass paths with resolved links, such as those of `layout`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH passes through a directory without the permission to list it.
_PASSED: int = getattr(os, "O_PATH", os.O_RDONLY)


class LinkInTheWay(PermissionError):
    """A symbolic link lies where a directory of a path should be."""

    hint = "check which user created the link, then replace it by a directory"

    def __init__(self, path: str) -> None:
        super().__init__(errno.EPERM, f"{path} is a symbolic link, which bsd does not follow", path)


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Yield a descriptor of a directory, for `dir_fd`; raises OSError, LinkInTheWay."""
    descriptor = _open(directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, with mode 0700 and durable.

    Each belongs to the owner of its parent. Raises OSError, LinkInTheWay.
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
    except FileExistsError:  # another process has just created it
        return _step(above, name, path, flags, make=False)
    below = _step(above, name, path, flags & ~_PASSED, make=False)
    try:
        os.fchmod(below, 0o700)  # the umask may have removed bits
        give_to_owner_of(above, below)
        os.fsync(below)
        _sync_passed(above)
    except BaseException:
        os.close(below)
        raise
    return below


def _sync_passed(directory: int) -> None:
    """Make the names in a directory durable, even if it was opened with O_PATH."""
    descriptor = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_to_owner_of(directory: int, descriptor: int) -> None:
    """If bsd runs as root, give a file or directory to the owner of the directory it is in."""
    if os.geteuid() == 0:
        found, now = os.fstat(directory), os.fstat(descriptor)
        if (found.st_uid, found.st_gid) != (now.st_uid, now.st_gid):
            os.fchown(descriptor, found.st_uid, found.st_gid)


def is_there(directory: int, name: str) -> bool:
    """Return True if an open directory contains a name; a dangling link counts."""
    return look(directory, name) is not None


def look(directory: int, name: str) -> os.stat_result | None:
    """Stat a name in an open directory without following a link; None if the name is missing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_link(directory: int, name: str) -> bool:
    found = look(directory, name)
    return found is not None and stat.S_ISLNK(found.st_mode)
