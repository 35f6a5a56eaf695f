"""Opening files of other programs safely, trusting bsd's own files, and writing them durably.

Files that other programs may have written or replaced are opened in one way: plain files only, no
link at the end of the path, without waiting (as for a pipe), and with a limit on the bytes that are
read. `layout` checks the directories of the path. Files that make bsd change a session (records,
journals) are trusted only if no other user can have created or changed them. Files that bsd writes
are private, and neither a reader nor a power cut ever sees half of one.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from io import DEFAULT_BUFFER_SIZE, FileIO
from pathlib import Path
from typing import BinaryIO, Self

# Bytes; a larger file is not of this kind, or is of no use to any program.
LARGEST_NOTE = 1 << 20  # of one thing: a lock, settings, a process's own notes
LARGEST_RECORD = 64 << 20  # of many: a list of conversations, a journal
LARGEST_LINE = 1 << 30

# Within this time of a change to a file a second one may not show in its timestamps.
UNCERTAIN_SECONDS = 2.0
UNCERTAIN_NS = int(UNCERTAIN_SECONDS * 1e9)

_BLOCK = 1 << 20
_ONE_WRITE_SECONDS = 0.002  # more than it takes to write a line
# The errors of opening a link or a socket for reading.
_NO_PLAIN_FILE = {errno.ELOOP, errno.ENXIO}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


# Inode, size and mtime in ns: a file that has another one was written or replaced.
FileStamp = tuple[int, int, int]


def stamp_of(found: os.stat_result) -> FileStamp:
    """Return a stamp that shows whether a file was written or replaced since."""
    return found.st_ino, found.st_size, found.st_mtime_ns


class Closing(ABC):
    """Closes itself at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Release every resource that is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NotPlain(OSError):
    """Something lies where a file should: a directory, a link, a pipe, a device."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.ELOOP, "not a plain file", str(path))


class TooLarge(OSError):
    """A file holds more than any of its kind."""

    def __init__(self, path: Path | str, most: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {most} bytes", str(path))


def open_plain(
    path: Path | str,
    flags: int = os.O_RDONLY,
    *,
    follow: bool = False,
    directory: int | None = None,
) -> int:
    """A descriptor of a plain file; raises OSError, NotPlain included, and waits for nothing.

    With O_CREAT it is made private. `follow` is for files that their owner may well link, `path` a
    name in an open `directory`, if there is one.
    """
    more = os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags | more, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_PLAIN_FILE:
            raise NotPlain(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(path)
    return descriptor


def is_there(path: Path | str) -> bool:
    """Return whether something is at a path, a dangling link included.

    Unlike `os.path.lexists`, raises OSError if that cannot be told: an error is no absence.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return True for a directory or a link to one; False if a link cannot be followed."""
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
    """Return the bytes of a plain file; raises as `open_plain`, and TooLarge."""
    descriptor = open_plain(path, follow=follow)
    return _read(descriptor, path, most)


def _read(descriptor: int, path: Path | str, most: int) -> bytes:
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


def skip_hole(stream: FileIO) -> None:
    """Move past a hole at the present position: a sparse file may claim more than any disk has."""
    with suppress(OSError):  # no file system says of every file where its holes are
        start = stream.tell()
        try:
            stream.seek(start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the hole goes up to the end
                stream.seek(0, os.SEEK_END)
            else:
                stream.seek(start)


def holds(path: Path | str, needle: bytes) -> bool:
    """Return True if a plain file contains these bytes; False if it cannot be read."""
    with suppress(OSError), plain_file(path) as file:
        end = b""
        while piece := file.read(_BLOCK):
            if needle in end + piece:
                return True
            end = (end + piece)[-len(needle) :]
    return False


# --- trusted ---

MEND_PLANTED = (
    "`ls -la {0}`: if nobody but bsd put it there, `chmod go-w {0}` (where modes cannot be set: "
    "mount with umask=077); else move it away"
)


class UntrustedFile(PermissionError):
    """A file by which bsd acts, and that others have made or may change."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(errno.EPERM, f"it is left alone, it is not bsd's own: {why}", str(path))
        self.hint = MEND_PLANTED.format(path)


def open_ours(path: Path | str, root: Path) -> int:
    """The same as `open_plain` for reading, of a file of bsd's own; raises UntrustedFile, too.

    `root`: the directory to which the file belongs, see `makers`.
    """
    descriptor = open_plain(path)
    if why := why_not_our_file(os.fstat(descriptor), makers(root)):
        os.close(descriptor)
        raise UntrustedFile(path, why)
    return descriptor


def read_ours(path: Path | str, root: Path, most: int) -> bytes:
    """Return the bytes of a file of bsd's own; raises as `open_ours`, and TooLarge."""
    return _read(open_ours(path, root), path, most)


def makers(root: Path) -> frozenset[int]:
    """Return the uids that may create bsd's files: its own, root's, the owner's of the root."""
    found = {os.geteuid(), 0}
    with suppress(OSError):  # it is not there yet
        found.add(root.stat().st_uid)
    return frozenset(found)


def why_not_our_file(found: os.stat_result, makers: Collection[int]) -> str | None:
    """Return why bsd does not trust a file with this lstat result; None if it does."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    if found.st_nlink > 1:  # one of ours has one name; another may have been given it by anybody
        return f"it has {found.st_nlink} names"
    return _why_not_ours(found, makers)


def why_not_our_directory(found: os.stat_result, makers: Collection[int]) -> str | None:
    """The same of a directory, and of the files in it."""
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    return _why_not_ours(found, makers)


def _why_not_ours(found: os.stat_result, makers: Collection[int]) -> str | None:
    if found.st_uid not in makers:
        return f"it belongs to uid {found.st_uid}, not to bsd"
    if found.st_mode & _OTHERS_MAY_WRITE:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


# --- of our own ---


def make_private_dir(path: Path, *, durable: bool = True) -> Path:
    """Create `path` and its missing parents, each with mode 0700 under any umask.

    If `durable`, the new names survive a power cut. Returns `path`.
    """
    missing = []
    above = path
    while not above.is_dir():
        missing.append(above)
        above = above.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        if durable:
            sync_dir(directory.parent)
    return path


def make_durable_dir(path: Path) -> None:
    """The same; also the parent's name survives, if another process has just made that."""
    if not path.is_dir():
        make_private_dir(path)
        sync_dir(path.parent.parent)


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


def create_private(path: Path | str) -> int:
    """A descriptor to write to a new file with mode 0600; raises OSError, FileExistsError too."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data`, however few bytes the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def ends_torn(descriptor: int) -> bool:
    """Return True if the last line has no newline because a full disk or a power cut tore it.

    A line that another process is just writing may be seen in part, too; that soon has an end.
    """
    seen = -1
    while (size := os.fstat(descriptor).st_size) and os.pread(descriptor, 1, size - 1) != b"\n":
        if size == seen:
            return True
        seen = size
        time.sleep(_ONE_WRITE_SECONDS)
    return False


def _write_new(path: Path, data: bytes | bytearray) -> None:
    descriptor = create_private(path)
    try:
        os.fchmod(descriptor, 0o600)  # a umask may have taken more than it should
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
