"""Pruning: finds workspaces that are no longer used, and deletes them.

A workspace is locked, checked again, renamed, then deleted; a dry run omits the last two steps. The
rename is durable before any content is deleted, so an incomplete workspace always has a new name.
The next prune deletes the leftovers of an interrupted prune.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.errors import FieldError, Invalid, os_problem
from bsd.core.formatting import format_size
from bsd.workspaces import record, tree
from bsd.workspaces.listing import measured, mounted_in, survey
from bsd.workspaces.place import (
    AWAY,
    DEFAULT_ROOT,
    UNFINISHED,
    OpenWorkspace,
    Root,
    Skip,
    Unusable,
    metadata_lock,
    open_directory,
    open_root,
    system_errors,
    try_lock,
)
from bsd.workspaces.record import SessionMetadata
from bsd.workspaces.tree import Links, Measure, Obstacle

_log = structlog.stdlib.get_logger(module="workspaces")

_TOKEN = 6  # bytes; written with twice as many digits

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that decide which workspaces are deleted; None means no limit."""

    older_than_hours: float | None = 24.0
    max_count: int | None = None
    max_total_bytes: int | None = None

    def is_stale(self, metadata: SessionMetadata, now: float) -> bool:
        """Return True if the last use of the workspace is too long ago."""
        if self.older_than_hours is None:
            return False
        return metadata.updated_at.timestamp() < now - self.older_than_hours * 3600

    def is_too_much(self, count: int, amount: int) -> bool:
        """Return True if `count` workspaces with `amount` bytes exceed a limit."""
        return (self.max_count is not None and count > self.max_count) or (
            self.max_total_bytes is not None and amount > self.max_total_bytes
        )

    def check(self) -> None:
        """Raise Invalid if a limit is bad; the error lists every bad limit."""
        errors = []
        if self.older_than_hours is not None and not _is_age(self.older_than_hours):
            errors.append(FieldError("older_than_hours", "must be a number of hours, 0 or more"))
        for name in ("max_count", "max_total_bytes"):
            value: object = getattr(self, name)
            if value is not None and not (type(value) is int and value >= 0):
                errors.append(FieldError(name, "must be a whole number, 0 or more"))
        if errors:
            text = "; ".join(f"{error.field} {error.message}" for error in errors)
            raise Invalid(text, errors=tuple(errors))


def _is_age(hours: object) -> bool:
    if isinstance(hours, bool) or not isinstance(hours, int | float):
        return False
    try:
        return math.isfinite(float(hours)) and hours >= 0
    except OverflowError:
        return False


@dataclass(slots=True)
class PruneResult:
    """What a prune did, or in a dry run would do; a dry run reports the same figures.

    Workspaces in `skipped_sessions` and `errors` (id → reason) stay; `details` has the reasons in
    words. Bytes are disk usage; a file with another name elsewhere does not count. `leftovers` is
    the number of workspaces that an interrupted prune had renamed and not yet deleted; their bytes
    count too.
    """

    deleted_sessions: list[str] = field(default_factory=list)
    skipped_sessions: Annotated[dict[str, str], Field(description="id → reason")] = field(
        default_factory=dict
    )
    reclaimed_bytes: int = 0
    errors: Annotated[dict[str, str], Field(description="id → message")] = field(
        default_factory=dict
    )
    dry_run: bool = False
    details: Annotated[dict[str, str], Field(description="id → the reason in words")] = field(
        default_factory=dict
    )
    leftovers: Annotated[
        int, Field(description="Renamed by an interrupted prune, deleted by this one")
    ] = 0

    def __str__(self) -> str:
        count = len(self.deleted_sessions)
        did = "Would prune" if self.dry_run else "Pruned"
        more = []
        if self.skipped_sessions:
            more.append(f"{len(self.skipped_sessions)} skipped")
        if self.errors:
            more.append(f"{len(self.errors)} error{'s' if len(self.errors) > 1 else ''}")
        aside = f" ({', '.join(more)})" if more else ""
        noun = "session" if count == 1 else "sessions"
        return f"{did} {count} {noun}{aside}, reclaimed {format_size(self.reclaimed_bytes)}"


