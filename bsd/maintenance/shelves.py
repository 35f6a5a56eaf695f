"""Where things are kept for a time, and how they go: store, history and archive of each session.

The things that one session put there are one lot, which goes under that session's own lock. What
leaves a store is deleted, or packed into the archive first, durably.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import structlog

from bsd.core.config import OFF
from bsd.core.errors import BsdError, NotFound, os_problem
from bsd.core.files import LARGEST_LINE, is_there, read_plain
from bsd.core.formatting import NEVER, iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import OwnLock
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.expiry import (
    Cleaned,
    Expired,
    Lot,
    Thing,
    unlink,
)
from bsd.maintenance.forget import Forget
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.sessions.idle import RetryBudget
from bsd.store.archive import PackedFiles, SessionArchive, ToPack, may_be_double
from bsd.store.entry_notes import DAMAGED, RESTORED, UNDONE
from bsd.store.extracted import APART, FORGOTTEN
from bsd.store.index import INDEX_FILE, Index, Record, session_named_in
from bsd.store.pack import UNFINISHED, Pack, PackDamaged
from bsd.store.snapshots import Snapshot, archive_directories, read_snapshot
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="retention")

_STORED = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.json")
_LEFTOVER = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.tmp")  # of an extraction that was cut short
_OPERATION = re.compile(r"\d{6,}_[a-z_]+\.(?:jsonl|pending)")
# What lasts as long as the session: of one that is gone it is kept as long as its history.
_LASTING = re.compile(
    "|".join(map(re.escape, (UNDONE, RESTORED, FORGOTTEN))) + rf"|\w+{re.escape(DAMAGED)}"
)
# An extraction holds a session's lock for a moment; what is still locked then goes next time.
WAIT_SECONDS = 5.0
_AT_ONCE_NS = 20_000_000  # writing an index changes its directory, too, a tick of the clock later


class _StoreLot(Lot):
    """What was taken out of one session."""

    _pattern = _STORED

    def __init__(self, layout: Layout, path: Path, wait: float) -> None:
        self.path = path
        self._layout = layout
        self._wait = wait
        self._names: set[str] = set()  # of all that lay there at the last look
        self._index_is_old = False
        self.deleted: list[str] = []  # names without their ending

    def things(self) -> list[Thing]:
        found = []
        self._names.clear()
        self._index_is_old = False
        with os.scandir(self.path) as entries:
            for entry in entries:
                self._names.add(entry.name)
                if entry.name == INDEX_FILE:
                    self._index_is_old = self._has_changed_since(entry)
                if not self._pattern.fullmatch(entry.name):
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        thing = Thing(self.path / entry.name, status.st_size, status.st_mtime)
                        found.append(thing)
        return found

    def _has_changed_since(self, index: os.DirEntry[str]) -> bool:
        """Whether names came or went after the index was written: whoever did that was killed."""
        with suppress(FileNotFoundError):
            written = index.stat(follow_symlinks=False).st_ctime_ns
            return self.path.stat().st_mtime_ns > written + _AT_ONCE_NS
        return False

    def is_untidy(self) -> bool:
        if self._index_is_old or self._names <= {INDEX_FILE}:
            return True
        return any(map(_LEFTOVER.fullmatch, self._names))

    def tidy(self) -> None:
        with self._lock(0.0):
            self._tidy_up()

    def delete(self, expired: Expired) -> Cleaned:
        done = Cleaned()
        with self._lock(self._wait):
            # Looked at anew: an extraction may have used a file again, and renewed its time.
            going = sorted(filter(expired, self.things()), key=_by_line)
            left = len(going)
            try:
                for thing in self._let_go(going):
                    left -= 1
                    unlinked = unlink(thing)
                    if not unlinked.errors:
                        self.deleted.append(thing.path.stem)
                    done += unlinked
                done += Cleaned(errors=left)
            except (BsdError, OSError, PackDamaged) as error:  # what went before counts
                _tell_stays(self.path, error)
                done += Cleaned(errors=1)
            try:
                self._tidy_up()
            except OSError as error:  # what is deleted counts all the same
                problem = os_problem(error, f"tidying up {self.path}").message
                _log.warning("[RETENTION] Not tidied up", where=str(self.path), problem=problem)
                done += Cleaned(errors=1)
        return done

    def _let_go(self, going: list[Thing]) -> Iterator[Thing]:
        """What may be deleted now; here all of it."""
        yield from going

    def _lock(self, wait: float) -> OwnLock:
        return own_lock_of(self._layout, self.path, wait)

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
        if index.broken:
            return
        if len(left) == len(index.records):
            with suppress(OSError):
                os.utime(path, follow_symlinks=False)  # as new as the directory, so not read again
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


class _PackedLot(_StoreLot):
    """The same; but what goes is in the archive first."""

    def __init__(self, layout: Layout, path: Path, wait: float, packing: Packing) -> None:
        super().__init__(layout, path, wait)
        self._packing = packing

    def _let_go(self, going: list[Thing]) -> Iterator[Thing]:
        layout = self._layout
        archive = SessionArchive(layout.refuse_outside(layout.archive / self.path.name))
        archive.sweep()
        known = Index(self.path / INDEX_FILE, _apparent_name(self.path)).records
        name = session_named_in(self.path / INDEX_FILE) or _apparent_name(self.path)
        said = {"session": str(name)}
        files = (
            ToPack(one.path, {**_said(one, known.get(one.path.name)), **said}) for one in going
        )
        things = {one.path: one for one in going}
        for taken in archive.take(files, self._packing.now):
            self._packing.done.append(taken)
            yield from (things[file] for file in taken.files)
        try:
            archive.merge(self._packing.span)
        except (OSError, PackDamaged) as error:
            _log.warning("Packs are not merged", where=str(archive.directory), problem=str(error))


def _said(thing: Thing, record: Record | None) -> dict[str, object]:
    """What a pack says of a line that lay in this file."""
    if record is not None:
        said: dict[str, object] = orjson.loads(orjson.dumps(record))
        del said["hash"]  # the pack has it
        return said
    line = None
    with suppress(OSError):  # who packs it will say so
        line = parse_kept(read_plain(thing.path, LARGEST_LINE))
    file = thing.path.name
    return {
        "entry_id": entry_id(line or {}) or "",
        "index": int(file.partition("_")[0]),
        "file": file,
        "size": thing.size,
        "keys": [],
        "sizes_bytes": {},
        "extracted_at": iso_utc(thing.mtime),
    }


def _by_line(thing: Thing) -> tuple[int, str]:
    """In the order of the session's lines."""
    number = thing.path.name.partition("_")[0]
    return int(number) if number.isdecimal() else 0, thing.path.name


