"""The lock of a root, which its daemon holds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from bsd.core.errors import TemporaryFailure, os_problem
from bsd.core.files import LARGEST_NOTE, make_private_dir, open_plain, read_plain
from bsd.core.layout import Layout
from bsd.core.processes import alive

_LOCKS = Path("/proc/locks")
_PID, _INODE = 4, 5


class SingleInstance:
    """The lock that a daemon holds while it runs.

    The pid in the file is information for people; only the lock itself counts.
    """

    def __init__(self, layout: Layout) -> None:
        self._root = layout.root
        self._path = layout.instance_lock
        # A file system without flock must be an error: a lock file as a fallback would survive a
        # crash.
        self._lock = FileLock(self._path, timeout=0, mode=0o600, fallback_to_soft=False)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock; raises TemporaryFailure (exit code 75) with the pid of another daemon."""
        try:
            make_private_dir(self._path.parent)
            self._lock.acquire()
            _write_pid(self._path)
        except Timeout:
            raise TemporaryFailure(
                f"a bsd daemon runs for {self._root} already{_named(holder(self._path))}",
                hint="`bsd status` shows its state",
            ) from None
        except OSError as error:
            raise os_problem(error, f"locking {self._path}") from error

    def release(self) -> None:
        self._lock.release()


def holder(path: Path) -> int | None:
    """Return the pid in the lock file; this process may have ended."""
    with suppress(OSError, ValueError):
        return int(read_plain(path, LARGEST_NOTE))
    return None


def is_running(layout: Layout) -> bool:
    """Return True if a daemon holds the lock of this root, by the system's list of locks.

    This function does not take the lock, because that could make the start of a daemon fail.
    """
    path = layout.instance_lock
    pid = holder(path)
    try:
        # `1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF`. The device is not compared,
        # because some file systems show another device there.
        lines = [line.split() for line in _LOCKS.read_bytes().splitlines()]
        place = b":%d" % path.stat().st_ino
    except OSError:  # no lock file, or a system without this list: only the pid is left
        return pid is not None and path.exists() and alive(pid)
    held = [line for line in lines if len(line) > _INODE and line[_INODE].endswith(place)]
    return pid is not None and any(line[_PID] == b"%d" % pid for line in held)


def _write_pid(path: Path) -> None:
    # Written in place: a new file of this name would be another lock.
    descriptor = open_plain(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, b"%d\n" % os.getpid())
    finally:
        os.close(descriptor)


def _named(pid: int | None) -> str:
    return "" if pid is None else f", as process {pid}"
