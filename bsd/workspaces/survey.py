"""Looking at a whole workspace root: which workspaces there are, and what cannot be one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from bsd.foundation.errors import Invalid
from bsd.workspaces import record
from bsd.workspaces.metadata import FILE_NAME, SessionMetadata, Skip, Unusable
from bsd.workspaces.place import CONDEMNED, Root, Workspace, check_id, open_directory

_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(slots=True)
class WorkspaceSurvey:
    """`known` are workspaces whose age can be told; `left` are others, with the reason."""

    known: list[SessionMetadata] = field(default_factory=list)
    left: dict[str, Unusable] = field(default_factory=dict)
    condemned: list[str] = field(default_factory=list)  # names that a broken-off pruning has left


def survey(root: Root) -> WorkspaceSurvey:
    """Look at everything in the root, by name; plain files and dot-names are no workspaces."""
    found = WorkspaceSurvey()
    with os.scandir(root.fd) as entries:
        names = [
            (entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
            for entry in entries
        ]
    own = root.open_own(create=False)
    try:
        witnesses = _witnesses(own)
        for name, is_link, is_directory in sorted(names):
            if name.startswith(CONDEMNED) and is_directory:
                found.condemned.append(name)
            if name.startswith(".") or not (is_link or is_directory):
                continue
            try:
                witness = own if name in witnesses else None
                found.known.append(_read(root, witness, name, is_link=is_link))
            except Unusable as problem:
                found.left[name] = problem
            except FileNotFoundError:  # pruned by somebody else just now
                continue
    finally:
        if own is not None:
            os.close(own)
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
        truth = record.read_truth(Workspace(root, name, descriptor), own)
        return record.understood(truth, name)
    finally:
        os.close(descriptor)