def _tell_stays(where: Path, error: Exception) -> None:
    problem = os_problem(error, f"in {where}") if isinstance(error, OSError) else error
    hint = "`bsd retention --forget` deletes what is due, which needs no room"
    _log.warning("[RETENTION] Not moved", where=str(where), problem=str(problem), hint=hint)


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
        kept = (self._layout.extracted, self._layout.archive)
        if any(is_there(top / self.path.name) for top in kept):
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


def own_lock_of(layout: Layout, directory: Path, wait: float) -> OwnLock:
    """bsd's own lock of the session whose directory this is, named like it."""
    file = layout.lock_file_of(directory.name)
    name = _apparent_name(directory)
    return OwnLock(file, wait, name=name)


def _apparent_name(directory: Path) -> SessionName:
    """Return the session that a store directory's name stands for, or what comes near it."""
    agent, _, session = directory.name.partition("_")
    try:
        return SessionName(agent.replace("~", "_"), session)
    except BsdError:  # a long name was cut and has a hash, or somebody else made the directory
        return SessionName("store", re.sub(r"[^A-Za-z0-9._@:+-]", "-", directory.name))


@dataclass(slots=True)
class Packing:
    """That what leaves the store goes to the archive: since when, and what has gone so far."""

    now: float  # epoch seconds
    span: float | None  # by how many seconds the times of packs that become one may differ
    done: list[PackedFiles] = field(default_factory=list)


class StoreShelf:
    """The extracted files, one lot for each session's directory; `packing`: they are not lost."""

    name = "extracted"
    _lot: type[_StoreLot] = _StoreLot

    def __init__(
        self,
        layout: Layout,
        keep: str,
        *,
        wait: float = WAIT_SECONDS,
        packing: Packing | None = None,
    ) -> None:
        self.keep = keep
        self._layout = layout
        self._wait = wait
        self._packing = packing
        self.deleted: dict[str, list[str]] = {}  # refs by directory: whose text goes, too

    @property
    def _directory(self) -> Path:
        return self._layout.extracted

    def lots(self) -> Iterator[Lot]:
        for directory in _directories(self._layout, self._directory / APART):
            yield _ApartLot(self._layout, directory, 0.0)
        for directory in _directories(self._layout, self._directory):
            if directory.name == APART:
                continue
            if self._packing is not None:
                yield _PackedLot(self._layout, directory, self._wait, self._packing)
                continue
            lot = self._lot(self._layout, directory, self._wait)
            self.deleted[directory.name] = lot.deleted
            yield lot


def _directories(layout: Layout, top: Path) -> Iterator[Path]:
    directory = layout.refuse_outside(top)
    try:
        with os.scandir(directory) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    yield from (directory / name for name in names)


class HistoryShelf(StoreShelf):
    """What undo needs, one lot for each session's directory; it is kept as long as the trash."""

    name = "history"
    _lot = _HistoryLot

    @property
    def _directory(self) -> Path:
        return self._layout.history


# --- the archive ---


class ArchiveShelf:
    """The packs, one lot for each session; a pack's age counts from when its last line came."""

    name = "archived"

    def __init__(self, layout: Layout, keep: str, *, wait: float = WAIT_SECONDS) -> None:
        self.keep = keep
        self._layout = layout
        self._wait = wait
        self.deleted: dict[str, list[str]] = {}  # refs by directory: whose text goes, too
        self.newest = 0.0  # when the last line of all that was deleted had come; epoch seconds

    def lots(self) -> Iterator[Lot]:
        for directory in archive_directories(self._layout):
            yield _ArchiveLot(self._layout, directory, self._wait, self)


