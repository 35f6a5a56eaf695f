"""Taking a session's locks: OpenClaw's, which the gateway honours, and bsd's own.

Both are filelock locks: `with SessionLock(path, name=name): …`. They wait alike (50·2ⁿ ms between
attempts, at most 30 s in all) and then raise Busy, which says who is in the way.

How they sit in filelock 4: a backend takes the lock in `_acquire`, by setting
`_context.lock_file_fd`, and gives it up in `_release`; all the rest (counting nested holds, fork,
a forgotten lock) is filelock's. Two things of it did not fit. Its waiting loop has a fixed pace
and the system's clock, so `acquire` is a loop of our own around its single attempts. And it makes
the lock's directory if there is none: a session directory that is gone must stay gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from filelock import AcquireReturnProxy, BaseFileLock, Timeout, UnixFileLock

from bsd.agents.owners import owner_of
from bsd.foundation.errors import Busy, NotFound, os_problem
from bsd.foundation.layout import Layout, SessionName, make_private_dir
from bsd.foundation.logs import get_logger
from bsd.session.commit.lock_file import (
    Free,
    Held,
    LockState,
    Seen,
    Stale,
    Unreadable,
    bury,
    inspect_lock,
    is_at,
    judge,
    lock_path,
    look,
    payload,
    place,
    read_all,
    temporary_name,
    write_exclusively,
)

__all__ = [
    "Free",
    "Held",
    "LockState",
    "OwnLock",
    "SessionLock",
    "Stale",
    "Unreadable",
    "inspect_lock",
    "lock_path",
    "own_lock",
    "owners_lock",
]

WAIT_AT_MOST_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 5.0
_LONGEST_DOUBLING = 10

_log = get_logger("lock")


class WaitingLock(BaseFileLock):
    """How both locks wait, and what they raise when they have waited enough."""

    _clock: Callable[[], float] = staticmethod(time.monotonic)
    _sleep: Callable[[float], None] = staticmethod(time.sleep)

    def acquire(
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,  # noqa: ARG002 filelock's signature
        *,
        poll_intervall: float | None = None,  # noqa: ARG002
        blocking: bool | None = None,
        cancel_check: Callable[[], bool] | None = None,
    ) -> AcquireReturnProxy[Self]:
        """Take the lock, waiting `timeout` seconds at most; raises Busy, Forbidden, NotFound.

        0 tries once; a negative one means 30 s, because nobody waits for ever. The intervals are
        filelock's and count for nothing here.
        """
        limit = self.timeout if timeout is None else timeout
        if not (self.blocking if blocking is None else blocking):
            limit = 0.0
        deadline = self._clock() + (limit if limit >= 0 else WAIT_AT_MOST_SECONDS)
        attempt = 0
        while True:
            try:
                self._prepare()
                return super().acquire(blocking=False)
            except Timeout:
                pass
            except OSError as error:
                raise os_problem(error, f"taking the lock {self.lock_file}") from error
            left = deadline - self._clock()
            if left <= 0 or (cancel_check is not None and cancel_check()):
                raise self._busy()
            pause = _FIRST_WAIT_SECONDS * 2 ** min(attempt, _LONGEST_DOUBLING)
            self._sleep(min(pause, _LONGEST_WAIT_SECONDS, left))
            attempt += 1

    def _prepare(self) -> None:
        """Look after the lock's directory before an attempt."""

    def _busy(self) -> Busy:
        raise NotImplementedError


