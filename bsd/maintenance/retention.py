"""Ends the time for which things are kept: the one place that destroys content (SPEC §7, §7a).

What is kept lies on shelves; each has a setting that says how long. What leaves the store is not
destroyed but packed, as long as there shall be an archive; that is bounded by its size, too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.audit import AuditLog
from bsd.core.clock import Ages, look, steady
from bsd.core.config import PruningConfig
from bsd.core.errors import BsdError, NotFound, Unavailable, os_problem
from bsd.core.files import make_private_dir
from bsd.core.formatting import NEVER, format_size, iso_utc, lifetime_seconds
from bsd.core.layout import Layout
from bsd.core.logs import BoundLogger
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted
from bsd.maintenance.expiry import (
    Cleaned,
    Expired,
    ExpiredFile,
    Forecast,
    Lot,
    Thing,
    clean,
    clean_lots,
    forecast,
)
from bsd.maintenance.forget import Forget, finish_forgetting
from bsd.maintenance.search import catch_up, letting_go
from bsd.maintenance.shelves import (
    USUAL_RATIO,
    WAIT_SECONDS,
    ArchiveShelf,
    GoneShelf,
    HistoryShelf,
    Packing,
    StoreShelf,
    TrashShelf,
    archive_use,
    own_lock_of,
)
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
from bsd.store.pack import PACK, SET_ASIDE
from bsd.store.snapshots import (
    Snapshot,
    archive_directories,
    delete_snapshot,
    read_snapshot,
    snapshot_directories,
)

_log: BoundLogger = structlog.get_logger(module="retention")

_SPAN = 8  # packs become one if their ages differ by no more than such a part of their lifetime
_HELD = "Why nothing is deleted: the clock is not believed"


@dataclass(frozen=True, slots=True)
class CleanedPlace:
    """What a run has deleted in one place (bytes), and how much could not be."""

    keep: str
    held: Annotated[str | None, Field(description=_HELD)]
    cleaned: int
    bytes: int
    errors: int

    @classmethod
    def of(cls, keep: str, held: str | None, done: Cleaned) -> CleanedPlace:
        """Return what `done` says of a place."""
        return cls(keep, held, done.cleaned, done.bytes, done.errors)


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
        for one in ("keep", "held", "cleaned", "bytes"):
            object.__setattr__(self, one, getattr(self.store, one))

    @property
    def held_places(self) -> dict[str, str]:
        """Map what the clock protects from being deleted to the reason."""
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
        for one in ("staying", "expires", "files"):
            object.__setattr__(self, one, getattr(self.store, one))


class RetentionRun:
    """One run. How old things are is told by a look at the clock when it begins.

    `wait` is in seconds, for a session on which another bsd works; `stopping` is asked before each
    lot, and what is left then goes with the next run.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        actor: str,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
        wait: float = WAIT_SECONDS,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._layout = layout
        self._actor = actor
        self._clock = clock
        self._wait = wait
        self._stopping = stopping
        self._ages = look(layout, clock, steady)

    def clean_all(self, config: PruningConfig, *, forget: bool = False) -> CleanedAll:
        """Move and delete what has been kept long enough, as far as the clock can be believed.

        With `forget` what leaves the store is deleted, whatever `archive` says.
        """
        _log.trace("Retention begins", root=str(self._layout.root))
        budget = RetryBudget(0.0, clock=self._clock)
        not_forgotten = finish_forgetting(self._layout, actor=self._actor, budget=budget)
        catch_up(self._layout)
        keep, others, archived = config.retention, config.trash_retention, config.archive_retention
        held, held_others, held_archive = (
            self._ages.why_held(lifetime_seconds(each)) for each in (keep, others, archived)
        )
        packing = None if forget or not config.archive else self._packing(archived)
        store = self.clean_store(keep, packing)
        archive = self.clean_archive(archived, config.archive_max_bytes)
        sessions = self.clean_gone(config.archive_sessions)
        history, trash = self.clean_history(others), self.clean_trash(others)
        return CleanedAll(
            store=CleanedPlace.of(keep, held, store),
            archived_bytes=sum(taken.packed for taken in packing.done) if packing else None,
            archive=CleanedPlace.of(archived, held_archive, archive),
            sessions=replace(sessions, errors=sessions.errors + not_forgotten),
            history=CleanedPlace.of(others, held_others, history),
            trash=CleanedPlace.of(others, held_others, trash),
        )

    def _packing(self, keep: str) -> Packing:
        lifetime = lifetime_seconds(keep)
        with suppress(OSError, BsdError):  # there it is told, if there is anything to pack
            make_private_dir(self._layout.refuse_outside(self._layout.archive))
        return Packing(self._clock(), None if lifetime is None else lifetime / _SPAN)

    def clean_store(self, keep: str, packing: Packing | None = None) -> Cleaned:
        """Clean the store of all sessions, those that no longer exist included, and audit it.

        With `packing` what goes is in the archive before; else it is destroyed.
        """
        shelf = StoreShelf(self._layout, keep, wait=self._wait, packing=packing)
        lifetime = lifetime_seconds(keep)
        with letting_go(self._layout, shelf.deleted):
            done = clean(shelf, self._ages, self._stopping)
        more: dict[str, object] = {}
        if lifetime is not None:
            more["keep"] = keep
        if packing is not None:
            for taken in filter(lambda one: one.pack, packing.done):
                files, size = len(taken.files), format_size(taken.packed)
                _log.info(f"[RETENTION] Packed {files} of them into {taken.pack} ({size})")
            more["bytes_archived"] = sum(taken.packed for taken in packing.done)
        elif lifetime is not None:
            more["expired_before"] = iso_utc(self._ages.now_for(lifetime) - lifetime)
        self._audit(done, "retention" if packing is None else "archive", **more)
        return done

    def clean_archive(self, keep: str, most: int) -> Cleaned:
        """Delete packs that are older than `keep`; and what is over `most` bytes, with copies.

        0 is no limit.
        """
        shelf = ArchiveShelf(self._layout, keep, wait=self._wait)
        with letting_go(self._layout, shelf.deleted):
            done = clean(shelf, self._ages, self._stopping)
        self._audit_archive(done, shelf, keep=keep)
        if not most:
            return done
        shelf = ArchiveShelf(self._layout, keep, wait=self._wait)
        with letting_go(self._layout, shelf.deleted):
            over = self._clean_over(shelf, most)
        self._audit_archive(over, shelf, keep=keep, max_bytes=most)
        return done + over

    def _audit_archive(self, done: Cleaned, shelf: ArchiveShelf, **more: object) -> None:
        if shelf.newest:
            more["expired_before"] = iso_utc(shelf.newest)
        self._audit(done, "archive_retention", **more)

    def _clean_over(self, shelf: ArchiveShelf, most: int) -> Cleaned:
        try:
            budget = RetryBudget(self._wait, clock=self._clock)
            forgetting = Forget(self._layout, actor=self._actor, budget=budget)
            over = OverLimit(self._layout, most, forgetting)
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"looking into {self._layout.archive}").message
            _log.error("[RETENTION] The archive is not made smaller", problem=problem)
            return Cleaned(errors=1)
        done = clean_lots(over, everything, self._stopping)
        return done + clean_lots(shelf, over.packs(), self._stopping)

    def clean_gone(self, keep: str) -> CleanedPlace:
        """Forget sessions that have been gone for longer than `keep`; each is audited."""
        budget = RetryBudget(self._wait, clock=self._clock)
        shelf = GoneShelf(self._layout, keep, actor=self._actor, budget=budget)
        held = self._ages.why_held(lifetime_seconds(shelf.keep))
        return CleanedPlace.of(keep, held, clean(shelf, self._ages, self._stopping))

    def clean_history(self, keep: str) -> Cleaned:
        """Forget operations that are older than `keep`: they can no longer be undone.

        And drafts of edits, which hold the same texts.
        """
        drafts = _forget_drafts(self._layout, lifetime_seconds(keep), self._ages)
        shelf = HistoryShelf(self._layout, keep, wait=self._wait)
        done = drafts + clean(shelf, self._ages, self._stopping)
        self._audit(done, "history_retention")
        return done

    def clean_trash(self, keep: str) -> Cleaned:
        """Delete for good what was deleted longer ago than `keep`; each session is audited.

        Counts files. What an earlier process has left half done is finished first.
        """
        budget = RetryBudget(self._wait, clock=self._clock)
        trash = Trash(self._layout, keep, actor=self._actor, budget=budget)
        trash.recover()
        return clean(TrashShelf(self._layout, keep, trash), self._ages, self._stopping)

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
    layout: Layout, config: PruningConfig, ages: Ages, *, forget: bool = False
) -> ForecastAll:
    """Say what would go; changes nothing. Raises BsdError."""
    keep, others = config.retention, config.trash_retention
    store = forecast(StoreShelf(layout, keep), ages)
    packed = None
    if config.archive and not forget:
        packed = round(store.bytes / (archive_use(layout).ratio or USUAL_RATIO))
    return ForecastAll(
        store=store,
        archived_bytes=packed,
        archive=archive_forecast(layout, config, ages),
        sessions=replace(
            forecast(GoneShelf(layout, config.archive_sessions), ages), keep=config.archive_sessions
        ),
        history=forecast(HistoryShelf(layout, others), ages),
        trash=forecast(TrashShelf(layout, others), ages),
    )


