"""Private files: written so that no reader, and no power cut, ever sees half of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bsd.foundation.layout import make_private_dir


def write_private(path: Path, data: bytes | bytearray) -> None:
    """Replace `path` by a file with mode 0600 that holds `data`, durable when this returns.

    Missing parent directories are made private too. Raises OSError; then `path` is as it was.
    """
    make_private_dir(path.parent)
    # A name of its own for each writer: two of them at once must not write into one file.
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        _write_new(temporary, data)
        os.replace(temporary, path)
    except BaseException:  # an interrupt, too, must not leave the temporary file behind
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_dir(path.parent)


def sync_dir(directory: Path) -> None:
    """Make the names in `directory` durable: files created, renamed or deleted there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data`, however few bytes the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write_new(path: Path, data: bytes | bytearray) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # a umask may have taken more than it should
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
