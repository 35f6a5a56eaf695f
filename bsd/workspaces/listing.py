"""Which workspaces there are in a root, those whose age cannot be told included."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bsd.foundation.answers import Answer, contract
from bsd.foundation.errors import Invalid
from bsd.workspaces import record, tree
from bsd.workspaces.place import (
    AWAY,
    DEFAULT_ROOT,
    OpenWorkspace,
    Root,
    Skip,
    Unusable,
    check_id,
    open_directory,
    open_root,
    own_if_there,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.record import FILE_NAME, SessionMetadata
from bsd.workspaces.tree import Obstacle

_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Workspace(Answer):
    """One workspace, with the fields of its metadata; without any, `reason` says why."""

    session_id: str
    metadata: SessionMetadata | None = field(metadata=contract(inline=True))
    age_hours: float | None
    reason: str | None = field(
        default=None,
        metadata=contract("Why its age cannot be told, such as missing_metadata"),
    )
    detail: str | None = field(default=None, metadata=contract("The reason in words"))
    bytes: int | None = field(
        default=None, metadata=contract("What the disk has given out for it, if asked for")
    )


def list_sessions(
    workspace_root: Path = DEFAULT_ROOT,
    *,
    sizes: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[Workspace]:
    """List the workspaces, the longest unused first, then those whose age cannot be told.

    `sizes` looks at every file in them. Raises NotFound, Invalid, Forbidden.
    """
    now = clock()
    with open_root(Path(workspace_root)) as root, system_errors(f"listing {root.path}"):
        found = survey(root)
        known = sorted(found.known, key=lambda one: (one.updated_at, one.session_id))
        rows = [
            Workspace(
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
            rows.append(Workspace(session_id, None, None, reason, detail, amount))
        return rows


def describe_session(
    session_id: str,
    workspace_root: Path = DEFAULT_ROOT,
    *,
    clock: Callable[[], float] = time.time,
) -> Workspace:
    """One workspace, its size included. Raises NotFound, Invalid, Forbidden."""
    now = clock()
    with (
        open_root(Path(workspace_root)) as root,
        workspace_in_use(root, session_id) as space,
        system_errors(f"looking at workspace {session_id}"),
    ):
        amount = _size(root, session_id)
        try:
            with own_if_there(root) as own:
                known = record.read(space, own)
        except Unusable as problem:
            return Workspace(session_id, None, None, problem.skip.value, problem.detail, amount)
        return Workspace(session_id, known, round(known.age_hours(now), 3), bytes=amount)


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


# --- looking at a whole root ---


@dataclass(slots=True)
class WorkspaceSurvey:
    """`known` are workspaces whose age can be told; `left` are others, with the reason."""

    known: list[SessionMetadata] = field(default_factory=list)
    left: dict[str, Unusable] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)  # names that a broken-off pruning has left


def survey(root: Root) -> WorkspaceSurvey:
    """Look at everything in the root, by name; plain files and dot-names are no workspaces."""
    found = WorkspaceSurvey()
    with os.scandir(root.fd) as entries:
        names = [
            (entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
            for entry in entries
        ]
    with own_if_there(root) as own:
        witnesses = _witnesses(own)
        for name, is_link, is_directory in sorted(names):
            if name.startswith(AWAY) and is_directory:
                found.away.append(name)
            if name.startswith(".") or not (is_link or is_directory):
                continue
            try:
                witness = own if name in witnesses else None
                found.known.append(_read(root, witness, name, is_link=is_link))
            except Unusable as problem:
                found.left[name] = problem
            except FileNotFoundError:  # pruned by somebody else just now
                continue
    return found


def mounted_in(root: Root) -> dict[str, str]:
    """Workspaces in which something is mounted → where in them, as far as the system says that."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    top = f"{root.path}/".replace("//", "/")
    points = [_OCTAL.sub(lambda m: chr(int(m[1], 8)), line.split(" ")[4]) for line in lines]
    inside = [point.removeprefix(top) for point in points if point.startswith(top)]
    parts = [point.partition("/") for point in inside]
    return {name: below or "." for name, _, below in parts}


def _witnesses(own: int | None) -> set[str]:
    if own is None:
        return set()
    return {
        name.removeprefix(record.WITNESS)
        for name in os.listdir(own)
        if name.startswith(record.WITNESS)
    }


def _read(root: Root, own: int | None, name: str, *, is_link: bool) -> SessionMetadata:
    if is_link:
        raise Unusable(Skip.SYMLINK, "a symbolic link, which is never followed")
    try:
        check_id(name)
    except Invalid as problem:
        raise Unusable(Skip.INVALID_NAME, problem.message) from None
    if own is None:
        raw = record.read_file(root.fd, f"{name}/{FILE_NAME}")
        return record.understood(raw, name)
    try:
        descriptor = open_directory(root, name)
    except PermissionError:
        raise Unusable(Skip.UNREADABLE_METADATA, "opening it: permission denied") from None
    try:
        return record.read(OpenWorkspace(root, name, descriptor), own)
    finally:
        os.close(descriptor)
