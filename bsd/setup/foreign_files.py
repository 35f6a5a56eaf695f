"""Reading and replacing files of other programs, which may change them at any time.

A file is replaced as a whole, by a file with the same mode, owner and attributes, and only if it
has not changed since it was read. If the path is a link, its target is replaced. A file that
belongs to another user is not changed, unless bsd runs as root.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import Busy, Conflict, Forbidden, NotFound, os_problem
from bsd.core.files import LARGEST_RECORD, open_plain, read_plain, sync_dir, write_all
from bsd.core.filesystem import MetadataNotKept, keep_metadata

_LOCK_SECONDS = 2.0  # for a lock that a program holds for milliseconds
# Claude Code takes over a lock that was not renewed for this long; it renews its own every 5 s.
_ABANDONED_SECONDS = 10.0
_BSD_MARK_NS = 298_173_645  # the fraction of a second in the mtime of a lock that bsd made
_PRIVATE, _SHARED = 0o600, 0o644
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """The content of a file when it was read.

    Attributes:
        path: the path that the program uses.
        target: the path with resolved links.
        content: None if the file does not exist.
    """

    path: Path
    target: Path
    content: bytes | None


def read_foreign(path: Path) -> ForeignFile:
    """Read a file, following links; raises BsdError if it exists but bsd must not edit it."""
    target = Path(os.path.realpath(path))
    try:
        found = os.lstat(target)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            hint = "create the file, or remove the link"
            raise NotFound(f"{path} is a link to {target}, which is missing", hint=hint) from None
        return ForeignFile(path, target, None)
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    try:
        content = read_plain(target, LARGEST_RECORD)
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        raise Forbidden(
            f"{path} belongs to user {found.st_uid}",
            hint="run this as the owner of the file",
        )
    if found.st_nlink > 1:
        raise Forbidden(
            f"{path} has {found.st_nlink} names (hard links); bsd could replace it under one only",
            hint="edit it by hand, or replace it by a copy",
        )
    return ForeignFile(path, target, content)


def replace_foreign(
    file: ForeignFile, content: bytes | None, *, private: bool, lock: Path | None = None
) -> None:
    """Replace or create a file durably, or delete it (`content` is None).

    Args:
        private: a new file gets mode 0600.
        lock: the directory that the program uses as a lock of the file.

    Raises:
        Conflict: the file has changed since it was read; it is left unchanged.
        BsdError: the file cannot be written; it is left unchanged.
    """
    try:
        with _locked(lock):
            if content is None:
                _refuse_changed(file)
                os.unlink(file.target)
            else:
                _replace(file, content, private=private)
        sync_dir(file.target.parent)
    except MetadataNotKept as problem:
        raise Conflict(
            f"{file.path} cannot be replaced by a file with its owner and attributes: {problem}",
            hint="edit it by hand, as the owner of the file",
        ) from problem
    except OSError as error:
        raise os_problem(error, f"writing {file.path}") from error


def make_directories(path: Path) -> tuple[Path, ...]:
    """Create the missing directories above a file; return them, outermost first."""
    missing = missing_directories(path)
    try:
        for directory in missing:
            directory.mkdir(exist_ok=True)
            _give_to_owner_above(directory)
            sync_dir(directory.parent)
    except (FileExistsError, NotADirectoryError):
        hint = "a file is in the place of a directory; move the file away"
        raise Conflict(f"{path.parent} cannot be created as a directory", hint=hint) from None
    except OSError as error:
        raise os_problem(error, f"making {path.parent}") from error
    return missing


def missing_directories(path: Path) -> tuple[Path, ...]:
    """Return the missing directories above a file, outermost first."""
    missing = []
    for directory in path.parents:
        if os.path.lexists(directory):
            break
        missing.append(directory)
    return tuple(reversed(missing))


def remove_empty(directories: tuple[Path, ...]) -> None:
    """Remove the directories that are empty, innermost first."""
    for directory in reversed(directories):
        with suppress(OSError):  # not empty, or already removed
            os.rmdir(directory)


def is_writable(path: Path) -> bool:
    """Return False if this process cannot create or replace a file; follows links.

    A service's unit may mount a home, or parts of it, read-only (ProtectHome, ReadOnlyPaths).
    """
    target = Path(os.path.realpath(path))
    try:
        if os.statvfs(target).f_flag & os.ST_RDONLY:
            return False
    except OSError:  # the file does not exist, or cannot be checked
        pass
    directory = target.parent
    while not os.path.lexists(directory):  # missing directories would be created
        directory = directory.parent
    return os.access(directory, os.W_OK | os.X_OK)


def remove_leftovers(target: Path) -> None:
    """Remove temporary files that a killed bsd has left beside a file.

    A temporary file is locked while its writer lives.
    """
    leftover = re.compile(re.escape(f".{target.name[:200]}.") + r"[0-9a-f]{12}\.bsd-tmp")
    with suppress(OSError):  # the directory is missing, or belongs to another user
        for name in filter(leftover.fullmatch, os.listdir(target.parent)):
            path = target.with_name(name)
            with suppress(OSError), open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)


def _replace(file: ForeignFile, content: bytes, *, private: bool) -> None:
    _refuse_changed(file)
    name = f".{file.target.name[:200]}.{os.urandom(6).hex()}.bsd-tmp"
    temporary = file.target.with_name(name)
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE
    )
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # see `remove_leftovers`
            write_all(descriptor, content)
            if file.content is None:
                os.fchmod(descriptor, _PRIVATE if private else _SHARED)
                _give_to_owner_above(file.target, descriptor)
            else:
                _as_before(file, descriptor)
            os.fsync(descriptor)
            _refuse_changed(file)
            os.replace(temporary, file.target)
        finally:
            os.close(descriptor)
    except BaseException:  # also an interrupt must not leave the temporary file behind
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _give_to_owner_above(path: Path, descriptor: int | None = None) -> None:
    """If bsd runs as root, give a new file or directory to the owner of its parent."""
    if os.geteuid() == 0:
        above = os.stat(path.parent)
        os.chown(path if descriptor is None else descriptor, above.st_uid, above.st_gid)


def _as_before(file: ForeignFile, descriptor: int) -> None:
    source = open_plain(file.target)
    try:
        keep_metadata(source, descriptor)
    finally:
        os.close(source)


def _refuse_changed(file: ForeignFile) -> None:
    """Raise Conflict if the file has changed since it was read."""
    now = read_foreign(file.path)
    if (now.target, now.content) != (file.target, file.content):
        raise changed(file.path)


def changed(path: Path) -> Conflict:
    """Return the error for a file that another program has just written."""
    return Conflict(
        f"{path} has just been changed by another program; bsd has not changed it",
        hint="run it again",
    )


@contextmanager
def _locked(lock: Path | None, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold a program's lock, which is a directory; raises Busy, OSError."""
    if lock is None or not lock.parent.is_dir():
        yield
        return
    until = time.monotonic() + _LOCK_SECONDS
    while (descriptor := _take(lock)) is None:
        if time.monotonic() > until:
            hint = f"run it again in {_ABANDONED_SECONDS:.0f} seconds"
            raise Busy(f"another program holds {lock}", hint=hint)
        sleep(0.02)
    try:
        yield
    finally:
        with suppress(OSError):
            os.rmdir(lock)
        os.close(descriptor)


