"""System calls of a commit: leases, exchange of two names, reads and comparisons under a lease.

Like `exchange.py`, this module imports nothing from bsd.
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

    On macOS it calls renamex_np(RENAME_SWAP); this branch is untested.
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
    """Take a write lease; returns False if another process has the file open. Raises OSError."""
    # Use SIGURG, which is ignored by default: the default signal, SIGIO, would kill this process.
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
    """Release a lease, even if the kernel has already broken it."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise


def somebody_waits(fd: int) -> bool:
    """Return True if another process tries to open the leased file, or the lease is broken."""
    return fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK


def open_plain(path: str, flags: int) -> int:
    """Open a file; does not follow a link at its end, wait for a lease, or create the file."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def tail_hash(fd: int, end: int) -> str:
    """Return the SHA-256 of the last 4 KiB before byte `end`."""
    start = max(0, end - _TAIL)
    return hashlib.sha256(os.pread(fd, end - start, start)).hexdigest()


def read_range(fd: int, start: int, end: int) -> bytes:
    """Read the bytes from `start` to `end`, or up to the end of the file."""
    parts = []
    while start < end and (part := os.pread(fd, min(end - start, 64 * _BLOCK), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def append(fd: int, data: bytes) -> None:
    """Write all bytes with as few calls as possible; raises OSError, also if the disk is full."""
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, data[done:])


def is_same_beside(
    old: int, new: int, edits: Iterable[tuple[int, int, int]], old_size: int
) -> bool:
    """Return True if two files are equal outside the edits.

    Args:
        old, new: descriptors of the files.
        edits: (offset in the old file, length, new length) in bytes, in ascending order.
        old_size: the length of the old file in bytes.
    """
    at = there = 0
    for offset, length, new_length in edits:
        if not _same(old, at, new, there, offset - at):
            return False
        there += offset - at + new_length
        at = offset + length
    return _same(old, at, new, there, old_size - at)


def hash_under(fd: int, edits: Iterable[tuple[int, int, int]]) -> str:
    """Return the SHA-256 of the hashes (`sha256:…`) of the bytes that each edit replaces."""
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
