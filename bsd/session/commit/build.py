"""Builds the new file of a commit: untouched bytes copied in the kernel, edits spliced in."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import sys

from bsd.foundation.immutable import immutable
from bsd.foundation.leases import tail_hash
from bsd.session.commit.inflight import Mark
from bsd.text.change import Change, Edit, Identity

# Less than this between two edits is cheaper to read and write with them than to copy apart.
_SMALL_GAP = 64 << 10
_GATHER = 2 << 20
_BLOCK = 1 << 20
_COPYFILE_ACL = 1
_COPYFILE_XATTR = 4
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


class MetadataNotKept(Exception):
    """The new file cannot be given the mode, owner, ACL or attributes of the original."""


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


def keep_metadata(source: int, target: int, *, mtime: bool = False) -> None:
    """Give the new file the original's owner, mode, ACL and attributes; raises MetadataNotKept.

    Without `mtime`, that must advance, also where the original's lies in the future.
    """
    original = os.fstat(source)
    try:
        _keep_owner(original, target)
        _keep_attributes(source, target)
        os.fchmod(target, stat.S_IMODE(original.st_mode))
    except OSError as error:
        raise MetadataNotKept(error.strerror) from error
    _check_metadata(source, target)
    now = os.fstat(target)
    if mtime:
        os.utime(target, ns=(now.st_atime_ns, original.st_mtime_ns))
    elif now.st_mtime_ns <= original.st_mtime_ns:
        os.utime(target, ns=(now.st_atime_ns, original.st_mtime_ns + 1))


def _keep_owner(original: os.stat_result, target: int) -> None:
    now = os.fstat(target)
    if now.st_uid != original.st_uid:
        os.fchown(target, original.st_uid, -1)
    if now.st_gid != original.st_gid:
        os.fchown(target, -1, original.st_gid)


def _keep_attributes(source: int, target: int) -> None:
    """Extended attributes; POSIX ACLs are among them under the name system.posix_acl_access.

    On macOS, where Python cannot read either, the system copies both (not tried there).
    """
    if sys.platform == "darwin":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fcopyfile(source, target, None, _COPYFILE_ACL | _COPYFILE_XATTR):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return
    wanted, present = _attributes(source), _attributes(target)
    for name in present.keys() - wanted.keys():  # a directory's default ACL, for one
        os.removexattr(target, name)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value)


def _attributes(fd: int) -> dict[str, bytes]:
    if sys.platform != "linux":  # Python cannot read them elsewhere
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a file system that has none
            return {}
        raise


def _check_metadata(source: int, target: int) -> None:
    original, now = os.fstat(source), os.fstat(target)
    for what in ("st_mode", "st_uid", "st_gid"):
        if getattr(original, what) != getattr(now, what):
            raise MetadataNotKept(f"{what} {getattr(original, what)} became {getattr(now, what)}")
    if _attributes(source) != _attributes(target):
        raise MetadataNotKept("extended attributes differ")


def mark(fd: int, identity: Identity) -> Mark:
    """What recovery recognises an open file by."""
    return Mark(identity, header_hash(fd), tail_hash(fd, identity.size))


def header_hash(fd: int) -> str:
    """SHA-256 of the first line (of its first 64 KiB, should it be longer)."""
    start = os.pread(fd, _HEADER_LIMIT, 0)
    line, end, _ = start.partition(b"\n")
    return hashlib.sha256(line + end).hexdigest()
