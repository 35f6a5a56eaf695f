"""Opening files of other programs safely, checking bsd's own files, and writing files durably.

Files that other programs may have written or replaced are always opened in the same way: plain
files only, no link at the end of the path, no waiting (as for a pipe), and a limit on the bytes
that are read. `layout` checks the directories of the path. Files that make bsd change a session
(records, journals) are trusted only if no other user can have created or changed them. Files that
bsd writes are private and atomic: neither a reader nor a power cut leaves a partial file.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import suppress
from io import DEFAULT_BUFFER_SIZE, FileIO
from pathlib import Path
from typing import BinaryIO, Self

# Bytes; a larger file is not of this kind, or not usable.
LARGEST_NOTE = 1 << 20  # a lock, settings, notes of a process
LARGEST_RECORD = 64 << 20  # a list of conversations, a journal
LARGEST_LINE = 1 << 30

# A second change of a file within this time may leave its timestamps unchanged.
UNCERTAIN_SECONDS = 2.0
UNCERTAIN_NS = int(UNCERTAIN_SECONDS * 1e9)

_BLOCK = 1 << 20
_ONE_WRITE_SECONDS = 0.002  # longer than writing a line takes
# The errors of opening a link or a socket for reading.
_NO_PLAIN_FILE = {errno.ELOOP, errno.ENXIO}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


# Inode, size and mtime in ns; it changes if the file is written or replaced.
FileStamp = tuple[int, int, int]


def stamp_of(found: os.stat_result) -> FileStamp:
    """Return the stamp of a file; a different stamp later means that the file has changed."""
    return found.st_ino, found.st_size, found.st_mtime_ns


class Closing(ABC):
    """Base class of objects that a `with` block closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; a second call has no effect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NotPlain(OSError):
    """A directory, link, pipe or device lies where a plain file should be."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.ELOOP, "not a plain file", str(path))


class TooLarge(OSError):
    """A file is larger than the limit for its kind."""

    def __init__(self, path: Path | str, most: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {most} bytes", str(path))


def open_plain(
    path: Path | str,
    flags: int = os.O_RDONLY,
    *,
    follow: bool = False,
    directory: int | None = None,
) -> int:
    """Return a descriptor of a plain file, without waiting (as for a pipe or a lease).

    With O_CREAT, a new file gets mode 0600.

    Args:
        follow: follow a link at the end of the path; for files that users may link.
        directory: an open directory; `path` is then a name in it.

    Raises:
        OSError: the file cannot be opened; NotPlain if it is not a plain file.
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
    """Return True if a path exists, also as a dangling link.

    Unlike `os.path.lexists`, raises OSError if this cannot be determined.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return True for a directory or a link to a directory; False if a link cannot be followed."""
    try:
        return entry.is_dir()
    except OSError:  # the link leads to itself, or to a directory without access
        return False


def plain_file(path: Path | str) -> FileIO:
    """Open a plain file for reading, without a buffer; raises as `open_plain`."""
    return open(open_plain(path), "rb", buffering=0)


def plain_stream(path: Path | str, buffer: int = DEFAULT_BUFFER_SIZE) -> BinaryIO:
    """Open a plain file for reading, with a buffer of this many bytes; raises as `open_plain`."""
    return open(open_plain(path), "rb", buffering=buffer)


def read_plain(path: Path | str, most: int, *, follow: bool = False) -> bytes:
    """Return the bytes of a plain file; raises as `open_plain`, and TooLarge above `most` bytes."""
    descriptor = open_plain(path, follow=follow)
    return _read(descriptor, path, most)


def _read(descriptor: int, path: Path | str, most: int) -> bytes:
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise TooLarge(path, most)
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(size)
            while piece := stream.read(_BLOCK):  # the file grows, or is a file without a size
                data += piece
                if len(data) > most:
                    raise TooLarge(path, most)
    finally:
        os.close(descriptor)
    return data


def skip_hole(stream: FileIO) -> None:
    """Move past a hole at the present position: a sparse file may be larger than any disk."""
    with suppress(OSError):  # file systems may not support SEEK_DATA
        start = stream.tell()
        try:
            stream.seek(start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the hole reaches the end of the file
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
    "`ls -la {0}`: if only bsd can have created it, `chmod go-w {0}` (if modes cannot be set: "
    "mount with umask=077); else move it away"
)


class UntrustedFile(PermissionError):
    """A file that controls bsd, but that another user has created or may change."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(errno.EPERM, f"bsd does not trust this file: {why}", str(path))
        self.hint = MEND_PLANTED.format(path)


def open_ours(path: Path | str, root: Path) -> int:
    """Open a file of bsd's own for reading; raises as `open_plain`, and UntrustedFile.

    `root`: bsd's root, which contains the file; see `makers`.
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
    """Return the uids that may create bsd's files: bsd's own, 0, and that of the root's owner."""
    found = {os.geteuid(), 0}
    with suppress(OSError):  # the root does not exist yet
        found.add(root.stat().st_uid)
    return frozenset(found)


def why_not_our_file(found: os.stat_result, makers: Collection[int]) -> str | None:
    """Return the reason why bsd does not trust a file with this lstat result; None if it does."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    if found.st_nlink > 1:  # bsd's files have one name; any user may have made a hard link
        return f"it has {found.st_nlink} names"
    return _why_not_ours(found, makers)


def why_not_our_directory(found: os.stat_result, makers: Collection[int]) -> str | None:
    """Return the reason why bsd does not trust a directory and its files; None if it does."""
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    return _why_not_ours(found, makers)


def _why_not_ours(found: os.stat_result, makers: Collection[int]) -> str | None:
    if found.st_uid not in makers:
        return f"it belongs to uid {found.st_uid}, not to bsd"
    if found.st_mode & _OTHERS_MAY_WRITE:
        return f"other users may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
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
    """Create a directory durably, including the name of a parent that another process just made."""
    if not path.is_dir():
        make_private_dir(path)
        sync_dir(path.parent.parent)


def write_private(path: Path, data: bytes | bytearray) -> None:
    """Replace `path` by a file with mode 0600 that contains `data`, durable when this returns.

    Missing parent directories get mode 0700. If this raises OSError, `path` is unchanged.
    """
    make_private_dir(path.parent)
    # Each writer has its own temporary name: two writers must not write into the same file.
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        _write_new(temporary, data)
        os.replace(temporary, path)
    except BaseException:  # also an interrupt must not leave the temporary file behind
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
    """Create a file with mode 0600 and return a descriptor for writing.

    Raises:
        OSError: the file cannot be created; FileExistsError if the path exists.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data`, with several system calls if needed."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def ends_torn(descriptor: int) -> bool:
    """Return True if the last line has no newline because a full disk or power cut truncated it.

    A partial line that another process is still writing is not torn: this waits for its end.
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
        os.fchmod(descriptor, 0o600)  # the umask may have removed bits
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_later(path: Path, moment: float | None) -> bool:
    """Return whether a file was written after a moment, in epoch seconds; None: never."""
    with suppress(OSError):
        return moment is not None and path.lstat().st_mtime > moment
    return False


def all_below(directory: Path) -> Iterator[Path]:
    """Yield every path below a directory; unlike `Path.rglob`, raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    for top, directories, names in os.walk(directory, onerror=fail):
        yield from (Path(top, name) for name in (*directories, *names))


def remove_empty(directory: Path) -> None:
    """Remove a directory if it is empty."""
    with suppress(OSError):  # the directory is not empty
        directory.rmdir()
