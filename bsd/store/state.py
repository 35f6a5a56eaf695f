"""`state.db`: facts about each session that were final when it was last read (DESIGN §3).

A checkpoint says where reading a session may begin instead of at its first line. The database only
saves time. A checkpoint that does not fit the session as it is now is ignored, and if the database
cannot be read or written, sessions are read whole.
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

_log = structlog.stdlib.get_logger(module="state")

NO_ID = 0  # the number for an entry without id

_VERSION = 5
_GUARDED = 4096  # bytes before a checkpoint that must be unchanged
_WAIT_SECONDS = 5.0
_CACHE_KIB = 512
_AT_ONCE = 500  # limit of ids per query, and of rows per result

_TABLES = {
    "checkpoints": """
        number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, further INTEGER NOT NULL,
        settings TEXT NOT NULL, dev INTEGER NOT NULL, ino INTEGER NOT NULL,
        guard BLOB NOT NULL, place BLOB NOT NULL, UNIQUE (session, further))""",
    "ids": "number INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (number, id)) WITHOUT ROWID",
    "rests": """
        session TEXT PRIMARY KEY, settings TEXT NOT NULL, dev INTEGER NOT NULL,
        ino INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
        due_at REAL, warm_until REAL, tokens_ready INTEGER NOT NULL,
        tokens_rewritten INTEGER NOT NULL, cost_now REAL, calls_needed INTEGER,
        calls_expected INTEGER) WITHOUT ROWID""",
    "accounts": """
        session TEXT PRIMARY KEY, until_ms REAL NOT NULL, spent REAL NOT NULL,
        saved REAL NOT NULL, removed INTEGER NOT NULL, unseen INTEGER NOT NULL) WITHOUT ROWID""",
}


@dataclass(frozen=True, slots=True)
class CacheSeen:
    """Facts about the provider's prompt cache, from the answers in a session up to some place."""

    in_use: bool = False
    used_ms: float | None = None  # time of the newest answer; epoch milliseconds
    model: str = ""  # of the newest answer that names its model
    life_seconds: float | None = None  # lifetime of the cache, by the usage figures
    provider: str | None = None  # of the newest answer that names its provider
    missed_after: float | None = None  # seconds after which a request found the cache cold
    answer: str | None = None  # id of the newest answer
    usage: tuple[int, ...] | None = None  # of the newest request, as in `Usage`
    grown: int = 0  # tokens: sum of the growth of all requests, without what left them
    growth: float = 0.0  # tokens by which a request is usually larger than the one before it
    calls: int = 0  # requests since the cache was last cold
    is_compacted: bool = False  # a compaction follows the newest request

    @property
    def context(self) -> int:
        """Tokens of the newest request with its answer; 0 if the next one is sent without them."""
        return sum(self.usage) if self.usage and not self.is_compacted else 0

    @property
    def reached(self) -> int:
        """A position in context, in tokens, that only grows; see `grown`."""
        return self.grown + (self.usage[-1] if self.usage else 0)


@dataclass(frozen=True, slots=True)
class Accounted:
    """What the requests of a session have cost since bsd's arrival, in millionths of a dollar."""

    until_ms: float = 0.0  # answers up to this time are counted or older; epoch milliseconds
    spent: float = 0.0  # on input, cache reads and cache writes
    saved: float = 0.0  # by bsd's cuts; negative if they have cost more than they saved
    removed: int = 0  # tokens by which bsd's cuts make each request smaller
    unseen: int = 0  # of these, tokens that left after the newest request


