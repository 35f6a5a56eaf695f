"""The one way in which bsd opens files that others may have put there, or something in their place.

What is opened is a plain file, no link at the end of its path; nobody is waited for, as with a
pipe; and no more is read than the file may sensibly hold. Whether the directories before it lie
where they should is for `layout` to say.
"""

from __future__ import annotations

import errno
import os
import stat
from io import DEFAULT_BUFFER_SIZE, FileIO
from pathlib import Path
from typing import BinaryIO

# Bytes; what is larger is none of these, or nobody could use it.
LARGEST_NOTE = 1 << 20  # of one thing: a lock, settings, what a process says of itself
LARGEST_RECORD = 64 << 20  # of many: a list of conversations, a journal
LARGEST_LINE = 1 << 30

_BLOCK = 1 << 20
# What opening a link or a socket for reading raises.
_NO_PLAIN_FILE = {errno.ELOOP, errno.ENXIO}


class NotPlain(OSError):
    """Something lies where a file should: a directory, a link, a pipe, a device."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.ELOOP, "not a plain file", str(path))


class TooLarge(OSError):
    """A file holds more than any of its kind."""

    def __init__(self, path: Path | str, most: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {most} bytes", str(path))


def open_plain(path: Path | str, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """A descriptor of a plain file; raises OSError, NotPlain included, and waits for nothing.

    With O_CREAT it is made private. `follow` is for files that their owner may well link.
    """
    more = os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags | more, 0o600)
    except OSError as error:
        if error.errno in _NO_PLAIN_FILE:
            raise NotPlain(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(path)
    return descriptor


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether a directory is there, or a link to one; not so a link that nobody can follow."""
    try:
        return entry.is_dir()
    except OSError:  # it leads to itself, or to where we may not look
        return False


def plain_file(path: Path | str) -> FileIO:
    """The same for reading, without a buffer."""
    return open(open_plain(path), "rb", buffering=0)


def plain_stream(path: Path | str, buffer: int = DEFAULT_BUFFER_SIZE) -> BinaryIO:
    """The same for reading, with a buffer of so many bytes."""
    return open(open_plain(path), "rb", buffering=buffer)


def read_plain(path: Path | str, most: int, *, follow: bool = False) -> bytes:
    """The bytes of a plain file; raises as `open_plain`, and TooLarge."""
    descriptor = open_plain(path, follow=follow)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise TooLarge(path, most)
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(size)
            while piece := stream.read(_BLOCK):  # it grows; or it is one of those that have no size
                data += piece
                if len(data) > most:
                    raise TooLarge(path, most)
    finally:
        os.close(descriptor)
    return data
