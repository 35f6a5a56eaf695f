"""Count and record every call with which this process changes the disk, and die at one of them.

The program calls `os.…` by attribute, so wrapping the functions of `os` sees every call. Calls that
go through ctypes are wrapped where the program makes them. An audit hook proves that no call
bypasses the wrappers: a call that the hook sees outside of them is reported as `unseen`.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bsd.core import filesystem, leases

_CHANGING_FLAGS = os.O_CREAT | os.O_TRUNC
_WRITING_FLAGS = _CHANGING_FLAGS | os.O_WRONLY | os.O_RDWR
_BY_FD = ("write", "pwrite", "ftruncate", "fsync", "fdatasync", "fchmod", "fchown")
_BY_PATH = (
    *("rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir"),
    *("truncate", "utime", "chmod", "chown", "setxattr", "removexattr"),
)
_COPIES = ("copy_file_range", "sendfile")
# The audit events of the same calls.
_AUDITED = {
    *("os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir"),
    *("os.truncate", "os.utime", "os.chmod", "os.chown", "os.setxattr", "os.removexattr"),
}

Observer = Callable[["Call"], None]


class _Inside(threading.local):
    depth = 0  # of wrappers, in this thread


@dataclass(frozen=True, slots=True)
class Call:
    """A call that changed the disk."""

    name: str
    arguments: tuple[Any, ...]
    result: Any

    def __str__(self) -> str:
        names = [_short(argument) for argument in self.arguments]
        return f"{self.name}({', '.join(names)})"


def was_killed(work: Callable[[], object]) -> bool:
    """Run `work` in a process of its own; whether it was killed. If not, it must succeed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0, status
    return False


@dataclass
class DiskCalls:
    """Wraps the calls from `install` on, until this process (a child made for that) ends.

    It kills the process at the call with number `die_at` (from 1): `before` it, `after` it, or
    half-way (`torn`; only writes and copies can be torn, at other calls the process dies before
    the call).
    """

    die_at: int = 0
    when: str = "after"
    observe: Observer | None = None
    count: int = 0
    trace: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inside = _Inside()
        self._paused = False
        self._lock = threading.RLock()

    def install(self) -> None:
        wrap: Any = setattr
        wrap(os, "open", self._opening(os.open))
        for name in (*_BY_FD, *_BY_PATH, *_COPIES):
            wrap(os, name, self._wrapped(name, getattr(os, name)))
        wrap(leases._libc, "renameat2", self._wrapped("renameat2", leases._libc.renameat2))
        wrap(filesystem._libc, "syncfs", self._wrapped("syncfs", filesystem._libc.syncfs))
        sys.addaudithook(self._audit)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count calls that the test itself makes in this process."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _opening(self, original: Callable[..., int]) -> Callable[..., int]:
        changing = self._wrapped("open", original)

        def open_(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & _CHANGING_FLAGS:
                return int(changing(path, flags, *more, **named))
            with self._known():
                return original(path, flags, *more, **named)

        return open_

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._paused or _is_not_on_disk(name, arguments):
                with self._known():
                    return original(*arguments, **named)
            with self._lock:
                self.count += 1
                number = self.count
            dies = number == self.die_at
            if dies and self.when == "torn":
                _half(original, name, arguments, named)
            if dies and self.when != "after":
                _die()
            try:
                with self._known():
                    result = original(*arguments, **named)
            except OSError:
                self.trace.append(f"refused: {Call(name, arguments, None)}")
                if dies:
                    _die()
                raise
            done = Call(name, arguments, result)
            self.trace.append(str(done))
            if self.observe is not None:
                with self._known():
                    self.observe(done)
            if dies:
                _die()
            return result

        return call

    @contextmanager
    def _known(self) -> Iterator[None]:
        before = self._inside.depth
        self._inside.depth = before + 1
        try:
            yield
        finally:
            self._inside.depth = before

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._paused or self._inside.depth:
            return
        if event == "open":
            path, _, flags = arguments
            if not flags & _WRITING_FLAGS or path == os.devnull or isinstance(path, int):
                return
        elif event not in _AUDITED:
            return
        self.unseen.append(f"{event}{arguments}")


def _half(
    original: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    if name in ("write", "pwrite"):
        fd, data, *rest = arguments
        original(fd, bytes(data)[: max(1, len(data) // 2)], *rest)
    elif name == "copy_file_range":
        source, target, length, *rest = arguments
        original(source, target, length // 2, *rest, **named)


def _is_not_on_disk(name: str, arguments: tuple[Any, ...]) -> bool:
    """A pipe, or a terminal."""
    if name in _BY_FD:
        mode = os.fstat(arguments[0]).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # never returns: the signal is on its way


def _short(argument: Any) -> str:
    if isinstance(argument, bytes | memoryview):
        return f"{len(argument)} bytes"
    text = os.fsdecode(argument) if isinstance(argument, os.PathLike) else str(argument)
    return text if len(text) < 60 else f"…{text[-60:]}"