def archive_forecast(layout: Layout, config: PruningConfig, ages: Ages) -> Forecast:
    """What the archive would lose by age, and then by its size; raises BsdError."""
    shelf = ArchiveShelf(layout, config.archive_retention)
    found = forecast(shelf, ages)
    if not config.archive_max_bytes:
        return found
    over = [
        one for goer in OverLimit(layout, config.archive_max_bytes).going for one in goer.things
    ]
    known = {thing.path for thing in found.going}
    more = [thing for thing in over if thing.path not in known]
    packs = sum(thing.path.name.endswith((PACK, SET_ASIDE)) for thing in more)
    going = sorted([*found.going, *more], key=lambda thing: thing.mtime)
    return replace(found, going=tuple(going), staying=found.staying - packs)


def in_plain_words(config: PruningConfig) -> str:
    """What a user must know before the first file goes."""
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


# --- drafts of edits ---


def _forget_drafts(layout: Layout, lifetime: float | None, ages: Ages) -> Cleaned:
    """Delete edits that could not be applied, and that nobody has touched for so many seconds.

    Only what could not be deleted is counted.
    """
    if lifetime is None or ages.held_for(lifetime):
        return Cleaned()
    try:
        edits = layout.refuse_outside(layout.edits)
    except BsdError as problem:
        _log.warning("[RETENTION] Not deleted", where=str(layout.edits), problem=problem.message)
        return Cleaned(errors=1)
    errors = 0
    for directory in _drafts(edits):
        try:
            touched = [
                entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(directory)
            ]
            newest = max(touched, default=directory.lstat().st_mtime)
            if ages.age(newest, lifetime) > lifetime:
                shutil.rmtree(directory)
        except OSError as error:
            _log.warning("[RETENTION] Not deleted", where=str(directory), problem=str(error))
            errors += 1
    return Cleaned(errors=errors)