@dataclass(frozen=True, slots=True)
class WaitingValues:
    """Values before a checkpoint that wait until the prompt cache is cold or a cut pays."""

    characters: int  # of these values, without their placeholders
    reached: int  # `CacheSeen.reached` before the first of them


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place between two lines, and facts from the lines before it that later lines need."""

    offset: int  # bytes
    index: int  # 0-based number of the line that begins here
    messages: int  # number of message entries before
    ids: array[int]  # a number for the id of each entry before, except for those in `earlier`
    own_calls: tuple[str, ...] = ()  # calls of bsd's own tools whose results may follow
    leaf: int = NO_ID  # number for the id of the last entry before that has an id
    in_turn: bool = False  # the place is within the last turn, which has ended
    on_way: bool = True  # a reply to the last line continues the path through this place
    bound: bool = False  # values before the place stay only because a signature covers them
    characters_per_token: float = 0.0  # 0: not known
    cache: CacheSeen = CacheSeen()  # from the entries before
    waiting: WaitingValues | None = None  # None: all outcomes before the place are final
    # Calls of bsd's tools before the place are to be tidied away once the prompt cache is cold.
    calls_wait: bool = False
    # Tests for further ids without listing them.
    earlier: Checkpoint | _StoredIds | None = field(default=None, compare=False)

    def among(self, ids: Collection[int]) -> set[int]:
        """Return those of `ids` that an entry before the checkpoint has."""
        found = set(ids).intersection(self.ids) if self.ids else set()
        return found | self.earlier.among(ids) if self.earlier else found


_PLACE = tuple(each.name for each in fields(Checkpoint) if each.name not in {"ids", "earlier"})


class Checkpoints(NamedTuple):
    """The places at which reading a session may begin.

    If values wait in the session, an append need not be read from the first of them on: the further
    place follows them and has their sums. If they leave, reading begins at the first place.
    """

    first: Checkpoint | None = None
    further: Checkpoint | None = None  # it has `waiting`; None: no value waits


@dataclass(frozen=True, slots=True)
class _StoredIds:
    """The ids before a checkpoint, which stay in the database."""

    state: StateDb
    number: int  # of the checkpoint
    earlier: _StoredIds | None = None  # of the first checkpoint, for the further one

    def among(self, ids: Collection[int]) -> set[int]:
        found = self.state.ids_among(self.number, ids) if ids else set()
        return found | self.earlier.among(ids) if self.earlier else found


class Left(NamedTuple):  # not a dataclass: at start, each session gets an object
    """The state of a session for which no work was left."""

    session: SessionName
    settings: str  # fingerprint of the settings that were used
    file: Written
    due_at: float | None  # epoch seconds at which work is due even if the file does not change
    warm_until: float | None = None  # epoch seconds; until then, values in the model's context wait
    tokens_ready: int = 0  # tokens of the values that wait for `warm_until`
    # A cut before `warm_until`:
    tokens_rewritten: int = 0  # tokens that the provider would have to cache again
    cost_now: float | None = None  # US dollars; None: the prices are unknown
    calls_needed: int | None = None  # further calls that would earn the cost
    calls_expected: int | None = None  # further calls that the warm cache will probably see


_LEFT = ", ".join(("dev, ino, size, mtime_ns", *Left._fields[3:]))


class StateDb:
    """The database. Thread-safe; opened when it is first needed, and then kept open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._warned = False
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode of the open file

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the database until it is needed again."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    # --- checkpoints ---

    def load(self, name: SessionName, settings: str, source: Transcript) -> Checkpoints:
        """Return the checkpoints if settings, file and the bytes before them are unchanged."""
        rows: list[tuple[Any, ...]] = []
        with self._open() as database:
            if database is not None:
                query = (
                    "SELECT number, settings, dev, ino, guard, place FROM checkpoints"
                    " WHERE session = ? ORDER BY further"
                )
                rows = database.execute(query, (str(name),)).fetchall()
        found: list[Checkpoint] = []
        ids = None
        for number, of_settings, dev, ino, guard_before, place in rows:
            if (of_settings, dev, ino) != (settings, *_file(source.identity)):
                break
            ids = _StoredIds(self, number, ids)
            try:
                at = _checkpoint(place, ids)
            except (ValueError, KeyError, TypeError):  # written by another version
                break
            if at.offset > source.size or guard(source, at.offset) != guard_before:
                break
            found.append(at)
        if found and found[0].waiting is not None:  # without the first, the further one is useless
            return Checkpoints()
        return Checkpoints(*found)

    def save(
        self,
        name: SessionName,
        settings: str,
        left_as: Identity,
        guards: Sequence[bytes],
        places: Checkpoints,
    ) -> None:
        """Store the checkpoints of a session.

        If one continues a stored checkpoint, only the new ids are written.

        Args:
            name: the session.
            settings: fingerprint of the settings.
            left_as: the file as it was left.
            guards: hash of the bytes before each checkpoint, from the function `guard`.
            places: the checkpoints; the first must be there.
        """
        with self._open(create=True) as database:
            if database is None:
                return
            if places.further is None:
                _forget(database, name, further=True)
            for further, at in enumerate(places):
                if at is not None:
                    row = (str(name), further, settings, *_file(left_as), guards[further])
                    _save(database, name, row, at)

    def account(self, name: SessionName) -> Accounted | None:
        """Return what the requests of a session have cost; None: bsd has not seen the session."""
        with self._open() as database:
            if database is not None:
                query = (
                    "SELECT until_ms, spent, saved, removed, unseen FROM accounts WHERE session = ?"
                )
                row = database.execute(query, (str(name),)).fetchone()
                return Accounted(*row) if row else None
        return None

    def note_account(self, name: SessionName, account: Accounted) -> None:
        """Store what the requests of a session have cost."""
        row = (account.until_ms, account.spent, account.saved, account.removed, account.unseen)
        with self._open(create=True) as database:
            if database is not None:
                query = "REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?)"
                database.execute(query, (str(name), *row))

    def end_savings(self, name: SessionName) -> None:
        """Count no further savings by the cuts so far: what left may be back in context."""
        with self._open() as database:
            if database is not None:
                query = "UPDATE accounts SET removed = 0, unseen = 0 WHERE session = ?"
                database.execute(query, (str(name),))

    def ids_among(self, number: int, ids: Collection[int]) -> set[int]:
        """Return those of `ids` that stand before a checkpoint.

        Raises TemporaryFailure if the checkpoint was dropped since it was loaded.
        """
        wanted = [signed(id_) for id_ in ids]
        with self._open() as database:
            query = "SELECT 1 FROM checkpoints WHERE number = ?"
            if database is not None and database.execute(query, (number,)).fetchone():
                found: set[int] = set()
                for start in range(0, len(wanted), _AT_ONCE):
                    part = wanted[start : start + _AT_ONCE]
                    marks = ", ".join("?" * len(part))
                    query = f"SELECT id FROM ids WHERE number = ? AND id IN ({marks})"  # noqa: S608 - marks only
                    rows = database.execute(query, (number, *part))
                    found.update(unsigned(id_) for (id_,) in rows)
                return found
        raise TemporaryFailure(
            "the checkpoint of the session was removed during the command",
            hint="run the same command again; it reads the whole session",
        )

    def forget(self, name: SessionName) -> None:
        """Drop the checkpoints of a session."""
        with self._open() as database:
            if database is not None:
                _forget(database, name)

    # --- sessions without work ---

    def rests(self, settings: str) -> Iterator[Left]:
        """Yield the states stored under these settings; few are in memory at once."""
        after = ""
        query = (
            f"SELECT session, settings, {_LEFT} FROM rests"  # noqa: S608 - our own columns
            " WHERE session > ? AND settings = ? ORDER BY session LIMIT ?"
        )
        while True:
            rows: list[tuple[Any, ...]] = []
            with self._open() as database:
                if database is not None:
                    rows = database.execute(query, (after, settings, _AT_ONCE)).fetchall()
            if not rows:
                return
            for row in rows:
                with suppress(BsdError):  # not a valid session name
                    yield _left(row)
            after = rows[-1][0]

    def waiting(self) -> dict[str, Left]:
        """Return the states of sessions that waited for their prompt cache, by session name."""
        query = f"SELECT session, settings, {_LEFT} FROM rests WHERE warm_until IS NOT NULL"  # noqa: S608 - our own columns
        found = {}
        with self._open() as database:
            for row in database.execute(query) if database is not None else ():
                with suppress(BsdError):  # not a valid session name
                    found[row[0]] = _left(row)
        return found

    def note_rests(self, rests: Mapping[SessionName, Left | None]) -> None:
        """Store the states of sessions; None drops a state, since the session needs work."""
        gone = [(str(name),) for name, left in rests.items() if left is None]
        rows = [
            (str(left.session), left.settings, *map(signed, left.file), *left[3:])
            for left in rests.values()
            if left is not None
        ]
        with self._open(create=True) as database:
            if database is not None:
                database.executemany("DELETE FROM rests WHERE session = ?", gone)
                marks = ", ".join("?" * (len(Left._fields) + 3))  # `file` takes four columns
                database.executemany(f"REPLACE INTO rests VALUES ({marks})", rows)  # noqa: S608 - marks only

    def keep_only(self, is_there: Callable[[SessionName], bool]) -> int:
        """Drop all rows of sessions that no longer exist; return how many sessions these were."""
        gone = []
        with self._open() as database:
            if database is not None:
                query = (
                    "SELECT session FROM checkpoints UNION SELECT session FROM rests"
                    " UNION SELECT session FROM accounts"
                )
                for (text,) in database.execute(query):
                    with suppress(BsdError):  # not a valid session name
                        name = SessionName.parse(text)
                        if not is_there(name):
                            gone.append(name)
                for name in gone:
                    _forget(database, name)
                    for table in ("rests", "accounts"):
                        query = f"DELETE FROM {table} WHERE session = ?"  # noqa: S608 - our own tables
                        database.execute(query, (str(name),))
        return len(gone)

    # --- the database ---

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection, or None without a usable database; errors inside are logged."""
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
        """Return a connection to the file at the path, or None if it is not to be created."""
        if self._database is not None and not self._is_as_opened(self._database):
            self.close()
        if self._database is None and (create or self._path.exists()):
            make_private_dir(self._path.parent)
            make_database_file(self._path)
            database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, check_same_thread=False)
            with being_opened(database):
                without_shared_memory(database, self._path)
                if version_of(database) != _VERSION:
                    _create(database)
                database.execute("PRAGMA synchronous = OFF")  # lost rows are computed again
                database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._database, self._opened = database, self._which()
        return self._database

    def _is_as_opened(self, database: sqlite3.Connection) -> bool:
        """Return whether the path still leads to the open file, with this version's tables."""
        with suppress(sqlite3.Error):
            return self._which() == self._opened and version_of(database) == _VERSION
        return False

    def _which(self) -> tuple[int, int] | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = self._path.lstat()
            return found.st_dev, found.st_ino
        return None

    def _give_up(self, error: Exception) -> None:
        self.close()
        if type(error) is sqlite3.DatabaseError:  # not a database, or a damaged one
            with suppress(OSError):
                remove_database(self._path)
        if not self._warned:
            _log.warning("state.db cannot be used: sessions are read whole", error=str(error))
        self._warned = True


