"""Reading and writing a workspace's metadata so that the program inside cannot forge it.

While programs run, a *witness* of the metadata lies in `.bsd` in the root, which they are not given
to write to. As long as there is one, it is the truth, and the file in the workspace a copy that is
put back. It outlives a crash, so that what a killed run has written is not believed afterwards.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress

from bsd.foundation.files import write_all
from bsd.foundation.logs import get_logger
from bsd.workspaces import tree
from bsd.workspaces.locks import metadata_lock, try_lock
from bsd.workspaces.metadata import (
    FILE_NAME,
    LARGEST,
    SessionMetadata,
    Skip,
    Unusable,
    parse,
)
from bsd.workspaces.place import Workspace, own_directory

_log = get_logger("workspaces")

WITNESS = "witness-"
_LONGEST_HEAD = 200
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Change = Callable[[SessionMetadata], SessionMetadata]


def read_file(directory: int, name: str = FILE_NAME, most: int = LARGEST + 1) -> bytes | None:
    """The file's first `most` bytes; None if there is none. Raises Unusable."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not a regular file") from None
        raise Unusable(Skip.UNREADABLE_METADATA, f"reading {FILE_NAME}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unusable(Skip.CORRUPTED_METADATA, f"{FILE_NAME} is not a regular file")
        return os.read(descriptor, most)
    except OSError as error:
        raise Unusable(Skip.UNREADABLE_METADATA, f"reading {FILE_NAME}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def understood(raw: bytes | None, session_id: str) -> SessionMetadata:
    """What these bytes say; raises Unusable."""
    if raw is None:
        raise Unusable(Skip.MISSING_METADATA, f"there is no {FILE_NAME}")
    return parse(raw, session_id)


def read_truth(space: Workspace, own: int | None) -> bytes | None:
    """The metadata's bytes, by the witness if there is one; raises Unusable."""
    if own is not None:
        found, raw = _read_witness(space, own)
        if found:
            return raw
    return read_file(space.fd)


def look(space: Workspace, own: int | None) -> SessionMetadata | None:
    """What is noted of a workspace; None, with a warning, if nothing that can be read."""
    try:
        return understood(read_truth(space, own), space.session_id)
    except Unusable as problem:
        _log.warning(
            "session.metadata.unusable",
            session_id=space.session_id,
            reason=problem.skip,
            detail=problem.detail,
        )
        return None


def update(space: Workspace, change: Change, now: float) -> SessionMetadata | None:
    """Change the metadata of a workspace that is held; None, and nothing is done, without any."""
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        return _update(space, own, change, now)


def begin(space: Workspace) -> None:
    """Before a program starts: let there be a witness of what is true now."""
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        found, raw = _read_witness(space, own)
        if found:  # somebody runs already, or was killed: what lies inside proves nothing
            _put_back(space, raw)
            return
        try:
            raw = read_file(space.fd)
        except Unusable:  # a link, a pipe, a directory: there is nothing that could be put back
            return
        _write_witness(space, own, raw)


def end(space: Workspace, change: Change, now: float) -> SessionMetadata | None:
    """After a program ended: put back what it forged, note the run, and let the witness go.

    The workspace is no longer held afterwards.
    """
    with own_directory(space.root) as own, metadata_lock(own, space.session_id):
        found, raw = _read_witness(space, own)
        if found:
            _put_back(space, raw)
        metadata = _update(space, own, change, now)
        # Alone only if nobody else holds it; a refusal gives up our own hold, which is over.
        if try_lock(space.fd, shared=False):
            forget_witness(own, space.session_id)
        return metadata


def settle(space: Workspace, own: int) -> None:
    """Nobody runs there and nobody will: let the file be true again, and the witness go."""
    found, raw = _read_witness(space, own)
    if found:
        _put_back(space, raw)
        forget_witness(own, space.session_id)


def replace(space: Workspace, own: int, content: bytes) -> None:
    """Let this be the metadata from now on, whatever lies there; nobody runs there."""
    _clear_away(space)
    write(space, content)
    forget_witness(own, space.session_id)


def write(space: Workspace, content: bytes) -> None:
    """Replace the file, durably; raises OSError."""
    _write_new(space.fd, FILE_NAME, content, durable=True)
    os.fsync(space.fd)


def forget_witness(own: int, session_id: str) -> None:
    """Believe the file in the workspace again."""
    with suppress(FileNotFoundError):
        os.unlink(WITNESS + session_id, dir_fd=own)


def _update(space: Workspace, own: int, change: Change, now: float) -> SessionMetadata | None:
    before = look(space, own)
    if before is None:  # only a repair gives metadata to a workspace that has none
        return None
    after = change(before)
    content = after.render()
    if _read_witness(space, own)[0]:
        _write_witness(space, own, content)
    write(space, content)
    _log.debug("session.metadata.updated", session_id=space.session_id, at=now)
    return after


def _put_back(space: Workspace, raw: bytes | None) -> None:
    """Let the file be what it was, whatever has become of it."""
    try:
        if read_file(space.fd) == raw:
            return
    except Unusable:  # it was replaced by something else
        pass
    _log.warning("session.metadata.forged", session_id=space.session_id)
    if raw is None:
        with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
            os.unlink(FILE_NAME, dir_fd=space.fd)
    _clear_away(space)
    if raw is not None:
        write(space, raw)


def _clear_away(space: Workspace) -> None:
    """Make room for the file: a rename does not replace a directory."""
    tree.remove_inside(space.fd, FILE_NAME)


def _read_witness(space: Workspace, own: int) -> tuple[bool, bytes | None]:
    """Whether there is one of this very directory, and what it says was in the file."""
    try:
        raw = read_file(own, WITNESS + space.session_id, LARGEST + _LONGEST_HEAD)
    except Unusable:
        return False, None
    if raw is None:
        return False, None
    head, _, content = raw.partition(b"\n")
    if head == _head(space, present=True):
        return True, content
    return head == _head(space, present=False), None


def _write_witness(space: Workspace, own: int, raw: bytes | None) -> None:
    head = _head(space, present=raw is not None)
    content = head + b"\n" + (raw or b"")
    _write_new(own, WITNESS + space.session_id, content, durable=False)


def _head(space: Workspace, *, present: bool) -> bytes:
    device, inode = space.identity
    return f"bsd-witness 1 {device} {inode} {int(present)}".encode()


def _write_new(directory: int, name: str, content: bytes, *, durable: bool) -> None:
    temporary = f".{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
    try:
        try:
            os.fchmod(descriptor, 0o600)  # a umask may have taken more than it should
            write_all(descriptor, content)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # an interrupt, too, must not leave the temporary file behind
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