class SessionLock(WaitingLock):
    """OpenClaw's write lock of a session file.

    Nested `with` on the same object and thread counts, as with every filelock lock; another
    object, thread or process waits, in the same process too. A holder killed leaves the file
    behind, and the next to come buries it.

    The gateway takes away the lock of a process whose argv does not look like OpenClaw's: a
    process that uses this class must have passed `bsd.host.ensure_host_token`.
    """

    def __init__(
        self,
        session_file: Path,
        # filelock's metaclass passes its own -1 where none is given, so the 30 s stand behind -1.
        timeout: float = -1,
        *,
        name: SessionName | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = lock_path(Path(session_file))
        super().__init__(self._path, timeout)
        self._name = str(name) if name is not None else str(session_file)
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._last: LockState = Free()  # what was in the way when it was last tried

    def _prepare(self) -> None:
        if not self._path.parent.is_dir():
            raise NotFound(
                f"session {self._name}: there is no directory {self._path.parent}",
                hint="`bsd sessions` lists the sessions there are",
            )

    def _acquire(self) -> None:
        # A second look, because a stale lock may vanish, or be replaced, while the first judges it.
        now = self._now()
        if self._is_free(now) or self._is_free(now):
            self._create(payload(now))

    def _is_free(self, now: float) -> bool:
        with look(self._path) as seen:
            if not isinstance(seen, Seen):
                self._last = seen
                return isinstance(seen, Free)
            self._last = seen.state(now)
            if not isinstance(self._last, Stale) or not bury(self._path, seen, now=now):
                return False
            _log.warning("Removed a stale lock", session=self._name, reason=self._last.reason)
            return True

    def _create(self, content: bytes) -> None:
        """Make the lock, complete from its first moment on: written elsewhere, then linked."""
        temporary = temporary_name(self._path.parent)
        descriptor = write_exclusively(temporary, content)
        # Before the link: whatever interrupts us from here on, filelock knows what to give back.
        self._context.lock_file_fd = descriptor
        placed = False
        try:
            _keep_from_burial(descriptor)
            if not (placed := place(temporary, self._path)):
                placed = self._create_without_links(content)
        except FileExistsError:
            pass  # somebody was quicker
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
            if not placed:
                self._let_go()

    def _create_without_links(self, content: bytes) -> bool:
        # As the gateway does it. For a moment the lock is empty; every version but the oldest
        # gives such a file at least five seconds.
        first = self._context.lock_file_fd
        self._context.lock_file_fd = write_exclusively(self._path, content)
        _keep_from_burial(self._context.lock_file_fd)
        if first is not None:
            os.close(first)
        return True

    def _release(self) -> None:
        # Looking and then unlinking leaves a gap, but nobody takes our name in it: as long as our
        # file is there and we live, no bsd removes it, and the gateway only one that is 30 minutes
        # old or whose owner lacks the token. If we cannot unlink it, it remains ours to release.
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            return
        try:
            if not self._still_ours(descriptor):
                raise FileNotFoundError  # noqa: TRY301
            self._path.unlink()
        except FileNotFoundError:
            _log.warning("The lock was taken from us while we held it", session=self._name)
        except OSError as error:
            raise os_problem(error, f"releasing the lock {self._path}") from error
        self._forget(descriptor)

    def _still_ours(self, descriptor: int) -> bool:
        state = judge(read_all(descriptor), age=0.0)
        return isinstance(state, Held) and state.ours and is_at(descriptor, self._path)

    def _let_go(self) -> None:
        """Undo an attempt that failed, or that was interrupted just after the link."""
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            return
        if is_at(descriptor, self._path):
            self._path.unlink()
        self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._context.lock_file_fd = None
        os.close(descriptor)

    def _busy(self) -> Busy:
        match self._last:
            case Held(ours=True, created_at=since):
                why = f"is in use by this very process{_since(since)}"
            case Held(pid=pid, created_at=since):
                why = f"is in use by process {pid}{_since(since)}"
            case Unreadable(reason):
                why = f"is locked, by whom is not known: {reason}"
            case _:
                why = "is in use: others took its lock whenever it was free"
        return Busy(f"session {self._name} {why}", hint="again later")


class OwnLock(WaitingLock, UnixFileLock):
    """bsd's own lock of a session: a flock, which ends with its process. Made by `own_lock`.

    Each object has a descriptor of its own, so it parts the workers of one process too.
    """

    def __init__(
        self,
        lock_file: Path,
        timeout: float = -1,
        *,
        mode: int = 0o600,
        fallback_to_soft: bool = False,
        name: SessionName,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(lock_file, timeout, mode, fallback_to_soft=fallback_to_soft)
        self._name = name
        self._clock = clock
        self._sleep = sleep

    def _prepare(self) -> None:
        make_private_dir(Path(self.lock_file).parent)

    def _busy(self) -> Busy:
        return Busy(f"another bsd is working on session {self._name}", hint="again later")


def own_lock(
    layout: Layout,
    name: SessionName,
    timeout: float = WAIT_AT_MOST_SECONDS,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> OwnLock:
    """Make the lock that every bsd holds from planning to audit, so that two never meet."""
    # A file system without flock must be an error: its stand-in survives a crash and blocks.
    return OwnLock(
        layout.lock_file(name),
        timeout,
        mode=0o600,
        fallback_to_soft=False,
        name=name,
        clock=clock,
        sleep=sleep,
    )


def owners_lock(
    layout: Layout,
    name: SessionName,
    path: Path,
    timeout: float = 0.0,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> AbstractContextManager[object]:
    """Make the lock that the session's owner honours; a file beside it if that has no other.

    Entering it raises Busy: at once, or, for a file, after `timeout` seconds.
    """
    lock = owner_of(layout, name.agent).lock(name.session)
    return SessionLock(path, timeout, name=name, sleep=sleep) if lock is None else lock


def _keep_from_burial(descriptor: int) -> None:
    with suppress(OSError):  # no flock here: then the process's id and start time must do
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _since(created_at: str | None) -> str:
    return f" since {created_at}" if created_at else ""
