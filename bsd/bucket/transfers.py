"""Files as objects: upload in pieces, download, and ranges.

The key of a piece is the SHA-256 of its content before encryption, so an upload that was
interrupted anywhere finds its pieces again.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import structlog

from bsd.bucket.errors import CannotDecrypt, NoObject, ObjectDamaged, OtherContent
from bsd.bucket.objects import LARGEST_OBJECT, Bucket
from bsd.bucket.remote_file import RemoteFile, RemotePart
from bsd.bucket.sealing import SEGMENT, Sealing, segment_sizes
from bsd.core.errors import TemporaryFailure
from bsd.core.files import open_ours

_log = structlog.stdlib.get_logger(module="bucket")

_MOST_IN_MEMORY = 2 * LARGEST_OBJECT  # of all uploads of a process together
_LARGEST_SEALED = LARGEST_OBJECT + (LARGEST_OBJECT // SEGMENT + 1) * (1 << 12)
Known = Callable[[str], RemotePart | None]


class _Memory:
    """The bytes of pieces that uploads hold at the same time."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Wait until there is room for a piece, and hold it."""
        size = min(size, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()


_memory = _Memory(_MOST_IN_MEMORY)


def upload(
    bucket: Bucket,
    directory: str,
    file: Path,
    *,
    root: Path,
    path: str,
    sealing: Sealing,
    known: Known | None = None,
) -> RemoteFile:
    """Upload a file in pieces of at most 64 MB; a piece that is already there is not sent again.

    Args:
        directory: the directory of the objects' keys: `HOST/ROOT/objects`.
        file: the file; it must not change.
        root: bsd's root, which contains the file (see `files.open_ours`).
        path: the file's name in the manifest.
        sealing: how it is encrypted.
        known: returns the piece with a hash if the caller knows that the bucket has it.

    Raises:
        OSError: the file cannot be read.
        TemporaryFailure: it changed while it was read.
        BsdError: as the methods of `Bucket` and `Sealing`.
    """
    descriptor = open_ours(file, root)
    try:
        size = os.fstat(descriptor).st_size
        whole, parts = hashlib.sha256(), list[RemotePart]()
        start = 0
        while start < size or not parts:
            length = min(bucket.bandwidth.piece, size - start)
            with _memory.hold(2 * length if sealing.seals else length):
                data = _read(descriptor, start, length)
                if len(data) != length:
                    raise TemporaryFailure(f"{file} changed while it was uploaded")
                whole.update(data)
                parts.append(_upload_piece(bucket, directory, data, sealing, known))
                del data
            start += length
        if os.fstat(descriptor).st_size != size:
            raise TemporaryFailure(f"{file} changed while it was uploaded")
    finally:
        os.close(descriptor)
    return RemoteFile(path, size, whole.hexdigest(), tuple(parts))


def _read(descriptor: int, start: int, length: int) -> bytes:
    data = os.pread(descriptor, length, start)
    if len(data) in {0, length}:
        return data
    pieces = [data]
    while data and sum(map(len, pieces)) < length:
        read = sum(map(len, pieces))
        data = os.pread(descriptor, length - read, start + read)
        pieces.append(data)
    return b"".join(pieces)


def _upload_piece(
    bucket: Bucket, directory: str, data: bytes, sealing: Sealing, known: Known | None
) -> RemotePart:
    hash_ = hashlib.sha256(data).hexdigest()
    if known and (part := known(hash_)) is not None:
        return part
    key = f"{directory}/{hash_}"
    sealed: bytes | bytearray = data
    sizes: tuple[int, ...] = ()
    if sealing.seals:
        sealed, sizes = sealing.seal_segments(data)
    part = RemotePart(key, len(data), hash_, sizes)
    try:
        bucket.put_new(key, sealed)
    except OtherContent:
        # It is encrypted, and so never the same twice; or a crash or a fault of the network left
        # other bytes before they were checked.
        with suppress(NoObject):
            if there := _part_there(bucket, part, sealing):
                return there
        _log.warning("An object is not what its key says, and is written anew", key=key)
        bucket.put(key, sealed)
    return part


def _part_there(bucket: Bucket, part: RemotePart, sealing: Sealing) -> RemotePart | None:
    """Return the piece that an object holds; None if it does not hold this piece.

    A host without the identity can only see that it is a whole object of the right size.
    """
    data = bucket.get(part.key, _LARGEST_SEALED)
    if hashlib.sha256(data).hexdigest() == part.hash:
        return RemotePart(part.key, part.size, part.hash) if not sealing.seals else None
    sizes = segment_sizes(data, part.size) if sealing.seals else None
    if not sizes:
        return None
    there = RemotePart(part.key, part.size, part.hash, sizes)
    if sealing.identity is not None:
        try:
            content = _opened(data, sizes, sealing, part.key)
        except (ObjectDamaged, CannotDecrypt):
            return None
        if hashlib.sha256(content).hexdigest() != part.hash:
            return None
    return there


def read_range(
    bucket: Bucket, remote: RemoteFile, sealing: Sealing, start: int, length: int
) -> bytes:
    """Return bytes of a file in the bucket; requests only what is needed of it.

    The bytes of a piece that is not sealed are only verified if the whole piece is read: the caller
    knows the hash of its line.

    Raises:
        NoObject, ObjectDamaged: a piece is missing or is not as it was uploaded.
        CannotDecrypt: as `Sealing.open`.
    """
    if not 0 <= start <= start + length <= remote.size:
        raise ObjectDamaged(f"{remote.path} in the bucket is shorter than it was")
    found, offset = [], 0
    for part in remote.parts:
        first, last = max(start, offset), min(start + length, offset + part.size)
        if first < last:
            found.append(_range_of_part(bucket, part, sealing, first - offset, last - offset))
        offset += part.size
    return found[0] if len(found) == 1 else b"".join(found)


def _range_of_part(
    bucket: Bucket, part: RemotePart, sealing: Sealing, first: int, last: int
) -> bytes:
    """Return the bytes from `first` to `last` of a piece, with one request."""
    if part.sealed:
        begin, end = first // SEGMENT, -(-last // SEGMENT)
        sizes = part.sealed[begin:end]
        data = bucket.get_range(part.key, sum(part.sealed[:begin]), sum(sizes))
        content = _opened(data, sizes, sealing, part.key)
        if len(content) != min(end * SEGMENT, part.size) - begin * SEGMENT:
            raise ObjectDamaged(f"{bucket.url}/{part.key} has another length than it had")
        content = content[first - begin * SEGMENT : last - begin * SEGMENT]
    else:
        content = bucket.get_range(part.key, first, last - first)
    if last - first == part.size and hashlib.sha256(content).hexdigest() != part.hash:
        raise ObjectDamaged(f"{bucket.url}/{part.key} has the wrong hash")
    return content


def _opened(data: bytes, sizes: tuple[int, ...], sealing: Sealing, key: str) -> bytes:
    found, offset = [], 0
    for size in sizes:
        found.append(sealing.open_segment(data[offset : offset + size], f"the object {key}"))
        offset += size
    return b"".join(found)


def download(bucket: Bucket, remote: RemoteFile, sealing: Sealing, to: BinaryIO) -> None:
    """Write a whole file of the bucket, and check its hashes; raises as `read_range`."""
    whole = hashlib.sha256()
    for part in remote.parts:
        data = _range_of_part(bucket, part, sealing, 0, part.size) if part.size else b""
        whole.update(data)
        to.write(data)
    if whole.hexdigest() != remote.hash:
        raise ObjectDamaged(f"{remote.path} of the bucket has the wrong hash")
