"""The list of workspaces, those whose age cannot be told included."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.workspaces import record, tree
from bsd.workspaces.metadata import SessionMetadata, Skip, Unusable
from bsd.workspaces.place import (
    DEFAULT_ROOT,
    Root,
    open_directory,
    open_root,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.survey import survey
from bsd.workspaces.tree import Obstacle


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One workspace. Without `metadata`, `reason` and `detail` say why; `bytes` if asked for."""

    session_id: str
    metadata: SessionMetadata | None
    age_hours: float | None
    reason: str | None = None
    detail: str | None = None
    bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"session_id": self.session_id}
        if self.metadata is not None:
            document |= self.metadata.as_json()
        for name in ("age_hours", "reason", "detail", "bytes"):
            document[name] = getattr(self, name)
        return document


def list_sessions(
    workspace_root: Path = DEFAULT_ROOT,
    *,
    sizes: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[SessionInfo]:
    """List the workspaces, the longest unused first, then those whose age cannot be told.

    `sizes` looks at every file in them. Raises NotFound, Invalid, Forbidden.
    """
    now = clock()
    with open_root(Path(workspace_root)) as root, system_errors(f"listing {root.path}"):
        found = survey(root)
        known = sorted(found.known, key=lambda one: (one.updated_at, one.session_id))
        rows = [
            SessionInfo(
                one.session_id,
                one,
                round(one.age_hours(now), 3),
                bytes=_size(root, one.session_id) if sizes else None,
            )
            for one in known
        ]
        for session_id, problem in found.left.items():
            measurable = sizes and problem.skip not in {Skip.SYMLINK, Skip.UNREADABLE_METADATA}
            amount = _size(root, session_id) if measurable else None
            reason, detail = problem.skip.value, problem.detail
            rows.append(SessionInfo(session_id, None, None, reason, detail, amount))
        return rows


def describe_session(
    session_id: str,
    workspace_root: Path = DEFAULT_ROOT,
    *,
    clock: Callable[[], float] = time.time,
) -> SessionInfo:
    """One workspace, its size included. Raises NotFound, Invalid, Forbidden."""
    now = clock()
    with (
        open_root(Path(workspace_root)) as root,
        workspace_in_use(root, session_id) as space,
        system_errors(f"looking at workspace {session_id}"),
    ):
        amount = _size(root, session_id)
        own = root.open_own(create=False)
        try:
            known = record.understood(record.read_truth(space, own), session_id)
        except Unusable as problem:
            return SessionInfo(session_id, None, None, problem.skip.value, problem.detail, amount)
        finally:
            if own is not None:
                os.close(own)
        return SessionInfo(session_id, known, round(known.age_hours(now), 3), bytes=amount)


def _size(root: Root, session_id: str) -> int | None:
    """What a workspace holds, each of its files once; None if not all of it can be seen."""
    try:
        directory = open_directory(root, session_id)
    except (OSError, Unusable):  # gone, replaced, or not for us
        return None
    try:
        return tree.measure(directory).all_bytes
    except (OSError, Obstacle):
        return None
    finally:
        os.close(directory)
