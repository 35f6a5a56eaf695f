"""Pruning: which workspaces nobody uses any more, and away with them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.foundation.errors import FieldError, Invalid, os_problem
from bsd.foundation.logs import get_logger
from bsd.foundation.spelling import format_size
from bsd.workspaces import tree
from bsd.workspaces.metadata import SessionMetadata, Skip, Unusable
from bsd.workspaces.place import DEFAULT_ROOT, Root, open_directory, open_root, system_errors
from bsd.workspaces.removal import Condemned, Remover
from bsd.workspaces.survey import survey
from bsd.workspaces.tree import Obstacle

_log = get_logger("workspaces")

_BATCH = 128  # workspaces that lie renamed before one fsync makes that durable
_WHOLE = "a whole number, 0 or more"

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class PruneResult:
    """What a pruning did, or (`dry_run`) would do; the same in both cases, bytes included.

    `skipped_sessions` and `errors` are left as they are: id → reason; `details` says the reasons
    in words. Bytes are those that the disk has given out; a file that has another name elsewhere
    counts for nothing. `leftovers` are workspaces that an earlier, broken-off pruning had taken
    away and not yet deleted: their bytes count, too.
    """

    deleted_sessions: list[str] = field(default_factory=list)
    skipped_sessions: dict[str, str] = field(default_factory=dict)
    reclaimed_bytes: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False
    details: dict[str, str] = field(default_factory=dict)
    leftovers: int = 0

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

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


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
            run = _Run(root, now, result, remover, progress, stopping)
            remover.sweep()
            run.finish_leftovers()
            run.prune(_Criteria(older_than_hours, max_count, max_total_bytes, where))
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


@dataclass(frozen=True, slots=True)
class _Criteria:
    older_than_hours: float | None
    max_count: int | None
    max_total_bytes: int | None
    where: Callable[[SessionMetadata], bool] | None

    def is_stale(self, metadata: SessionMetadata, now: float) -> bool:
        if self.older_than_hours is None:
            return False
        return metadata.updated_at.timestamp() < now - self.older_than_hours * 3600

    def too_much(self, count: int, amount: int) -> bool:
        """Whether so many workspaces with so many bytes are more than may stay."""
        return (self.max_count is not None and count > self.max_count) or (
            self.max_total_bytes is not None and amount > self.max_total_bytes
        )


class _Run:
    """One pruning under way."""

    def __init__(
        self,
        root: Root,
        now: float,
        result: PruneResult,
        remover: Remover,
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
        self._pending: list[Condemned] = []
        for session_id, problem in self._survey.left.items():
            self._skip(session_id, problem)

    def finish_leftovers(self) -> None:
        """Delete what an earlier pruning has taken away and not deleted."""
        for name in self._survey.condemned:
            with self._failing(name):
                condemned = self._remover.take_up(name)
                if condemned is not None:
                    self._remover.destroy(condemned)
                    self.result.leftovers += 1
                    self.result.reclaimed_bytes += condemned.bytes

    def prune(self, criteria: _Criteria) -> None:
        known = sorted(self._survey.known, key=lambda one: (one.updated_at, one.session_id))
        amount = self._total() if criteria.max_total_bytes is not None else 0
        count = len(known)
        allowed = known if criteria.where is None else [m for m in known if criteria.where(m)]
        try:
            for done, metadata in enumerate(allowed):
                is_stale = criteria.is_stale(metadata, self._now)
                if self._stopping() or not (is_stale or criteria.too_much(count, amount)):
                    break
                self._progress(done, len(allowed))
                freed = self._condemn(metadata)
                if freed is not None:
                    count, amount = count - 1, amount - freed
        finally:
            self._flush()

    def _condemn(self, metadata: SessionMetadata) -> int | None:
        """Take one away; returns the bytes that come free, None if it stays."""
        session_id, hours = metadata.session_id, round(metadata.age_hours(self._now), 3)
        _log.debug("session.prune.candidate", session_id=session_id, age_hours=hours)
        condemned = None
        try:
            with self._failing(session_id):
                condemned = self._remover.condemn(metadata)
        except Unusable as problem:
            self._skip(session_id, problem)
        if condemned is None:
            return None
        self._pending.append(condemned)
        if len(self._pending) >= _BATCH:
            self._flush()
        return condemned.bytes

    def _flush(self) -> None:
        pending, self._pending = self._pending[::-1], []
        if not pending:
            return
        try:
            self._remover.sync()
            while pending:
                condemned = pending.pop()
                with self._failing(condemned.session_id):
                    self._remover.destroy(condemned)
                    self._deleted(condemned)
        finally:
            for condemned in pending:  # it was broken off: the next pruning must find them free
                os.close(condemned.fd)

    def _deleted(self, condemned: Condemned) -> None:
        self.result.deleted_sessions.append(condemned.session_id)
        self.result.reclaimed_bytes += condemned.bytes
        hours = condemned.metadata.age_hours(self._now) if condemned.metadata else None
        if not self.result.dry_run:
            _log.info(
                "session.prune.deleted",
                session_id=condemned.session_id,
                age_hours=None if hours is None else round(hours, 3),
                reclaimed_bytes=condemned.bytes,
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

    def _failing(self, session_id: str) -> _Failing:
        return _Failing(self.result, session_id)

    def _total(self) -> int:
        """The bytes of all workspaces whose age is known, each file once."""
        total, seen = 0, set()
        for metadata in self._survey.known:
            with suppress(OSError, Obstacle, Unusable):
                directory = open_directory(self._root, metadata.session_id)
                try:
                    found = tree.measure(directory)
                finally:
                    os.close(directory)
                total += found.bytes
                for inode, (_, blocks, _) in found.linked.items():
                    if inode not in seen:
                        seen.add(inode)
                        total += blocks * 512
        return total


class _Failing:
    """Notes what goes wrong with one workspace; the others go on."""

    def __init__(self, result: PruneResult, session_id: str) -> None:
        self._result = result
        self._session_id = session_id

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> bool:
        match error:
            case Obstacle():
                text = f"cannot be deleted: {error}"
            case FileNotFoundError():  # somebody else was quicker
                return True
            case OSError():
                text = os_problem(error, "cannot be deleted").message
            case _:
                return False
        self._result.errors[self._session_id] = text
        _log.error("session.prune.error", session_id=self._session_id, error=text)
        return True


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
