"""Actions on the workspaces of a root, for the command line and HTTP: plain functions.

They call `bsd.workspaces` with the limits of the settings, and write to the audit log. HTTP offers
all actions except `run`: callers of the API must not start programs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bsd.core.audit import AuditLog
from bsd.core.clock import begin_run, check_clock, steady
from bsd.core.errors import NotFound
from bsd.core.formatting import MINUTE, lifetime_seconds
from bsd.core.layout import Layout
from bsd.core.settings import Settings
from bsd.workspaces import create_session_sandbox, touch_session
from bsd.workspaces.execution import ExecutionResult, execute
from bsd.workspaces.listing import (
    Repair,
    Workspace,
    describe_session,
    list_sessions,
    repair_all,
    repair_session_metadata,
)
from bsd.workspaces.process import Limits
from bsd.workspaces.prune import Progress, PruneResult, Rules, prune_sessions
from bsd.workspaces.record import SessionMetadata


@dataclass(frozen=True, slots=True)
class WorkspaceRoot:
    """The workspaces of a root, for `actor`.

    Without a `layout`, there is no audit log, and the clock is trusted.
    """

    root: Path | None
    layout: Layout | None = None
    rules: Rules = field(default_factory=Rules)
    actor: str = "cli"
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = steady

    @property
    def place(self) -> Path:
        """The directory of the root; raises NotFound if none is configured."""
        if self.root is None:
            raise NotFound(
                "no workspace root is configured",
                hint="set workspace_root in bsd.toml, or BRAINSURGEON_WORKSPACE_ROOT",
            )
        return self.root

    def record(self, action: str, session_id: str | None, **details: Any) -> None:
        """Write a line to the audit log, if the root has a layout."""
        if self.layout is not None:
            AuditLog(self.layout.audit_file, self.clock).record(
                actor=self.actor, action=action, session_id=session_id, **details
            )


def rules_of(settings: Settings) -> Rules:
    """Return the limits of the settings; a setting of 0 means no limit."""
    age = lifetime_seconds(settings.workspace_max_age, minimum=MINUTE)
    return Rules(
        None if age is None else age / 3600,
        settings.workspace_max_count or None,
        settings.workspace_max_bytes or None,
    )


@dataclass(frozen=True, slots=True)
class Workspaces:
    """All workspaces, longest unused first; those of unknown age come last."""

    workspace_root: str
    workspaces: list[Workspace]


@dataclass(frozen=True, slots=True)
class CreatedWorkspace:
    """A workspace that was created or opened."""

    session_id: str
    path: str
    created: Annotated[bool, Field(description="false: it already existed")]


@dataclass(frozen=True, slots=True)
class TouchedWorkspace:
    """A workspace that was marked as used; `metadata` is None if it has none."""

    session_id: str
    metadata: SessionMetadata | None


@dataclass(frozen=True, slots=True)
class Repairs:
    """The workspaces whose metadata needed a repair, with the problems."""

    dry_run: bool
    workspaces: list[Repair]


def list_workspaces(root: WorkspaceRoot, *, sizes: bool = False) -> Workspaces:
    """List the workspaces, longest unused first; `sizes` reads the size of every file."""
    found = list_sessions(root.place, sizes=sizes, clock=root.clock)
    return Workspaces(str(root.place), found)


def show(root: WorkspaceRoot, session_id: str) -> Workspace:
    """Return a workspace, with its size."""
    return describe_session(session_id, root.place, clock=root.clock)


def create(root: WorkspaceRoot, session_id: str | None = None) -> CreatedWorkspace:
    """Create a workspace, or open an existing one without changing its age; None: a new id."""
    made = create_session_sandbox(session_id, root.place, clock=root.clock)
    if made.created:
        root.record("workspace_create", made.session_id)
    return CreatedWorkspace(made.session_id, str(made.path), made.created)


def touch(root: WorkspaceRoot, session_id: str) -> TouchedWorkspace:
    """Record that a workspace is in use now."""
    return TouchedWorkspace(session_id, touch_session(session_id, root.place, clock=root.clock))


def run(
    root: WorkspaceRoot,
    session_id: str,
    argv: Sequence[str],
    *,
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    isolate: bool = True,
    readable: Sequence[Path] = (),
) -> ExecutionResult:
    """Run a program in a workspace; see `bsd.workspaces.execute`."""
    done = execute(
        session_id,
        argv,
        root.place,
        limits=limits,
        env=env,
        isolate=isolate,
        readable=readable,
        clock=root.clock,
    )
    root.record(
        "workspace_run",
        session_id,
        program=argv[0],
        exit_code=done.exit_code,
        error=done.error,
        isolated=done.isolated,
        user=done.user,
    )
    return done


def prune(
    root: WorkspaceRoot,
    rules: Rules | None = None,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _done, _all: None,
    stopping: Callable[[], bool] = lambda: False,
) -> PruneResult:
    """Delete unused workspaces by `rules`, else by the settings; a dry run only lists them.

    `progress`, `stopping`: see `prune_sessions`.
    """
    rules = rules or root.rules
    now, hours = root.clock(), rules.older_than_hours
    if root.layout is not None and hours is not None:
        # If the clock was put forward, workspaces look older than they are: correct for it.
        look = check_clock if dry_run else begin_run
        run = look(root.layout, "workspaces", root.clock, root.steady)
        now = run.now - run.ahead
    done = prune_sessions(
        hours,
        root.place,
        dry_run,
        max_count=rules.max_count,
        max_total_bytes=rules.max_total_bytes,
        progress=progress,
        stopping=stopping,
        clock=lambda: now,
    )
    if not dry_run and (done.deleted_sessions or done.errors or done.leftovers):
        root.record(
            "workspace_prune",
            None,
            workspaces_deleted=len(done.deleted_sessions),
            workspaces_skipped=len(done.skipped_sessions),
            errors=len(done.errors),
            bytes_freed=done.reclaimed_bytes,
            sessions=done.deleted_sessions,
        )
    return done


def repair(root: WorkspaceRoot, session_id: str | None = None, *, dry_run: bool = False) -> Repairs:
    """Rebuild missing or broken metadata from the files' times, of a workspace or of all."""
    if session_id is None:
        done = repair_all(root.place, dry_run, clock=root.clock)
    else:
        done = [repair_session_metadata(session_id, root.place, dry_run, clock=root.clock)]
    for workspace in done:
        if workspace.repaired and not dry_run:
            root.record("workspace_repair", workspace.session_id, reason=workspace.reason)
    return Repairs(dry_run, done)
