"""Moves files and directories, from one mount to another too, and never leaves less than a whole.

Every function may be cut off anywhere and called again: it goes on from what it finds. What it
changes it reaches through descriptors of the directories (`core/directories`): a user who
may rename in one of them cannot lead it elsewhere by a link.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import structlog

from bsd.core.directories import is_there, look, opened
from bsd.core.files import open_plain, sync_dir
from bsd.core.filesystem import MetadataNotKept, keep_metadata, open_elsewhere, strength
from bsd.core.leases import somebody_waits, take_lease
from bsd.sessions.commit.protocol import FileChanged, copy_range

_log = structlog.stdlib.get_logger(module="trash")

# As file systems that know no hard links say it.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def rename(source: Path, target: Path) -> bool:
    """Rename durably; False if the two are on different mounts. Raises OSError."""
    with opened(source.parent) as here, opened(target.parent) as there:
        try:
            os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
    sync_names(source, target)
    return True


def sync_names(*paths: Path) -> None:
    """Make the names durable that some paths have, or have no longer."""
    for directory in dict.fromkeys(path.parent for path in paths):
        sync_dir(directory)


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a plain file, which may be gone; never more than these."""
    with suppress(FileNotFoundError):
        descriptor = open_in_place(path)
        try:
            os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
        finally:
            os.close(descriptor)


def open_in_place(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a plain file, no link on the way to it; raises as `open_plain`."""
    with opened(path.parent) as directory:
        return open_plain(path.name, flags, directory=directory)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times, mode, owner and attributes; durable but for its name."""
    fd = open_in_place(source)
    try:
        remove_file(target)  # what a killed call left, or another user's file
        copy = open_in_place(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            _copy_from(fd, copy, 0)
            _dress(fd, copy, source)
            os.fsync(copy)
        finally:
            os.close(copy)
    finally:
        os.close(fd)


def _copy_from(fd: int, copy: int, start: int) -> None:
    """Copy all bytes from `start` on, those included that come while it copies."""
    os.lseek(copy, start, os.SEEK_SET)
    while (size := os.fstat(fd).st_size) > start:
        try:
            copy_range(fd, start, copy, size - start)
        except FileChanged as error:
            raise OSError(errno.EIO, "it became shorter while it was copied") from error
        start = size


def _dress(fd: int, copy: int, source: Path) -> None:
    try:
        keep_metadata(fd, copy)
    except MetadataNotKept as error:  # its content is what counts; mode and times are recorded
        _log.warning("A copy has lost attributes", path=str(source), problem=str(error))
    found = os.fstat(fd)
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


def give_up_for_copy(source: Path, copy: Path) -> bool:
    """Unlink a file that was copied, once nobody can add to it; False if somebody might.

    What was added since it was copied is added to the copy first.
    """
    fd = open_in_place(source)
    try:
        strong = strength(source.parent).level == "strong"
        alone = take_lease(fd) if strong else set(open_elsewhere(source)) <= {os.getpid()}
        if not alone:
            return False
        grown = open_in_place(copy, os.O_WRONLY)
        try:
            _copy_from(fd, grown, os.fstat(grown).st_size)
            os.fsync(grown)
        finally:
            os.close(grown)
        if strong and somebody_waits(fd):
            return False  # whoever it is has found the file, and will write into it
        remove_file(source)
        sync_names(source)
    finally:
        os.close(fd)
    return True


def link_back(source: Path, target: Path, temporary: Path) -> None:
    """Give a file its old name, and take away its present one; replaces nothing.

    `temporary` lies beside `target` and is used across mounts. Raises FileExistsError if another
    file is at `target`, OSError.
    """
    with opened(source.parent) as here, opened(target.parent) as there:
        if not is_there(here, source.name):  # it has been given back; that may have been all
            _remove(there, temporary.name)
            return
        try:
            _link(here, source.name, there, target.name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if not _same_file(there, temporary.name, there, target.name):
                copy_file(source, temporary)
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
    """Give a file a second name (where there are no links: another name) unless it is taken."""
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


def move_tree(source: Path, target: Path) -> None:
    """Move a directory; what is in `target` already stays, and is what the rest joins."""
    if not source.is_dir():
        return
    if not target.is_dir():
        if rename(source, target):
            return
        copy_tree(source, target)
    join(source, target)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory, so that `target` is all of it or not there."""
    part = target.with_name(f".{target.name}.part")
    remove_tree(part)
    _copy_directory(source, part)
    rename(part, target)


def _copy_directory(source: Path, target: Path) -> None:
    """Copy what a directory holds, with modes and times, durably; its links are copied as links."""
    with opened(target.parent) as above:
        os.mkdir(target.name, 0o700, dir_fd=above)
    with opened(source) as here, opened(target) as there:
        for name in sorted(os.listdir(here)):
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
            elif stat.S_ISDIR(mode):
                _copy_directory(source / name, target / name)
            else:
                copy_file(source / name, target / name)
        found = os.fstat(here)
        os.fchmod(there, stat.S_IMODE(found.st_mode))
        os.utime(there, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(there)


def join(source: Path, target: Path) -> None:
    """Move what a directory holds into another; what is there with other content stays behind."""
    with opened(source) as here:
        names = sorted(os.listdir(here))
    for name in names:
        item, place = source / name, target / name
        if not os.path.lexists(place):
            if not rename(item, place):
                _move_over(item, place)
        elif _equal(item, place):
            remove_file(item)
    sync_dir(target)
    with suppress(OSError), opened(source.parent) as above:  # something may stay behind
        os.rmdir(source.name, dir_fd=above)
        os.fsync(above)


def _move_over(item: Path, place: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        copy_tree(item, place)
        remove_tree(item)
        return
    part = place.with_name(f".{place.name[:200]}.part")
    copy_file(item, part)
    rename(part, place)
    remove_file(item)


def in_the_way(source: Path, target: Path) -> list[str]:
    """Names that both directories have, with different content."""
    if not source.is_dir() or not target.is_dir():
        return []
    common = sorted(set(os.listdir(source)) & set(os.listdir(target)))
    return [name for name in common if not _equal(source / name, target / name)]


def _equal(one: Path, other: Path) -> bool:
    plain = one.is_file() and other.is_file() and not (one.is_symlink() or other.is_symlink())
    return plain and filecmp.cmp(one, other, shallow=False)


def remove_tree(directory: Path) -> None:
    """Remove a directory and all in it, following no link; it may be gone."""
    with suppress(FileNotFoundError), opened(directory.parent) as above:
        found = look(above, directory.name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            os.unlink(directory.name, dir_fd=above)
        elif found is not None and stat.S_ISDIR(found.st_mode):
            shutil.rmtree(directory.name, dir_fd=above)


def remove_file(path: Path) -> None:
    """Remove a file; it may be gone."""
    with suppress(FileNotFoundError), opened(path.parent) as directory:
        os.unlink(path.name, dir_fd=directory)
