"""The workspace root and its workspaces, through open directories: no link is ever followed.

Other names in the root begin with a dot, which names of workspaces cannot: `.bsd` contains locks
and witnesses (see `record`), `.bsd-pruned-…` are workspaces that a prune has renamed and will
delete.

A workspace is locked with a flock on its directory: shared while the workspace is used, exclusive
for a prune. Such a lock needs no file, follows a rename, and ends with its process. Locks of
metadata are held only briefly.
"""

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bsd.core.errors import Busy, Forbidden, Invalid, NotFound, Unavailable, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import check_name

DEFAULT_ROOT = Path("workspace")  # in the current directory, as in seed 004
OWN = ".bsd"
AWAY = ".bsd-pruned-"
UNFINISHED = "new-"  # in OWN: prefix of a workspace that is being created
_LONGEST_ID = 200  # a file name has at most 255 bytes, including a prefix
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WAIT_SECONDS = 10.0  # for a lock
_PAUSE_SECONDS = 0.005
_STRIPES = 32  # locks for metadata


class Skip(StrEnum):
    """The reason why a workspace is skipped."""

    MISSING_METADATA = "missing_metadata"
    CORRUPTED_METADATA = "corrupted_metadata"
    CORRUPTED_TIMESTAMP = "corrupted_timestamp"
    UNREADABLE_METADATA = "unreadable_metadata"
    UNKNOWN_VERSION = "unknown_version"
    OTHER_SESSION = "other_session"
    IN_USE = "in_use"
    SYMLINK = "symlink"
    INVALID_NAME = "invalid_name"


class Unusable(Exception):
    """The workspace is skipped: its age is unknown, or it is in use."""

    def __init__(self, skip: Skip, detail: str) -> None:
        super().__init__(detail)
        self.skip = skip
        self.detail = detail


def check_id(session_id: str) -> str:
    """Return the id if it is a valid name of a workspace; raises Invalid."""
    if not isinstance(session_id, str):
        raise Invalid("a session id is a text")
    check_name(session_id, "session id")
    if session_id.startswith("."):
        raise Invalid(
            f"session id {session_id!r} begins with a dot", hint="begin with a letter or a digit"
        )
    if len(session_id) > _LONGEST_ID:
        raise Invalid(f"a session id has at most {_LONGEST_ID} characters")
    return session_id


