"""Listing workspaces, and rebuilding missing or broken metadata from the times of files."""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import structlog
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bsd.core.errors import BsdError, Conflict, Forbidden, Invalid
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
    open_workspace,
    own_directory,
    own_if_there,
    system_errors,
    try_lock,
    workspace_in_use,
)
from bsd.workspaces.record import FILE_NAME, SessionMetadata, kept_of, moment_of, parse_document
from bsd.workspaces.tree import Measure, Obstacle

_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace with its metadata; if they are unusable, `reason` and `detail` say why.

    In JSON, the fields of the metadata are members of the same object.
    """

    session_id: str
    metadata: SessionMetadata | None
    age_hours: float | None
    reason: Annotated[
        str | None, Field(description="Why its age is unknown, such as missing_metadata")
    ] = None
    detail: Annotated[str | None, Field(description="The reason in words")] = None
    bytes: Annotated[int | None, Field(description="Its disk usage, if requested")] = None

    @model_serializer(mode="wrap")
    def _flat(self, write: SerializerFunctionWrapHandler) -> Any:
        document: dict[str, Any] = write(self)
        metadata = document.pop("metadata") or {}
        return {"session_id": self.session_id} | metadata | document


def list_sessions(
    workspace_root: Path = DEFAULT_ROOT,
    *,
    sizes: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[Workspace]:
    """List the workspaces, longest unused first; those of unknown age come last.

    `sizes` reads the size of every file. Raises NotFound, Invalid, Forbidden.
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
    """Return a workspace with its size; raises NotFound, Invalid, Forbidden."""
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
    """Return the disk usage of a workspace, each file once; None if a part is unreadable."""
    try:
        return measured(root, session_id).all_bytes
    except (OSError, Obstacle, Unusable):  # deleted, replaced, or not readable
        return None


def measured(root: Root, session_id: str) -> Measure:
    """Measure a workspace; raises Unusable, Obstacle, OSError."""
    directory = open_directory(root, session_id)
    try:
        return tree.measure(directory)
    finally:
        os.close(directory)


# --- surveying a root ---


@dataclass(slots=True)
class WorkspaceSurvey:
    """The workspaces in a root."""

    known: list[SessionMetadata] = field(default_factory=list)  # with a known age
    left: dict[str, Unusable] = field(default_factory=dict)  # skipped, with the reason
    away: list[str] = field(default_factory=list)  # renamed by an interrupted prune


def survey(root: Root) -> WorkspaceSurvey:
    """Read all workspaces in a root; plain files and names with a dot are not workspaces."""
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
            except FileNotFoundError:  # just pruned by another process
                continue
    return found


def mounted_in(root: Root) -> dict[str, str]:
    """Return the workspaces that contain a mount, with the path of the mount; Linux only."""
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


# --- repairing metadata ---

