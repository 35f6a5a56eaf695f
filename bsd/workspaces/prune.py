"""Pruning: which workspaces nobody uses any more, and away with them.

One is locked, looked at again, renamed, then deleted; or that is only pretended. Renaming is one
step, made durable before anything in a workspace goes: whatever happens in between, a workspace is
whole or away, and the next pruning deletes what has been left lying.
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

from pydantic import Field

from bsd.core.errors import FieldError, Invalid, os_problem
from bsd.core.formatting import format_size
from bsd.core.logs import get_logger
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

_log = get_logger("workspaces")

_BATCH = 128  # workspaces that lie renamed before one fsync makes that durable
_TOKEN = 6  # bytes; twice as many digits
_WHOLE = "a whole number, 0 or more"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which workspaces go; None for what does not count (as with `prune_sessions`)."""

    older_than_hours: float | None = 24.0
    max_count: int | None = None
    max_total_bytes: int | None = None

    def is_stale(self, metadata: SessionMetadata, now: float) -> bool:
        """Whether it was used too long ago."""
        if self.older_than_hours is None:
            return False
        return metadata.updated_at.timestamp() < now - self.older_than_hours * 3600

    def is_too_much(self, count: int, amount: int) -> bool:
        """Whether so many workspaces with so many bytes are more than may stay."""
        return (self.max_count is not None and count > self.max_count) or (
            self.max_total_bytes is not None and amount > self.max_total_bytes
        )


@dataclass(slots=True)
class PruneResult:
    """What a pruning did, or (`dry_run`) would do; the same in both cases, bytes included.

    `skipped_sessions` and `errors` are left as they are: id → reason; `details` says the reasons
    in words. Bytes are those that the disk has given out; a file that has another name elsewhere
    counts for nothing. `leftovers` are workspaces that an earlier, broken-off pruning had taken
    away and not yet deleted: their bytes count, too.
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
        int, Field(description="Taken away by a broken-off pruning, deleted by this one")
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


def prune_sessions(  # noqa: PLR0913 - the criteria, and who is told
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

    None for `older_than_hours` does not ask for age. Beyond that the oldest go until at most
    `max_count` are left, holding at most `max_total_bytes`; `where` can spare workspaces from
    both. One that is in use, or whose age cannot be told, is skipped. Age is counted by the clock
    of this machine: where several write into one root, they must agree on the time (NTP).
    `progress` hears (done, planned) workspaces; `stopping` breaks off between two.

    Raises Invalid, NotFound (no root), Forbidden.
    """
    _check(older_than_hours, max_count, max_total_bytes)
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
        result = PruneResult(dry_run=dry_run)
        with closing(Remover(root, dry_run=dry_run)) as remover:
            run = _Pruning(root, now, result, remover, progress, stopping)
            remover.sweep()
            run.finish_leftovers()
            run.prune(Rules(older_than_hours, max_count, max_total_bytes), where)
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
    """One pruning under way."""

    def __init__(
        self,
        root: Root,
        now: float,
        result: PruneResult,
        remover: "Remover",
        progress: Progress,
        stopping: Callable[[], bool],
    ) -> None:
        self.result = result
        self._root = root
        self._now = now
        self._progress = progress
        self._stopping = stopping
        self._remover = remover
        self._survey = survey(root)
        self._pending: list[TakenAway] = []
        for session_id, problem in self._survey.left.items():
            self._skip(session_id, problem)

    def finish_leftovers(self) -> None:
        """Delete what an earlier pruning has taken away and not deleted."""
        for name in self._survey.away:
            with self._failing(name):
                taken = self._remover.take_up(name)
                if taken is not None:
                    self._remover.destroy(taken)
                    self.result.leftovers += 1
                    self.result.reclaimed_bytes += taken.bytes

    def prune(self, rules: Rules, where: Callable[[SessionMetadata], bool] | None) -> None:
        """Take away what the rules say, the oldest first; `where` can spare workspaces."""
        known = sorted(self._survey.known, key=lambda one: (one.updated_at, one.session_id))
        amount = self._total() if rules.max_total_bytes is not None else 0
        count = len(known)
        allowed = known if where is None else [one for one in known if where(one)]
        try:
            for done, metadata in enumerate(allowed):
                goes = rules.is_stale(metadata, self._now) or rules.is_too_much(count, amount)
                if self._stopping() or not goes:
                    break
                self._progress(done, len(allowed))
                freed = self._take_away(metadata)
                if freed is not None:
                    count, amount = count - 1, amount - freed
        finally:
            self._flush()

    def _take_away(self, metadata: SessionMetadata) -> int | None:
        """Take one away; returns the bytes that come free, None if it stays."""
        session_id, hours = metadata.session_id, round(metadata.age_hours(self._now), 3)
        _log.debug("session.prune.candidate", session_id=session_id, age_hours=hours)
        taken = None
        try:
            with self._failing(session_id):
                taken = self._remover.take_away(metadata)
        except Unusable as problem:
            self._skip(session_id, problem)
        if taken is None:
            return None
        self._pending.append(taken)
        if len(self._pending) >= _BATCH:
            self._flush()
        return taken.bytes

    def _flush(self) -> None:
        pending, self._pending = self._pending[::-1], []
        if not pending:
            return
        try:
            self._remover.sync()
            while pending:
                taken = pending.pop()
                with self._failing(taken.session_id):
                    self._remover.destroy(taken)
                    self._deleted(taken)
        finally:
            for taken in pending:  # it was broken off: the next pruning must find them free
                os.close(taken.fd)

    def _deleted(self, taken: "TakenAway") -> None:
        self.result.deleted_sessions.append(taken.session_id)
        self.result.reclaimed_bytes += taken.bytes
        hours = taken.metadata.age_hours(self._now) if taken.metadata else None
        if not self.result.dry_run:
            _log.info(
                "session.prune.deleted",
                session_id=taken.session_id,
                age_hours=None if hours is None else round(hours, 3),
                reclaimed_bytes=taken.bytes,
            )

    def _skip(self, session_id: str, problem: Unusable) -> None:
        self.result.skipped_sessions[session_id] = problem.skip.value
        self.result.details[session_id] = problem.detail
        # That one is in use is how it should be; the others will never be pruned, and are many.
        level = _log.info if problem.skip is Skip.IN_USE else _log.warning
        level(
            "session.prune.skipped",
            session_id=session_id,
            reason=problem.skip.value,
            detail=problem.detail,
        )

    @contextmanager
    def _failing(self, session_id: str) -> Iterator[None]:
        """Note what goes wrong with one workspace; the others go on."""
        try:
            yield
            return
        except FileNotFoundError:  # somebody else was quicker
            return
        except Obstacle as obstacle:
            text = f"cannot be deleted: {obstacle}"
        except OSError as error:
            text = os_problem(error, "cannot be deleted").message
        self.result.errors[session_id] = text
        _log.error("session.prune.error", session_id=session_id, error=text)

    def _total(self) -> int:
        """The bytes of all workspaces whose age is known, each file once."""
        total = Measure()
        for metadata in self._survey.known:
            with suppress(OSError, Obstacle, Unusable):
                found = measured(self._root, metadata.session_id)
                total.bytes += found.bytes
                total.linked |= found.linked
        return total.all_bytes


