"""The kernel's part of a commit: leases, exchanged names, and looking at files while holding them.

Like `exchange.py` it stands alone.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import Iterable

_RENAME_EXCHANGE = 2  # Linux, renameat2
_RENAME_SWAP = 2  # macOS, renamex_np
_AT_FDCWD = -100
_TAIL = 4096
_BLOCK = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def swap_names(one: str, other: str) -> None:
    """Exchange two names of one file system atomically; raises OSError.

    macOS has renamex_np(RENAME_SWAP) for it; that branch has not been tried.
    """
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = _libc.renamex_np(first, second, _RENAME_SWAP)
    else:
        failed = _libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one, None, other)


def take_lease(fd: int) -> bool:
    """Take a write lease; False if another process has the file open. Raises OSError."""
    # SIGURG is ignored by default; without this the kernel would kill us with SIGIO.
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EBUSY):
            return False
        raise
    return True


def release_lease(fd: int) -> None:
    """Give a lease back, also one that the kernel has taken away already."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise


def somebody_waits(fd: int) -> bool:
    """Return True if another process tries to open the leased file (or the lease is gone)."""
    return fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK


def open_plain(path: str, flags: int) -> int:
    """Open a file without following a link at its end, waiting for a lease, or creating it."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def tail_hash(fd: int, end: int) -> str:
    """SHA-256 of the last 4 KiB before byte `end`."""
    start = max(0, end - _TAIL)
    return hashlib.sha256(os.pread(fd, end - start, start)).hexdigest()


def read_range(fd: int, start: int, end: int) -> bytes:
    """Read the bytes from `start` to `end`, or as many of them as there are."""
    parts = []
    while start < end and (part := os.pread(fd, min(end - start, 64 * _BLOCK), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def append(fd: int, data: bytes) -> None:
    """Write all bytes with as few calls as possible; raises OSError, also when the disk is full."""
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, data[done:])


def is_same_beside(
    old: int, new: int, edits: Iterable[tuple[int, int, int]], old_size: int
) -> bool:
    """Compare two files beside the edits: (offset, length, new length) in ascending order."""
    at = there = 0
    for offset, length, new_length in edits:
        if not _same(old, at, new, there, offset - at):
            return False
        there += offset - at + new_length
        at = offset + length
    return _same(old, at, new, there, old_size - at)


def hash_under(fd: int, edits: Iterable[tuple[int, int, int]]) -> str:
    """SHA-256 of the hashes (`sha256:…`) of a file's bytes under each of these edits."""
    hashes = hashlib.sha256()
    for offset, length, _ in edits:
        hashed, end = hashlib.sha256(), offset + length
        for start in range(offset, end, _BLOCK):
            hashed.update(os.pread(fd, min(_BLOCK, end - start), start))
        hashes.update(f"sha256:{hashed.hexdigest()}".encode())
    return hashes.hexdigest()


def _same(old: int, at: int, new: int, there: int, length: int) -> bool:
    for start in range(0, length, _BLOCK):
        size = min(_BLOCK, length - start)
        if os.pread(old, size, at + start) != os.pread(new, size, there + start):
            return False
    return True
