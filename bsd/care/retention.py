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
from pathlib import Path

import orjson

from bsd.care.expiry import Cleaned, Expired, Lot, Thing, clean, unlink
from bsd.care.search import forget_stored
from bsd.foundation.ages import Ages, look, steady
from bsd.foundation.audit import AuditLog
from bsd.foundation.errors import BsdError, Forbidden, NotFound, os_problem
from bsd.foundation.files import LARGEST_LINE, read_plain
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.spelling import iso_utc, lifetime_seconds
from bsd.session.commit.lock import OwnLock
from bsd.store.entry_notes import DAMAGED, RESTORED, UNDONE, session_of
from bsd.store.index import Index

_log = get_logger("retention")

_INDEX = "index.json"
_STORED = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.json")
_LEFTOVER = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.tmp")  # of an extraction that was cut short
_OPERATION = re.compile(r"\d{6,}_[a-z_]+\.(?:jsonl|pending)")
# What lasts as long as the session: of one that is gone it is kept as long as its history.
_LASTING = re.compile("|".join(map(re.escape, (UNDONE, RESTORED))) + rf"|\w+{re.escape(DAMAGED)}")
# An extraction holds a session's lock for a moment; what is still locked then goes next time.
_WAIT_SECONDS = 5.0


def run_retention(
    layout: Layout,
    keep: str,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    wait: float = _WAIT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Clean the store of all sessions, those that no longer exist included, and audit it."""
    shelf, lifetime = StoreShelf(layout, keep, wait=wait), lifetime_seconds(keep)
    ages = look(layout, clock, steady)
    try:
        done = clean(shelf, ages, stopping)
    finally:
        if gone := {name: refs for name, refs in shelf.deleted.items() if refs}:
            forget_stored(layout, gone)
    before = {}
    if lifetime is not None:
        before["keep"] = keep
        before["expired_before"] = iso_utc(ages.now_for(lifetime) - lifetime)
    _audit(layout, done, "retention", actor, clock, **before)
    return done


def _audit(
    layout: Layout,
    done: Cleaned,
    action: str,
    actor: str,
    clock: Callable[[], float],
    **more: str,
) -> None:
    if not done.cleaned:
        return
    AuditLog(layout.audit_file, clock).record(
        actor=actor,
        action=action,
        files_removed=done.cleaned,
        bytes=done.bytes,
        errors=done.errors,
        **more,
    )


def run_history_retention(
    layout: Layout,
    keep: str,
    *,
    actor: str,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    wait: float = _WAIT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> Cleaned:
    """Forget operations that are older than `keep`: they can no longer be undone.

    And drafts of edits, which hold the same texts.
    """
    ages = look(layout, clock, steady)
    forget_drafts(layout, lifetime_seconds(keep), ages)
    done = clean(HistoryShelf(layout, keep, wait=wait), ages, stopping)
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
            lot = self._lot(extracted / name)
            self.deleted[name] = lot.deleted
            yield lot

    def _lot(self, path: Path) -> _StoreLot:
        return _StoreLot(self._layout, path, self._wait, self._pattern)


class HistoryShelf(StoreShelf):
    """What undo needs, one lot for each session's directory; it is kept as long as the trash."""

    name = "history"
    _pattern = _OPERATION

    @property
    def _directory(self) -> Path:
        return self._layout.history

    def _lot(self, path: Path) -> _StoreLot:
        return _HistoryLot(self._layout, path, self._wait, self._pattern)


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


class _HistoryLot(_StoreLot):
    """What undo needs of one session; and what lasts, once nothing is left that it is about."""

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
        told = (session_of(self.path / name) for name in lasting)
        name = next(filter(None, told), None) or _apparent_name(self.path)
        try:
            self._layout.session_file(name)
        except NotFound:
            return True
        except BsdError:  # it cannot be told
            return False
        return False


def _indexed_name(index: Path) -> SessionName | None:
    """Return the session that a store says it belongs to."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, BsdError):
        return SessionName.parse(orjson.loads(read_plain(index, LARGEST_LINE))["session"])
    return None


def _apparent_name(directory: Path) -> SessionName:
    """Return the session that a store directory's name stands for, or what comes near it."""
    agent, _, session = directory.name.partition("_")
    try:
        return SessionName(agent.replace("~", "_"), session)
    except BsdError:  # a long name was cut and has a hash, or somebody else made the directory
        return SessionName("store", re.sub(r"[^A-Za-z0-9._@:+-]", "-", directory.name))


_log = get_logger("retention")


def forget_drafts(layout: Layout, lifetime: float | None, ages: Ages) -> int:
    """Delete drafts that nobody has touched for `lifetime` seconds (None: keep all); how many."""
    gone = 0
    if lifetime is None or ages.held_for(lifetime):
        return 0
    try:
        edits = layout.refuse_outside(layout.edits)
    except BsdError as problem:
        _log.warning("[RETENTION] Not deleted", where=str(layout.edits), problem=problem.message)
        return 0
    for directory in _drafts(edits):
        try:
            touched = [
                entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(directory)
            ]
            newest = max(touched, default=directory.lstat().st_mtime)
            if ages.age(newest, lifetime) > lifetime:
                shutil.rmtree(directory)
                gone += 1
        except OSError as error:
            _log.warning("[RETENTION] Not deleted", where=str(directory), problem=str(error))
    return gone


def _drafts(edits: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(edits) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
