"""The daemon as a process: its lock, one for each root, its signals, and what systemd is told."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import structlog
from filelock import FileLock, Timeout

from bsd.core.errors import TemporaryFailure, os_problem
from bsd.core.files import LARGEST_NOTE, make_private_dir, open_plain, read_plain
from bsd.core.layout import Layout
from bsd.core.logs import close_logs
from bsd.core.processes import alive
from bsd.daemon.loops import Beats

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


_log = structlog.stdlib.get_logger(module="signals")

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


# --- systemd is told how we are, by a datagram to $NOTIFY_SOCKET, and never a failure of ours ---


_manager_log = structlog.stdlib.get_logger(module="daemon")


class Notifier:
    """Speaks sd_notify(3). Without a service manager every call does nothing and returns False."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._complained = False

    @property
    def listening(self) -> bool:
        """Whether somebody wants to know."""
        return self._address is not None

    def ready(self, status: str) -> bool:
        return self._send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, text: str) -> bool:
        return self._send(f"STATUS={_one_line(text)}")

    def alive(self) -> bool:
        """Ping the watchdog."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """Settings are being read again; must be followed by `ready`."""
        # The time in the same datagram, or systemd waits until its time-out.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self, status: str) -> bool:
        return self._send("STOPPING=1", f"STATUS={_one_line(status)}")

    def _send(self, *lines: str) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | _CLOEXEC) as channel:
                # A manager that does not read must not stop us.
                channel.settimeout(0.0)
                channel.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                _manager_log.warning("The service manager could not be told", error=str(error))
            return False
        return True


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)


def _address(text: str) -> bytes | None:
    """Read $NOTIFY_SOCKET: a path, or a name behind `@`; what else it may be is not for us."""
    if text.startswith("@"):
        return b"\0" + os.fsencode(text[1:])
    return os.fsencode(text) if text.startswith("/") else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def watchdog_seconds(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float:
    """How often systemd wants to hear of us at least; 0: not at all, or another process."""
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000
        wanted = int(environ.get("WATCHDOG_PID", "0"))
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if wanted in {0, pid or os.getpid()} else 0.0


class Watchdog:
    """Pings only if every loop keeps its promise: systemd restarts us otherwise."""

    def __init__(
        self, notifier: Notifier, beats: Beats, every: float, late: Callable[[list[str]], None]
    ) -> None:
        self._notifier = notifier
        self._beats = beats
        self._pause = every / 2
        self._late = late

    def step(self, now: float) -> float | None:
        """Ping if all is well, else say who is late; returns when to come again."""
        late = self._beats.late()
        if late:
            self._notifier.status(f"not answering: {', '.join(late)}")
            self._late(late)
        elif self._pause > 0:
            self._notifier.alive()
        return now + self._pause if self._pause > 0 else None
