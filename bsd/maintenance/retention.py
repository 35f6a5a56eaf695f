"""Retention: moves and deletes files that are older than their settings allow (SPEC §7, §7a).

A setting per target says how long its files are kept. If `archive` is on, originals that leave the
store are packed into the archive. If the clock is in doubt (`core/clock.py`), a run deletes no
files by age, but still moves files into the archive.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.audit import AuditLog
from bsd.core.clock import RunTime, begin_run, steady
from bsd.core.config import PruningConfig
from bsd.core.errors import BsdError, os_problem
from bsd.core.files import make_private_dir
from bsd.core.formatting import NEVER, format_size, iso_utc, lifetime_seconds
from bsd.core.layout import Layout
from bsd.core.logs import BoundLogger
from bsd.maintenance.archive_limit import USUAL_RATIO, ArchiveOverLimit, archive_use
from bsd.maintenance.expiry import (
    Cleaned,
    ExpiredFile,
    Forecast,
    RetentionTarget,
    clean,
    clean_expired,
    forecast,
)
from bsd.maintenance.finish_forgetting import finish_forgetting
from bsd.maintenance.forget import Forget
from bsd.maintenance.project_memory import LoneMemories
from bsd.maintenance.search import catch_up, letting_go
from bsd.maintenance.targets import (
    WAIT_SECONDS,
    ArchivePacks,
    ExtractedFiles,
    GoneSessions,
    HistoryFiles,
    TrashedSessions,
)
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
from bsd.store.pack import PACK, SET_ASIDE

_log: BoundLogger = structlog.get_logger(module="retention")

_HELD = "Why the run deletes no files: the clock is in doubt"


@dataclass(frozen=True, slots=True)
class CleanedPlace:
    """The files that a run has deleted in one place, their bytes, and the number of errors."""

    keep: str
    held: Annotated[str | None, Field(description=_HELD)]
    cleaned: int
    bytes: int
    errors: int
    packed: Internal[int | None] = None  # bytes of new packs; None if the place is not packed

    @classmethod
    def of(cls, target: RetentionTarget, time: RunTime, done: Cleaned, keep: str) -> CleanedPlace:
        """Return the result of a run for a target; `keep` is the setting."""
        return cls(keep, target.why_held(time), done.cleaned, done.bytes, done.errors)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The result of a run, or with `dry_run` its forecast: the store, and the other places."""

    store: Internal[CleanedPlace | Forecast]
    dry_run: bool
    keep: str = field(init=False, default="")
    held: Annotated[str | None, Field(description=_HELD)] = field(init=False, default=None)
    cleaned: int = field(init=False, default=0)
    bytes: int = field(init=False, default=0)
    archived_bytes: Annotated[
        int | None,
        Field(
            description="The bytes that the extracted files take in the archive (with dry_run, an "
            "estimate); null: the files are deleted for good"
        ),
    ]
    archive: CleanedPlace | Forecast
    sessions: CleanedPlace | Forecast
    history: CleanedPlace | Forecast
    trash: CleanedPlace | Forecast
    problem: Annotated[
        str | None, Field(description="Why the run could not be recorded"), OMIT_EMPTY
    ] = None

    def __post_init__(self) -> None:
        """Copy the fields of the store."""
        for name in ("keep", "held", "cleaned", "bytes"):
            object.__setattr__(self, name, getattr(self.store, name))

    @property
    def held_places(self) -> dict[str, str]:
        """Map the places that the clock protects from deletion to the reason."""
        places = {
            "the store": self.store.held,
            "the archive": self.archive.held,
            "the copies of deleted sessions": self.sessions.held,
            "history and trash": self.trash.held,  # both have the same setting
        }
        return {what: why for what, why in places.items() if why is not None}


@dataclass(frozen=True, kw_only=True)
class CleanedAll(Retention):
    """The result of a run."""

    store: Internal[CleanedPlace]
    archive: CleanedPlace
    sessions: CleanedPlace
    history: CleanedPlace
    trash: CleanedPlace
    dry_run: bool = False
    errors: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        Retention.__post_init__(self)
        object.__setattr__(self, "errors", self.store.errors)

    @property
    def failures(self) -> int:
        """The number of items that could not be deleted, in all places."""
        places = (self.store, self.archive, self.sessions, self.history, self.trash)
        return sum(place.errors for place in places)