def prune_sessions(  # noqa: PLR0913 - criteria and callbacks
    older_than_hours: float | None = 24.0,
    workspace_root: Path = DEFAULT_ROOT,
    dry_run: bool = False,  # noqa: FBT001, FBT002 - the signature that seed 004 gives
    where: Callable[[SessionMetadata], bool] | None = None,
    *,
    max_count: int | None = None,
    max_total_bytes: int | None = None,
    progress: Progress = lambda _done, _all: None,
    stopping: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.time,
) -> PruneResult:
    """Delete the workspaces whose `updated_at` is more than `older_than_hours` ago, oldest first.

    Then deletes further workspaces, oldest first, until at most `max_count` are left with at most
    `max_total_bytes`. A workspace that is in use, or whose age is unknown, is skipped.

    Args:
        older_than_hours: by this machine's clock (if several machines use the same root, their
            clocks must agree: NTP); None for no limit.
        where: returns False for a workspace that must stay.
        progress: called with the numbers of finished and planned workspaces.
        stopping: if it returns True, the prune ends before the next workspace.

    Raises:
        Invalid, NotFound (no root), Forbidden.
    """
    rules = Rules(older_than_hours, max_count, max_total_bytes)
    rules.check()
    now = clock()
    with open_root(Path(workspace_root)) as root, system_errors(f"pruning {root.path}"):
        _log.info(
            "session.prune.started",
            threshold_hours=older_than_hours,
            max_count=max_count,
            max_total_bytes=max_total_bytes,
            workspace_root=str(root.path),
            dry_run=dry_run,
        )
        with closing(Remover(root, dry_run=dry_run)) as remover:
            run = _Pruning(root, now, remover, PruneResult(dry_run=dry_run))
            run.prune(rules, where, progress, stopping)
        result = run.result
        _log.info(
            "session.prune.completed",
            deleted=len(result.deleted_sessions),
            skipped=len(result.skipped_sessions),
            errors=len(result.errors),
            reclaimed_bytes=result.reclaimed_bytes,
            leftovers=result.leftovers,
            dry_run=dry_run,
        )
        return result


class _Pruning:
    """A prune in progress, with its result."""

    def __init__(self, root: Root, now: float, remover: "Remover", result: PruneResult) -> None:
        self.result = result
        self._root = root
        self._now = now
        self._remover = remover

    def prune(
        self,
        rules: Rules,
        where: Callable[[SessionMetadata], bool] | None,
        progress: Progress,
        stopping: Callable[[], bool],
    ) -> None:
        found = survey(self._root)
        for session_id, problem in found.left.items():
            self._skip(session_id, problem)
        self._remover.sweep()
        for name in found.away:
            self._finish(name)
        known = sorted(found.known, key=lambda one: (one.updated_at, one.session_id))
        count, amount = len(known), 0
        if rules.max_total_bytes is not None:
            amount = _total_bytes(self._root, known)
        allowed = known if where is None else [one for one in known if where(one)]
        for done, metadata in enumerate(allowed):
            goes = rules.is_stale(metadata, self._now) or rules.is_too_much(count, amount)
            if stopping() or not goes:
                break
            progress(done, len(allowed))
            freed = self._delete(metadata)
            if freed is not None:
                count, amount = count - 1, amount - freed

    def _finish(self, name: str) -> None:
        """Delete a workspace that an interrupted prune has renamed but not deleted."""
        with self._noting_errors(name):
            taken = self._remover.resume(name)
            if taken is not None:
                self._remover.destroy(taken)
                self.result.leftovers += 1
                self.result.reclaimed_bytes += taken.bytes

    def _delete(self, metadata: SessionMetadata) -> int | None:
        """Delete a workspace; return the freed bytes, None if it stays."""
        session_id, hours = metadata.session_id, round(metadata.age_hours(self._now), 3)
        _log.debug("session.prune.candidate", session_id=session_id, age_hours=hours)
        taken: TakenAway | None = None
        try:
            with self._noting_errors(session_id):
                taken = self._remover.take_away(metadata)
        except Unusable as problem:
            self._skip(session_id, problem)
        if taken is None:
            return None
        with self._noting_errors(session_id):
            self._remover.destroy(taken)
            self.result.deleted_sessions.append(session_id)
            self.result.reclaimed_bytes += taken.bytes
            if not self.result.dry_run:
                _log.info(
                    "session.prune.deleted",
                    session_id=session_id,
                    age_hours=hours,
                    reclaimed_bytes=taken.bytes,
                )
        return taken.bytes

    def _skip(self, session_id: str, problem: Unusable) -> None:
        self.result.skipped_sessions[session_id] = problem.skip.value
        self.result.details[session_id] = problem.detail
        # A workspace in use is normal; the others can never be pruned, and may become many.
        level = _log.info if problem.skip is Skip.IN_USE else _log.warning
        level(
            "session.prune.skipped",
            session_id=session_id,
            reason=problem.skip.value,
            detail=problem.detail,
        )

    @contextmanager
    def _noting_errors(self, session_id: str) -> Iterator[None]:
        """Record an error of a workspace, so that the others are still pruned."""
        try:
            yield
            return
        except FileNotFoundError:  # another prune has deleted it
            return
        except Obstacle as obstacle:
            text = f"cannot be deleted: {obstacle}"
        except OSError as error:
            text = os_problem(error, "cannot be deleted").message
        self.result.errors[session_id] = text
        _log.error("session.prune.error", session_id=session_id, error=text)


