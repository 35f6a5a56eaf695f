"""Deletes what has been kept long enough: the one place that destroys content (SPEC §7).

What is kept lies on shelves; each shelf has a setting that says how long. The things that one
session put there are one lot, deleted under that session's own lock.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bsd.care.expiry import (
    Cleaned,
    Expired,
    ExpiredFile,
    Forecast,
    Lot,
    Thing,
    clean,
    forecast,
    unlink,
)
from bsd.care.search import forget_stored
from bsd.care.trash import Trash
from bsd.care.trashed import TrashPlace, ids
from bsd.foundation.ages import Ages, look, steady
from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.audit import AuditLog
from bsd.foundation.errors import BsdError, NotFound, os_problem
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.pruning_fields import PruningConfig
from bsd.foundation.spelling import iso_utc, lifetime_seconds
from bsd.session.commit.lock import OwnLock
from bsd.session.rest import Patience
from bsd.store.entry_notes import DAMAGED, RESTORED, UNDONE
from bsd.store.extracted import APART
from bsd.store.index import INDEX_FILE, Index, session_named_in

_log = get_logger("retention")

_STORED = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.json")
_LEFTOVER = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.tmp")  # of an extraction that was cut short
_OPERATION = re.compile(r"\d{6,}_[a-z_]+\.(?:jsonl|pending)")
# What lasts as long as the session: of one that is gone it is kept as long as its history.
_LASTING = re.compile("|".join(map(re.escape, (UNDONE, RESTORED))) + rf"|\w+{re.escape(DAMAGED)}")
# An extraction holds a session's lock for a moment; what is still locked then goes next time.
_WAIT_SECONDS = 5.0
_HELD = "Why nothing is deleted: the clock is not believed"


@dataclass(frozen=True, slots=True)
class CleanedPlace(Answer):
    """What a run has deleted in one place (bytes), and how much could not be."""

    keep: str
    held: str | None = field(metadata=contract(_HELD))
    done: Cleaned = field(metadata=INTERNAL)
    cleaned: int = field(init=False, metadata=contract(by=lambda one: one.done.cleaned))
    bytes: int = field(init=False, metadata=contract(by=lambda one: one.done.bytes))
    errors: int = field(init=False, metadata=contract(by=lambda one: one.done.errors))


@dataclass(frozen=True, kw_only=True)
class Retention(Answer):
    """What was deleted, or with dry_run what would be: of what was extracted, and of the rest."""

    store: CleanedPlace | Forecast = field(metadata=INTERNAL)
    dry_run: bool
    keep: str = field(init=False, metadata=contract(by=lambda one: one.store.keep))
    held: str | None = field(init=False, metadata=contract(_HELD, by=lambda one: one.store.held))
    cleaned: int = field(init=False, metadata=contract(by=lambda one: one.store.cleaned))
    bytes: int = field(init=False, metadata=contract(by=lambda one: one.store.bytes))
    history: CleanedPlace | Forecast
    trash: CleanedPlace | Forecast


@dataclass(frozen=True, kw_only=True)
class CleanedAll(Retention):
    """What a run has deleted."""

    store: CleanedPlace = field(metadata=INTERNAL)
    history: CleanedPlace
    trash: CleanedPlace
    dry_run: bool = False
    errors: int = field(init=False, metadata=contract(by=lambda one: one.store.errors))

    @property
    def failures(self) -> int:
        """How much could not be deleted, wherever it lies."""
        return self.store.errors + self.history.errors + self.trash.errors


@dataclass(frozen=True, kw_only=True)
class ForecastAll(Retention):
    """What a run would delete."""

    store: Forecast = field(metadata=INTERNAL)
    history: Forecast
    trash: Forecast
    dry_run: bool = True
    staying: int = field(init=False, metadata=contract(by=lambda one: one.store.staying))
    expires: str | None = field(
        init=False, metadata=contract(name="next_expiry", by=lambda one: one.store.expires)
    )
    files: tuple[ExpiredFile, ...] = field(
        init=False, metadata=contract(by=lambda one: one.store.files)
    )


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
        wait: float = _WAIT_SECONDS,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._layout = layout
        self._actor = actor
        self._clock = clock
        self._wait = wait
        self._stopping = stopping
        self._ages = look(layout, clock, steady)

    def clean_all(self, config: PruningConfig) -> CleanedAll:
        """Delete what has been kept long enough, as far as the clock can be believed."""
        keep, others = config.retention, config.trash_retention
        held, held_others = map(self._ages.why_held, map(lifetime_seconds, (keep, others)))
        store = self.clean_store(keep)
        history, trash = self.clean_history(others), self.clean_trash(others)
        return CleanedAll(
            store=CleanedPlace(keep, held, store),
            history=CleanedPlace(others, held_others, history),
            trash=CleanedPlace(others, held_others, trash),
        )

    def clean_store(self, keep: str) -> Cleaned:
        """Clean the store of all sessions, those that no longer exist included, and audit it."""
        shelf, lifetime = StoreShelf(self._layout, keep, wait=self._wait), lifetime_seconds(keep)
        try:
            done = clean(shelf, self._ages, self._stopping)
        finally:
            if gone := {name: refs for name, refs in shelf.deleted.items() if refs}:
                forget_stored(self._layout, gone)
        before = {}
        if lifetime is not None:
            before["keep"] = keep
            before["expired_before"] = iso_utc(self._ages.now_for(lifetime) - lifetime)
        self._audit(done, "retention", **before)
        return done

    def clean_history(self, keep: str) -> Cleaned:
        """Forget operations that are older than `keep`: they can no longer be undone.

        And drafts of edits, which hold the same texts.
        """
        _forget_drafts(self._layout, lifetime_seconds(keep), self._ages)
        shelf = HistoryShelf(self._layout, keep, wait=self._wait)
        done = clean(shelf, self._ages, self._stopping)
        self._audit(done, "history_retention")
        return done

    def clean_trash(self, keep: str) -> Cleaned:
        """Delete for good what was deleted longer ago than `keep`; each session is audited.

        Counts files. What an earlier process has left half done is finished first.
        """
        patience = Patience(self._wait, clock=self._clock)
        trash = Trash(self._layout, keep, actor=self._actor, patience=patience)
        trash.recover()
        return clean(TrashShelf(self._layout, keep, trash), self._ages, self._stopping)

    def _audit(self, done: Cleaned, action: str, **more: str) -> None:
        if done.cleaned:
            AuditLog(self._layout.audit_file, self._clock).record(
                actor=self._actor,
                action=action,
                files_removed=done.cleaned,
                bytes=done.bytes,
                errors=done.errors,
                **more,
            )


def forecast_all(layout: Layout, config: PruningConfig, ages: Ages) -> ForecastAll:
    """Say what would go; changes nothing. Raises BsdError."""
    keep, others = config.retention, config.trash_retention
    return ForecastAll(
        store=forecast(StoreShelf(layout, keep), ages),
        history=forecast(HistoryShelf(layout, others), ages),
        trash=forecast(TrashShelf(layout, others), ages),
    )


def in_plain_words(keep: str) -> str:
    """What a user must know before the first file goes."""
    if lifetime_seconds(keep) is None:
        return (
            "What bsd takes out of sessions is kept for ever (retention is `never`). "
            "`bsd config set retention 30d` would delete it after 30 days."
        )
    return (
        f"What bsd takes out of sessions is kept for {keep} (the setting `retention`) and "
        "then deleted for good: its placeholder stays, but can no longer be restored. To keep it "
        "longer: `bsd config set retention 30d`; for ever: `bsd config set retention never`. "
        "`bsd retention --dry-run` shows what goes next."
    )


# --- the shelves ---


class _StoreLot:
    """What was taken out of one session."""

    _pattern = _STORED

    def __init__(self, layout: Layout, path: Path, wait: float) -> None:
        self.path = path
        self._layout = layout
        self._wait = wait
        self._names: set[str] = set()  # of all that lay there at the last look
        self.deleted: list[str] = []  # names without their ending

    def things(self) -> list[Thing]:
        found = []
        self._names.clear()
        with os.scandir(self.path) as entries:
            for entry in entries:
                self._names.add(entry.name)
                if not self._pattern.fullmatch(entry.name):
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        thing = Thing(self.path / entry.name, status.st_size, status.st_mtime)
                        found.append(thing)
        return found

    def is_untidy(self) -> bool:
        return self._names <= {INDEX_FILE} or any(map(_LEFTOVER.fullmatch, self._names))

    def tidy(self) -> None:
        with self._lock(0.0):
            self._tidy_up()

    def delete(self, expired: Expired) -> Cleaned:
        done = Cleaned()
        with self._lock(self._wait):
            # Looked at anew: an extraction may have used a file again, and renewed its time.
            for thing in filter(expired, self.things()):
                unlinked = unlink(thing)
                if not unlinked.errors:
                    self.deleted.append(thing.path.stem)
                done += unlinked
            try:
                self._tidy_up()
            except OSError as error:  # what is deleted counts all the same
                problem = os_problem(error, f"tidying up {self.path}").message
                _log.warning("[RETENTION] Not tidied up", where=str(self.path), problem=problem)
                done += Cleaned(errors=1)
        return done

    def _lock(self, wait: float) -> OwnLock:
        """The session's own lock. Its file is named like the directory, so no name is needed."""
        file = self._layout.lock_file_of(self.path.name)
        return OwnLock(
            file, wait, mode=0o600, fallback_to_soft=False, name=_apparent_name(self.path)
        )

    def _tidy_up(self) -> None:
        there = set(os.listdir(self.path))
        for name in filter(_LEFTOVER.fullmatch, list(there)):
            (self.path / name).unlink()  # who wrote it held the lock that we have now
            there.discard(name)
        if there <= {INDEX_FILE}:
            with suppress(FileNotFoundError):
                (self.path / INDEX_FILE).unlink()
            self.path.rmdir()
            return
        if INDEX_FILE in there:
            self._update_index(there)

    def _update_index(self, there: set[str]) -> None:
        path = self.path / INDEX_FILE
        index = Index(path, session_named_in(path) or _apparent_name(self.path))
        left = [record for record in index.records.values() if record.file in there]
        if index.broken or len(left) == len(index.records):
            return
        try:
            index.replace(left)
        except BsdError as problem:  # a cache; verify --repair makes it anew
            _log.warning("[RETENTION] Index not updated", path=str(path), problem=problem.message)


