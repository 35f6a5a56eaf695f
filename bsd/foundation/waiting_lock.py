"""How the locks of sessions wait, ours and those of their owners: 50·2ⁿ ms between attempts.

At most 30 s in all; then Busy is raised, which says who is in the way.

How such a lock sits in filelock 4: a backend takes the lock in `_acquire`, by setting
`_context.lock_file_fd`, and gives it up in `_release`; all the rest (counting nested holds, fork,
a forgotten lock) is filelock's. Two things of it did not fit. Its waiting loop has a fixed pace
and the system's clock, so `acquire` is a loop of our own around its single attempts. And it makes
the lock's directory if there is none: a session directory that is gone must stay gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from filelock import AcquireReturnProxy, BaseFileLock, Timeout

from bsd.foundation.errors import Busy, os_problem

WAIT_AT_MOST_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 5.0
_LONGEST_DOUBLING = 10


class WaitingLock(BaseFileLock):
    """Waits for its turn, and raises Busy when it has waited enough."""

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