@dataclass(frozen=True, kw_only=True)
class ForecastAll(Retention):
    """The forecast of a run."""

    store: Internal[Forecast]
    archive: Forecast
    sessions: Forecast
    history: Forecast
    trash: Forecast
    dry_run: bool = True
    staying: int = field(init=False, default=0)
    expires: Annotated[str | None, Field(serialization_alias="next_expiry")] = field(
        init=False, default=None
    )
    files: tuple[ExpiredFile, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        Retention.__post_init__(self)
        for name in ("staying", "expires", "files"):
            object.__setattr__(self, name, getattr(self.store, name))


class RetentionRun:
    """One run over all targets, or over one of them.

    Args:
        trust_clock: the wall clock is right although it was set.
        wait: seconds to wait for a session on which another bsd process works.
        stopping: called before each session; if it returns True, the next run deletes the rest.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        actor: str,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
        trust_clock: bool = False,
        wait: float = WAIT_SECONDS,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._layout = layout
        self._actor = actor
        self._clock = clock
        self._wait = wait
        self._stopping = stopping
        self._budget = RetryBudget(wait, clock=clock)
        self._time = begin_run(layout, "retention", clock, steady, trust=trust_clock)

    def clean_all(
        self,
        config: PruningConfig,
        *,
        forget: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CleanedAll:
        """Move and delete all files that are old enough.

        Args:
            forget: delete originals that leave the store, even if the setting `archive` is on.
            progress: called with the bytes that have left the store and the bytes that will.
        """
        layout = self._layout
        _log.trace("Retention begins", root=str(layout.root))
        budget = RetryBudget(0.0, clock=self._clock)
        not_forgotten = finish_forgetting(layout, actor=self._actor, budget=budget)
        catch_up(layout)
        store = self.clean_store(
            config.retention,
            into_archive=config.archive and not forget,
            archive_keep=config.archive_retention,
            progress=progress,
        )
        archive = self.clean_archive(config.archive_retention, config.archive_max_bytes)
        sessions = self.clean_gone(config.archive_sessions)
        return CleanedAll(
            store=store,
            archived_bytes=store.packed,
            archive=archive,
            sessions=replace(sessions, errors=sessions.errors + not_forgotten),
            history=self.clean_history(config.trash_retention),
            trash=self.clean_trash(config.trash_retention),
        )

    def clean_store(
        self,
        keep: str,
        *,
        into_archive: bool = False,
        archive_keep: str = NEVER,
        progress: Callable[[int, int], None] | None = None,
    ) -> CleanedPlace:
        """Clean the stores of all sessions, deleted sessions included, and record it in the audit.

        Args:
            into_archive: pack the files into the archive before they are deleted.
            archive_keep: the setting `archive_retention`.
            progress: as for `clean_all`.
        """
        layout = self._layout
        packed_at = self._time.now if into_archive else None
        store = ExtractedFiles(
            layout, keep, wait=self._wait, packed_at=packed_at, archive_keep=archive_keep
        )
        if into_archive:
            # If there are files to pack, packing them logs the problem.
            with suppress(OSError, BsdError):
                make_private_dir(layout.refuse_outside(layout.archive))
        with letting_go(layout, store.deleted):
            done = clean(store, self._time, self._stopping, self._shown(store, progress))
        cleaned = CleanedPlace.of(store, self._time, done, keep)
        lifetime = lifetime_seconds(keep)
        more: dict[str, object] = {} if lifetime is None else {"keep": keep}
        if not into_archive:
            if lifetime is not None:
                more["expired_before"] = iso_utc(self._time.now - lifetime)
            self._audit(done, "retention", **more)
            return cleaned
        for one in filter(lambda packed: packed.pack, store.packed):
            files, size = len(one.files), format_size(one.packed)
            _log.info(f"[RETENTION] Packed {files} of them into {one.pack} ({size})")
        archived_bytes = sum(one.packed for one in store.packed)
        self._audit(done, "archive", **more, bytes_archived=archived_bytes)
        return replace(cleaned, packed=archived_bytes)

    def _shown(
        self, store: ExtractedFiles, show: Callable[[int, int], None] | None
    ) -> Callable[[Cleaned], None]:
        """Return a callback for `clean` that reports the progress to `show`, if given."""
        if show is None:
            return lambda _: None
        total = 0
        with suppress(BsdError):  # the run reports the problem
            total = forecast(store, self._time).bytes
        return lambda done: show(min(done.bytes, total), total)

    def clean_archive(self, keep: str, most: int) -> CleanedPlace:
        """Delete packs older than `keep`, then parts until the archive fits `most` bytes.

        `most` 0: no limit.
        """
        packs = ArchivePacks(self._layout, keep, wait=self._wait)
        with letting_go(self._layout, packs.deleted):
            done = clean(packs, self._time, self._stopping)
        self._audit_archive(done, packs, keep=keep)
        if most and self._time.doubt is None:
            over, deleted = self._clean_over(most)
            if deleted is not None:
                self._audit_archive(over, deleted, keep=keep, max_bytes=most)
            done += over
        cleaned = CleanedPlace.of(packs, self._time, done, keep)
        return replace(cleaned, held=self._time.doubt) if most else cleaned

    def _clean_over(self, most: int) -> tuple[Cleaned, ArchivePacks | None]:
        layout = self._layout
        try:
            forgetting = Forget(layout, actor=self._actor, budget=self._budget)
            over = ArchiveOverLimit(layout, most, forgetting, wait=self._wait)
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"looking into {layout.archive}").message
            _log.error("[RETENTION] The archive is not made smaller", problem=problem)
            return Cleaned(errors=1), None
        with letting_go(layout, over.packs.deleted):
            return clean_expired(over, lambda _: True, self._stopping), over.packs

    def _audit_archive(self, done: Cleaned, packs: ArchivePacks, **more: object) -> None:
        if packs.newest:
            more["expired_before"] = iso_utc(packs.newest)
        self._audit(done, "archive_retention", **more)

    def clean_gone(self, keep: str) -> CleanedPlace:
        """Forget sessions that were deleted longer than `keep` ago; record each in the audit."""
        forgetting = Forget(self._layout, actor=self._actor, budget=self._budget)
        sessions = self._clean(GoneSessions(self._layout, keep, forgetting), keep)
        notes = clean(LoneMemories(self._layout, keep), self._time, self._stopping)
        return replace(sessions, errors=sessions.errors + notes.errors)

    def clean_history(self, keep: str) -> CleanedPlace:
        """Delete the history of operations older than `keep`, which can then not be undone.

        Drafts of edits, which hold the same texts, are deleted as well.
        """
        history = HistoryFiles(self._layout, keep, wait=self._wait)
        errors = self._clean_drafts(history)
        done = clean(history, self._time, self._stopping) + Cleaned(errors=errors)
        self._audit(done, "history_retention")
        return CleanedPlace.of(history, self._time, done, keep)

    def clean_trash(self, keep: str) -> CleanedPlace:
        """Delete trash older than `keep` for good; record each session in the audit.

        The result counts files. Interrupted operations of the trash are finished first.
        """
        trash = Trash(self._layout, keep, actor=self._actor, budget=self._budget)
        trash.recover()
        return self._clean(TrashedSessions(self._layout, keep, trash), keep)

    def _clean(self, target: RetentionTarget, keep: str) -> CleanedPlace:
        done = clean(target, self._time, self._stopping)
        return CleanedPlace.of(target, self._time, done, keep)

    def _clean_drafts(self, history: HistoryFiles) -> int:
        """Delete drafts that are older than the history is kept.

        Returns:
            The number of drafts that could not be deleted.
        """
        lifetime = lifetime_seconds(history.keep)
        if lifetime is None or history.why_held(self._time):
            return 0
        errors, edits = 0, self._layout.edits
        try:
            drafts = sorted(self._layout.refuse_outside(edits).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"reading {edits}").message
            _log.warning("[RETENTION] Not deleted", where=str(edits), problem=problem)
            return 1
        for draft in drafts:
            try:
                if not draft.is_symlink() and draft.is_dir():
                    times = [path.lstat().st_mtime for path in draft.iterdir()]
                    newest = max(times, default=draft.lstat().st_mtime)
                    if self._time.now - newest > lifetime:
                        shutil.rmtree(draft)
            except OSError as error:
                _log.warning("[RETENTION] Not deleted", where=str(draft), problem=str(error))
                errors += 1
        return errors

    def _audit(self, done: Cleaned, action: str, **more: object) -> None:
        if done.cleaned:
            AuditLog(self._layout.audit_file, self._clock).record(
                actor=self._actor,
                action=action,
                files_removed=done.cleaned,
                bytes=done.bytes,
                errors=done.errors,
                **more,  # type: ignore[arg-type]  # none is named agent or session_id
            )


def forecast_all(
    layout: Layout, config: PruningConfig, time: RunTime, *, forget: bool = False
) -> ForecastAll:
    """Return the files that a run would move and delete, without doing so. Raises BsdError."""
    into_archive = config.archive and not forget
    packed_at = time.now if into_archive else None
    store = forecast(ExtractedFiles(layout, config.retention, packed_at=packed_at), time)
    packed = None
    if into_archive:
        packed = round(store.bytes / (archive_use(layout).ratio or USUAL_RATIO))
    others = config.trash_retention
    sessions = forecast(GoneSessions(layout, config.archive_sessions), time)
    return ForecastAll(
        store=store,
        archived_bytes=packed,
        archive=archive_forecast(layout, config, time),
        sessions=replace(sessions, keep=config.archive_sessions),
        history=forecast(HistoryFiles(layout, others), time),
        trash=forecast(TrashedSessions(layout, others), time),
    )


def archive_forecast(layout: Layout, config: PruningConfig, time: RunTime) -> Forecast:
    """Return the packs that the archive would lose by age, then by its size; raises BsdError."""
    found = forecast(ArchivePacks(layout, config.archive_retention), time)
    if not config.archive_max_bytes:
        return found
    if time.doubt is not None:
        return replace(found, held=time.doubt)
    over = ArchiveOverLimit(layout, config.archive_max_bytes)
    known = {file.path for file in found.going}
    more = [file for part in over.going.values() for file in part.files if file.path not in known]
    packs = sum(file.path.name.endswith((PACK, SET_ASIDE)) for file in more)
    going = sorted([*found.going, *more], key=lambda file: file.mtime)
    return replace(found, going=tuple(going), staying=found.staying - packs)


def in_plain_words(config: PruningConfig) -> str:
    """Return the explanation that a user must read before the first file is deleted."""
    keep = config.retention
    if lifetime_seconds(keep) is None:
        return (
            "bsd keeps extracted values for ever (`retention` is `never`). "
            "`bsd config set retention 30d` removes them from the store after 30 days."
        )
    if config.archive:
        return (
            f"bsd keeps extracted values uncompressed for {keep} (the setting "
            "`retention`) and then moves them, compressed, into the archive, from which they can "
            f"be restored as before{_archive_end(config)}. To delete them instead: `bsd config "
            "set archive false`. `bsd retention --dry-run` lists the files that are due next."
        )
    return (
        f"bsd keeps extracted values for {keep} (the setting `retention`) and then deletes "
        "them for good: their placeholders stay, but can no longer be restored. To keep values "
        "longer: `bsd config set retention 30d`; for ever: `bsd config set retention never`, or "
        "compressed: `bsd config set archive true`. "
        "`bsd retention --dry-run` lists the files that are due next."
    )


def _archive_end(config: PruningConfig) -> str:
    if lifetime_seconds(config.archive_retention) is None:
        return " (for ever: `archive_retention` is never)"
    return f" (for {config.archive_retention}: `archive_retention`)"


WHAT_IS_NEW = (
    "New: values that leave the store after `retention` are no longer deleted but moved, "
    "compressed, into the archive, and can be restored from there. To delete them as before: "
    "`bsd config set archive false`."
)