class _ArchiveLot(Lot):
    def __init__(self, layout: Layout, path: Path, wait: float, shelf: ArchiveShelf) -> None:
        self.path = path
        self._layout = layout
        self._wait = wait
        self._shelf = shelf
        self._archive = SessionArchive(path)
        self._names: set[str] = set()

    def things(self) -> list[Thing]:
        found = []
        self._names = set(os.listdir(self.path))
        for path in [*self._archive.packs(), *self._archive.set_aside()]:
            with suppress(FileNotFoundError):
                status = path.lstat()
                newest = status.st_mtime  # what is damaged does not say more
                with suppress(PackDamaged, OSError), Pack(path) as pack:
                    newest = pack.summary.newest
                found.append(Thing(path, status.st_size, newest))
        return found

    def delete(self, expired: Expired) -> Cleaned:
        done = Cleaned()
        with own_lock_of(self._layout, self.path, self._wait):
            before = self._archive.names()
            for thing in filter(expired, self.things()):
                self._archive.remove(thing.path)
                self._shelf.newest = max(self._shelf.newest, thing.mtime)
                done += Cleaned(1, thing.size)
            stored = self._layout.extracted / self.path.name
            left = {*self._archive.names(), *_stems(stored)}
            self._shelf.deleted[self.path.name] = sorted(before - left)
        return done

    def is_untidy(self) -> bool:
        unfinished = any(name.endswith(UNFINISHED) for name in self._names)
        return not self._names or unfinished or may_be_double(self._names)

    def tidy(self) -> None:
        with own_lock_of(self._layout, self.path, 0.0):
            self._archive.sweep()
            with suppress(OSError):
                self.path.rmdir()


def _stems(store: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (name.removesuffix(".json") for name in os.listdir(store))


@dataclass(frozen=True, slots=True)
class ArchiveUse:
    """What the archive holds, and what it saves. Sizes are bytes, times epoch seconds."""

    packs: int = 0
    lines: int = 0
    content: int = 0  # of the lines, as they were
    kept: int = 0  # of the packs
    oldest: float | None = None  # when the first line came
    newest: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many bytes of content one byte of the archive keeps."""
        return self.content / self.kept if self.kept else None

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        for name in ("oldest", "newest"):
            told[name] = None if told[name] is None else iso_utc(told[name])
        return {**told, "ratio": None if self.ratio is None else round(self.ratio, 2)}


# Bytes in the store to bytes in the archive, as long as that holds nothing: as it was measured with
# the shortest of recorded sessions.
USUAL_RATIO = 4.0


def archive_use(layout: Layout) -> ArchiveUse:
    """Add up what the packs say of themselves; damaged ones are left out. Raises BsdError."""
    found = [
        summary
        for directory in archive_directories(layout)
        for _, summary in SessionArchive(directory).summaries()
    ]
    if not found:
        return ArchiveUse()
    return ArchiveUse(
        packs=len(found),
        lines=sum(one.lines for one in found),
        content=sum(one.content for one in found),
        kept=sum(one.packed for one in found),
        oldest=min(one.oldest for one in found),
        newest=max(one.newest for one in found),
    )


# --- the trash ---


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


class _TrashLot(Lot):
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


def _sizes(place: TrashPlace) -> Iterator[int]:
    """Yield the sizes of all files of one session in the trash."""
    for part in place.parts:
        if part.is_dir():
            for directory, _, names in os.walk(part):
                yield from (Path(directory, name).lstat().st_size for name in names)
        elif os.path.lexists(part):
            yield part.lstat().st_size


# --- sessions that their program has deleted ---


class GoneShelf:
    """Deleted sessions, each a lot; age counts from when that was noticed."""

    name = "copied"

    def __init__(
        self, layout: Layout, keep: str, *, actor: str = "cli", budget: RetryBudget | None = None
    ) -> None:
        self.keep = NEVER if keep == OFF else keep  # then only `forget` takes what there is
        self._layout = layout
        self._forget = Forget(layout, actor=actor, budget=budget)

    def lots(self) -> Iterator[Lot]:
        for snapshot in deleted_sessions(self._layout):
            if snapshot.gone_at is not None:
                yield _GoneLot(snapshot, self._forget)


class _GoneLot(Lot):
    def __init__(self, snapshot: Snapshot, forget: Forget) -> None:
        self.path = snapshot.directory
        self._snapshot = snapshot
        self._forget = forget

    def things(self) -> list[Thing]:
        snapshot = read_snapshot(self.path)
        if snapshot is None or snapshot.gone_at is None:
            return []
        return [Thing(self.path, snapshot.packed, snapshot.gone_at)]

    def delete(self, expired: Expired) -> Cleaned:
        gone = list(filter(expired, self.things()))
        if gone:
            self._forget.session(self._snapshot.name, self._snapshot)
        return Cleaned(len(gone), sum(thing.size for thing in gone))
