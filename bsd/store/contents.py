"""One index of all stores of a root and their archives (`contents.db`): where a line lies.

Programs copy lines, with placeholder and marker, into new sessions: forks, branches, resumed and
renamed ones. What such a line names lies in the store of another session, perhaps in the trash.
This finds it, by the hash of the line, or by the entry that it was. It is a cache, brought up to
date from the stores' `index.json`s when something is asked for; whoever reads a file that it names
compares the hash.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

import orjson
import structlog

from bsd.core.database_file import (
    being_opened,
    make_database_file,
    remove_database,
    signed,
    version_of,
)
from bsd.core.errors import BsdError, Unavailable, os_problem
from bsd.core.files import LARGEST_LINE, UNCERTAIN_NS, NotPlain, TooLarge, read_plain
from bsd.core.layout import Layout, inside
from bsd.store.archive import SessionArchive, packed_line, ref_of, salvaged_lines
from bsd.store.index import INDEX_FILE, Record, record_of
from bsd.store.pack import Pack, PackDamaged
from bsd.transcripts.agents.entry import entry_id, entry_key
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="contents")

_DATABASE_VERSION = 2
_WAIT_SECONDS = 5.0
_FINISHED = ".json"
_IN_TRASH, _ARCHIVE_IN_TRASH = "extracted", "archive"  # before the time at the end of a name
_DELETED_AT = re.compile(r"\d{8}T\d{6}\.\d{3}Z")  # at the end of such a name
_UNKNOWN = (0, 0, 0, 0)
# Looking whether the stores are as they were may take one part in so many of the time.
_SELDOM = 10
_MEND_PACK = "`bsd verify --repair` mends what can be mended, else bring it back from a backup"
_IN_MEMORY_SECONDS = 600.0  # where nothing can be written; then that is tried again

# `places` are directories of stores, of archives, and packs in these; `ref` is a name in one.
_CREATE = (
    """CREATE TABLE places (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE,
        ino INTEGER NOT NULL, mtime INTEGER NOT NULL,
        index_mtime INTEGER NOT NULL, index_size INTEGER NOT NULL)""",
    """CREATE TABLE held (
        hash BLOB NOT NULL, place INTEGER NOT NULL, ref TEXT NOT NULL,
        entry INTEGER NOT NULL, at TEXT NOT NULL,
        PRIMARY KEY (hash, place, ref)) WITHOUT ROWID""",
    "CREATE INDEX held_by_entry ON held (entry)",
    "CREATE INDEX held_by_place ON held (place)",
    f"PRAGMA user_version = {_DATABASE_VERSION}",
)
_DROP = ("DROP TABLE IF EXISTS places", "DROP TABLE IF EXISTS held")
_COLUMNS = "SELECT path, ref, hash, at, entry FROM held JOIN places ON id = place WHERE "
_NEWEST = " ORDER BY at DESC, path, ref"

_State = tuple[int, int, int, int]  # inode and mtime of a directory, mtime and size of its index
_Row = tuple[bytes, str, int, str]  # hash, ref, entry, at


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """A stored line: in a session's store or in its archive, in their place or in the trash."""

    directory: Path
    ref: str
    hash: str
    at: str  # when it was taken out, ISO 8601; empty: nobody knows
    entry: int  # `entry_key` of the entry that it was
    pack: str = ""  # name of the pack in which it lies; empty: it has a file of its own

    @property
    def file(self) -> Path:
        """In which file it lies."""
        return self.directory / (self.pack or f"{self.ref}{_FINISHED}")

    @property
    def store(self) -> str:
        """The store name of the session for which the line was stored."""
        name = self.directory.name
        for word in (_IN_TRASH, _ARCHIVE_IN_TRASH):
            before, found, time_ = name.rpartition(f"_{word}_")
            if found and _DELETED_AT.fullmatch(time_):
                return before
        return name

    @property
    def index(self) -> int | None:
        """The line number that the entry had there when it was stored; 0-based."""
        number = self.ref.partition("_")[0]
        return int(number) if number.isdecimal() else None

    def record(self) -> Record | None:
        """What the index said of a line that lies in a pack."""
        with suppress(PackDamaged, OSError, ValueError), Pack(self.file) as pack:
            if place := pack.find(bytes.fromhex(self.hash.removeprefix("sha256:"))):
                return record_of({**pack.record(place), "hash": self.hash})
        return None

    def readable_line(self) -> bytes | None:
        """Return the line; None if it is not there any more.

        Raises BsdError if something is there that cannot be read, or is not the line.
        """
        if self.pack:
            archive = SessionArchive(self.directory)
            if (line := archive.line(self.hash)) is None and archive.trouble:
                raise Unavailable(archive.trouble, hint=_MEND_PACK)
            return line
        try:
            line = read_plain(self.file, LARGEST_LINE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_problem(error, f"reading {self.file}") from error
        if f"sha256:{hashlib.sha256(line).hexdigest()}" != self.hash:
            problem = f"{self.file} is not what was stored (its hash differs)"
            raise Unavailable(problem, hint="bring it back from a backup, or delete it")
        return line

    def line(self) -> bytes | None:
        """What lies there, if it is what it shall be, and may be read."""
        if self.pack:  # or in another pack, if that one was merged since we looked
            archive = SessionArchive(self.directory)
            return packed_line(self.file, self.hash) or archive.line(self.hash)
        with suppress(OSError):
            line = read_plain(self.file, LARGEST_LINE)
            return line if f"sha256:{hashlib.sha256(line).hexdigest()}" == self.hash else None
        return None


class Contents:
    """The stores of one root. Calls from several threads are answered one after the other."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.own / "contents.db"
        self._lock = Lock()
        self._memory: sqlite3.Connection | None = None  # where nothing can be written
        self._in_memory_until = 0.0  # monotonic seconds
        self._again_at = 0.0  # monotonic seconds before which nobody looks at the stores again
        self._unread: dict[str, BsdError] = {}  # by path below the root: at the last look

    def __del__(self) -> None:
        if self._memory is not None:
            self._memory.close()

    def with_hash(self, hash: str) -> list[StoredPlace]:
        """Where a line of this hash lies, in any store; those in the trash last."""
        try:
            key = bytes.fromhex(hash.removeprefix("sha256:"))
        except ValueError:  # a marker that somebody wrote by hand
            return []
        found = self._places("hash = :value", key)
        return sorted(found, key=lambda place: place.directory.parent == self._layout.trash)

    def of_entry(self, entry: str) -> list[StoredPlace]:
        """All lines that are stored of an entry of this id, in any store; the newest first."""
        return self._places("entry = :value", entry_key(entry))

    def of_store(self, directory: Path) -> list[StoredPlace]:
        """All that one store, or one archive, holds."""
        path = f"{directory.parent.name}/{directory.name}"
        within = "path = :value OR (path > :value || '/' AND path < :value || '0')"
        return self._places(within, path)

    def unread_in(self, directory: Path) -> BsdError | None:
        """Return why something of a store, or an archive, could not be read at the last look.

        Then it may hold more than `of_store` says.
        """
        path = f"{directory.parent.name}/{directory.name}"
        return next(
            (
                error
                for where, error in self._unread.items()
                if where in (directory.parent.name, path) or where.startswith(f"{path}/")
            ),
            None,
        )

    def trouble(self) -> str | None:
        """Return what could not be read at the last look, if anything: a line may lie there."""
        return next((error.message for error in self._unread.values()), None)

    def changed(self) -> None:
        """Something was stored, or moved: the next question is answered by a new look."""
        self._again_at = 0.0

    def _places(self, condition: str, value: object) -> list[StoredPlace]:
        if not self._layout.own.is_dir():  # no bsd has worked here, and looking leaves no traces
            return []
        with self._lock:
            for instead in (self._give_up, self._hold_in_memory):
                try:
                    return self._ask(condition, value)
                except (sqlite3.Error, OSError) as error:  # in the end a full disk
                    instead(error)
            return self._ask(condition, value)

    def _ask(self, condition: str, value: object) -> list[StoredPlace]:
        with self._open() as database:
            self._bring_up_to_date(database)
            query = _COLUMNS + condition + _NEWEST
            rows = database.execute(query, {"value": value}).fetchall()
        root = self._layout.root
        return [
            StoredPlace(root / directory, ref, f"sha256:{hash_.hex()}", at, entry, pack)
            for path, ref, hash_, at, entry in rows
            for directory, pack in (_parts(path),)
        ]

    # --- what the stores hold ---

    def _bring_up_to_date(self, database: sqlite3.Connection) -> None:
        began = time.monotonic()
        if began < self._again_at:
            return
        self._unread.clear()
        known = {
            path: (number, tuple(state))
            for number, path, *state in database.execute("SELECT * FROM places")
        }
        with database:
            for path in self._stores():
                directory = f"{self._layout.root}/{path}"
                state = _state(directory)
                number, was = known.pop(path, (None, None))
                if state != was or state == _UNKNOWN:
                    self._read_store(database, path, number, state)
            self._follow_archives(database, known)
            for number, _ in known.values():
                _forget(database, number)
        ended = time.monotonic()
        self._again_at = ended + _SELDOM * (ended - began)

    def _follow_archives(
        self, database: sqlite3.Connection, known: dict[str, tuple[int, _State]]
    ) -> None:
        """Take in new packs, which never change; what is there is taken out of `known`."""
        packs: dict[str, list[str]] = {}
        for path in known:
            directory, pack = _parts(path)
            if pack:
                packs.setdefault(directory, []).append(path)
        for path in self._archives():
            state = _state(f"{self._layout.root}/{path}")
            number, was = known.pop(path, (None, None))
            there = packs.get(path, [])
            if state != was or state == _UNKNOWN:
                there, readable = self._packs_in(path)
                for each in there:
                    if each not in known:
                        readable &= self._take_in(database, each)
                if not readable:
                    state = _UNKNOWN  # it is looked at again, though nothing here may change
                if number is not None:
                    _forget(database, number)
                _insert(database, path, state, ())
            for each in there:
                known.pop(each, None)

    def _read_store(
        self, database: sqlite3.Connection, path: str, number: int | None, state: _State
    ) -> None:
        """Take in what one store holds now; if not all of it can be read, it is read again."""
        if number is not None:
            _forget(database, number)
        problems: list[BsdError] = []
        held = list(_rows(f"{self._layout.root}/{path}", problems))
        if problems:
            self._unread[path], state = problems[0], _UNKNOWN
        _insert(database, path, state, held)

    def _packs_in(self, path: str) -> tuple[list[str], bool]:
        """The packs of an archive, and whether it could be looked into."""
        try:
            found = SessionArchive(self._layout.root / path).packs()
        except OSError as error:  # others are none the worse for it
            _log.warning("An archive cannot be read", where=path, problem=str(error))
            self._unread[path] = os_problem(error, f"reading {self._layout.root / path}")
            return [], False
        return [f"{path}/{pack.name}" for pack in found], True

    def _take_in(self, database: sqlite3.Connection, path: str) -> bool:
        """Note what a pack holds, if it can be read."""
        try:
            _insert(database, path, _UNKNOWN, _packed_rows(self._layout.root / path))
        except OSError as error:
            _log.warning("A pack cannot be read", pack=path, problem=str(error))
            self._unread[path] = os_problem(error, f"reading {self._layout.root / path}")
            number = database.execute("SELECT id FROM places WHERE path = ?", (path,)).fetchone()
            _forget(database, *number)
            return False
        return True

    def _stores(self) -> Iterator[str]:
        """The stores' paths below the root; as text, since there may be very many."""
        yield from self._directories(self._layout.extracted, "")
        yield from self._directories(self._layout.trash, _IN_TRASH)

    def _archives(self) -> Iterator[str]:
        yield from self._directories(self._layout.archive, "")
        yield from self._directories(self._layout.trash, _ARCHIVE_IN_TRASH)

    def _directories(self, top: Path, marked: str) -> Iterator[str]:
        """Paths of the directories in one whose names have a word before their last."""
        try:
            real = inside(top, self._layout.root)
            with os.scandir(real) as found:
                names = [
                    item.name
                    for item in found
                    if (not marked or item.name.split("_")[-2:-1] == [marked])
                    and item.is_dir(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return
        except (BsdError, OSError) as error:  # a link that leads out, a closed directory
            _log.debug("Stores cannot be looked at", where=str(top), problem=str(error))
            self._unread[top.name] = os_problem(error, f"reading {top}")
            return
        yield from (f"{top.name}/{name}" for name in names)

    # --- the database ---

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        memory = self._memory if time.monotonic() <= self._in_memory_until else None
        if memory is None and (database := self._on_disk()) is not None:
            with closing(database):
                yield database
            return
        yield memory or self._hold_in_memory()

    def _hold_in_memory(self, _: Exception | None = None) -> sqlite3.Connection:
        self._memory = sqlite3.connect(":memory:", check_same_thread=False)
        _create(self._memory)
        self._again_at = 0.0
        self._in_memory_until = time.monotonic() + _IN_MEMORY_SECONDS
        return self._memory

    def _on_disk(self) -> sqlite3.Connection | None:
        """None where nothing can be written."""
        try:
            return self._connect()
        except OSError as error:
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC}:
                return None
            raise

    def _connect(self) -> sqlite3.Connection:
        if make_database_file(self._file):
            self._again_at = 0.0
        elif not os.access(self._file, os.W_OK):
            raise OSError(errno.EACCES, "not writable", str(self._file))
        database = sqlite3.connect(self._file, timeout=_WAIT_SECONDS)
        with being_opened(database):
            if version_of(database) != _DATABASE_VERSION:
                _create(database)
                self._again_at = 0.0
            database.execute("PRAGMA synchronous = OFF")  # what a power cut takes is made again
        return database

    def _give_up(self, error: Exception) -> None:
        _log.warning("The index of the stores is made anew", problem=str(error))
        self._again_at = 0.0
        with suppress(OSError):
            remove_database(self._file)


def contents_of(layout: Layout) -> Contents:
    """The index of a root's stores; one for all who ask in this process."""
    return _contents(layout if layout.bound_to is None else replace(layout, bound_to=None))


@lru_cache(maxsize=8)
def _contents(layout: Layout) -> Contents:
    return Contents(layout)


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    with database:
        for statement in (*_DROP, *_CREATE):
            database.execute(statement)


def _insert(database: sqlite3.Connection, path: str, state: _State, held: Iterable[_Row]) -> None:
    insert = "INSERT INTO places (path, ino, mtime, index_mtime, index_size) VALUES (?, ?, ?, ?, ?)"
    number = database.execute(insert, (path, *state)).lastrowid
    rows = ((hash_, number, ref, entry, at) for hash_, ref, entry, at in held)
    database.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", rows)


def _forget(database: sqlite3.Connection, number: int) -> None:
    database.execute("DELETE FROM held WHERE place = ?", (number,))
    database.execute("DELETE FROM places WHERE id = ?", (number,))


def _rows(directory: str, problems: list[BsdError]) -> Iterator[_Row]:
    """What the files of a store are, by its index, or for files that this lacks, by themselves.

    What cannot be read is left out; `problems` gets the errors.
    """
    with _noting(problems, Path(directory)):
        there = {name for name in os.listdir(directory) if name.endswith(_FINISHED)} - {INDEX_FILE}
        for record in _records(Path(directory, INDEX_FILE)):
            with suppress(KeyError, TypeError, ValueError):
                file = str(record["file"])
                hash_ = bytes.fromhex(str(record["hash"]).removeprefix("sha256:"))
                entry, at = entry_key(record["entry_id"]), str(record.get("extracted_at", ""))
                if file in there:
                    yield hash_, file.removesuffix(_FINISHED), entry, at
                    there.discard(file)
        for file in sorted(there):
            with _noting(problems, Path(directory, file)):
                line = read_plain(Path(directory, file), LARGEST_LINE)
                entry = entry_key(entry_id(parse_kept(line) or {}) or "")
                yield hashlib.sha256(line).digest(), file.removesuffix(_FINISHED), entry, ""


@contextmanager
def _noting(problems: list[BsdError], path: Path) -> Iterator[None]:
    """Collect an OSError in `problems`; a file that is gone, or is not bsd's, is no error."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, NotPlain, TooLarge):
        pass
    except OSError as error:
        problems.append(os_problem(error, f"reading {path}"))


def _parts(path: str) -> tuple[str, str]:
    """Of a place: the directory of a store or an archive, and a pack in it, if it is one."""
    directory, _, name = path.rpartition("/")
    return (directory, name) if directory.count("/") else (path, "")


def _packed_rows(path: Path) -> Iterator[_Row]:
    """What the lines of a pack are; where its index is damaged, as far as they say it.

    Raises OSError.
    """
    try:
        with Pack(path) as pack:
            found = sorted(pack.places(), key=lambda place: place.number)
            for place, record in zip(found, pack.records(), strict=True):
                at = str(record.get("extracted_at", ""))
                yield place.hash, ref_of(record), entry_key(record.get("entry_id", "")), at
    except FileNotFoundError:
        return  # merged since we looked
    except PackDamaged as problem:
        _log.warning("A pack of the archive is damaged", problem=str(problem))
        for number, (hash_, line) in enumerate(salvaged_lines(path)):
            entry = entry_key(entry_id(parse_kept(line) or {}) or "")
            yield hash_, f"{number:04d}_salvaged", entry, ""


def _records(index: Path) -> Iterator[dict[str, object]]:
    """The entries of an `index.json`, one line after the other; nothing of one that we wrote not.

    The newest first, since a file that was used again is noted again.
    """
    try:
        lines = io.BytesIO(read_plain(index, LARGEST_LINE)).readlines()
    except OSError:
        return
    while lines:
        with suppress(ValueError):
            record = orjson.loads(lines.pop().rstrip(b",\r\n"))
            if isinstance(record, dict):
                yield record


def _state(directory: str) -> _State:
    """How a store is now; `_UNKNOWN` if it may change again without this showing it."""
    try:
        here = os.lstat(directory)
        try:
            index = os.lstat(f"{directory}/{INDEX_FILE}")
            index_state = (index.st_mtime_ns, index.st_size)
        except FileNotFoundError:
            index_state = (0, 0)
    except OSError:
        return _UNKNOWN
    if max(here.st_mtime_ns, index_state[0]) > time.time_ns() - UNCERTAIN_NS:
        return _UNKNOWN
    return signed(here.st_ino), here.st_mtime_ns, *index_state
