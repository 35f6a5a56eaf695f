"""What doors do with workspaces: one root, the rules of the settings, a line in the audit; as data.

Programs are run by the library and the command line only: whoever reaches the API may prune a
workspace, but not start a program on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.audit import AuditLog
from bsd.core.clock import look, steady
from bsd.core.definition import UNSAID, Answer, Library, LibraryVerb, Unsaid, argument, contract
from bsd.core.errors import NotFound
from bsd.core.formatting import MINUTE, lifetime_seconds
from bsd.core.layout import Layout
from bsd.core.settings import Settings
from bsd.workspaces import SessionSandbox, create_session_sandbox, touch_session
from bsd.workspaces.execution import ExecutionResult, execute
from bsd.workspaces.listing import (
    Repair,
    Workspace,
    describe_session,
    list_sessions,
    repair_all,
    repair_session_metadata,
)
from bsd.workspaces.prune import Progress, PruneResult, Rules, prune_sessions
from bsd.workspaces.record import SessionMetadata


def rules_of(settings: Settings) -> Rules:
    """Which workspaces go, as the settings say; in those 0 is no limit."""
    age = lifetime_seconds(settings.workspace_max_age, minimum=MINUTE)
    return Rules(
        None if age is None else age / 3600,
        settings.workspace_max_count or None,
        settings.workspace_max_bytes or None,
    )


@dataclass(frozen=True, slots=True)
class WorkspaceRoot:
    """The workspaces in one root, for `actor`.

    Without a `layout` there is no audit, and the clock is believed.
    """

    root: Path | None
    layout: Layout | None = None
    rules: Rules = field(default_factory=Rules)
    actor: str = "cli"
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = steady

    @property
    def place(self) -> Path:
        """The root; raises NotFound if none is configured."""
        if self.root is None:
            raise NotFound(
                "no workspace root is configured",
                hint="set workspace_root in bsd.toml, or BRAINSURGEON_WORKSPACE_ROOT",
            )
        return self.root

    def create(self, session_id: str | None = None) -> SessionSandbox:
        made = create_session_sandbox(session_id, self.place, clock=self.clock)
        if made.created:
            self._audit("workspace_create", made.session_id)
        return made

    def run(self, session_id: str, argv: Sequence[str], **how: Any) -> ExecutionResult:
        done = execute(session_id, argv, self.place, clock=self.clock, **how)
        self._audit(
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
        self,
        rules: Rules | None = None,
        *,
        dry_run: bool = False,
        progress: Progress = lambda _done, _all: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> PruneResult:
        """Prune by `rules`, or by those of the settings."""
        rules = rules or self.rules
        now = self._now_for(rules.older_than_hours, keep=not dry_run)
        done = prune_sessions(
            rules.older_than_hours,
            self.place,
            dry_run,
            max_count=rules.max_count,
            max_total_bytes=rules.max_total_bytes,
            progress=progress,
            stopping=stopping,
            clock=lambda: now,
        )
        if not dry_run and (done.deleted_sessions or done.errors or done.leftovers):
            self._audit(
                "workspace_prune",
                None,
                workspaces_deleted=len(done.deleted_sessions),
                workspaces_skipped=len(done.skipped_sessions),
                errors=len(done.errors),
                bytes_freed=done.reclaimed_bytes,
                sessions=done.deleted_sessions,
            )
        return done

    def repair(self, session_id: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Repair one, or all that need it."""
        if session_id is None:
            done = repair_all(self.place, dry_run, clock=self.clock)
        else:
            done = [repair_session_metadata(session_id, self.place, dry_run, clock=self.clock)]
        for one in done:
            if one.repaired and not dry_run:
                self._audit("workspace_repair", one.session_id, reason=one.reason)
        return done

    def _now_for(self, hours: float | None, *, keep: bool) -> float:
        """The time by which workspaces count as unused: the clock may have been put forward."""
        if self.layout is None or hours is None:
            return self.clock()
        return look(self.layout, self.clock, self.steady, keep=keep).now_for(hours * 3600)

    def _audit(self, action: str, session_id: str | None, **what: Any) -> None:
        if self.layout is not None:
            AuditLog(self.layout.audit_file, self.clock).record(
                actor=self.actor, action=action, session_id=session_id, **what
            )


# --- what they take and answer ---


@dataclass(frozen=True, slots=True)
class ListWorkspaces:
    """All of them."""

    sizes: bool = field(
        default=False,
        metadata=argument("Look at every file, and say what they take.", query=True),
    )


@dataclass(frozen=True, slots=True)
class Workspaces(Answer):
    """The longest unused first, then those whose age cannot be told."""

    workspace_root: str
    workspaces: list[Workspace]


@dataclass(frozen=True, slots=True)
class CreateWorkspace:
    """Without a session id a new UUID is taken."""

    session_id: str | None = field(
        default=None, metadata=argument(metavar="[ID]", positional=True, most=1000)
    )


