"""Taking OpenClaw's lock of a session, which the gateway honours: `with SessionLock(path): …`."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bsd.agents.openclaw.lock_file import (
    SeenLock,
    bury,
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
from bsd.agents.owner import Free, HeldLock, LockState, Stale, Unreadable
from bsd.foundation.errors import Busy, NotFound, os_problem
from bsd.foundation.layout import SessionName
from bsd.foundation.locks import WaitingLock
from bsd.foundation.logs import get_logger

_log = get_logger("lock")


class SessionLock(WaitingLock):
    """OpenClaw's write lock of a session file.

    Nested `with` on the same object and thread counts, as with every filelock lock; another
    object, thread or process waits, in the same process too. A holder killed leaves the file
    behind, and the next to come buries it.

    The gateway takes away the lock of a process whose argv does not look like OpenClaw's: a
    process that uses this class must have passed `bsd.__main__.ensure_host_token`.
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
            if not isinstance(seen, SeenLock):
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
        return isinstance(state, HeldLock) and state.ours and is_at(descriptor, self._path)

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
            case HeldLock(ours=True, created_at=since):
                why = f"is in use by this very process{_since(since)}"
            case HeldLock(pid=pid, created_at=since):
                why = f"is in use by process {pid}{_since(since)}"
            case Unreadable(reason):
                why = f"is locked, by whom is not known: {reason}"
            case _:
                why = "is in use: others took its lock whenever it was free"
        return Busy(f"session {self._name} {why}", hint="again later")


def _keep_from_burial(descriptor: int) -> None:
    with suppress(OSError):  # no flock here: then the process's id and start time must do
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _since(created_at: str | None) -> str:
    return f" since {created_at}" if created_at else ""
