"""Locks: one on each workspace's directory (used by …, deleted by …), a few for metadata.

The lock of a workspace is on its directory itself: it needs no file, moves along with a rename,
and ends with the process that holds it. The ones for metadata are held for a moment only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bsd.foundation.errors import Busy, Unavailable

WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.005
_STRIPES = 32


def try_lock(descriptor: int, *, shared: bool) -> bool:
    """Take the lock on an open file or directory if it is free; raises Unavailable."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL}:
            raise
        raise Unavailable(
            "this file system cannot lock directories",
            hint="keep workspaces on a local disk",
        ) from error
    return True


def lock(
    descriptor: int,
    what: str,
    *,
    shared: bool = False,
    wait: float = WAIT_SECONDS,
    check: Callable[[], object] = lambda: None,
) -> None:
    """Take the lock, waiting `wait` seconds at most; raises Busy. `check` may raise meanwhile."""
    deadline = time.monotonic() + wait
    while not try_lock(descriptor, shared=shared):
        check()
        if time.monotonic() >= deadline:
            raise Busy(f"{what} is in use", hint="try again when its program has ended")
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def metadata_lock(own: int, session_id: str) -> Iterator[None]:
    """Be the only one who writes metadata of this workspace; `own` is our directory in the root.

    Several workspaces share a lock: their number is fixed, and no file is ever left over.
    """
    stripe = hashlib.sha256(session_id.encode()).digest()[0] % _STRIPES
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(f"lock-{stripe:02d}", flags, 0o600, dir_fd=own)
    try:
        lock(descriptor, f"the metadata of workspace {session_id}")
        yield
    finally:
        os.close(descriptor)
