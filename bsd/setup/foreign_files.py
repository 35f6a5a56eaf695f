"""Reading and replacing files of other programs, which may change them at any moment.

A file is replaced as a whole, by one that has its mode, owner and attributes, if it is still as it
was read. A link is followed to its target, which is replaced. Nothing is written for a user to whom
the file does not belong.
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
# Claude Code takes over a lock that was not renewed for so long; it renews its own every 5 s.
_ABANDONED_SECONDS = 10.0
_BSD_MARK_NS = 298_173_645  # by this fraction of a second a lock is known as one of bsd's
_PRIVATE, _SHARED = 0o600, 0o644
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file as it was read.

    Attributes:
        path: as the program names it.
        target: the same, links resolved.
        content: None if there is no file.
    """

    path: Path
    target: Path
    content: bytes | None


def read_foreign(path: Path) -> ForeignFile:
    """Read a file, links followed; raises BsdError if it is there and bsd may not edit it."""
    target = Path(os.path.realpath(path))
    try:
        found = os.lstat(target)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            hint = "make the file, or remove the link"
            raise NotFound(f"{path} is a link to {target}, which is not there", hint=hint) from None
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
            f"{path} has {found.st_nlink} names, and bsd can replace it under one of them only",
            hint="edit it by hand, or make a copy of its own of it",
        )
    return ForeignFile(path, target, content)


def replace_foreign(
    file: ForeignFile, content: bytes | None, *, private: bool, lock: Path | None = None
) -> None:
    """Replace a file durably, create it, or delete it (`content` is None).

    Args:
        private: a new file is readable for its owner only.
        lock: the directory by which the program keeps others from writing the file.

    Raises:
        Conflict: the file is not as it was read; nothing was changed.
        BsdError: it cannot be written; nothing was changed.
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
    """Create the missing directories above a file; return them, the outermost first."""
    missing = missing_directories(path)
    try:
        for directory in missing:
            directory.mkdir(exist_ok=True)
            _give_to_owner_above(directory)
            sync_dir(directory.parent)
    except (FileExistsError, NotADirectoryError):
        hint = "move away the file that lies in the place of a directory"
        raise Conflict(f"{path.parent} cannot be made a directory", hint=hint) from None
    except OSError as error:
        raise os_problem(error, f"making {path.parent}") from error
    return missing


def missing_directories(path: Path) -> tuple[Path, ...]:
    """Return the directories above a file that are not there, the outermost first."""
    missing = []
    for directory in path.parents:
        if os.path.lexists(directory):
            break
        missing.append(directory)
    return tuple(reversed(missing))


def remove_empty(directories: tuple[Path, ...]) -> None:
    """Remove directories that are empty, the innermost first; others stay."""
    for directory in reversed(directories):
        with suppress(OSError):  # something has come into it, or it is gone
            os.rmdir(directory)


def is_writable(path: Path) -> bool:
    """Return False if this process cannot make or replace a file, links followed.

    A service's unit may mount a home, or parts of it, read-only (ProtectHome, ReadOnlyPaths).
    """
    target = Path(os.path.realpath(path))
    try:
        if os.statvfs(target).f_flag & os.ST_RDONLY:
            return False
    except OSError:  # it is not there, or nothing can be told
        pass
    directory = target.parent
    while not os.path.lexists(directory):  # it is made, too
        directory = directory.parent
    return os.access(directory, os.W_OK | os.X_OK)


def remove_leftovers(target: Path) -> None:
    """Remove what a killed bsd has left beside a file that it was about to replace.

    A temporary file is locked for as long as its writer lives.
    """
    leftover = re.compile(re.escape(f".{target.name[:200]}.") + r"[0-9a-f]{12}\.bsd-tmp")
    with suppress(OSError):  # there is no such directory, or it is not ours
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
    except BaseException:  # an interrupt, too, must not leave the temporary file behind
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _give_to_owner_above(path: Path, descriptor: int | None = None) -> None:
    """If root has made something, give it to the owner of the directory."""
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
    """Raise Conflict if the file is not as it was read."""
    now = read_foreign(file.path)
    if (now.target, now.content) != (file.target, file.content):
        raise changed(file.path)


def changed(path: Path) -> Conflict:
    """Return the error for a file that another program has just written."""
    return Conflict(
        f"{path} has just been changed by another program; bsd changed nothing in it",
        hint="run it again",
    )


@contextmanager
def _locked(lock: Path | None, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold a program's lock, a directory; raises Busy, OSError."""
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
    """Make a lock and return its descriptor; None if it is there.

    bsd marks its own and holds a lock of the kernel on it: what a killed bsd has left is free.
    """
    try:
        os.mkdir(lock, 0o700)
    except FileExistsError:
        with suppress(OSError):
            _remove_abandoned(lock)
        return None
    descriptor = os.open(lock, _DIRECTORY)
    with suppress(OSError):  # some network file systems have no such locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        now = time.time_ns()
        os.utime(descriptor, ns=(now, now - now % 10**9 + _BSD_MARK_NS))
    return descriptor


def _remove_abandoned(lock: Path) -> None:
    """Remove a lock whose maker is gone; raises OSError if it is held, or is no directory."""
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
    """Return a file's text, empty if there is no file; raises BsdError if it is not UTF-8."""
    try:
        return (file.content or b"").decode()
    except UnicodeDecodeError:
        raise Conflict(f"{file.path} is not UTF-8 text", hint="save it as UTF-8") from None
