"""The actions on workspaces for the interfaces that are still made from `core.definition`.

New code calls `bsd.workspaces.actions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bsd.core.definition import UNSAID, Library, LibraryVerb, Unsaid, argument
from bsd.workspaces import actions
from bsd.workspaces.actions import (
    CreatedWorkspace,
    Repairs,
    TouchedWorkspace,
    WorkspaceRoot,
    Workspaces,
)
from bsd.workspaces.listing import Workspace
from bsd.workspaces.prune import PruneResult, Rules

# --- what they take and answer ---


@dataclass(frozen=True, slots=True)
class ListWorkspaces:
    """All of them."""

    sizes: bool = field(
        default=False,
        metadata=argument("Look at every file, and say what they take.", query=True),
    )


@dataclass(frozen=True, slots=True)
class CreateWorkspace:
    """Without a session id a new UUID is taken."""

    session_id: str | None = field(
        default=None, metadata=argument(metavar="[ID]", positional=True, most=1000)
    )


@dataclass(frozen=True, slots=True)
class WhichWorkspace:
    """One workspace."""

    session_id: str = field(metadata=argument(metavar="ID", positional=True))


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


# --- the verbs ---


_WING = Library(WorkspaceRoot, "workspaces")


LIST = _WING.verb(
    "workspaces",
    ListWorkspaces,
    Workspaces,
    lambda root, asked: actions.list_workspaces(root, sizes=asked.sizes),
    "GET",
    "All workspaces, the longest unused first; `sizes` looks at every file in them.",
    about="List the workspaces, the longest unused first.",
)
SHOW = _WING.verb(
    "workspace",
    WhichWorkspace,
    Workspace,
    lambda root, asked: actions.show(root, asked.session_id),
    "GET /{session_id}",
    "One workspace, with its size.",
)
CREATE = _WING.verb(
    "create",
    CreateWorkspace,
    CreatedWorkspace,
    lambda root, asked: actions.create(root, asked.session_id),
    "POST",
    "Create a workspace, or open the one of this name; its age stays.",
    about="Create a workspace, or open the one of this name; without an ID one is made up.",
)
TOUCH = _WING.verb(
    "touch",
    WhichWorkspace,
    TouchedWorkspace,
    lambda root, asked: actions.touch(root, asked.session_id),
    "POST /{session_id}/touch",
    "Note that it is used now; `metadata` is null for one without any, which gets none.",
    about="Note that a workspace is used now. Exit code 1 if it has no metadata to note that in.",
)
PRUNE = _WING.verb(
    "prune",
    PruneWorkspaces,
    PruneResult,
    lambda root, asked: actions.prune(root, asked.rules(root.rules), dry_run=asked.dry_run),
    "POST /prune",
    "Delete what nobody uses any more, or say what would go.",
)
REPAIR_ALL = _WING.verb(
    "repair_all",
    RepairAll,
    Repairs,
    lambda root, asked: actions.repair(root, dry_run=asked.dry_run),
    "POST /repair",
    "Make missing and broken metadata anew from the files' times.",
)
REPAIR = _WING.verb(
    "repair",
    RepairOne,
    Repairs,
    lambda root, asked: actions.repair(root, asked.session_id, dry_run=asked.dry_run),
    "POST /{session_id}/repair",
    "Make the metadata of one anew, if they are missing or broken.",
)
VERBS: tuple[LibraryVerb[WorkspaceRoot, Any, Any], ...] = (
    *(LIST, CREATE, PRUNE, REPAIR_ALL, SHOW, TOUCH, REPAIR),
)
