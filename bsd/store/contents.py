"""Index of the lines in the stores and archives of a root (`contents.db`), by hash and by entry.

Agent programs copy lines, with placeholder and marker, into new sessions: forks, branches, resumed
and renamed sessions. The original of such a line lies in the store of another session, perhaps in
the trash. Every look-up (markers, copies, verify, forget) uses this index.

The index is a cache. Each query first updates it from the `index.json` files of the stores and from
the packs. A caller that reads a file compares the hash.
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
from contextlib import closing, contextmanager, nullcontext, suppress
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
from bsd.store.archive import SessionArchive, ref_of
from bsd.store.index import INDEX_FILE, Record, record_of
from bsd.store.pack import Pack, PackDamaged
from bsd.store.pack_salvage import salvaged
from bsd.transcripts.agents.entry import entry_id, entry_key
from bsd.transcripts.reader import parse_kept

_log = structlog.stdlib.get_logger(module="contents")

_VERSION = 3
_WAIT_SECONDS = 5.0
_FINISHED = ".json"
_TRASHED = re.compile(r"(.*)_(extracted|archive)_\d{8}T\d{6}\.\d{3}Z")
_UNKNOWN = (0, 0, 0, 0)
# Checks whether the stores have changed take at most one part in this many of the time.
_SELDOM = 10
_MEMORY_SECONDS = 600.0  # then the file is tried again, since a full disk may have room by then
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC}
_MEND_PACK = "run `bsd verify --repair`; if that fails, restore the pack from a backup"

# `places` are the directories of stores and archives; `held` are their lines. `ref` names the file
# of a line, `pack` the pack that holds it (empty: the line has its own file).
_CREATE = (
    "DROP TABLE IF EXISTS places",
    "DROP TABLE IF EXISTS held",
    """CREATE TABLE places (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE,
        ino INTEGER NOT NULL, mtime INTEGER NOT NULL,
        index_mtime INTEGER NOT NULL, index_size INTEGER NOT NULL)""",
    """CREATE TABLE held (
        hash BLOB NOT NULL, place INTEGER NOT NULL, pack TEXT NOT NULL, ref TEXT NOT NULL,
        entry INTEGER NOT NULL, at TEXT NOT NULL,
        PRIMARY KEY (hash, place, pack, ref)) WITHOUT ROWID""",
    "CREATE INDEX held_by_entry ON held (entry)",
    "CREATE INDEX held_by_place ON held (place)",
    f"PRAGMA user_version = {_VERSION}",
)
_SELECT = (
    "SELECT path, pack, ref, hash, at, entry FROM held JOIN places ON id = place"
    " WHERE {} ORDER BY at DESC, path, pack, ref DESC"
)

_State = tuple[int, int, int, int]  # inode and mtime of a directory, mtime and size of its index
_Row = tuple[bytes, str, int, str]  # hash, ref, entry, at


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """The place of a stored line: in a store or archive of a session, or in the trash."""

    directory: Path
    ref: str
    hash: str
    at: str  # time of the extraction, ISO 8601; empty: not known
    entry: int  # `entry_key` of the entry
    pack: str = ""  # name of the pack; empty: the line has its own file

    @property
    def file(self) -> Path:
        """The file that holds the line."""
        return self.directory / (self.pack or f"{self.ref}{_FINISHED}")

    @property
    def store(self) -> str:
        """The store name of the session for which the line was stored."""
        trashed = _TRASHED.fullmatch(self.directory.name)
        return trashed[1] if trashed else self.directory.name

    @property
    def index(self) -> int | None:
        """The line number of the entry in its session at the time of storing; 0-based."""
        number = self.ref.partition("_")[0]
        return int(number) if number.isdecimal() else None

    def record(self) -> Record | None:
        """Return the record of the line in its pack; None if the line has its own file."""
        if self.pack:
            with suppress(PackDamaged, OSError, ValueError), Pack(self.file) as pack:
                if place := pack.find(bytes.fromhex(self.hash.removeprefix("sha256:"))):
                    return record_of({**pack.record(place), "hash": self.hash})
        return None

    def readable_line(self) -> bytes | None:
        """Return the line; None if it is gone.

        Raises BsdError if its file cannot be read, or does not have the expected hash.
        """
        if self.pack:  # a merge since the query may have moved the line to another pack
            archive = SessionArchive(self.directory)
            if (line := archive.line(self.hash, first=self.file)) is None and archive.trouble:
                if archive.unreached:
                    raise archive.unreached
                raise Unavailable(archive.trouble, hint=_MEND_PACK)
            return line
        try:
            line = read_plain(self.file, LARGEST_LINE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_problem(error, f"reading {self.file}") from error
        if f"sha256:{hashlib.sha256(line).hexdigest()}" != self.hash:
            problem = f"{self.file} is damaged (its hash differs)"
            raise Unavailable(problem, hint="restore it from a backup, or delete it")
        return line

    def line(self) -> bytes | None:
        """Return the line, or None if it is missing, damaged or unreadable."""
        with suppress(BsdError):
            return self.readable_line()
        return None


class Contents:
    """The index of a root. Thread-safe; calls run in sequence."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.own / "contents.db"
        self._lock = Lock()
        self._memory: sqlite3.Connection | None = None  # used if the file cannot be written
        self._memory_until = 0.0  # monotonic seconds
        self._next_look = 0.0  # monotonic seconds
        self._problems: dict[str, BsdError] = {}  # of the last check; keys: paths below the root

    def __del__(self) -> None:
        if self._memory is not None:
            self._memory.close()

    def with_hash(self, hash: str) -> list[StoredPlace]:
        """Return the places of the lines with this hash in any store; the trash comes last."""
        try:
            key = bytes.fromhex(hash.removeprefix("sha256:"))
        except ValueError:  # a hand-written marker
            return []
        found = self._places("hash = ?", key)
        return sorted(found, key=lambda place: place.directory.parent == self._layout.trash)

    def of_entry(self, entry: str) -> list[StoredPlace]:
        """Return the stored lines of an entry in all stores, the newest first."""
        return self._places("entry = ?", entry_key(entry))

    def of_store(self, directory: Path) -> list[StoredPlace]:
        """Return all lines of a store or an archive."""
        return self._places("path = ?", f"{directory.parent.name}/{directory.name}")

    def unread_in(self, directory: Path) -> BsdError | None:
        """Return the error of the last check of a store or archive, if part of it was unreadable.

        In that case the directory may hold more lines than `of_store` returns.
        """
        top = directory.parent.name
        return self._problems.get(f"{top}/{directory.name}") or self._problems.get(top)

    def trouble(self) -> str | None:
        """Return why the last check could not read a file or pack, if so; it may hold lines."""
        return next((error.message for error in self._problems.values()), None)

    def changed(self) -> None:
        """Make the next query check the stores again, since a line was stored or moved."""
        self._next_look = 0.0

    def _places(self, condition: str, value: object) -> list[StoredPlace]:
        if not self._layout.own.is_dir():  # bsd has not worked here; create no files
            return []
        with self._lock:
            try:
                return self._ask(condition, value)
            except (sqlite3.Error, OSError) as error:
                _log.warning("The index of the stores is rebuilt", problem=str(error))
                self._next_look = 0.0
                with suppress(OSError):
                    remove_database(self._file)
            try:
                return self._ask(condition, value)
            except (sqlite3.Error, OSError):  # for example, the disk is full
                self._use_memory()
            return self._ask(condition, value)

    def _ask(self, condition: str, value: object) -> list[StoredPlace]:
        with self._open() as database:
            self._bring_up_to_date(database)
            rows = database.execute(_SELECT.format(condition), (value,)).fetchall()
        return [
            StoredPlace(self._layout.root / path, ref, f"sha256:{hash_.hex()}", at, entry, pack)
            for path, pack, ref, hash_, at, entry in rows
        ]

    # --- updates from the stores ---

    def _bring_up_to_date(self, database: sqlite3.Connection) -> None:
        began = time.monotonic()
        if began < self._next_look:
            return
        self._problems.clear()
        known = {path: tuple(state) for _, path, *state in database.execute("SELECT * FROM places")}
        with database:
            for path, is_archive in self._directories():
                state = _state(f"{self._layout.root}/{path}")
                before = known.pop(path, None)
                if state == before and state != _UNKNOWN:
                    continue
                # Another process may have added or removed the directory since `known` was read.
                insert = "INSERT OR IGNORE INTO places VALUES (NULL, ?, 0, 0, 0, 0)"
                database.execute(insert, (path,))
                select = "SELECT id FROM places WHERE path = ?"
                (number,) = database.execute(select, (path,)).fetchone()
                read = self._read_archive if is_archive else self._read_store
                read(database, number, path)
                if path in self._problems:
                    state = _UNKNOWN  # read it again next time, even if it is unchanged
                update = (
                    "UPDATE places SET (ino, mtime, index_mtime, index_size) = (?, ?, ?, ?)"
                    " WHERE id = ?"
                )
                database.execute(update, (*state, number))
            for path in known:
                delete = "DELETE FROM held WHERE place = (SELECT id FROM places WHERE path = ?)"
                database.execute(delete, (path,))
                database.execute("DELETE FROM places WHERE path = ?", (path,))
        ended = time.monotonic()
        self._next_look = ended + _SELDOM * (ended - began)

    def _read_store(self, database: sqlite3.Connection, number: int, path: str) -> None:
        directory, problems = self._layout.root / path, list[BsdError]()
        database.execute("DELETE FROM held WHERE place = ?", (number,))
        _insert(database, number, "", _rows(directory, problems))
        if problems:
            self._problems[path] = problems[0]

    def _read_archive(self, database: sqlite3.Connection, number: int, path: str) -> None:
        """Add the lines of new packs and drop those of removed packs; a pack never changes."""
        packs: dict[str, Path] = {}
        try:
            packs = {pack.name: pack for pack in SessionArchive(self._layout.root / path).packs()}
        except OSError as error:
            _log.warning("An archive cannot be read", where=path, problem=str(error))
            self._note(path, self._layout.root / path, error)
        rows = database.execute("SELECT DISTINCT pack FROM held WHERE place = ?", (number,))
        known = {name for (name,) in rows}
        delete = "DELETE FROM held WHERE place = ? AND pack = ?"
        database.executemany(delete, ((number, name) for name in known - packs.keys()))
        for name in sorted(packs.keys() - known):
            try:
                _insert(database, number, name, _packed_rows(packs[name]))
            except OSError as error:
                _log.warning("A pack cannot be read", pack=f"{path}/{name}", problem=str(error))
                database.execute(delete, (number, name))
                self._note(path, packs[name], error)

    def _directories(self) -> Iterator[tuple[str, bool]]:
        """Yield the path below the root of each store and archive, and whether it is an archive."""
        layout = self._layout
        for top, word in (
            *((layout.extracted, ""), (layout.trash, "extracted")),
            *((layout.archive, ""), (layout.trash, "archive")),
        ):
            try:
                with os.scandir(inside(top, layout.root)) as entries:
                    names = [
                        entry.name
                        for entry in entries
                        if (not word or entry.name.split("_")[-2:-1] == [word])
                        and entry.is_dir(follow_symlinks=False)
                    ]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (BsdError, OSError) as error:  # a link that leads out, a closed directory
                _log.debug("Stores cannot be read", where=str(top), problem=str(error))
                self._note(top.name, top, error)
                continue
            is_archive = top == layout.archive or word == "archive"
            yield from ((f"{top.name}/{name}", is_archive) for name in names)

    def _note(self, path: str, file: Path, error: BsdError | OSError) -> None:
        """Record that a file below `path` cannot be read; other directories are still served."""
        self._problems.setdefault(path, os_problem(error, f"reading {file}"))

    # --- the database ---

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None and time.monotonic() > self._memory_until:
            self._memory.close()
            self._memory, self._next_look = None, 0.0
        database = self._memory
        if database is None:
            try:
                database = self._connect()
            except OSError as error:
                if error.errno not in _NOT_WRITABLE:
                    raise
                database = self._use_memory()
        with nullcontext() if database is self._memory else closing(database):
            yield database

    def _use_memory(self) -> sqlite3.Connection:
        """Use an index in memory for some time, and return its connection."""
        self._memory = sqlite3.connect(":memory:", check_same_thread=False)
        _create(self._memory)
        self._next_look, self._memory_until = 0.0, time.monotonic() + _MEMORY_SECONDS
        return self._memory

    def _connect(self) -> sqlite3.Connection:
        if make_database_file(self._file):
            self._next_look = 0.0
        elif not os.access(self._file, os.W_OK):
            raise OSError(errno.EACCES, "not writable", str(self._file))
        database = sqlite3.connect(self._file, timeout=_WAIT_SECONDS)
        with being_opened(database):
            if version_of(database) != _VERSION:
                _create(database)
                self._next_look = 0.0
            database.execute("PRAGMA synchronous = OFF")  # after a power cut the index is rebuilt
        return database


