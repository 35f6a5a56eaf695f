"""Builds the new file of a commit: untouched bytes copied in the kernel, edits spliced in."""

from __future__ import annotations

import errno
import hashlib
import os

from bsd.foundation.immutable import immutable
from bsd.foundation.leases import tail_hash
from bsd.session.commit.inflight import Mark
from bsd.text.change import Change, Edit, Identity

# Less than this between two edits is cheaper to read and write with them than to copy apart.
_SMALL_GAP = 64 << 10
_GATHER = 2 << 20
_BLOCK = 1 << 20
_HEADER_LIMIT = 64 << 10
_NO_COPY_HERE = {
    errno.ENOSYS,
    errno.EXDEV,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EPERM,
    errno.EBADF,
}


class FileChanged(Exception):
    """The planned file is not what it was: it ended too early."""


@immutable
class Built:
    """What the exchange and the record need to know of a new file."""

    size: int
    edited_sha256: str  # of the hashes of the original bytes under each edit, in order


def splice(source: int, target: int, change: Change) -> Built:
    """Write the changed file to `target`, an empty file; raises FileChanged, OSError."""
    writer = _Writer(source, target)
    edited = hashlib.sha256()
    at = 0
    for edit in change.edits:
        writer.copy(at, edit.offset - at)
        edited.update((edit.was or _hash(source, edit)).encode())
        writer.write(edit.new)
        at = edit.offset + edit.length
    writer.copy(at, change.planned_on.size - at)
    writer.flush()
    return Built(writer.size, edited.hexdigest())


def _hash(source: int, edit: Edit) -> str:
    hashed, end = hashlib.sha256(), edit.offset + edit.length
    for start in range(edit.offset, end, _BLOCK):
        hashed.update(_read(source, start, min(_BLOCK, end - start)))
    return f"sha256:{hashed.hexdigest()}"


def _read(source: int, offset: int, length: int) -> bytes:
    data = os.pread(source, length, offset)
    if len(data) < length:
        raise FileChanged
    return data


class _Writer:
    """Writes a file front to back; gathers small pieces, copies large ones in the kernel."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.size = 0
        self._gathered: list[bytes] = []
        self._pending = 0

    def copy(self, offset: int, length: int) -> None:
        if length < _SMALL_GAP:
            if length:
                self.write(_read(self.source, offset, length))
            return
        self.flush()
        copy_range(self.source, offset, self.target, length)
        self.size += length

    def write(self, data: bytes) -> None:
        self._gathered.append(data)
        self._pending += len(data)
        if self._pending >= _GATHER:
            self.flush()

    def flush(self) -> None:
        data = memoryview(b"".join(self._gathered))
        self._gathered.clear()
        self.size += self._pending
        self._pending = 0
        while data:
            data = data[os.write(self.target, data) :]


def copy_range(source: int, offset: int, target: int, length: int) -> None:
    """Append `length` bytes of `source` to `target` at its file position, as fast as it goes."""
    while length:
        done = _copy_some(source, offset, target, length)
        if done == 0:
            raise FileChanged
        offset += done
        length -= done


def _copy_some(source: int, offset: int, target: int, length: int) -> int:
    copy_file_range = getattr(os, "copy_file_range", None)  # Linux only
    if copy_file_range is not None:
        try:
            return int(copy_file_range(source, target, length, offset_src=offset))
        except OSError as error:
            if error.errno not in _NO_COPY_HERE:
                raise
    try:
        return os.sendfile(target, source, offset, length)
    except OSError as error:  # macOS sends to sockets only
        if error.errno not in _NO_COPY_HERE | {errno.ENOTSOCK}:
            raise
    data = os.pread(source, min(_BLOCK, length), offset)
    return os.write(target, data) if data else 0


def mark(fd: int, identity: Identity) -> Mark:
    """What recovery recognises an open file by."""
    return Mark(identity, header_hash(fd), tail_hash(fd, identity.size))


def header_hash(fd: int) -> str:
    """SHA-256 of the first line (of its first 64 KiB, should it be longer)."""
    start = os.pread(fd, _HEADER_LIMIT, 0)
    line, end, _ = start.partition(b"\n")
    return hashlib.sha256(line + end).hexdigest()
