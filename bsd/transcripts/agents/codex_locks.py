"""The locks of Codex's threads, and the processes that hold them or have a thread's file open."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bsd.core.errors import Busy
from bsd.core.files import open_plain

LOCKS = Path("/proc/locks")


@contextmanager
def hold_lock(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock of Codex, which bsd never creates; raises Busy, FileNotFoundError."""
    fd = open_plain(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(otherwise, hint="again later") from None
        yield
    finally:
        os.close(fd)  # this also releases the lock


def locked_by(pid: int, locks: Path) -> set[str]:
    """Return the threads that a process has locked, according to the system's list of locks."""
    with suppress(OSError):
        lines = [line.split() for line in LOCKS.read_bytes().splitlines()]
        # `1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF`
        held = {line[5] for line in lines if len(line) > 5 and line[4] == b"%d" % pid}
        with os.scandir(locks) as found:
            return {
                each.name.removesuffix(".lock")
                for each in found
                if place_of(each.stat(follow_symlinks=False)) in held
            }
    return set()


def place_of(at: os.stat_result) -> bytes:
    """Return the name of a file in the system's list of locks."""
    return f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}".encode()


def open_files(pid: int) -> list[Path]:
    """Return the files that a process has open; empty if bsd has no permission to see them."""
    found: dict[Path, None] = {}  # without duplicates, in the order of their descriptors
    with suppress(OSError):
        for number in sorted(os.listdir(f"/proc/{pid}/fd"), key=int):
            with suppress(OSError):
                found[Path(os.readlink(f"/proc/{pid}/fd/{number}"))] = None
    return list(found)
