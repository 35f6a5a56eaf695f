"""The workspace root and the workspaces in it, by open directories: no link is ever followed.

Beside the workspaces lie only names that begin with a dot, which no workspace may have: `.bsd`
holds locks and witnesses, `.bsd-pruned-…` is what a pruning has taken out and is about to delete.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.foundation.errors import BsdError, Forbidden, Invalid, NotFound, os_problem
from bsd.foundation.files import make_private_dir
from bsd.foundation.layout import check_name
from bsd.workspaces.locks import WAIT_SECONDS, lock
from bsd.workspaces.metadata import Skip, Unusable

DEFAULT_ROOT = Path("workspace")  # of the host's current directory, as the original had it
OWN = ".bsd"
CONDEMNED = ".bsd-pruned-"
UNFINISHED = "new-"  # in our own directory: a workspace that is being made
_LONGEST_ID = 200  # a name may have 255 bytes, and ours are put before it
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_id(session_id: str) -> str:
    """Return the id if a workspace may be called so; raises Invalid."""
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
    """A workspace root that is open; `path` is absolute."""

    path: Path
    fd: int

    def identity(self, session_id: str) -> tuple[int, int] | None:
        """Which directory lies at a workspace's name now; None if there is none."""
        try:
            found = os.stat(session_id, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None

    def open_own(self, *, create: bool) -> int | None:
        """Open our own directory in the root; None if there is none and none is wanted."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(OWN, 0o700, dir_fd=self.fd)
        try:
            return os.open(OWN, _DIRECTORY, dir_fd=self.fd)
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Workspace:
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
        """Raise NotFound if another directory, or none, lies at its name by now."""
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
            hint="`bsd workspace create` begins one; --workspace-root names another",
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
    """Open our own directory in the root, made if it is missing."""
    descriptor = root.open_own(create=True)
    assert descriptor is not None  # noqa: S101 - it was just made
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
def workspace_in_use(
    root: Root, session_id: str, *, wait: float = WAIT_SECONDS
) -> Iterator[Workspace]:
    """Open a workspace and hold it, so that no pruning takes it; raises NotFound, Busy, Forbidden.

    Any number of users may hold it at once.
    """
    with system_errors(f"opening workspace {session_id}"):
        try:
            descriptor = open_directory(root, check_id(session_id))
        except FileNotFoundError:
            raise no_workspace(root, session_id) from None
        except Unusable as problem:
            raise Forbidden(f"workspace {session_id} is {problem.detail}") from None
    try:
        space = Workspace(root, session_id, descriptor)
        with system_errors(f"locking workspace {session_id}"):
            what = f"workspace {session_id}"
            # Whoever is deleting it holds the lock to the end: so look whether it is still there.
            lock(descriptor, what, shared=True, wait=wait, check=space.must_be_there)
            space.must_be_there()
        yield space
    finally:
        os.close(descriptor)


def no_workspace(root: Root, session_id: str) -> NotFound:
    return NotFound(
        f"there is no workspace {session_id} in {root.path}",
        hint=f"`bsd workspace create {session_id}` makes it, anew if it was pruned;"
        " `bsd workspace list` shows those there are",
    )


@contextmanager
def system_errors(doing: str) -> Iterator[None]:
    """Turn what the system says into an error that a user can act on."""
    try:
        yield
    except BsdError:
        raise
    except OSError as error:
        raise os_problem(error, doing) from error
