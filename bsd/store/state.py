"""`state.db`: what was settled in each session when it was last looked into (DESIGN §3).

A checkpoint says where reading a session may begin instead of at its first line. Only speed is kept
here. Anything that does not fit the session as it is now is not used, and a database that cannot be
read or written is as good as none.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog

from bsd.core.database_file import (
    being_opened,
    make_database_file,
    remove_database,
    signed,
    unsigned,
    version_of,
    without_shared_memory,
)
from bsd.core.errors import BsdError, TemporaryFailure
from bsd.core.files import make_private_dir
from bsd.core.layout import SessionName
from bsd.transcripts.change import Edit, Identity, Readable, Written, edited
from bsd.transcripts.reader import Transcript

NO_ID = 0  # the number of an entry without id


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place between two lines, and what the lines before it mean for those after it."""

    offset: int  # bytes
    index: int  # number of the line that begins here, 0-based
    messages: int  # message entries before
    ids: array[int]  # a number for the id of each entry before, but for the `earlier` ones
    own_calls: tuple[str, ...] = ()  # calls of our own tools whose results may follow
    leaf: int = NO_ID  # a number for the id of the last entry before that has one
    in_turn: bool = False  # in the last turn, which has come to its end
    on_way: bool = True  # whoever went on from the end came by it
    bound: bool = False  # values before stay only since a signature covers them
    characters_per_token: float = 0.0  # as recorded before; 0: not known
    # What knows of more of them, without listing them.
    earlier: Checkpoint | _KeptIds | None = field(default=None, compare=False)

    def among(self, ids: Collection[int]) -> set[int]:
        """Which of these ids an entry before the checkpoint has."""
        found = set(ids).intersection(self.ids) if self.ids else set()
        return found | self.earlier.among(ids) if self.earlier else found


_log = structlog.stdlib.get_logger(module="state")

_SCHEMA = 3
_GUARDED = 4096  # bytes before a checkpoint that must be what they were
_WAIT_SECONDS = 5.0
_CACHE_KIB = 512
_AT_ONCE = 500  # ids that one question names, and rows that one answer has
_PLACE = tuple(field.name for field in fields(Checkpoint) if field.name not in {"ids", "earlier"})

_BEGIN = (
    "INSERT INTO checkpoints (session, settings, dev, ino, guard, place) VALUES (?, ?, ?, ?, ?, ?)"
)
_MOVE = (
    "UPDATE checkpoints SET (session, settings, dev, ino, guard, place) = (?, ?, ?, ?, ?, ?)"
    " WHERE number = ?"
)
_RESTS = (
    "SELECT session, dev, ino, size, mtime_ns, due_at FROM rests"
    " WHERE session > ? AND settings = ? ORDER BY session LIMIT ?"
)
_ADD = "INSERT OR IGNORE INTO ids VALUES (?, ?)"
_AMONG = "SELECT id FROM ids WHERE number = ? AND id IN ({})"

_CREATE = (
    """
CREATE TABLE checkpoints (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT UNIQUE NOT NULL,
    settings TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    guard BLOB NOT NULL,
    place BLOB NOT NULL
)
""",
    """
CREATE TABLE ids (
    number INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (number, id)
) WITHOUT ROWID
""",
    """
CREATE TABLE rests (
    session TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    due_at REAL
) WITHOUT ROWID
""",
)


class Left(NamedTuple):  # and no dataclass: a start makes one of each session
    """How a session was left when there was nothing more to do to it."""

    session: SessionName
    settings: str  # fingerprint of those it was judged by
    file: Written
    due_at: float | None  # epoch seconds at which there will be, without a change


