"""The retention targets: extracted originals, history, archive packs, trash, deleted sessions.

Extracted originals are either deleted, or first packed durably into the archive. The data of
excluded sessions stays at any age. `archive_limit.py` limits the archive's size.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import orjson
import structlog

from bsd.core.config import OFF
from bsd.core.errors import BsdError, NotFound, os_problem
from bsd.core.files import LARGEST_LINE, is_there, read_plain
from bsd.core.formatting import NEVER, iso_utc, lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import OwnLock
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.expiry import (
    Cleaned,
    ExpirableFile,
    Expired,
    RetentionTarget,
    SessionFiles,
)
from bsd.maintenance.forget import Forget
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import TrashPlace, ids
from bsd.store.archive import PackedFiles, SessionArchive, may_be_double
from bsd.store.entry_notes import DAMAGED, FORGOTTEN, RESTORED, UNDONE
from bsd.store.index import INDEX_FILE, Index, Record, session_named_in
from bsd.store.originals import APART
from bsd.store.pack import UNFINISHED, Pack, PackDamaged
from bsd.store.snapshots import (
    Snapshot,
    archive_directories,
    read_snapshot,
    sessions_needed_by_copies,
)
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.agents.opening import require_transcript
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="retention")

_STORED = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.json")
_LEFTOVER = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?\.tmp")  # of a killed extraction
_OPERATION = re.compile(r"\d{6,}_[a-z_]+\.(?:jsonl|pending)")
# Notes that are kept as long as the session exists, and then as long as its history.
_LASTING = re.compile(
    "|".join(map(re.escape, (UNDONE, RESTORED, FORGOTTEN))) + rf"|\w+{re.escape(DAMAGED)}"
)
# An extraction holds a session's lock only for a moment. A session that is locked for longer is
# left to the next run.
WAIT_SECONDS = 5.0
_SPAN = 8  # packs are merged if their ages differ by at most 1/8 of their lifetime


class _IndexedFiles(RetentionTarget):
    """Files in one directory per session, with an index beside them.

    Attributes:
        deleted: refs of lines that were deleted without being packed, by name of the directory.
    """

    pattern: re.Pattern[str]

    def __init__(self, layout: Layout, top: Path, keep: str, wait: float) -> None:
        self.keep = keep
        self.layout = layout
        self.deleted: dict[str, list[str]] = {}
        self._top = top
        self._wait = wait

    def places(self) -> Iterator[Path]:
        yield from not_excluded(self.layout, _directories(self.layout, self._top))

    def look(self, place: Path) -> SessionFiles:
        found, names = [], set()
        with os.scandir(place) as entries:
            for entry in entries:
                names.add(entry.name)
                if self.pattern.fullmatch(entry.name):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            path = place / entry.name
                            found.append(ExpirableFile(path, status.st_size, status.st_mtime))
        is_untidy = names <= {INDEX_FILE} or any(map(_LEFTOVER.fullmatch, names))
        return SessionFiles(found, is_untidy)

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        done = Cleaned()
        deleted = self.deleted.setdefault(place.name, [])
        with lock_of(self.layout, place, self._wait):
            # Read again under the lock: an extraction may have reused a file and renewed its time.
            going = sorted(filter(expired, self.look(place).files), key=_by_line)
            left = len(going)
            try:
                for file in self._let_go(place, going):
                    left -= 1
                    unlinked = _unlink(file)
                    if not unlinked.errors and self.destroys:
                        deleted.append(file.path.stem)
                    done += unlinked
                done += Cleaned(errors=left)
            except (BsdError, OSError, PackDamaged) as error:  # the files before the error count
                _log_not_moved(place, error)
                done += Cleaned(errors=1)
            try:
                self._tidy(place)
            except OSError as error:  # the deleted files still count
                problem = os_problem(error, f"tidying up {place}").message
                _log.warning("[RETENTION] Not tidied up", where=str(place), problem=problem)
                done += Cleaned(errors=1)
        return done

    def _let_go(
        self,
        place: Path,  # noqa: ARG002 - used by subclasses that pack first
        going: list[ExpirableFile],
    ) -> Iterable[ExpirableFile]:
        """Return the files that may be deleted now."""
        return going

    def tidy(self, place: Path) -> None:
        with lock_of(self.layout, place, 0.0):
            self._tidy(place)

    def _tidy(self, place: Path) -> None:
        """Remove leftovers and an empty directory, and bring the index up to date."""
        there = set(os.listdir(place))
        for name in filter(_LEFTOVER.fullmatch, list(there)):
            (place / name).unlink()  # its writer is dead: we hold the lock that it held
            there.discard(name)
        path = place / INDEX_FILE
        if there <= {INDEX_FILE}:
            path.unlink(missing_ok=True)
            place.rmdir()
            return
        if INDEX_FILE not in there:
            return
        index = Index(path, session_named_in(path) or _apparent_name(place))
        left = [record for record in index.records.values() if record.file in there]
        if index.broken or len(left) == len(index.records):
            return
        try:
            index.replace(left)
        except BsdError as problem:  # the index is a cache; `verify --repair` makes it anew
            _log.warning("[RETENTION] Index not updated", path=str(path), problem=problem.message)


class ExtractedFiles(_IndexedFiles):
    """Originals in the store, which are deleted or packed into the archive.

    Args:
        packed_at: the time of new packs, epoch seconds; None: the files are deleted for good.
        archive_keep: the setting `archive_retention`, which decides which packs are merged.

    Attributes:
        packed: the files packed so far.
    """

    name = "extracted"
    pattern = _STORED

    def __init__(
        self,
        layout: Layout,
        keep: str,
        *,
        wait: float = WAIT_SECONDS,
        packed_at: float | None = None,
        archive_keep: str = NEVER,
    ) -> None:
        super().__init__(layout, layout.extracted, keep, wait)
        self.destroys = packed_at is None
        self.packed: list[PackedFiles] = []
        self._packed_at = packed_at
        lifetime = lifetime_seconds(archive_keep)
        self._span = None if lifetime is None else lifetime / _SPAN

    def places(self) -> Iterator[Path]:
        yield from _directories(self.layout, self.layout.extracted / APART)
        for place in super().places():
            if place.name != APART:
                yield place

    def look(self, place: Path) -> SessionFiles:
        # A store that a killed extraction left unfinished, to which no session refers.
        return SessionFiles([], is_untidy=True) if _is_apart(place) else super().look(place)

    def _tidy(self, place: Path) -> None:
        if _is_apart(place):
            shutil.rmtree(place)
        else:
            super()._tidy(place)

    def _let_go(self, place: Path, going: list[ExpirableFile]) -> Iterable[ExpirableFile]:
        return going if self._packed_at is None else self._pack(place, going, self._packed_at)

    def pack_early(self, place: Path) -> None:
        """Pack all files of a store, and leave them in it; raises Busy, OSError, PackDamaged."""
        with lock_of(self.layout, place, self._wait):
            files = sorted(self.look(place).files, key=_by_line)
            for _ in self._pack(place, files, self._packed_at or 0.0):
                pass

    def _pack(self, place: Path, going: list[ExpirableFile], now: float) -> Iterator[ExpirableFile]:
        """Pack files into the archive; yield each file once its line is durable there."""
        archive = SessionArchive(self.layout.refuse_outside(self.layout.archive / place.name))
        archive.sweep()
        index = place / INDEX_FILE
        known = Index(index, _apparent_name(place)).records
        session = {"session": str(session_named_in(index) or _apparent_name(place))}
        to_pack = (
            (file.path, {**_pack_record(file, known.get(file.path.name)), **session})
            for file in going
        )
        by_path = {file.path: file for file in going}
        for packed in archive.take(to_pack, now):
            self.packed.append(packed)
            yield from (by_path[path] for path in packed.files)
        try:
            archive.merge(self._span)
        except (OSError, PackDamaged) as error:
            _log.warning("Packs are not merged", where=str(archive.directory), problem=str(error))


def _is_apart(place: Path) -> bool:
    return place.parent.name == APART


def _pack_record(file: ExpirableFile, record: Record | None) -> dict[str, object]:
    """Return the pack's record of the line in this file."""
    if record is not None:
        said: dict[str, object] = orjson.loads(orjson.dumps(record))
        del said["hash"]  # the pack stores the hash itself
        return said
    line = None
    with suppress(OSError):  # packing the file will report the problem
        line = parse_kept(read_plain(file.path, LARGEST_LINE))
    name = file.path.name
    return {
        "entry_id": entry_id(line or {}) or "",
        "index": int(name.partition("_")[0]),
        "file": name,
        "size": file.size,
        "keys": [],
        "sizes_bytes": {},
        "extracted_at": iso_utc(file.mtime),
    }


