"""The lock file `<file>.lock`, held while a process changes a file of bsd's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.files import make_private_dir

_LOCK_SECONDS = 10.0


@contextmanager
def file_locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, so that no other process changes it; creates the directory.

    Raises:
        Busy: another process has held the lock for ten seconds.
        BsdError: the lock cannot be taken.
    """
    hint = "wait a moment and run it again"
    refusal = Busy(f"{path} is being changed by another bsd", hint=hint)
    with holding(path.with_name(f"{path.name}.lock"), _LOCK_SECONDS, refusal):
        yield


@contextmanager
def holding(path: Path, seconds: float, refusal: BsdError) -> Iterator[None]:
    """Hold the lock file at a path.

    Raises:
        BsdError: `refusal`, if another process holds the lock for `seconds`; or the lock file
            cannot be created.
    """
    # Imported here: reading needs no lock, and the import takes longer than reading.
    from filelock import FileLock, Timeout  # noqa: PLC0415

    lock = FileLock(path, timeout=seconds, mode=0o600, fallback_to_soft=False)
    try:
        make_private_dir(path.parent)
        lock.acquire()
    except Timeout:
        raise refusal from None
    except OSError as error:
        raise os_problem(error, f"locking {path}") from error
    try:
        yield
    finally:
        lock.release()