class StateDb:
    """Checkpoints by session, for whatever thread; opened when first needed, and kept open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # which file that is: device, inode

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the database until it is needed again."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    def load(self, name: SessionName, settings: str, source: Transcript) -> Checkpoint | None:
        """The checkpoint that still fits: same settings, same file, same bytes before it."""
        row = None
        with self._open(create=False) as database:
            if database is not None:
                row = database.execute(
                    "SELECT settings, dev, ino, guard, place, number FROM checkpoints"
                    " WHERE session = ?",
                    (str(name),),
                ).fetchone()
        if row is None or row[:3] != (settings, *_file(source.identity)):
            return None
        checkpoint = _checkpoint(row[4], _KeptIds(self, row[5]))
        if checkpoint is None or checkpoint.offset > source.identity.size:
            return None
        return checkpoint if guard(source, checkpoint.offset) == row[3] else None

    def save(
        self, name: SessionName, settings: str, left_as: Identity, guard: bytes, at: Checkpoint
    ) -> None:
        """Keep a checkpoint of the file that was left as `left_as`.

        `guard` is the `guard` of what stands before it. One that goes on from another costs what
        is new.
        """
        place = orjson.dumps({name: getattr(at, name) for name in _PLACE})
        row = (str(name), settings, *_file(left_as), guard, place)
        with self._open(create=True) as database:
            if database is not None:
                number = _go_on(database, at.earlier, row)
                if number is None:
                    _forget(database, name)
                if at.earlier is None:
                    number = database.execute(_BEGIN, row).lastrowid
                if number is not None:
                    new = sorted(map(signed, at.ids))  # as the table is
                    database.executemany(_ADD, ((number, one) for one in new))

    def forget(self, name: SessionName) -> None:
        """Drop what is known of a session."""
        with self._open(create=False) as database:
            if database is not None:
                _forget(database, name)

    def keep_only(self, is_there: Callable[[SessionName], bool]) -> int:
        """Drop what is known of sessions that are not there any more; returns of how many."""
        gone = []
        with self._open(create=False) as database:
            if database is not None:
                query = "SELECT session FROM checkpoints UNION SELECT session FROM rests"
                for (text,) in database.execute(query):
                    with suppress(BsdError):  # no name that a session may have
                        name = SessionName.parse(text)
                        if not is_there(name):
                            gone.append(name)
                for name in gone:
                    _forget(database, name)
                    database.execute("DELETE FROM rests WHERE session = ?", (str(name),))
        return len(gone)

    def ids_among(self, number: int, ids: Collection[int]) -> set[int]:
        """Which of these ids stand before a checkpoint; raises TemporaryFailure if it is gone."""
        wanted = [signed(one) for one in ids]
        with self._open(create=False) as database:
            if database is not None and _is_kept(database, number):
                found: set[int] = set()
                for start in range(0, len(wanted), _AT_ONCE):
                    part = wanted[start : start + _AT_ONCE]
                    query = _AMONG.format(", ".join("?" * len(part)))
                    for (one,) in database.execute(query, (number, *part)):
                        found.add(unsigned(one))
                return found
        raise TemporaryFailure(
            "what was known of the session was forgotten meanwhile",
            hint="run the same command again: the session is read whole then",
        )

    def rests(self, settings: str) -> Iterator[Left]:
        """How sessions were left under these settings; of very many only some are in memory."""
        after = ""
        while rows := self._rests_after(after, settings):
            for name, *file, due_at in rows:
                try:
                    session = SessionName.parse(name)
                except BsdError:  # no name that a session may have
                    continue
                yield Left(session, settings, Written(*map(unsigned, file)), due_at)
            after = rows[-1][0]

    def _rests_after(self, session: str, settings: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self._open(create=False) as database:
            if database is not None:
                rows = database.execute(_RESTS, (session, settings, _AT_ONCE)).fetchall()
        return rows

    def note_rests(self, rests: Mapping[SessionName, Left | None]) -> None:
        """Keep how sessions were left; None: there is more to do to this one."""
        gone = [(str(name),) for name, rest in rests.items() if rest is None]
        left = [
            (
                str(rest.session),
                rest.settings,
                *map(signed, rest.file),
                rest.due_at,
            )
            for rest in rests.values()
            if rest is not None
        ]
        with self._open(create=True) as database:
            if database is not None:
                database.executemany("DELETE FROM rests WHERE session = ?", gone)
                database.executemany("REPLACE INTO rests VALUES (?, ?, ?, ?, ?, ?, ?)", left)

    @contextmanager
    def _open(self, *, create: bool) -> Iterator[sqlite3.Connection | None]:
        """A connection, or None; what goes wrong inside the block counts as not known."""
        with self._lock:
            try:
                database = self._connection(create=create)
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
                database = None
            if database is None:
                yield None
                return
            try:
                with database:
                    yield database
            except sqlite3.Error as error:
                self._give_up(error)

    def _connection(self, *, create: bool) -> sqlite3.Connection | None:
        """The open database, if it is still the one at the path; else that one, or a new one."""
        if self._database is not None and not self._is_as_opened(self._database):
            self.close()
        if self._database is None and (create or self._path.exists()):
            self._database = self._connect()
            self._opened = self._which()
        return self._database

    def _is_as_opened(self, database: sqlite3.Connection) -> bool:
        """Whether it still is the file at the path, and nobody has made it empty or another's."""
        with suppress(sqlite3.Error):
            return self._which() == self._opened and version_of(database) == _SCHEMA
        return False

    def _which(self) -> tuple[int, int] | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = self._path.lstat()
            return found.st_dev, found.st_ino
        return None

    def _connect(self) -> sqlite3.Connection:
        make_private_dir(self._path.parent)
        make_database_file(self._path)
        database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, check_same_thread=False)
        with being_opened(database):
            without_shared_memory(database, self._path)
            if version_of(database) != _SCHEMA:
                _create(database)
            # What a power cut takes is read again.
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return database

    def _give_up(self, error: Exception) -> None:
        self.close()
        if type(error) is sqlite3.DatabaseError:  # not a database, or a damaged one
            with suppress(OSError):
                remove_database(self._path)
        if not self._told:
            _log.warning("state.db cannot be used: sessions are read whole", error=str(error))
        self._told = True