def _by_line(file: ExpirableFile) -> tuple[int, str]:
    """Return a sort key for the order of the session's lines."""
    number = file.path.name.partition("_")[0]
    return int(number) if number.isdecimal() else 0, file.path.name


def _unlink(file: ExpirableFile) -> Cleaned:
    try:
        file.path.unlink()
    except FileNotFoundError:
        return Cleaned()
    except OSError as error:
        problem = os_problem(error, f"deleting {file.path}").message
        _log.warning("[RETENTION] Not deleted", where=str(file.path), problem=problem)
        return Cleaned(errors=1)
    return Cleaned(1, file.size)


def _log_not_moved(place: Path, error: Exception) -> None:
    problem = os_problem(error, f"in {place}") if isinstance(error, OSError) else error
    hint = "`bsd retention --forget` deletes files that are due, which needs no disk space"
    _log.warning("[RETENTION] Not moved", where=str(place), problem=str(problem), hint=hint)


class HistoryFiles(_IndexedFiles):
    """The data that undo needs, and the notes of a session once session and originals are gone."""

    name = "history"
    pattern = _OPERATION

    def __init__(self, layout: Layout, keep: str, *, wait: float = WAIT_SECONDS) -> None:
        super().__init__(layout, layout.history, keep, wait)

    def look(self, place: Path) -> SessionFiles:
        found = super().look(place)
        lasting = sorted(filter(_LASTING.fullmatch, os.listdir(place)))
        if lasting and self._is_gone(place, lasting):
            for name in lasting:
                with suppress(FileNotFoundError):
                    status = (place / name).lstat()
                    file = ExpirableFile(place / name, status.st_size, status.st_mtime)
                    found.files.append(file)
        return found

    def _is_gone(self, place: Path, lasting: list[str]) -> bool:
        """Return True if neither the session nor values extracted from it exist."""
        layout = self.layout
        if any(is_there(top / place.name) for top in (layout.extracted, layout.archive)):
            return False
        names = (session_named_in(place / name) for name in lasting)
        name = next(filter(None, names), None) or _apparent_name(place)
        try:
            require_transcript(layout, name)
        except NotFound:
            return True
        except BsdError:  # unknown, so the notes stay
            return False
        return False