@dataclass(frozen=True, slots=True)
class Created(Answer):
    """Where it is."""

    session_id: str
    path: str
    created: bool = field(metadata=contract("False: it was there"))


@dataclass(frozen=True, slots=True)
class WhichWorkspace:
    """One workspace."""

    session_id: str = field(metadata=argument(metavar="ID", positional=True))


@dataclass(frozen=True, slots=True)
class TouchedWorkspace(Answer):
    """One without metadata gets none."""

    session_id: str
    metadata: SessionMetadata | None


@dataclass(frozen=True, slots=True)
class PruneWorkspaces:
    """What is left out is as the settings say; null: it does not count."""

    older_than_hours: float | Unsaid | None = field(
        default=UNSAID, metadata=argument("Unused for so long.", least=0)
    )
    max_count: int | Unsaid | None = field(
        default=UNSAID, metadata=argument("Let at most so many stay.", least=0)
    )
    max_total_bytes: int | Unsaid | None = field(
        default=UNSAID, metadata=argument("Let so many bytes in all of them stay.", least=0)
    )
    dry_run: bool = field(default=False, metadata=argument("Only say what would go.", query=True))

    def rules(self, settings: Rules) -> Rules:
        """Which workspaces go, where `settings` stand for what was left out."""
        hours, count, amount = self.older_than_hours, self.max_count, self.max_total_bytes
        return Rules(
            settings.older_than_hours if isinstance(hours, Unsaid) else hours,
            settings.max_count if isinstance(count, Unsaid) else count,
            settings.max_total_bytes if isinstance(amount, Unsaid) else amount,
        )


@dataclass(frozen=True, slots=True)
class RepairAll:
    """All that need it."""

    dry_run: bool = field(
        default=False, metadata=argument("Only say what would be written.", query=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOne(RepairAll):
    """One, if it needs it."""

    session_id: str = field(metadata=argument(metavar="ID", positional=True))


@dataclass(frozen=True, slots=True)
class Repairs(Answer):
    """Those that needed it, with what is wrong with them."""

    dry_run: bool
    workspaces: list[Repair]


# --- the verbs ---


_WING = Library(WorkspaceRoot, "workspaces")


def _list(root: WorkspaceRoot, asked: ListWorkspaces) -> Workspaces:
    found = list_sessions(root.place, sizes=asked.sizes, clock=root.clock)
    return Workspaces(str(root.place), found)


def _touch(root: WorkspaceRoot, asked: WhichWorkspace) -> TouchedWorkspace:
    known = touch_session(asked.session_id, root.place, clock=root.clock)
    return TouchedWorkspace(asked.session_id, known)


def _create(root: WorkspaceRoot, asked: CreateWorkspace) -> Created:
    made = root.create(asked.session_id)
    return Created(made.session_id, str(made.path), made.created)


LIST = _WING.verb(
    "workspaces",
    ListWorkspaces,
    Workspaces,
    _list,
    "GET",
    "All workspaces, the longest unused first; `sizes` looks at every file in them.",
    about="List the workspaces, the longest unused first.",
)
SHOW = _WING.verb(
    "workspace",
    WhichWorkspace,
    Workspace,
    lambda root, asked: describe_session(asked.session_id, root.place, clock=root.clock),
    "GET /{session_id}",
    "One workspace, with its size.",
)
CREATE = _WING.verb(
    "create",
    CreateWorkspace,
    Created,
    _create,
    "POST",
    "Create a workspace, or open the one of this name; its age stays.",
    about="Create a workspace, or open the one of this name; without an ID one is made up.",
)
TOUCH = _WING.verb(
    "touch",
    WhichWorkspace,
    TouchedWorkspace,
    _touch,
    "POST /{session_id}/touch",
    "Note that it is used now; `metadata` is null for one without any, which gets none.",
    about="Note that a workspace is used now. Exit code 1 if it has no metadata to note that in.",
)
PRUNE = _WING.verb(
    "prune",
    PruneWorkspaces,
    PruneResult,
    lambda root, asked: root.prune(asked.rules(root.rules), dry_run=asked.dry_run),
    "POST /prune",
    "Delete what nobody uses any more, or say what would go.",
)
REPAIR_ALL = _WING.verb(
    "repair_all",
    RepairAll,
    Repairs,
    lambda root, asked: Repairs(asked.dry_run, root.repair(dry_run=asked.dry_run)),
    "POST /repair",
    "Make missing and broken metadata anew from the files' times.",
)
REPAIR = _WING.verb(
    "repair",
    RepairOne,
    Repairs,
    lambda root, asked: Repairs(
        asked.dry_run, root.repair(asked.session_id, dry_run=asked.dry_run)
    ),
    "POST /{session_id}/repair",
    "Make the metadata of one anew, if they are missing or broken.",
)
VERBS: tuple[LibraryVerb[WorkspaceRoot, Any, Any], ...] = (
    *(LIST, CREATE, PRUNE, REPAIR_ALL, SHOW, TOUCH, REPAIR),
)
