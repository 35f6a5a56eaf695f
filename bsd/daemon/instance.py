"""The lock of a root: one daemon holds it."""

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
    """Held while the daemon runs. The pid inside is for people; only the lock itself counts."""

    def __init__(self, layout: Layout) -> None:
        self._root = layout.root
        self._path = layout.instance_lock
        # A file system without flock must be an error: its stand-in would survive a crash.
        self._lock = FileLock(self._path, timeout=0, mode=0o600, fallback_to_soft=False)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Become the one; raises TemporaryFailure (exit code 75), which names the other."""
        try:
            make_private_dir(self._path.parent)
            self._lock.acquire()
            _write_pid(self._path)
        except Timeout:
            raise TemporaryFailure(
                f"a bsd daemon runs for {self._root} already{_named(holder(self._path))}",
                hint="`bsd status` asks it how it is",
            ) from None
        except OSError as error:
            raise os_problem(error, f"locking {self._path}") from error

    def release(self) -> None:
        self._lock.release()


def holder(path: Path) -> int | None:
    """The pid that the lock's file names; that process may be gone."""
    with suppress(OSError, ValueError):
        return int(read_plain(path, LARGEST_NOTE))
    return None


def is_running(layout: Layout) -> bool:
    """Whether a daemon holds the lock of this root, as the system's list of locks shows it.

    To take the lock only to look could keep one that starts just then from starting.
    """
    path = layout.instance_lock
    pid = holder(path)
    try:
        # `1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF`; file systems differ in
        # which device they name there.
        lines = [line.split() for line in _LOCKS.read_bytes().splitlines()]
        place = b":%d" % path.stat().st_ino
    except OSError:  # no lock, or a system without that list: the pid in the file must do
        return pid is not None and path.exists() and alive(pid)
    held = [line for line in lines if len(line) > _INODE and line[_INODE].endswith(place)]
    return pid is not None and any(line[_PID] == b"%d" % pid for line in held)


def _write_pid(path: Path) -> None:
    # In place: another file under this name would be another lock.
    descriptor = open_plain(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, b"%d\n" % os.getpid())
    finally:
        os.close(descriptor)


def _named(pid: int | None) -> str:
    return "" if pid is None else f", as process {pid}"
