"""Workspaces: directories in which agents' programs run, and which go when nobody uses them.

    sandbox = create_session_sandbox("build-7")
    result = sandbox.execute(["python3", "-c", "print(6 * 7)"])
    prune_sessions(older_than_hours=24)

Any number of processes may use one workspace root at once, prunings included: a workspace in use is
never removed. All errors are `bsd.foundation.errors.BsdError`s; paths default to `workspace` in the
current directory, times are the clock's of this machine (several machines on one root need NTP).
"""

from bsd.workspaces.execution import ExecutionResult, execute
from bsd.workspaces.listing import (
    Repair,
    Workspace,
    list_sessions,
    repair_all,
    repair_session_metadata,
)
from bsd.workspaces.process import Limits
from bsd.workspaces.prune import PruneResult, prune_sessions
from bsd.workspaces.record import SessionMetadata
from bsd.workspaces.sandbox import (
    SessionSandbox,
    create_session_sandbox,
    read_session_metadata,
    touch_session,
)

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