def _check(hours: object, max_count: object, max_total_bytes: object) -> None:
    errors = []
    if hours is not None and not _is_age(hours):
        errors.append(FieldError("older_than_hours", "must be a number of hours, 0 or more"))
    for name, value in (("max_count", max_count), ("max_total_bytes", max_total_bytes)):
        if value is not None and not (type(value) is int and value >= 0):
            errors.append(FieldError(name, f"must be {_WHOLE}"))
    if errors:
        text = "; ".join(f"{one.field} {one.message}" for one in errors)
        raise Invalid(text, errors=tuple(errors))


def _is_age(hours: object) -> bool:
    if isinstance(hours, bool) or not isinstance(hours, int | float):
        return False
    try:
        return math.isfinite(float(hours)) and hours >= 0
    except OverflowError:
        return False


# --- taking one away ---


@dataclass(frozen=True, slots=True)
class TakenAway:
    """A workspace that lies under another name, locked, and waits to be deleted."""

    session_id: str
    name: str
    fd: int
    metadata: SessionMetadata | None
    bytes: int


class Remover:
    """Removes from one root, within one pruning; `dry_run` only says what that would do."""

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
        """Take a workspace away if it still is as planned and nobody uses it.

        The caller closes what is returned, by `destroy`. Raises Unusable, Obstacle,
        FileNotFoundError, OSError.
        """
        root, session_id = self._root, planned.session_id
        descriptor = open_directory(root, session_id)
        try:
            space = OpenWorkspace(root, session_id, descriptor)
            self._take(space)
            self._look_again(space, planned)
            found = self._measure(session_id, descriptor)
            name = f"{AWAY}{secrets.token_hex(_TOKEN)}-{session_id}"
            if not self._dry_run and self._own is not None:
                record.settle(space, self._own)
                os.rename(session_id, name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
        except BaseException:  # whatever it is: nobody may find it locked for ever
            os.close(descriptor)
            raise
        return TakenAway(session_id, name, descriptor, planned, self._links.freed(found))

    def take_up(self, name: str) -> TakenAway | None:
        """Go on with what a broken-off pruning has left; None if another is at it just now."""
        session_id = name.removeprefix(AWAY)[2 * _TOKEN + 1 :]
        descriptor = open_directory(self._root, name)
        try:
            if not try_lock(descriptor, shared=False):
                os.close(descriptor)
                return None
            found = self._measure(name, descriptor)
        except BaseException:  # as above
            os.close(descriptor)
            raise
        return TakenAway(session_id, name, descriptor, None, self._links.freed(found))

    def sweep(self) -> None:
        """Remove what a killed call has begun to create."""
        if self._dry_run or self._own is None:
            return
        for name in os.listdir(self._own):
            if name.startswith(UNFINISHED):
                # Whoever creates holds this lock until it has the name it should have.
                with metadata_lock(self._own, name.removeprefix(UNFINISHED)):
                    tree.remove_inside(self._own, name)

    def destroy(self, taken: TakenAway) -> None:
        """Delete it for good, and let it go; raises Obstacle, OSError: then the rest still lies."""
        try:
            if not self._dry_run:
                tree.remove(taken.fd)
                os.rmdir(taken.name, dir_fd=self._root.fd)
        finally:
            os.close(taken.fd)

    def sync(self) -> None:
        """Make durable what was renamed."""
        if not self._dry_run:
            os.fsync(self._root.fd)

    def _take(self, space: OpenWorkspace) -> None:
        """Lock it, as one that is there."""
        if not try_lock(space.fd, shared=False):
            raise Unusable(Skip.IN_USE, "a program runs there, or somebody looks at it")
        if self._root.identity(space.session_id) != space.identity:
            raise FileNotFoundError

    def _look_again(self, space: OpenWorkspace, planned: SessionMetadata) -> None:
        now = record.read(space, self._own)
        if now.updated_at != planned.updated_at:
            raise Unusable(Skip.IN_USE, "it was used meanwhile")

    def _measure(self, name: str, descriptor: int) -> Measure:
        if name in self._mounts:
            raise Obstacle(self._mounts[name], "another file system is mounted here")
        return tree.measure(descriptor)
