"""Deletes what has been kept long enough: the one place that destroys content (SPEC §7).

What is kept lies on shelves; each shelf has a setting that says how long. The things that one
session put there are one lot, deleted under that session's own lock.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from bsd.foundation.atomic import read_plain
from bsd.foundation.audit import AuditLog
from bsd.foundation.durations import parse_duration
from bsd.foundation.errors import BsdError, Busy, Forbidden, os_problem
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.sizes import format_size
from bsd.foundation.times import iso_utc
from bsd.lifecycle.drafts import forget_drafts
from bsd.lifecycle.search import forget_stored
from bsd.store.index import Index
from bsd.transcript.lock import OwnLock

_log = get_logger("retention")

NEVER = "never"
_INDEX = "index.json"
_STORED = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.json")
_LEFTOVER = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.tmp")  # of an extraction that was cut short
_OPERATION = re.compile(r"\d{6,}_[a-z_]+\.(?:jsonl|pending)")
# An extraction holds a session's lock for a moment; what is still locked then goes next time.
_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Thing:
    """One file (or directory) that is kept for a time; its age counts from `mtime` (epoch s)."""

    path: Path
    size: int
    mtime: float


Expired = Callable[[Thing], bool]


class Lot(Protocol):
    """Things that are deleted together, under one lock."""

    path: Path

    def things(self) -> list[Thing]:
        """What lies there now; raises OSError."""
        ...

    def delete(self, expired: Expired) -> Cleaned:
        """Delete what is expired when looked at under the lock; raises BsdError, OSError."""
        ...

    def is_untidy(self) -> bool:
        """Whether `things` found what is of no use to anybody: leftovers of what was cut short."""
        ...

    def tidy(self) -> None:
        """Remove such things; raises Busy at once if somebody is at work there."""
        ...


class Shelf(Protocol):
    """A place where things are kept for as long as one setting says."""

    name: str  # as in `Deleted 15 extracted files`
    keep: str  # a duration, or `never`

    def lots(self) -> Iterable[Lot]:
        """All that lies there; raises BsdError."""
        ...


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How much was deleted (bytes), and how much could not be."""

    cleaned: int = 0
    bytes: int = 0
    errors: int = 0

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(
            self.cleaned + other.cleaned, self.bytes + other.bytes, self.errors + other.errors
        )

    def as_json(self) -> dict[str, int]:
        """Seed 000's fields."""
        return {"cleaned": self.cleaned, "bytes": self.bytes, "errors": self.errors}


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run at `at` (epoch seconds) would delete, and what comes after it."""

    at: float
    keep: str
    going: tuple[Thing, ...]  # the oldest first
    next_expiry: float | None  # of what stays: epoch seconds
    staying: int

    @property
    def bytes(self) -> int:
        return sum(thing.size for thing in self.going)

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        lifetime = lifetime_seconds(self.keep) or 0.0
        return {
            "keep": self.keep,
            "cleaned": len(self.going),
            "bytes": self.bytes,
            "staying": self.staying,
            "next_expiry": None if self.next_expiry is None else iso_utc(self.next_expiry),
            "files": [
                {
                    "path": str(thing.path),
                    "size": thing.size,
                    "modified": iso_utc(thing.mtime),
                    "expired": iso_utc(thing.mtime + lifetime),
                }
                for thing in self.going
            ],
        }


def lifetime_seconds(keep: str) -> float | None:
    """Return how long things are kept; None is for ever."""
    return None if keep.strip().casefold() == NEVER else parse_duration(keep) / 1000


def clean(shelf: Shelf, now: float, stopping: Callable[[], bool] = lambda: False) -> Cleaned:
    """Delete what is expired at `now` (epoch seconds); failures are logged and counted.

    `stopping` is asked before each lot: what is left then goes with the next run.
    """
    lifetime = lifetime_seconds(shelf.keep)
    done = Cleaned()

    def expired(thing: Thing) -> bool:
        return lifetime is not None and now - thing.mtime > lifetime

    try:
        for lot in shelf.lots():
            if stopping():
                break
            done += _clean_lot(lot, expired)
    except BsdError as problem:
        _log.error("[RETENTION] The store cannot be read", problem=problem.message)
        done += Cleaned(errors=1)
    if done.cleaned:
        amount = f"{done.cleaned} {shelf.name} file{'' if done.cleaned == 1 else 's'}"
        _log.info(f"[RETENTION] Deleted {amount} ({format_size(done.bytes)})")
    return done


def _clean_lot(lot: Lot, expired: Expired) -> Cleaned:
    try:
        # Without the lock: most lots have nothing to give, and need not be locked to know it.
        if any(map(expired, lot.things())):
            return lot.delete(expired)
        if lot.is_untidy():
            with suppress(Busy):
                lot.tidy()
        return Cleaned()
    except FileNotFoundError:
        return Cleaned()  # it went by itself
    except (BsdError, OSError) as error:
        problem = error if isinstance(error, BsdError) else os_problem(error, f"in {lot.path}")
        _log.warning("[RETENTION] Not deleted", where=str(lot.path), problem=problem.message)
        return Cleaned(errors=1)


def forecast(shelf: Shelf, at: float) -> Forecast:
    """Say what `clean` would delete at `at`; changes nothing. Raises BsdError."""
    lifetime = lifetime_seconds(shelf.keep)
    going, oldest, staying = [], None, 0
    for lot in shelf.lots():
        with suppress(OSError):
            for thing in lot.things():
                if lifetime is not None and at - thing.mtime > lifetime:
                    going.append(thing)
                    continue
                staying += 1
                oldest = thing.mtime if oldest is None else min(oldest, thing.mtime)
    expiry = oldest + lifetime if oldest is not None and lifetime is not None else None
    going.sort(key=lambda thing: thing.mtime)
    return Forecast(at, shelf.keep, tuple(going), expiry, staying)


def run_retention(
    layout: Layout,
    keep: str,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    wait: float = _WAIT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Clean the store of all sessions, those that no longer exist included, and audit it."""
    shelf = StoreShelf(layout, keep, wait=wait)
    try:
        done = clean(shelf, clock(), stopping)
    finally:
        if gone := {name: refs for name, refs in shelf.deleted.items() if refs}:
            forget_stored(layout, gone)
    _audit(layout, done, "retention", actor, clock)
    return done


