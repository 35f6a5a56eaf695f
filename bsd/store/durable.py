"""Making new files durable, one by one or all at once, before anything refers to them.

From some dozens on, one syncfs(2) is far cheaper than an fsync of each: a journal is committed
once instead of hundreds of times. It also writes what other programs have left in memory; that
costs them nothing, and us at most what was waiting at that moment.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Self

from bsd.foundation.filesystem import magic

# Here syncfs waits for data and names, and reports what failed. Elsewhere it may do less: FUSE,
# for one, does not pass it on.
_SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0x01021994}  # ext2/3/4, xfs, btrfs, tmpfs
_REPORTS_SINCE = (5, 8)  # Linux; before, errors of writing back went unnoticed
_MANY = 64  # files
_THREADS = 8  # fsync waits for the disk, not for the CPU
_SHARE = 32  # files that a thread takes at once

_libc = ctypes.CDLL(None, use_errno=True)


class Syncing:
    """The files that are created in a directory while this is open, to be made durable together.

    Raises OSError.
    """

    def __init__(self, directory: Path, expected: int) -> None:
        """`expected` is about how many files there will be."""
        self._directory = directory
        # Opened before the first file is: errors are told of from then on.
        as_a_whole = expected >= _MANY and _can_sync_as_a_whole(directory)
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC) if as_a_whole else -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def sync(self, paths: Sequence[str]) -> None:
        """Make the content of these files durable; their names need a sync of the directory."""
        if self._descriptor >= 0:
            _sync_file_system(self._descriptor)
        else:
            _sync_files(paths)


def _sync_file_system(descriptor: int) -> None:
    if _libc.syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _can_sync_as_a_whole(directory: Path) -> bool:
    return _kernel_reports() and magic(directory) in _SYNCED_AS_A_WHOLE


@cache
def _kernel_reports() -> bool:
    if sys.platform != "linux":
        return False
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= _REPORTS_SINCE


def _sync_files(paths: Sequence[str]) -> None:
    if len(paths) < _THREADS:
        _fsync_each(paths)
        return
    # Handing out files one by one costs more than many a file system takes for the fsync itself;
    # but what is handed out is done to its end, even after an error or Ctrl-C.
    size = min(_SHARE, -(-len(paths) // _THREADS))
    shares = [paths[start : start + size] for start in range(0, len(paths), size)]
    # Only here: who only looks at a store shall not wait for it.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(_THREADS, "bsd-fsync") as pool:
        for _ in pool.map(_fsync_each, shares):  # map raises what a thread raised
            pass


def _fsync_each(paths: Iterable[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