_log = structlog.stdlib.get_logger(module="workspaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The problem of a workspace's metadata (None without a problem), and the new metadata."""

    session_id: str
    repaired: Annotated[
        bool, Field(description="Whether metadata were (in a dry run: would be) written")
    ] = False
    reason: str | None = None
    detail: str | None = None
    metadata: SessionMetadata | None = None
    error: Annotated[str | None, Field(description="Why the repair failed")] = None
    dry_run: bool


def repair_session_metadata(
    session_id: str,
    workspace_root: Path = DEFAULT_ROOT,
    dry_run: bool = False,  # noqa: FBT001, FBT002 - as with prune_sessions
    *,
    clock: Callable[[], float] = time.time,
) -> Repair:
    """Write new metadata for a workspace whose metadata are missing or broken.

    The time of the last use becomes the time of the newest file (directories do not count), or now
    if there are no files. Readable parts of broken metadata are kept; neither they nor the time of
    the broken file make the workspace older. Valid metadata are not changed.

    Raises:
        NotFound, Invalid, Forbidden.
        Conflict: the workspace is in use, or its metadata have a newer version.
    """
    with (
        open_root(Path(workspace_root)) as root,
        system_errors(f"repairing workspace {session_id}"),
    ):
        return _repair(root, session_id, clock(), dry_run=dry_run)


def repair_all(
    workspace_root: Path = DEFAULT_ROOT,
    dry_run: bool = False,  # noqa: FBT001, FBT002 - as above
    *,
    clock: Callable[[], float] = time.time,
) -> list[Repair]:
    """Repair all workspaces that need it; failed repairs are in the result with their `error`."""
    done = []
    with open_root(Path(workspace_root)) as root, system_errors(f"repairing in {root.path}"):
        for session_id, problem in survey(root).left.items():
            if problem.skip in {Skip.SYMLINK, Skip.INVALID_NAME}:
                continue  # not a workspace
            try:
                with system_errors(f"repairing workspace {session_id}"):
                    done.append(_repair(root, session_id, clock(), dry_run=dry_run))
            except BsdError as error:
                done.append(
                    Repair(
                        session_id=session_id,
                        reason=problem.skip.value,
                        detail=problem.detail,
                        error=error.message,
                        dry_run=dry_run,
                    )
                )
    return done


def _repair(root: Root, session_id: str, now: float, *, dry_run: bool) -> Repair:
    with open_workspace(root, session_id) as space:
        if not try_lock(space.fd, shared=False):
            raise Conflict(
                f"workspace {session_id} is in use", hint="try again when its program has ended"
            )
        space.must_be_there()
        return _mend(space, now, dry_run=dry_run)


def _mend(space: OpenWorkspace, now: float, *, dry_run: bool) -> Repair:
    raw: bytes | None = None
    try:
        with own_if_there(space.root) as own:
            raw = record.read_truth(space, own)
        metadata = record.understood(raw, space.session_id)
    except Unusable as found:
        problem = found
    else:
        return Repair(session_id=space.session_id, metadata=metadata, dry_run=dry_run)
    if problem.skip is Skip.UNKNOWN_VERSION:
        raise Conflict(problem.detail, hint="use the newer bsd")
    if problem.skip is Skip.UNREADABLE_METADATA:
        raise Forbidden(problem.detail, hint="correct its permissions")
    metadata = _rebuilt(space, raw, now)
    if not dry_run:
        with own_directory(space.root) as directory:
            record.put_anew(space, directory, metadata.render())
        _log.info(
            "session.metadata.repaired",
            session_id=space.session_id,
            reason=problem.skip.value,
            updated_at=metadata.updated_at.isoformat(),
        )
    return Repair(
        session_id=space.session_id,
        repaired=True,
        reason=problem.skip.value,
        detail=problem.detail,
        metadata=metadata,
        dry_run=dry_run,
    )


def _rebuilt(space: OpenWorkspace, raw: bytes | None, now: float) -> SessionMetadata:
    """Return new metadata whose last use is not before any known use."""
    try:
        files = tree.measure(space.fd, skip=FILE_NAME)
    except Obstacle as obstacle:
        raise Forbidden(
            f"workspace {space.session_id}: {obstacle}", hint="correct its permissions"
        ) from None
    told = _told(raw)
    # A file time in the future comes from a wrong clock and is ignored; one in metadata is kept.
    latest = max(min(max(_written(space, files), default=now), now), told.get("updated_at", 0.0))
    created = told.get("created_at", latest if files.oldest is None else files.oldest)
    return kept_of(
        raw,
        SessionMetadata(
            session_id=space.session_id,
            created_at=_moment(min(created, latest)),
            updated_at=_moment(latest),
        ),
    )


def _written(space: OpenWorkspace, files: Measure) -> list[float]:
    """Return the times of the newest file and of the broken metadata file (epoch seconds)."""
    times = [] if files.newest is None else [files.newest]
    with suppress(FileNotFoundError):
        times.append(os.stat(FILE_NAME, dir_fd=space.fd, follow_symlinks=False).st_mtime)
    return times


def _told(raw: bytes | None) -> dict[str, float]:
    """Return `created_at` and `updated_at`, if readable in broken metadata (epoch seconds)."""
    told = {}
    for name in ("created_at", "updated_at"):
        try:
            told[name] = moment_of(parse_document(raw or b""), name).timestamp()
        except Unusable:
            continue
    return told


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
