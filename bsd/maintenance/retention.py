"""Retention: moves and deletes files that have been kept long enough (SPEC §7, §7a).

Each target has a setting that says how long it is kept. Originals that leave the store are packed
into the archive if `archive` is on. If the clock is in doubt (`core/clock.py`), a run deletes
nothing; files that only move into the archive move all the same.
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
from bsd.maintenance.forget import Forget, finish_forgetting
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

_HELD = "Why nothing is deleted: the clock is not believed"


@dataclass(frozen=True, slots=True)
class CleanedPlace:
    """What a run has deleted in one place (bytes), and how much could not be."""

    keep: str
    held: Annotated[str | None, Field(description=_HELD)]
    cleaned: int
    bytes: int
    errors: int
    packed: Internal[int | None] = None  # bytes of new packs; None: nothing is packed

    @classmethod
    def of(cls, target: RetentionTarget, time: RunTime, done: Cleaned, keep: str) -> CleanedPlace:
        """Return the result of a run for a target; `keep` is the setting."""
        return cls(keep, target.why_held(time), done.cleaned, done.bytes, done.errors)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What was deleted, or with dry_run what would be: of what was extracted, and of the rest."""

    store: Internal[CleanedPlace | Forecast]
    dry_run: bool
    keep: str = field(init=False, default="")
    held: Annotated[str | None, Field(description=_HELD)] = field(init=False, default=None)
    cleaned: int = field(init=False, default=0)
    bytes: int = field(init=False, default=0)
    archived_bytes: Annotated[
        int | None,
        Field(
            description="What the extracted files take in the archive (before they do: about); "
            "null: they are deleted for good"
        ),
    ]
    archive: CleanedPlace | Forecast
    sessions: CleanedPlace | Forecast
    history: CleanedPlace | Forecast
    trash: CleanedPlace | Forecast
    problem: Annotated[
        str | None, Field(description="Why it is not noted that there was a run"), OMIT_EMPTY
    ] = None

    def __post_init__(self) -> None:
        """Fill the members that are those of the store."""
        for name in ("keep", "held", "cleaned", "bytes"):
            object.__setattr__(self, name, getattr(self.store, name))

    @property
    def held_places(self) -> dict[str, str]:
        """Map the places that the clock protects from deletion to the reason."""
        places = {
            "what was extracted": self.store.held,
            "the archive": self.archive.held,
            "the sessions that are gone": self.sessions.held,
            "history and trash": self.trash.held,  # they are kept equally long
        }
        return {what: why for what, why in places.items() if why is not None}


@dataclass(frozen=True, kw_only=True)
class CleanedAll(Retention):
    """What a run has deleted."""

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
        """How much could not be deleted, wherever it lies."""
        places = (self.store, self.archive, self.sessions, self.history, self.trash)
        return sum(place.errors for place in places)


@dataclass(frozen=True, kw_only=True)
class ForecastAll(Retention):
    """What a run would delete."""

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
        trust_clock: the wall clock is right, although it was set.
        wait: seconds, for a session on which another bsd works.
        stopping: asked before each session; the rest then goes with the next run.
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
        """Move and delete everything that has been kept long enough.

        Args:
            forget: originals that leave the store are deleted, also if the setting `archive` is on.
            progress: is told how many bytes have left the store, of how many.
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
        """Clean the store of all sessions, also of those that no longer exist, and audit it.

        Args:
            into_archive: the files are packed before they are deleted, and are not lost.
            archive_keep: the setting `archive_retention`.
            progress: as of `clean_all`.
        """
        layout = self._layout
        packed_at = self._time.now if into_archive else None
        store = ExtractedFiles(
            layout, keep, wait=self._wait, packed_at=packed_at, archive_keep=archive_keep
        )
        if into_archive:
            # A problem is logged if there is anything to pack.
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
        """Return a function that shows how much of the store is done, if anything shows it."""
        if show is None:
            return lambda _: None
        total = 0
        with suppress(BsdError):  # the run reports it
            total = forecast(store, self._time).bytes
        return lambda done: show(min(done.bytes, total), total)

    def clean_archive(self, keep: str, most: int) -> CleanedPlace:
        """Delete packs that are older than `keep`, then those over `most` bytes; 0: no limit."""
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
        """Forget sessions that have been gone for longer than `keep`; each is audited."""
        forgetting = Forget(self._layout, actor=self._actor, budget=self._budget)
        sessions = self._clean(GoneSessions(self._layout, keep, forgetting), keep)
        notes = clean(LoneMemories(self._layout, keep), self._time, self._stopping)
        return replace(sessions, errors=sessions.errors + notes.errors)

    def clean_history(self, keep: str) -> CleanedPlace:
        """Forget operations that are older than `keep`: they can no longer be undone.

        Drafts of edits, which hold the same texts, go too.
        """
        history = HistoryFiles(self._layout, keep, wait=self._wait)
        errors = self._clean_drafts(history)
        done = clean(history, self._time, self._stopping) + Cleaned(errors=errors)
        self._audit(done, "history_retention")
        return CleanedPlace.of(history, self._time, done, keep)

    def clean_trash(self, keep: str) -> CleanedPlace:
        """Delete for good the trash that is older than `keep`; each session is audited.

        Counts files. Operations that a killed process has left half done are finished first.
        """
        trash = Trash(self._layout, keep, actor=self._actor, budget=self._budget)
        trash.recover()
        return self._clean(TrashedSessions(self._layout, keep, trash), keep)

    def _clean(self, target: RetentionTarget, keep: str) -> CleanedPlace:
        done = clean(target, self._time, self._stopping)
        return CleanedPlace.of(target, self._time, done, keep)

    def _clean_drafts(self, history: HistoryFiles) -> int:
        """Delete drafts that were not touched for as long as history is kept.

        Returns how many could not be deleted.
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
                **more,  # type: ignore[arg-type]  # none is called agent or session_id
            )


def forecast_all(
    layout: Layout, config: PruningConfig, time: RunTime, *, forget: bool = False
) -> ForecastAll:
    """Return the files that a run would move and delete; changes nothing. Raises BsdError."""
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
            "What bsd takes out of sessions is kept for ever (retention is `never`). "
            "`bsd config set retention 30d` would let it go after 30 days."
        )
    if config.archive:
        return (
            f"What bsd takes out of sessions is kept for {keep} as it is (the setting "
            "`retention`) and then moved, compressed, into the archive, from which it can be "
            f"restored as before{_archive_end(config)}. To have it deleted instead: `bsd config "
            "set archive false`. `bsd retention --dry-run` shows what goes next."
        )
    return (
        f"What bsd takes out of sessions is kept for {keep} (the setting `retention`) and "
        "then deleted for good: its placeholder stays, but can no longer be restored. To keep it "
        "longer: `bsd config set retention 30d`; for ever: `bsd config set retention never`, or "
        "compressed: `bsd config set archive true`. "
        "`bsd retention --dry-run` shows what goes next."
    )


def _archive_end(config: PruningConfig) -> str:
    if lifetime_seconds(config.archive_retention) is None:
        return " (for ever: `archive_retention` is never)"
    return f" ({config.archive_retention} long: `archive_retention`)"


WHAT_IS_NEW = (
    "New: what `retention` takes out of the store is no longer deleted but moved, compressed, into "
    "the archive, and can be restored from there; to delete it as before: `bsd config set archive "
    "false`."
)
