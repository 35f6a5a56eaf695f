"""Where in a root stored lines lie: by their hash, and by the entry that each of them was.

Programs copy lines, with placeholder and marker, into new sessions: forks, branches, resumed and
renamed ones. What such a line names lies in the store of another session, perhaps in the trash.
This index of all stores finds it. It is a cache of their `index.json`s, brought up to date when
something is asked for; whoever reads a file that it names compares the hash.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock

import orjson

from bsd.agents.entry import entry_id
from bsd.foundation.database_file import (
    being_opened,
    make_database_file,
    remove_database,
    signed,
    version_of,
)
from bsd.foundation.errors import BsdError
from bsd.foundation.files import LARGEST_LINE, UNCERTAIN_NS, read_plain
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, inside
from bsd.foundation.logs import get_logger
from bsd.store.index import INDEX_FILE
from bsd.text.reader import parse_kept

_log = get_logger("contents")

_VERSION = 1
_WAIT_SECONDS = 5.0
_FINISHED = ".json"
_IN_TRASH = "_extracted_"
_UNKNOWN = (0, 0, 0, 0)
# Looking whether the stores are as they were may take one part in so many of the time.
_SELDOM = 10

# `places` may hold other things than directories one day (packs), and `ref` a name in these.
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
    f"PRAGMA user_version = {_VERSION}",
)
_COLUMNS = "SELECT path, ref, hash, at, entry FROM held JOIN places ON id = place WHERE "
_NEWEST = " ORDER BY at DESC, path, ref"

_State = tuple[int, int, int, int]  # inode and mtime of a directory, mtime and size of its index
_Row = tuple[bytes, str, int, str]  # hash, ref, entry, at


@immutable
class StoredPlace:
    """A stored line: a file of a session's store, in its place or in the trash."""

    directory: Path
    ref: str
    hash: str
    at: str  # when it was taken out, ISO 8601; empty: nobody knows
    entry: int  # `entry_key` of the entry that it was

    @property
    def file(self) -> Path:
        return self.directory / f"{self.ref}{_FINISHED}"

    def line(self) -> bytes | None:
        """What lies there, if it is what it shall be, and may be read."""
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
        self._again_at = 0.0  # monotonic seconds before which nobody looks at the stores again

    def with_hash(self, hash: str) -> list[StoredPlace]:
        """Where a line of this hash lies, in any store; those in the trash last."""
        digest = hash.removeprefix("sha256:")
        try:
            key = bytes.fromhex(digest)
        except ValueError:  # a marker that somebody wrote by hand
            return []
        found = self._places("hash = ?", key)
        return sorted(found, key=lambda place: place.directory.parent == self._layout.trash)

    def of_entry(self, entry: str) -> list[StoredPlace]:
        """All lines that are stored of an entry of this id, in any store; the newest first."""
        return self._places("entry = ?", entry_key(entry))

    def of_store(self, directory: Path) -> list[StoredPlace]:
        """All that one store holds."""
        return self._places("path = ?", f"{directory.parent.name}/{directory.name}")

    def changed(self) -> None:
        """Something was stored, or moved: the next question is answered by a new look."""
        self._again_at = 0.0

    def _places(self, condition: str, value: object) -> list[StoredPlace]:
        if not self._layout.own.is_dir():  # no bsd has worked here, and looking leaves no traces
            return []
        with self._lock:
            try:
                return self._ask(condition, value)
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
            with suppress(sqlite3.Error, OSError):
                return self._ask(condition, value)
        return []

    def _ask(self, condition: str, value: object) -> list[StoredPlace]:
        with self._open() as database:
            self._bring_up_to_date(database)
            query = _COLUMNS + condition + _NEWEST
            rows = database.execute(query, (value,)).fetchall()
        root = self._layout.root
        return [
            StoredPlace(root / path, ref, f"sha256:{hash_.hex()}", at, entry)
            for path, ref, hash_, at, entry in rows
        ]

    # --- what the stores hold ---

    def _bring_up_to_date(self, database: sqlite3.Connection) -> None:
        began = time.monotonic()
        if began < self._again_at:
            return
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
                    _read(database, directory, path, number, state)
            for number, _ in known.values():
                _forget(database, number)
        ended = time.monotonic()
        self._again_at = ended + _SELDOM * (ended - began)

    def _stores(self) -> Iterator[str]:
        """The stores' paths below the root; as text, since there may be very many."""
        for top, marked in ((self._layout.extracted, ""), (self._layout.trash, _IN_TRASH)):
            try:
                real = inside(top, self._layout.root)
                with os.scandir(real) as found:
                    names = [
                        item.name
                        for item in found
                        if marked in item.name and item.is_dir(follow_symlinks=False)
                    ]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (BsdError, OSError) as error:  # a link that leads out, a closed directory
                _log.debug("Stores cannot be looked at", where=str(top), problem=str(error))
                continue
            yield from (f"{top.name}/{name}" for name in names)

    # --- the database ---

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self._memory is None:
            try:
                with closing(self._connect()) as database:
                    yield database
                return
            except OSError as error:
                if error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC}:
                    raise
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            _create(self._memory)
            self._again_at = 0.0
        yield self._memory

    def _connect(self) -> sqlite3.Connection:
        if make_database_file(self._file):
            self._again_at = 0.0
        elif not os.access(self._file, os.W_OK):
            raise OSError(errno.EACCES, "not writable", str(self._file))
        database = sqlite3.connect(self._file, timeout=_WAIT_SECONDS)
        with being_opened(database):
            if version_of(database) != _VERSION:
                _create(database)
                self._again_at = 0.0
            database.execute("PRAGMA synchronous = OFF")  # what a power cut takes is made again
        return database

    def _give_up(self, error: Exception) -> None:
        _log.warning("The index of the stores is made anew", problem=str(error))
        self._again_at = 0.0
        with suppress(OSError):
            remove_database(self._file)


@lru_cache(maxsize=8)
def contents_of(layout: Layout) -> Contents:
    """The index of a root's stores; one for all who ask in this process."""
    return Contents(layout)


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    with database:
        for table in ("places", "held"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _CREATE:
            database.execute(statement)


def _read(
    database: sqlite3.Connection, directory: str, path: str, number: int | None, state: _State
) -> None:
    """Take in what one store holds now."""
    if number is not None:
        _forget(database, number)
    insert = "INSERT INTO places (path, ino, mtime, index_mtime, index_size) VALUES (?, ?, ?, ?, ?)"
    number = database.execute(insert, (path, *state)).lastrowid
    rows = ((hash_, number, ref, entry, at) for hash_, ref, entry, at in _rows(directory))
    database.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", rows)


def _forget(database: sqlite3.Connection, number: int) -> None:
    database.execute("DELETE FROM held WHERE place = ?", (number,))
    database.execute("DELETE FROM places WHERE id = ?", (number,))


def _rows(directory: str) -> Iterator[_Row]:
    """What the files of a store are, by its index, or for files that this lacks, by themselves."""
    with suppress(OSError):
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
            with suppress(OSError):
                line = read_plain(Path(directory, file), LARGEST_LINE)
                entry = entry_key(entry_id(parse_kept(line) or {}) or "")
                yield hashlib.sha256(line).digest(), file.removesuffix(_FINISHED), entry, ""


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


def entry_key(entry: object) -> int:
    """Eight bytes that stand for an entry's id: of a root's entries, few share them."""
    text = str(entry).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


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
