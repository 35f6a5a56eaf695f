"""Locks that programs hold with `flock`, on files of their own. bsd never creates such a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bsd.core.errors import Busy
from bsd.core.files import open_plain

_LOCKS = Path("/proc/locks")


@contextmanager
def held(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a program's lock during the block.

    Raises:
        Busy: a process holds the lock; the message is `otherwise`.
        FileNotFoundError: there is no such file.
        OSError: the file cannot be opened.
    """
    fd = open_plain(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(otherwise, hint="again later") from None
        yield
    finally:
        os.close(fd)  # this also releases the lock


def is_held(path: Path) -> bool:
    """Return whether a process holds a lock, according to the system's list of locks.

    Taking the lock to find out could keep the program out at that moment. The list does not show
    processes in other containers.
    """
    try:
        place = place_of(path.stat())
        return b" %b " % place in _LOCKS.read_bytes()
    except OSError:  # no such lock, or no list
        return False


def held_by(pid: int) -> set[bytes]:
    """Return the locked files of a process, as `place_of` names them; raises OSError."""
    lines = [line.split() for line in _LOCKS.read_bytes().splitlines()]
    # `1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF`
    return {line[5] for line in lines if len(line) > 5 and line[4] == b"%d" % pid}


def place_of(at: os.stat_result) -> bytes:
    """Return the name of a file in the system's list of locks."""
    return f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}".encode()
