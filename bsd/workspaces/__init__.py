"""Workspaces: directories in which agents' programs run, and which are deleted when unused.

    sandbox = create_session_sandbox("build-7")
    result = sandbox.execute(["python3", "-c", "print(6 * 7)"])
    prune_sessions(older_than_hours=24)

Any number of processes may use the same workspace root at once, also for pruning: a workspace in
use is never removed. All errors are `bsd.core.errors.BsdError`. The default root is `workspace` in
the current directory. Times are from this machine's clock (several machines on a root need NTP).
"""

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

# Silences the log in a program that uses this as a library.
from bsd.core import logs as _logs  # noqa: F401
from bsd.core.errors import Invalid, NotFound
from bsd.workspaces import record, tree
from bsd.workspaces.execution import ExecutionResult, execute
from bsd.workspaces.listing import (
    Repair,
    Workspace,
    list_sessions,
    repair_all,
    repair_session_metadata,
)
from bsd.workspaces.place import (
    DEFAULT_ROOT,
    UNFINISHED,
    OpenWorkspace,
    Root,
    check_id,
    metadata_lock,
    open_root,
    own_directory,
    own_if_there,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.process import Limits
from bsd.workspaces.prune import PruneResult, prune_sessions
from bsd.workspaces.record import SessionMetadata

__all__ = [
    "ExecutionResult",
    "Limits",
    "PruneResult",
    "Repair",
    "SessionMetadata",
    "SessionSandbox",
    "Workspace",
    "create_session_sandbox",
    "execute",
    "list_sessions",
    "prune_sessions",
    "read_session_metadata",
    "repair_all",
    "repair_session_metadata",
    "touch_session",
]

_log = structlog.stdlib.get_logger(module="workspaces")


@dataclass(frozen=True, slots=True)
class SessionSandbox:
    """A workspace, by name; it is not locked between calls."""

    session_id: str
    workspace_root: Path
    created: bool  # True if the call that returned this created it

    @property
    def path(self) -> Path:
        return self.workspace_root / self.session_id

    def execute(self, argv: Sequence[str], **how: Any) -> ExecutionResult:
        """See `bsd.workspaces.execute`."""
        return execute(self.session_id, argv, self.workspace_root, **how)

    def touch(self) -> SessionMetadata | None:
        """See `touch_session`."""
        return touch_session(self.session_id, self.workspace_root)

    def metadata(self) -> SessionMetadata | None:
        """See `read_session_metadata`."""
        return read_session_metadata(self.session_id, self.workspace_root)


def create_session_sandbox(
    session_id: str | None = None,
    workspace_root: Path = DEFAULT_ROOT,
    *,
    clock: Callable[[], float] = time.time,
) -> SessionSandbox:
    """Create a workspace, or open an existing one; without an id, a new UUID is used.

    Opening a workspace does not change it: its age stays, and missing metadata are not created (a
    warning is logged). Raises Invalid, Forbidden, Unavailable.
    """
    name = check_id(str(uuid.uuid4()) if session_id is None else session_id)
    with (
        system_errors(f"creating workspace {name}"),
        open_root(Path(workspace_root), create=True) as root,
        own_directory(root) as own,
        metadata_lock(own, name),
    ):
        created = not _open(root, own, name)
        if created:
            _make(root, own, name, clock())
        _log.info(
            "session.created" if created else "session.retrieved",
            session_id=name,
            workspace_root=str(root.path),
        )
        return SessionSandbox(name, root.path, created)


def touch_session(
    session_id: str,
    workspace_root: Path = DEFAULT_ROOT,
    *,
    clock: Callable[[], float] = time.time,
) -> SessionMetadata | None:
    """Record that a workspace is in use now, and return its metadata.

    If the workspace has no metadata, none are created: a warning is logged and None returned.
    Raises NotFound, Invalid, Busy.
    """
    now = clock()
    with (
        open_root(Path(workspace_root)) as root,
        workspace_in_use(root, session_id) as space,
        system_errors(f"touching workspace {session_id}"),
    ):
        return record.update(space, lambda old: old.touched(now), now)


def read_session_metadata(
    session_id: str, workspace_root: Path = DEFAULT_ROOT
) -> SessionMetadata | None:
    """Return the metadata of a workspace; None if they are unusable. Raises NotFound."""
    with (
        open_root(Path(workspace_root)) as root,
        workspace_in_use(root, session_id) as space,
        own_if_there(root) as own,
    ):
        return record.look(space, own)


def _open(root: Root, own: int, session_id: str) -> bool:
    """Return True if the workspace exists; warns if its age is unknown."""
    if root.identity(session_id) is None:
        return False
    try:
        with workspace_in_use(root, session_id) as space:
            record.look(space, own)
    except NotFound:  # just pruned
        return False
    return True


def _make(root: Root, own: int, session_id: str, now: float) -> None:
    """Create a workspace with its metadata, atomically."""
    record.forget_witness(own, session_id)  # of a workspace that was removed by hand
    fresh = UNFINISHED + session_id
    tree.remove_inside(own, fresh)  # left by a killed call
    os.mkdir(fresh, 0o700, dir_fd=own)
    descriptor = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=own)
    try:
        os.fchmod(descriptor, 0o700)  # the umask may have removed bits
        record.write(
            OpenWorkspace(root, session_id, descriptor),
            SessionMetadata.new(session_id, now).render(),
        )
        os.rename(fresh, session_id, src_dir_fd=own, dst_dir_fd=root.fd)
    except NotADirectoryError:
        raise Invalid(
            f"{root.path / session_id} is not a directory", hint="choose another session id"
        ) from None
    finally:
        os.close(descriptor)
        tree.remove_inside(own, fresh)
    os.fsync(root.fd)
    _log.debug("session.metadata.created", session_id=session_id)
