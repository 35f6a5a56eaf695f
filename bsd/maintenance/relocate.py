"""Moves files and directories so that a complete copy always exists.

Each function may be interrupted at any point and called again: it continues from the files that it
finds. Files are changed only through descriptors of their directories (`core/directories`), so a
user with write access to a directory cannot redirect the changes with a link.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import structlog

from bsd.core.directories import is_there, look, opened
from bsd.core.files import open_plain
from bsd.core.filesystem import MetadataNotKept, keep_metadata
from bsd.sessions.commit.protocol import FileChanged, copy_range

_log = structlog.stdlib.get_logger(module="trash")

# The error numbers of file systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory durably; raises OSError (EXDEV: the mounts differ)."""
    with opened(source.parent) as here, opened(target.parent) as there:
        os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)
        os.fsync(there)
        os.fsync(here)


def set_mode(path: Path, mode: int) -> None:
    """Set the permission bits of a regular file, without set-id bits; a missing file is ignored."""
    with suppress(FileNotFoundError):
        descriptor = open_in_place(path)
        try:
            os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
        finally:
            os.close(descriptor)


def open_in_place(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file without following links on its path; raises as `open_plain`."""
    with opened(path.parent) as directory:
        return open_plain(path.name, flags, directory=directory)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times, mode, owner and attributes; durable except for its name."""
    fd = open_in_place(source)
    try:
        remove_file(target)  # a leftover of a killed call, or another user's file
        copy = open_in_place(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            found = os.fstat(fd)
            copy_range(fd, 0, copy, found.st_size)
            try:
                keep_metadata(fd, copy)
            except MetadataNotKept as error:  # not fatal: the content, mode and times are kept
                _log.warning("A copy has lost attributes", path=str(source), problem=str(error))
            os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(copy)
        except FileChanged as error:
            raise OSError(errno.EIO, "it became shorter while it was copied") from error
        finally:
            os.close(copy)
    finally:
        os.close(fd)


def link_back(source: Path, target: Path, temporary: Path) -> None:
    """Give a file its old name and remove its present name, without replacing another file.

    Args:
        source: the present path.
        target: the old path.
        temporary: a path beside `target`, used if source and target are on different mounts.

    Raises:
        FileExistsError: another file is at `target`.
        OSError.
    """
    with opened(source.parent) as here, opened(target.parent) as there:
        if not is_there(here, source.name):  # an earlier call has moved it
            _remove(there, temporary.name)
            return
        try:
            _link(here, source.name, there, target.name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if not _same_file(there, temporary.name, there, target.name):
                _copy_file(source, temporary)
            _link(there, temporary.name, there, target.name)
            os.fsync(there)
            os.unlink(source.name, dir_fd=here)
            os.fsync(here)
            os.unlink(temporary.name, dir_fd=there)
            return
        os.fsync(there)
        _remove(here, source.name)
        os.fsync(here)


def _link(here: int, source: str, there: int, target: str) -> None:
    """Link a file to a second name, or rename it where hard links fail.

    Raises FileExistsError if another file has the name.
    """
    if _same_file(here, source, there, target):
        return
    try:
        os.link(source, target, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if is_there(there, target):
            raise FileExistsError(errno.EEXIST, "it is taken", target) from error
        os.rename(source, target, src_dir_fd=here, dst_dir_fd=there)


def _same_file(here: int, one: str, there: int, other: str) -> bool:
    first, second = look(here, one), look(there, other)
    return first is not None and second is not None and os.path.samestat(first, second)


def _remove(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def remove_tree(directory: Path) -> None:
    """Remove a directory with its content durably, without following links; it may be missing."""
    with suppress(FileNotFoundError), opened(directory.parent) as above:
        found = look(above, directory.name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            os.unlink(directory.name, dir_fd=above)
        elif found is not None and stat.S_ISDIR(found.st_mode):
            shutil.rmtree(directory.name, dir_fd=above)
        os.fsync(above)


def remove_file(path: Path) -> None:
    """Remove a file, which may be missing."""
    with suppress(FileNotFoundError), opened(path.parent) as directory:
        os.unlink(path.name, dir_fd=directory)
