"""`state.db`: what was settled in each session when it was last looked into (DESIGN §3).

Only speed is kept here. Anything that does not fit the session as it is now is not used, and a
database that cannot be read or written is as good as none.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

import orjson

from bsd.foundation.errors import BsdError
from bsd.foundation.layout import SessionName, make_private_dir
from bsd.foundation.logs import get_logger
from bsd.store.checkpoint import Checkpoint
from bsd.transcript.change import Identity
from bsd.transcript.reader import Transcript, TranscriptFile

_log = get_logger("state")

_SCHEMA = 2
_GUARDED = 4096  # bytes before a checkpoint that must be what they were
_WAIT_SECONDS = 5.0

_CREATE = (
    """
CREATE TABLE checkpoints (
    session TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    guard BLOB NOT NULL,
    place BLOB NOT NULL,
    ids BLOB NOT NULL
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


@dataclass(frozen=True, slots=True)
class Rest:
    """How a session was left when there was nothing more to do to it."""

    session: SessionName
    settings: str  # fingerprint of those it was judged by
    dev: int
    ino: int
    size: int
    mtime_ns: int
    due_at: float | None  # epoch seconds at which there will be, without a change


class StateDb:
    """Checkpoints by session; every call opens the database anew, from whatever thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False

    def load(self, name: SessionName, settings: str, source: Transcript) -> Checkpoint | None:
        """The checkpoint that still fits: same settings, same file, same bytes before it."""
        row = None
        with self._open(create=False) as database:
            if database is not None:
                row = database.execute(
                    "SELECT settings, dev, ino, guard, place, ids FROM checkpoints"
                    " WHERE session = ?",
                    (str(name),),
                ).fetchone()
        if row is None or row[:3] != (settings, *_file(source.identity)):
            return None
        checkpoint = _checkpoint(row[4], row[5])
        if checkpoint is None or checkpoint.offset > source.identity.size:
            return None
        return checkpoint if _guard(source, checkpoint.offset) == row[3] else None

    def save(
        self, name: SessionName, settings: str, session: Path, left_as: Identity, at: Checkpoint
    ) -> None:
        """Keep a checkpoint of the file that was left as `left_as`, if it is still there."""
        with suppress(BsdError), TranscriptFile(session) as source:
            if _file(source.identity) == _file(left_as) and at.offset <= source.identity.size:
                self._save(name, settings, source, at)

    def _save(self, name: SessionName, settings: str, source: Transcript, at: Checkpoint) -> None:
        guard = _guard(source, at.offset)
        place = {field.name: getattr(at, field.name) for field in fields(at)}
        ids = place.pop("ids")
        row = (str(name), settings, *_file(source.identity), guard, orjson.dumps(place), ids)
        with self._open(create=True) as database:
            if database is not None:
                database.execute("REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def forget(self, name: SessionName) -> None:
        """Drop what is known of a session."""
        with self._open(create=False) as database:
            if database is not None:
                database.execute("DELETE FROM checkpoints WHERE session = ?", (str(name),))

    def rests(self, settings: str) -> list[Rest]:
        """How sessions were left under these settings."""
        found: list[Rest] = []
        with self._open(create=False) as database:
            if database is not None:
                query = (
                    "SELECT session, dev, ino, size, mtime_ns, due_at FROM rests WHERE settings = ?"
                )
                for name, *file, due_at in database.execute(query, (settings,)):
                    dev, ino, size, mtime_ns = map(_unsigned, file)
                    with suppress(BsdError):  # no name that a session may have
                        session = SessionName.parse(name)
                        found.append(Rest(session, settings, dev, ino, size, mtime_ns, due_at))
        return found

    def note_rests(self, rests: Mapping[SessionName, Rest | None]) -> None:
        """Keep how sessions were left; None: there is more to do to this one."""
        gone = [(str(name),) for name, rest in rests.items() if rest is None]
        left = [
            (
                str(rest.session),
                rest.settings,
                *map(_signed, (rest.dev, rest.ino, rest.size, rest.mtime_ns)),
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
        database = None
        if create or self._path.exists():
            try:
                database = self._connect()
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
        if database is None:
            yield None
            return
        try:
            with closing(database), database:
                yield database
        except sqlite3.Error as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        make_private_dir(self._path.parent)
        if not self._path.exists():
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS)
        try:
            if _version(database) != _SCHEMA:
                _create(database)
            # What a power cut takes is read again.
            database.execute("PRAGMA synchronous = OFF")
        except BaseException:  # the caller gets a connection or none
            database.close()
            raise
        return database

    def _give_up(self, error: Exception) -> None:
        if type(error) is sqlite3.DatabaseError:  # not a database, or a damaged one
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    self._path.with_name(self._path.name + suffix).unlink()
        if not self._told:
            _log.warning("state.db cannot be used: sessions are read whole", error=str(error))
        self._told = True


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _create(database: sqlite3.Connection) -> None:
    """Empty tables, unless another worker, who came at the same moment, has made them already."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        if _version(database) == _SCHEMA:
            return
        for table in ("checkpoints", "rests"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for create in _CREATE:
            database.execute(create)
        database.execute(f"PRAGMA user_version = {_SCHEMA}")
    with suppress(sqlite3.OperationalError):  # others read it: slower, and as good
        database.execute("PRAGMA journal_mode = WAL")


def _checkpoint(place: bytes, ids: bytes) -> Checkpoint | None:
    try:
        read = orjson.loads(place)
        return Checkpoint(**{**read, "own_calls": tuple(read["own_calls"])}, ids=ids)
    except (ValueError, KeyError, TypeError):  # written by another version
        return None


def _guard(source: Transcript, offset: int) -> bytes:
    start = max(0, offset - _GUARDED)
    return hashlib.sha256(source.read(start, offset - start)).digest()


def _file(identity: Identity) -> tuple[int, int]:
    return _signed(identity.dev), _signed(identity.ino)


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number


def _signed(number: int) -> int:
    """Inode numbers have 64 bits, SQLite's integers 63 and a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number