def _take(lock: Path) -> int | None:
    """Create a lock and return its descriptor; None if the lock exists.

    bsd marks its own lock by its mtime and holds a flock on it, so that the lock of a killed bsd is
    recognised as free.
    """
    try:
        os.mkdir(lock, 0o700)
    except FileExistsError:
        with suppress(OSError):
            _remove_abandoned(lock)
        return None
    descriptor = os.open(lock, _DIRECTORY)
    with suppress(OSError):  # some network file systems do not support flock
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        now = time.time_ns()
        os.utime(descriptor, ns=(now, now - now % 10**9 + _BSD_MARK_NS))
    return descriptor


def _remove_abandoned(lock: Path) -> None:
    """Remove an abandoned lock; raises OSError if it is held, or is not a directory."""
    descriptor = os.open(lock, _DIRECTORY)
    try:
        found = os.fstat(descriptor)
        if found.st_mtime_ns % 10**9 == _BSD_MARK_NS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif time.time() - found.st_mtime <= _ABANDONED_SECONDS:
            return
        if os.path.samestat(os.lstat(lock), found):
            os.rmdir(lock)
    finally:
        os.close(descriptor)


def text_of(file: ForeignFile) -> str:
    """Return a file's text; "" if the file does not exist. Raises Conflict if it is not UTF-8."""
    try:
        return (file.content or b"").decode()
    except UnicodeDecodeError:
        raise Conflict(f"{file.path} is not UTF-8 text", hint="save it as UTF-8") from None