def contents_of(layout: Layout) -> Contents:
    """Return the index of a root; all callers in this process share it."""
    is_plain = layout.bound_to is None and layout.exclude == ()
    return _contents(layout if is_plain else replace(layout, bound_to=None, exclude=()))


@lru_cache(maxsize=8)
def _contents(layout: Layout) -> Contents:
    return Contents(layout)


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    with database:
        for statement in _CREATE:
            database.execute(statement)


def _insert(database: sqlite3.Connection, place: int, pack: str, rows: Iterable[_Row]) -> None:
    database.executemany(
        "INSERT OR REPLACE INTO held (hash, place, pack, ref, entry, at) VALUES (?, ?, ?, ?, ?, ?)",
        ((hash_, place, pack, ref, entry, at) for hash_, ref, entry, at in rows),
    )


def _rows(directory: Path, problems: list[BsdError]) -> Iterator[_Row]:
    """Yield a row for each file of a store, from `index.json`; read the files that it lacks.

    Files that cannot be read are left out, and their errors are added to `problems`.
    """
    with _collect(problems, directory):
        there = {name for name in os.listdir(directory) if name.endswith(_FINISHED)} - {INDEX_FILE}
        for record in _records(directory / INDEX_FILE):
            with suppress(KeyError, TypeError, ValueError):
                file = str(record["file"])
                hash_ = bytes.fromhex(str(record["hash"]).removeprefix("sha256:"))
                entry, at = entry_key(record["entry_id"]), str(record.get("extracted_at", ""))
                if file in there:
                    yield hash_, file.removesuffix(_FINISHED), entry, at
                    there.discard(file)
        for file in sorted(there):
            with _collect(problems, directory / file):
                line = read_plain(directory / file, LARGEST_LINE)
                yield (*_of_line(line, file.removesuffix(_FINISHED)), "")