class _ApartLot(_StoreLot):
    """A store that a killed extraction has not finished: nothing refers to what is in it."""

    def things(self) -> list[Thing]:
        return []

    def is_untidy(self) -> bool:
        return True

    def _tidy_up(self) -> None:
        shutil.rmtree(self.path)  # who wrote it held the lock that we have now


class _HistoryLot(_StoreLot):
    """What undo needs of one session; and what lasts, once nothing is left that it is about."""

    _pattern = _OPERATION

    def things(self) -> list[Thing]:
        found = super().things()
        if (lasting := sorted(filter(_LASTING.fullmatch, self._names))) and self._is_gone(lasting):
            for name in lasting:
                with suppress(FileNotFoundError):
                    status = (self.path / name).lstat()
                    found.append(Thing(self.path / name, status.st_size, status.st_mtime))
        return found

    def _is_gone(self, lasting: list[str]) -> bool:
        """Whether neither the session is there nor anything that was taken out of it."""
        if os.path.lexists(self._layout.extracted / self.path.name):
            return False
        told = (session_named_in(self.path / name) for name in lasting)
        name = next(filter(None, told), None) or _apparent_name(self.path)
        try:
            self._layout.session_file(name)
        except NotFound:
            return True
        except BsdError:  # it cannot be told
            return False
        return False