@dataclass(frozen=True, slots=True)
class Root:
    """An open workspace root; `path` is absolute."""

    path: Path
    fd: int

    def identity(self, session_id: str) -> tuple[int, int] | None:
        """Return (device, inode) of a workspace's directory; None if it does not exist."""
        try:
            found = os.stat(session_id, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None

    def open_own(self, *, create: bool) -> int | None:
        """Open the directory OWN; None if it is missing and `create` is False."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(OWN, 0o700, dir_fd=self.fd)
        try:
            return os.open(OWN, _DIRECTORY, dir_fd=self.fd)
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class OpenWorkspace:
    """A workspace whose directory is open."""

    root: Root
    session_id: str
    fd: int

    @property
    def path(self) -> Path:
        return self.root.path / self.session_id

    @property
    def identity(self) -> tuple[int, int]:
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino

    def must_be_there(self) -> None:
        """Raise NotFound if the workspace was deleted or replaced."""
        if self.root.identity(self.session_id) != self.identity:
            raise no_workspace(self.root, self.session_id)


@contextmanager
def open_root(path: Path, *, create: bool = False) -> Iterator[Root]:
    """Open a workspace root; raises NotFound unless `create`, and Forbidden."""
    absolute = Path(os.path.realpath(path))
    try:
        if create:
            make_private_dir(absolute)
        descriptor = os.open(absolute, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(
            f"there is no workspace root {absolute}",
            hint="`bsd workspace create` creates it; --workspace-root names another",
        ) from None
    except (NotADirectoryError, FileExistsError):
        raise Invalid(f"the workspace root {absolute} is not a directory") from None
    except OSError as error:
        raise os_problem(error, f"opening the workspace root {absolute}") from error
    try:
        yield Root(absolute, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def own_directory(root: Root) -> Iterator[int]:
    """Open the directory OWN; creates it if it is missing."""
    descriptor = root.open_own(create=True)
    assert descriptor is not None  # noqa: S101 - just created
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_directory(root: Root, session_id: str) -> int:
    """Open a workspace's directory; raises Unusable, FileNotFoundError, OSError."""
    try:
        return os.open(session_id, _DIRECTORY, dir_fd=root.fd)
    except NotADirectoryError:
        raise Unusable(Skip.SYMLINK, "not a directory, or a symbolic link") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unusable(Skip.SYMLINK, "a symbolic link, which is never followed") from None
        raise


@contextmanager
def own_if_there(root: Root) -> Iterator[int | None]:
    """Open the directory OWN; None if it is missing."""
    descriptor = root.open_own(create=False)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def open_workspace(root: Root, session_id: str) -> Iterator[OpenWorkspace]:
    """Open a workspace without locking it; raises NotFound, Invalid, Forbidden."""
    with system_errors(f"opening workspace {session_id}"):
        try:
            descriptor = open_directory(root, check_id(session_id))
        except FileNotFoundError:
            raise no_workspace(root, session_id) from None
        except Unusable as problem:
            raise Forbidden(f"workspace {session_id} is {problem.detail}") from None
    try:
        yield OpenWorkspace(root, session_id, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def workspace_in_use(
    root: Root, session_id: str, *, wait: float = _WAIT_SECONDS
) -> Iterator[OpenWorkspace]:
    """Open a workspace and lock it against pruning; raises NotFound, Busy, Forbidden.

    Any number of users may hold this lock at the same time.
    """
    with open_workspace(root, session_id) as space:
        with system_errors(f"locking workspace {session_id}"):
            what = f"workspace {session_id}"
            # A prune that deletes the workspace holds the lock until the end.
            lock(space.fd, what, shared=True, wait=wait, check=space.must_be_there)
            space.must_be_there()
        yield space


def no_workspace(root: Root, session_id: str) -> NotFound:
    return NotFound(
        f"there is no workspace {session_id} in {root.path}",
        hint=f"`bsd workspace create {session_id}` creates it, again if it was pruned;"
        " `bsd workspace list` lists all",
    )


@contextmanager
def system_errors(doing: str) -> Iterator[None]:
    """Convert an OSError to an error that a user can act on."""
    try:
        yield
    except OSError as error:
        raise os_problem(error, doing) from error


def try_lock(descriptor: int, *, shared: bool) -> bool:
    """Take the lock on an open file or directory if it is free; raises Unavailable."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL}:
            raise
        raise Unavailable(
            "this file system cannot lock directories",
            hint="keep workspaces on a local disk",
        ) from error
    return True


def lock(
    descriptor: int,
    what: str,
    *,
    shared: bool = False,
    wait: float = _WAIT_SECONDS,
    check: Callable[[], object] = lambda: None,
) -> None:
    """Take the lock, waiting at most `wait` seconds; raises Busy.

    `check` is called while waiting, and may raise an error that ends the wait.
    """
    deadline = time.monotonic() + wait
    while not try_lock(descriptor, shared=shared):
        check()
        if time.monotonic() >= deadline:
            raise Busy(f"{what} is in use", hint="try again when its program has ended")
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def metadata_lock(own: int, session_id: str) -> Iterator[None]:
    """Lock the metadata of a workspace against other writers; `own`: the open directory OWN.

    Workspaces share a fixed number of lock files, so deleted workspaces leave no files behind.
    """
    stripe = hashlib.sha256(session_id.encode()).digest()[0] % _STRIPES
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(f"lock-{stripe:02d}", flags, 0o600, dir_fd=own)
    try:
        lock(descriptor, f"the metadata of workspace {session_id}")
        yield
    finally:
        os.close(descriptor)