@lru_cache(maxsize=8)
def state_at(path: Path) -> StateDb:
    """Return the database at a path; all callers in this process share it."""
    return StateDb(path)


def guard(source: Readable, offset: int, edits: Sequence[Edit] = ()) -> bytes:
    """Return a hash of the bytes before `offset` in a file, as they are after `edits`."""
    before = edited(source, edits, max(0, offset - _GUARDED), offset)
    return hashlib.sha256(before).digest()


def _create(database: sqlite3.Connection) -> None:
    """Create empty tables, unless another process has just done so."""
    # Ids are random: a look-up reads a page, and an insertion writes a page, so pages are small.
    database.execute("PRAGMA page_size = 1024")
    database.execute("BEGIN IMMEDIATE")
    with database:
        if version_of(database) == _VERSION:
            return
        for table, columns in _TABLES.items():
            database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE {table} ({columns}")
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _checkpoint(place: bytes, ids: _StoredIds) -> Checkpoint:
    """Read a stored checkpoint; raises ValueError, KeyError or TypeError if it is not valid."""
    members = orjson.loads(place)
    members["own_calls"] = tuple(members["own_calls"])
    cache = members["cache"]
    members["cache"] = CacheSeen(**cache | {"usage": cache["usage"] and tuple(cache["usage"])})
    members["waiting"] = members["waiting"] and WaitingValues(**members["waiting"])
    return Checkpoint(**members, ids=array("Q"), earlier=ids)


def _save(
    database: sqlite3.Connection, name: SessionName, row: tuple[Any, ...], at: Checkpoint
) -> None:
    place = orjson.dumps({name: getattr(at, name) for name in _PLACE})
    row, further = (*row, place), at.waiting is not None
    columns, marks = "(session, further, settings, dev, ino, guard, place)", "(?, ?, ?, ?, ?, ?, ?)"
    number, earlier = None, at.earlier
    if isinstance(earlier, _StoredIds) and further == (earlier.earlier is not None):
        update = f"UPDATE checkpoints SET {columns} = {marks} WHERE number = ?"  # noqa: S608 - our own columns
        if database.execute(update, (*row, earlier.number)).rowcount:
            number = earlier.number
    if number is None:  # a new checkpoint, or the ids before it were dropped since
        _forget(database, name, further=further)
        if further or earlier is None:
            insert = f"INSERT INTO checkpoints {columns} VALUES {marks}"  # noqa: S608 - the same
            number = database.execute(insert, row).lastrowid
    if number is not None:
        new = ((number, id_) for id_ in sorted(map(signed, at.ids)))  # as in the table
        database.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?)", new)


def _forget(database: sqlite3.Connection, name: SessionName, *, further: bool = False) -> None:
    """Drop the checkpoints of a session, or with `further` only the further one."""
    which = (str(name), int(further))
    where = "session = ? AND further >= ?"
    query = f"DELETE FROM ids WHERE number IN (SELECT number FROM checkpoints WHERE {where})"  # noqa: S608 - our own condition
    database.execute(query, which)
    database.execute(f"DELETE FROM checkpoints WHERE {where}", which)  # noqa: S608 - the same


def _left(row: tuple[Any, ...]) -> Left:
    """Return the state that a row of `rests` holds; raises BsdError."""
    name, settings, *others = row
    return Left(SessionName.parse(name), settings, Written(*map(unsigned, others[:4])), *others[4:])


def _file(identity: Identity) -> tuple[int, int]:
    return signed(identity.dev), signed(identity.ino)