def _apparent_name(directory: Path) -> SessionName:
    """Return the session that a store directory's name stands for, or what comes near it."""
    agent, _, session = directory.name.partition("_")
    try:
        return SessionName(agent.replace("~", "_"), session)
    except BsdError:  # a long name was cut and has a hash, or somebody else made the directory
        return SessionName("store", re.sub(r"[^A-Za-z0-9._@:+-]", "-", directory.name))


class StoreShelf:
    """The extracted files, one lot for each session's directory."""

    name = "extracted"
    _lot: type[_StoreLot] = _StoreLot

    def __init__(self, layout: Layout, keep: str, *, wait: float = _WAIT_SECONDS) -> None:
        self.keep = keep
        self._layout = layout
        self._wait = wait
        self.deleted: dict[str, list[str]] = {}  # refs by directory: whose text goes, too

    @property
    def _directory(self) -> Path:
        return self._layout.extracted

    def lots(self) -> Iterator[Lot]:
        directory = self._layout.refuse_outside(self._directory)
        try:
            with os.scandir(directory) as entries:
                names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_problem(error, f"reading {directory}") from error
        for name in names:
            if name == APART:
                with suppress(FileNotFoundError):  # it goes when it is empty
                    for apart in sorted(os.listdir(directory / name)):
                        yield _ApartLot(self._layout, directory / name / apart, 0.0)
                continue
            lot = self._lot(self._layout, directory / name, self._wait)
            self.deleted[name] = lot.deleted
            yield lot


