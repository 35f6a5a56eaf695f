"""Moves files and directories, from one mount to another too, and never leaves less than a whole.

Every function may be cut off anywhere and called again: it goes on from what it finds.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from contextlib import suppress
from pathlib import Path

from bsd.foundation import files
from bsd.foundation.files import sync_dir
from bsd.foundation.filesystem import MetadataNotKept, keep_metadata, open_elsewhere, strength
from bsd.foundation.leases import open_plain, somebody_waits, take_lease
from bsd.foundation.logs import get_logger
from bsd.session.commit.protocol import FileChanged, copy_range

_log = get_logger("trash")

# As file systems that know no hard links say it.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def rename(source: Path, target: Path) -> bool:
    """Rename durably; False if the two are on different mounts. Raises OSError."""
    try:
        os.rename(source, target)
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


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times, mode, owner and attributes; durable but for its name."""
    fd = open_plain(str(source), os.O_RDONLY)
    try:
        copy = files.open_plain(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
    fd = open_plain(str(source), os.O_RDONLY)
    try:
        strong = strength(source.parent).level == "strong"
        alone = take_lease(fd) if strong else set(open_elsewhere(source)) <= {os.getpid()}
        if not alone:
            return False
        grown = open_plain(str(copy), os.O_WRONLY)
        try:
            _copy_from(fd, grown, os.fstat(grown).st_size)
            os.fsync(grown)
        finally:
            os.close(grown)
        if strong and somebody_waits(fd):
            return False  # whoever it is has found the file, and will write into it
        source.unlink()
        sync_names(source)
    finally:
        os.close(fd)
    return True


def link_back(source: Path, target: Path, temporary: Path) -> None:
    """Give a file its old name, and take away its present one; replaces nothing.

    `temporary` lies beside `target` and is used across mounts. Raises FileExistsError if another
    file is at `target`, OSError.
    """
    if not os.path.lexists(source):  # it has been given back; that may have been all
        remove_file(temporary)
        return
    try:
        _link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if not _same_file(temporary, target):
            copy_file(source, temporary)
        _link(temporary, target)
        sync_names(target)
        source.unlink()
        sync_names(source)
        temporary.unlink()
        return
    sync_names(target)
    with suppress(FileNotFoundError):
        source.unlink()
    sync_names(source)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name (where there are no links: another name) unless it is taken."""
    if _same_file(source, target):
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "it is taken", str(target)) from error
        if not rename(source, target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV)) from error


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except FileNotFoundError:
        return False


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
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part, symlinks=True, copy_function=_copied)
    for directory, _, _ in os.walk(part):
        sync_dir(Path(directory))
    os.rename(part, target)
    sync_names(target)


def _copied(source: str, target: str) -> str:
    copy_file(Path(source), Path(target))
    return target


def join(source: Path, target: Path) -> None:
    """Move what a directory holds into another; what is there with other content stays behind."""
    for item in sorted(source.iterdir()):
        place = target / item.name
        if not os.path.lexists(place):
            if not rename(item, place):
                _move_over(item, place)
        elif _equal(item, place):
            item.unlink()
    sync_dir(target)
    with suppress(OSError):  # something stays behind
        source.rmdir()
        sync_names(source)


def _move_over(item: Path, place: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        copy_tree(item, place)
        shutil.rmtree(item)
        return
    part = place.with_name(f".{place.name[:200]}.part")
    copy_file(item, part)
    os.rename(part, place)
    sync_names(place)
    item.unlink()


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
    if directory.is_symlink():
        directory.unlink()
    elif directory.is_dir():
        shutil.rmtree(directory)


def remove_file(path: Path) -> None:
    """Remove a file; it may be gone."""
    with suppress(FileNotFoundError):
        path.unlink()