def lock_of(layout: Layout, place: Path, wait: float) -> OwnLock:
    """Return bsd's lock of the session to which a store directory belongs.

    `wait`: seconds to wait for the lock.
    """
    return OwnLock(layout.lock_file_of(place.name), wait, name=_apparent_name(place))


def _apparent_name(place: Path) -> SessionName:
    """Return the session that a store directory's name means, or a similar name."""
    agent, _, session = place.name.partition("_")
    try:
        return SessionName(agent.replace("~", "_"), session)
    except BsdError:  # the name was shortened and has a hash, or the directory is not bsd's
        return SessionName("store", re.sub(r"[^A-Za-z0-9._@:+-]", "-", place.name))


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


def not_excluded(layout: Layout, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the places without those of excluded sessions."""
    exclusions = layout.exclusions()
    for place in places:
        if exclusions:
            name = layout.session_of_store(place.name)
            if name is None:  # it was shortened: only the agent decides
                agent = place.name.partition("_")[0].replace("~", "_")
                excluded = exclusions.agent(agent)
            else:
                excluded = exclusions.session(name.agent, name.session)
            if excluded:
                continue
        yield place


class ArchivePacks(RetentionTarget):
    """Packs in one directory per session; the age of a pack counts from its last added line.

    Attributes:
        deleted: refs of lines that no longer exist in packs or store, by name of the directory.
        newest: the time of the last line of all deleted packs, epoch seconds.
    """

    name = "archived"

    def __init__(self, layout: Layout, keep: str, *, wait: float = WAIT_SECONDS) -> None:
        self.keep = keep
        self.layout = layout
        self.deleted: dict[str, list[str]] = {}
        self.newest = 0.0
        self._wait = wait

    def places(self) -> Iterator[Path]:
        yield from not_excluded(self.layout, archive_directories(self.layout))

    def look(self, place: Path) -> SessionFiles:
        names = os.listdir(place)
        archive = SessionArchive(place)
        found = []
        for path in [*archive.packs(), *archive.set_aside()]:
            with suppress(FileNotFoundError):
                status = path.lstat()
                newest = status.st_mtime  # for a damaged pack, whose own time cannot be read
                with suppress(PackDamaged, OSError), Pack(path) as pack:
                    newest = pack.summary.newest
                found.append(ExpirableFile(path, status.st_size, newest))
        unfinished = any(name.endswith(UNFINISHED) for name in names)
        return SessionFiles(found, not names or unfinished or may_be_double(names))

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        done = Cleaned()
        with lock_of(self.layout, place, self._wait):
            archive = SessionArchive(place)
            before = archive.names()
            for file in filter(expired, self.look(place).files):
                archive.remove(file.path)
                self.newest = max(self.newest, file.mtime)
                done += Cleaned(1, file.size)
            left = set(archive.names())
            with suppress(FileNotFoundError, NotADirectoryError):
                stored = os.listdir(self.layout.extracted / place.name)
                left.update(name.removesuffix(".json") for name in stored)
            self.deleted.setdefault(place.name, []).extend(sorted(before - left))
        return done

    def tidy(self, place: Path) -> None:
        with lock_of(self.layout, place, 0.0):
            SessionArchive(place).sweep()
            with suppress(OSError):
                place.rmdir()


class TrashedSessions(RetentionTarget):
    """The trash; the age of a session counts from its deletion."""

    name = "trash"

    def __init__(self, layout: Layout, keep: str, trash: Trash | None = None) -> None:
        self.keep = keep
        self.layout = layout
        self._trash = trash or Trash(layout, keep)

    def places(self) -> Iterator[Path]:
        directory = self.layout.trash_dir()
        yield from (TrashPlace(directory, each).meta for each in ids(self.layout))

    def look(self, place: Path) -> SessionFiles:
        trashed, sizes = self._sizes(place)
        return SessionFiles([ExpirableFile(place, sum(sizes), trashed.trashed_at)] if sizes else [])

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        trashed, sizes = self._sizes(place)
        if any(map(expired, self.look(place).files)):
            with suppress(NotFound):  # restored meanwhile
                self._trash.remove(trashed.id)
                return Cleaned(len(sizes), sum(sizes))
        return Cleaned()

    def _sizes(self, meta: Path) -> tuple[TrashPlace, list[int]]:
        """Return the place of a trashed session, and the sizes of all its files."""
        place = TrashPlace.of(meta)
        sizes = []
        for part in place.parts:
            if part.is_dir():
                for directory, _, names in os.walk(part):
                    sizes += [Path(directory, name).lstat().st_size for name in names]
            elif os.path.lexists(part):
                sizes.append(part.lstat().st_size)
        return place, sizes


class GoneSessions(RetentionTarget):
    """Copies of deleted sessions; the age counts from when bsd noticed the deletion."""

    name = "copied"

    def __init__(self, layout: Layout, keep: str, forgetting: Forget | None = None) -> None:
        self.keep = NEVER if keep == OFF else keep  # if it is off, only `forget` deletes copies
        self.layout = layout
        self._forgetting = forgetting or Forget(layout)

    @cached_property
    def _needed(self) -> Collection[str]:
        """The sessions in whose files sessions with copies begin. Their copies stay as long."""
        return sessions_needed_by_copies(self.layout)

    def places(self) -> Iterator[Path]:
        exclusions = self.layout.exclusions()
        for copy in deleted_sessions(self.layout):
            name = copy.name
            if copy.gone_at is not None and not exclusions.session(name.agent, name.session):
                yield copy.directory

    def look(self, place: Path) -> SessionFiles:
        copy = read_snapshot(place)
        is_needed = copy is not None and str(copy.name) in self._needed
        return SessionFiles([] if copy is None or is_needed else _gone_files(copy))

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        copy = read_snapshot(place)
        if copy is not None and str(copy.name) in self._needed:
            return Cleaned()
        gone = [] if copy is None else list(filter(expired, _gone_files(copy)))
        if copy is not None and gone:
            self._forgetting.session(copy.name, copy)
        return Cleaned(len(gone), sum(file.size for file in gone))


def _gone_files(copy: Snapshot) -> list[ExpirableFile]:
    if copy.gone_at is None:
        return []
    return [ExpirableFile(copy.directory, copy.packed, copy.gone_at)]