class HistoryShelf(StoreShelf):
    """What undo needs, one lot for each session's directory; it is kept as long as the trash."""

    name = "history"
    _lot = _HistoryLot

    @property
    def _directory(self) -> Path:
        return self._layout.history


class TrashShelf:
    """The trash, one lot for each session; age counts from the time when it was deleted."""

    name = "trash"

    def __init__(self, layout: Layout, keep: str, trash: Trash | None = None) -> None:
        self.keep = keep
        self._layout = layout
        self._trash = trash or Trash(layout, keep)

    def lots(self) -> Iterator[Lot]:
        directory = self._layout.trash_dir()
        for each in ids(self._layout):
            yield _TrashLot(self._trash, TrashPlace(directory, each))


class _TrashLot:
    def __init__(self, trash: Trash, place: TrashPlace) -> None:
        self.path = place.meta
        self._trash = trash
        self._place = place

    def things(self) -> list[Thing]:
        sizes = list(_sizes(self._place))
        return [Thing(self.path, sum(sizes), self._place.trashed_at)] if sizes else []

    def delete(self, expired: Expired) -> Cleaned:
        sizes = list(_sizes(self._place))
        if not any(map(expired, self.things())):
            return Cleaned()
        with suppress(NotFound):  # it was restored meanwhile
            self._trash.remove(self._place.id)
            return Cleaned(len(sizes), sum(sizes))
        return Cleaned()

    def is_untidy(self) -> bool:
        return False

    def tidy(self) -> None:
        """Nothing: what is half done has a journal."""


def _sizes(place: TrashPlace) -> Iterator[int]:
    """Yield the sizes of all files of one session in the trash."""
    for part in place.parts:
        if part.is_dir():
            for directory, _, names in os.walk(part):
                yield from (Path(directory, name).lstat().st_size for name in names)
        elif os.path.lexists(part):
            yield part.lstat().st_size


# --- drafts of edits ---


def _forget_drafts(layout: Layout, lifetime: float | None, ages: Ages) -> None:
    """Delete edits that could not be applied, and that nobody has touched for so many seconds."""
    if lifetime is None or ages.held_for(lifetime):
        return
    try:
        edits = layout.refuse_outside(layout.edits)
    except BsdError as problem:
        _log.warning("[RETENTION] Not deleted", where=str(layout.edits), problem=problem.message)
        return
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


def _drafts(edits: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(edits) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
