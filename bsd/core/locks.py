"""bsd's own lock of a session, and the waiting loop that locks of agents' programs share with it.

A lock waits 50·2ⁿ ms between attempts, at most 30 s in all; then Busy is raised, naming the holder.

These locks are filelock backends: `_acquire` takes the lock by setting `_context.lock_file_fd`, and
`_release` releases it. filelock does the rest (nested holds, fork, a forgotten lock), with two
exceptions. Its waiting loop has a fixed interval and the system's clock, so `acquire` is bsd's own
loop around single attempts. It also creates the directory of the lock, but a deleted session
directory must stay deleted, so `_prepare` decides about the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from filelock import AcquireReturnProxy, BaseFileLock, Timeout, UnixFileLock

from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName

WAIT_AT_MOST_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 5.0
_LONGEST_DOUBLING = 10


class WaitingLock(BaseFileLock):
    """A lock that waits with growing pauses, and raises Busy when its time is over."""

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
        """Take the lock, waiting at most `timeout` seconds; raises Busy, Forbidden, NotFound.

        A timeout of 0 tries once; a negative timeout means 30 s, because no call waits for ever.
        The intervals are part of filelock's signature and have no effect.
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
            except ExceptionGroup as group:  # taking the lock failed, then releasing it failed
                first = group.exceptions[0]
                if not isinstance(first, OSError | BsdError):
                    raise
                raise os_problem(first, f"taking the lock {self.lock_file}") from group
            left = deadline - self._clock()
            if left <= 0 or (cancel_check is not None and cancel_check()):
                raise self._busy()
            pause = _FIRST_WAIT_SECONDS * 2 ** min(attempt, _LONGEST_DOUBLING)
            self._sleep(min(pause, _LONGEST_WAIT_SECONDS, left))
            attempt += 1

    def _prepare(self) -> None:
        """Create or check the lock's directory before an attempt."""

    def _busy(self) -> Busy:
        raise NotImplementedError


class OwnLock(WaitingLock, UnixFileLock):
    """bsd's own lock of a session: a flock, which ends with its process. See `own_lock`.

    Each object has its own descriptor, so the lock also excludes other threads of this process.
    """

    def __init__(
        self,
        lock_file: Path,
        timeout: float,
        *,
        name: SessionName,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        # Without flock, raise an error: filelock's fallback survives a crash and blocks later runs.
        super().__init__(lock_file, timeout, 0o600, fallback_to_soft=False)
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
    """Return the lock that each bsd process holds on a session from planning to audit."""
    return OwnLock(layout.lock_file(name), timeout, name=name, clock=clock, sleep=sleep)