def _drafts(edits: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(edits) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


# --- the archive is bounded: packs and copies of sessions together take no more than was set ---

# Copies of sessions that are still in their places go first, since nothing is lost by that now;
# then what is oldest. A copy goes whole. A session that is gone goes with its packs, by the
# youngest of all that is kept of it: brought back without its values it would be none.
_NEARLY = 0.9  # of what may be taken: then people are told


@dataclass(frozen=True, slots=True)
class Goer:
    """What goes together, in this order."""

    age_from: float  # epoch seconds
    things: tuple[Thing, ...]
    copy: Path | None = None
    gone: Snapshot | None = None  # the session that goes with all that is kept of it
    first: bool = False  # nothing is lost by it now

    @property
    def size(self) -> int:
        return sum(thing.size for thing in self.things)


class OverLimit:
    """What has to go so that the archive takes no more bytes than `limit`; packs are a shelf's."""

    name = "archived"
    keep = NEVER  # by age nothing of it goes

    def __init__(self, layout: Layout, limit: int, forgetting: Forget | None = None) -> None:
        self._layout = layout
        self._limit = limit
        self._forgetting = forgetting or Forget(layout)
        self._all = list(self._found())
        self.used = sum(goer.size for goer in self._all)
        self.going = list(self._chosen())

    @property
    def is_near(self) -> bool:
        """Whether there is hardly any room left."""
        return self.used >= _NEARLY * self._limit

    def _chosen(self) -> Iterator[Goer]:
        over = self.used - self._limit
        for goer in sorted(self._all, key=lambda one: (not one.first, one.age_from)):
            if over <= 0:
                return
            over -= goer.size
            yield goer

    def _found(self) -> Iterator[Goer]:
        layout = self._layout
        gone = {copy.directory: copy for copy in deleted_sessions(layout)}
        packs = {lot.path: lot.things() for lot in ArchiveShelf(layout, NEVER).lots()}
        for archive in archive_directories(layout):
            copies = list(snapshot_directories(archive))
            own = packs.pop(archive, [])
            for directory in copies:
                copy, size = gone.get(directory), _size_of(directory)
                thing = Thing(directory, size, _kept_at(directory))
                if copy is None:
                    spare = _is_spare(layout, directory)
                    yield Goer(thing.mtime, (thing,), directory, first=spare)
                elif len(copies) > 1 or not is_deleted(layout, copy.name):
                    yield Goer(thing.mtime, (thing,), directory, copy)
                else:
                    together = (thing, *own)
                    own = []
                    youngest = max(one.mtime for one in together)
                    yield Goer(youngest, together, directory, copy)
            yield from (Goer(pack.mtime, (pack,)) for pack in own)

    def lots(self) -> Iterator[Lot]:
        """Those of the goers that are not packs alone."""
        for goer in self.going:
            if goer.copy is not None:
                yield _CopyLot(self._layout, goer.copy, goer, self._forgetting)

    def packs(self) -> Expired:
        """Tells the packs that go alone."""
        paths = {goer.things[0].path for goer in self.going if goer.copy is None}
        return lambda thing: thing.path in paths


class _CopyLot(Lot):
    def __init__(self, layout: Layout, path: Path, goer: Goer, forgetting: Forget) -> None:
        self.path = path
        self._layout = layout
        self._goer = goer
        self._forgetting = forgetting

    def things(self) -> list[Thing]:
        return list(self._goer.things)

    def delete(self, expired: Expired) -> Cleaned:
        goer = self._goer
        if not any(map(expired, goer.things)):
            return Cleaned()
        if goer.gone is not None:
            with suppress(NotFound):
                self._forgetting.session(goer.gone.name, goer.gone)
            return Cleaned(len(goer.things), goer.size)
        with own_lock_of(self._layout, self.path.parent, 0.0):
            if goer.first and not _is_spare(self._layout, self.path):
                return Cleaned()  # its session has gone meanwhile
            delete_snapshot(self.path)
        return Cleaned(1, goer.size)


def _is_spare(layout: Layout, directory: Path) -> bool:
    """Whether it is a copy of a session that is still in its place."""
    with suppress(Unavailable):
        copy = read_snapshot(directory)
        return copy is not None and copy.gone_at is None and not is_deleted(layout, copy.name)
    return False


def _kept_at(directory: Path) -> float:
    with suppress(Unavailable):
        if copy := read_snapshot(directory):
            return copy.kept_at
    with suppress(OSError):  # nobody can say more of one that is damaged
        return directory.stat().st_mtime
    return 0.0


def _size_of(directory: Path) -> int:
    found = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            found += path.lstat().st_size
    return found


def everything(_: Thing) -> bool:
    """What is chosen goes, whatever its age."""
    return True