@contextmanager
def _collect(problems: list[BsdError], path: Path) -> Iterator[None]:
    """Add an OSError to `problems`; ignore files that are gone or were not written by bsd."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, NotPlain, TooLarge):
        pass
    except OSError as error:
        problems.append(os_problem(error, f"reading {path}"))


def _of_line(line: bytes, ref: str) -> tuple[bytes, str, int]:
    entry = entry_key(entry_id(parse_kept(line) or {}) or "")
    return hashlib.sha256(line).digest(), ref, entry


def _packed_rows(path: Path) -> Iterator[_Row]:
    """Yield a row for each line of a pack; if its index is damaged, read the lines themselves.

    Raises OSError.
    """
    try:
        with Pack(path) as pack:
            for place, record in zip(pack.in_order(), pack.records(), strict=True):
                at = str(record.get("extracted_at", ""))
                yield place.hash, ref_of(record), entry_key(record.get("entry_id", "")), at
    except FileNotFoundError:
        return  # merged since the directory was listed
    except PackDamaged as problem:
        _log.warning("A pack of the archive is damaged", problem=str(problem))
        for number, line in enumerate(salvaged(path)):
            yield (*_of_line(line, f"{number:04d}_salvaged"), "")


def _records(index: Path) -> Iterator[dict[str, object]]:
    """Yield the entries of an `index.json`, the newest first; skip entries that bsd did not write.

    A file that was used again has a later entry, which replaces its earlier entries.
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
    """Return the state of a directory; `_UNKNOWN` if the next change may be too soon to show."""
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