def _total_bytes(root: Root, known: list[SessionMetadata]) -> int:
    """Return the disk usage of these workspaces; each file counts once."""
    total = Measure()
    for metadata in known:
        with suppress(OSError, Obstacle, Unusable):
            found = measured(root, metadata.session_id)
            total.bytes += found.bytes
            total.linked |= found.linked
    return total.all_bytes


# --- deleting a workspace ---


@dataclass(frozen=True, slots=True)
class TakenAway:
    """A locked workspace that was renamed to `name` and is to be deleted."""

    name: str
    fd: int
    bytes: int


class Remover:
    """Deletes workspaces of a root, during a prune; with `dry_run` it changes no files."""

    def __init__(self, root: Root, *, dry_run: bool) -> None:
        self._root = root
        self._dry_run = dry_run
        self._links = Links()
        self._mounts = mounted_in(root)
        self._own = root.open_own(create=not dry_run)

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)

    def take_away(self, planned: SessionMetadata) -> TakenAway:
        """Lock and rename a workspace if it is not in use and has not been used since `planned`.

        The caller passes the result to `destroy`, which closes it. Raises Unusable, Obstacle,
        FileNotFoundError, OSError.
        """
        root, session_id = self._root, planned.session_id
        descriptor = open_directory(root, session_id)
        try:
            space = OpenWorkspace(root, session_id, descriptor)
            self._lock(space, planned)
            found = self._measure(session_id, descriptor)
            name = f"{AWAY}{secrets.token_hex(_TOKEN)}-{session_id}"
            if not self._dry_run and self._own is not None:
                record.settle(space, self._own)
                os.rename(session_id, name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
                os.fsync(root.fd)
        except BaseException:  # also after an interrupt, it must not stay locked
            os.close(descriptor)
            raise
        return TakenAway(name, descriptor, self._links.freed(found))

    def resume(self, name: str) -> TakenAway | None:
        """Lock a workspace that an interrupted prune left; None if another prune has it locked."""
        descriptor = open_directory(self._root, name)
        try:
            if not try_lock(descriptor, shared=False):
                os.close(descriptor)
                return None
            found = self._measure(name, descriptor)
        except BaseException:  # as above
            os.close(descriptor)
            raise
        return TakenAway(name, descriptor, self._links.freed(found))

    def sweep(self) -> None:
        """Delete unfinished workspaces of calls that were killed while creating them."""
        if self._dry_run or self._own is None:
            return
        for name in os.listdir(self._own):
            if name.startswith(UNFINISHED):
                # A call that creates a workspace holds this lock until the workspace has its name.
                with metadata_lock(self._own, name.removeprefix(UNFINISHED)):
                    tree.remove_inside(self._own, name)

    def destroy(self, taken: TakenAway) -> None:
        """Delete a workspace permanently and close it.

        Raises:
            Obstacle, OSError: a part cannot be deleted; the rest of the workspace stays.
        """
        try:
            if not self._dry_run:
                tree.remove(taken.fd)
                os.rmdir(taken.name, dir_fd=self._root.fd)
        finally:
            os.close(taken.fd)

    def _lock(self, space: OpenWorkspace, planned: SessionMetadata) -> None:
        if not try_lock(space.fd, shared=False):
            raise Unusable(Skip.IN_USE, "another process uses the workspace")
        if self._root.identity(space.session_id) != space.identity:
            raise FileNotFoundError
        if record.read(space, self._own).updated_at != planned.updated_at:
            raise Unusable(Skip.IN_USE, "it has just been used")

    def _measure(self, name: str, descriptor: int) -> Measure:
        if name in self._mounts:
            raise Obstacle(self._mounts[name], "another file system is mounted here")
        return tree.measure(descriptor)