@lru_cache(maxsize=8)
def state_at(path: Path) -> StateDb:
    """The database at a path; one for all who ask in this process."""
    return StateDb(path)


def _create(database: sqlite3.Connection) -> None:
    """Empty tables, unless another worker, who came at the same moment, has made them already."""
    # Ids lie about at random: who looks for one reads a page, and who adds one writes a page.
    database.execute("PRAGMA page_size = 1024")
    database.execute("BEGIN IMMEDIATE")
    with database:
        if version_of(database) == _SCHEMA:
            return
        for table in ("checkpoints", "ids", "rests"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for create in _CREATE:
            database.execute(create)
        database.execute(f"PRAGMA user_version = {_SCHEMA}")


@dataclass(frozen=True, slots=True)
class _KeptIds:
    """The ids before a checkpoint, which stay in the database."""

    state: StateDb
    number: int

    def among(self, ids: Collection[int]) -> set[int]:
        return self.state.ids_among(self.number, ids) if ids else set()


def _go_on(
    database: sqlite3.Connection, earlier: Checkpoint | _KeptIds | None, row: tuple[object, ...]
) -> int | None:
    """Move a kept checkpoint on; None if it is not kept, or no longer, and its ids with it."""
    if not isinstance(earlier, _KeptIds):
        return None
    moved = database.execute(_MOVE, (*row, earlier.number)).rowcount
    return earlier.number if moved else None


def _is_kept(database: sqlite3.Connection, number: int) -> bool:
    query = "SELECT 1 FROM checkpoints WHERE number = ?"
    return database.execute(query, (number,)).fetchone() is not None


def _forget(database: sqlite3.Connection, name: SessionName) -> None:
    query = "DELETE FROM ids WHERE number = (SELECT number FROM checkpoints WHERE session = ?)"
    database.execute(query, (str(name),))
    database.execute("DELETE FROM checkpoints WHERE session = ?", (str(name),))


def _checkpoint(place: bytes, earlier: _KeptIds) -> Checkpoint | None:
    try:
        read = orjson.loads(place)
        calls = tuple(read["own_calls"])
        return Checkpoint(**{**read, "own_calls": calls}, ids=array("Q"), earlier=earlier)
    except (ValueError, KeyError, TypeError):  # written by another version
        return None


def guard(source: Readable, offset: int, edits: Sequence[Edit] = ()) -> bytes:
    """Tells what stands before a place in a file, once `edits` are made there, from all else."""
    before = edited(source, edits, max(0, offset - _GUARDED), offset)
    return hashlib.sha256(before).digest()


def _file(identity: Identity) -> tuple[int, int]:
    return signed(identity.dev), signed(identity.ino)
