"""The daemon as a process: one for each root, by a lock that ends with it; and its signals."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from filelock import FileLock, Timeout

from bsd.foundation.errors import TemporaryFailure, os_problem
from bsd.foundation.files import LARGEST_NOTE, make_private_dir, open_plain, read_plain
from bsd.foundation.layout import Layout
from bsd.foundation.logs import close_logs, get_logger
from bsd.foundation.processes import alive

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    except OSError:  # no lock, or a system without that list: what the file names must do
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


# --- signals become messages to the main thread, which does nothing but wait for them ---


_log = get_logger("signals")

STOP = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
DUMP = signal.SIGUSR1
_ALL = (*STOP, RELOAD, DUMP)
_ENDED = 0  # no signal has this number


class Signals:
    """While it is entered, signals are kept in order until `wait` gives them."""

    def __init__(self) -> None:
        self._read, self._write = -1, -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Python writes the number of each signal itself, at once, whatever its threads do.
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _noted) for number in _ALL}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout: float | None = None) -> list[int]:
        """Wait for signals; empty if there was none within `timeout` seconds, or at `end_wait`."""
        ready, _, _ = select.select([self._read], [], [], timeout)
        return [number for number in os.read(self._read, 512) if number in _ALL] if ready else []

    def end_wait(self) -> None:
        """Let `wait` return. From any thread."""
        os.write(self._write, bytes([_ENDED]))


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the pipe knows."""


def die_by(number: int) -> None:
    """End at once, by the signal itself: as after a crash, the next start puts all in order."""
    _log.warning("Ended at once by a second signal", signal=signal.Signals(number).name)
    close_logs()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def wait_for_end(
    signals: Signals, ended: Callable[[], bool], seconds: float, insisted: Callable[[int], None]
) -> bool:
    """Wait until `ended` (somebody calls `end_wait` then), `seconds` at most; whether it has.

    A further stop signal is `insisted`.
    """
    deadline = time.monotonic() + seconds
    while not ended():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        for number in stops_among(signals.wait(left)):
            insisted(number)
    return True


def stops_among(numbers: Iterable[int]) -> list[int]:
    """Return the signals that ask to stop."""
    return [number for number in numbers if number in STOP]
