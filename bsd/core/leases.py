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
    """Write all of it with as few calls as possible; raises OSError, also when the disk is full."""
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, data[done:])


def is_spliced(old: int, new: int, edits: list[list[int]], old_size: int) -> str | None:
    """Compare two files beside the edits; None if they differ, else what lies under the edits.

    `edits` are [offset, length, new length] in ascending order; the answer is the SHA-256 of the
    hashes (`sha256:…`) of the old file's bytes under each of them.
    """
    edited = hashlib.sha256()
    at = there = 0
    for offset, length, new_length in edits:
        if not _same(old, at, new, there, offset - at):
            return None
        hashed = hashlib.sha256()
        for start in range(offset, offset + length, _BLOCK):
            hashed.update(os.pread(old, min(_BLOCK, offset + length - start), start))
        edited.update(f"sha256:{hashed.hexdigest()}".encode())
        there += offset - at + new_length
        at = offset + length
    if not _same(old, at, new, there, old_size - at):
        return None
    return edited.hexdigest()


def _same(old: int, at: int, new: int, there: int, length: int) -> bool:
    for start in range(0, length, _BLOCK):
        size = min(_BLOCK, length - start)
        if os.pread(old, size, at + start) != os.pread(new, size, there + start):
            return False
    return True