def _audit(
    layout: Layout, done: Cleaned, action: str, actor: str, clock: Callable[[], float]
) -> None:
    if not done.cleaned:
        return
    try:
        AuditLog(layout.audit_file, clock).record(
            actor=actor,
            action=action,
            files_removed=done.cleaned,
            bytes=done.bytes,
            errors=done.errors,
        )
    except BsdError as error:  # what is deleted is deleted
        _log.error("The audit log cannot be written", error=error.message, action=action)


def run_history_retention(
    layout: Layout,
    keep: str,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    wait: float = _WAIT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Forget operations that are older than `keep`: they can no longer be undone.

    And drafts of edits, which hold the same texts.
    """
    forget_drafts(layout, lifetime_seconds(keep), clock())
    done = clean(HistoryShelf(layout, keep, wait=wait), clock(), stopping)
    _audit(layout, done, "history_retention", actor, clock)
    return done


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


class StoreShelf:
    """The extracted files, one lot for each session's directory."""

    name = "extracted"
    _pattern = _STORED

    def __init__(self, layout: Layout, keep: str, *, wait: float = _WAIT_SECONDS) -> None:
        self.keep = keep
        self._layout = layout
        self._wait = wait
        self.deleted: dict[str, list[str]] = {}  # refs by directory: whose text goes, too

    @property
    def _directory(self) -> Path:
        return self._layout.extracted

    def lots(self) -> Iterator[Lot]:
        extracted = self._directory
        real = os.path.realpath(extracted)
        if not Path(real).is_relative_to(os.path.realpath(self._layout.root)):
            raise Forbidden(f"{extracted} leads out of {self._layout.root}, to {real}")
        try:
            with os.scandir(extracted) as entries:
                names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_problem(error, f"reading {extracted}") from error
        for name in names:
            lot = _StoreLot(self._layout, extracted / name, self._wait, self._pattern)
            self.deleted[name] = lot.deleted
            yield lot


class HistoryShelf(StoreShelf):
    """What undo needs, one lot for each session's directory; it is kept as long as the trash."""

    name = "history"
    _pattern = _OPERATION

    @property
    def _directory(self) -> Path:
        return self._layout.history


class _StoreLot:
    def __init__(self, layout: Layout, path: Path, wait: float, pattern: re.Pattern[str]) -> None:
        self.path = path
        self._pattern = pattern
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
        return self._names <= {_INDEX} or any(map(_LEFTOVER.fullmatch, self._names))

    def tidy(self) -> None:
        with self._lock(0.0):
            self._tidy_up()

    def delete(self, expired: Expired) -> Cleaned:
        done = Cleaned()
        with self._lock(self._wait):
            # Looked at anew: an extraction may have used a file again, and renewed its time.
            for thing in filter(expired, self.things()):
                unlinked = _unlink(thing)
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
        file = self._layout.locks / f"{self.path.name}.lock"
        return OwnLock(
            file, wait, mode=0o600, fallback_to_soft=False, name=_apparent_name(self.path)
        )

    def _tidy_up(self) -> None:
        there = set(os.listdir(self.path))
        for name in filter(_LEFTOVER.fullmatch, list(there)):
            (self.path / name).unlink()  # who wrote it held the lock that we have now
            there.discard(name)
        if there <= {_INDEX}:
            with suppress(FileNotFoundError):
                (self.path / _INDEX).unlink()
            self.path.rmdir()
            return
        if _INDEX in there:
            self._update_index(there)

    def _update_index(self, there: set[str]) -> None:
        path = self.path / _INDEX
        index = Index(path, _indexed_name(path) or _apparent_name(self.path))
        left = [record for record in index.records.values() if record.file in there]
        if index.broken or len(left) == len(index.records):
            return
        try:
            index.replace(left)
        except BsdError as problem:  # a cache; verify --repair makes it anew
            _log.warning("[RETENTION] Index not updated", path=str(path), problem=problem.message)


def _unlink(thing: Thing) -> Cleaned:
    try:
        thing.path.unlink()
    except FileNotFoundError:
        return Cleaned()
    except OSError as error:
        problem = os_problem(error, f"deleting {thing.path}").message
        _log.warning("[RETENTION] Not deleted", where=str(thing.path), problem=problem)
        return Cleaned(errors=1)
    return Cleaned(1, thing.size)


def _indexed_name(index: Path) -> SessionName | None:
    """Return the session that a store says it belongs to."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, BsdError):
        return SessionName.parse(orjson.loads(read_plain(index))["session"])
    return None


def _apparent_name(directory: Path) -> SessionName:
    """Return the session that a store directory's name stands for, or what comes near it."""
    agent, _, session = directory.name.partition("_")
    try:
        return SessionName(agent.replace("~", "_"), session)
    except BsdError:  # a long name was cut and has a hash, or somebody else made the directory
        return SessionName("store", re.sub(r"[^A-Za-z0-9._@:+-]", "-", directory.name))
