"""bsd's own lock of a session, held from planning to audit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from filelock import UnixFileLock

from bsd.foundation.errors import Busy
from bsd.foundation.files import make_private_dir
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.waiting_lock import WAIT_AT_MOST_SECONDS, WaitingLock


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
