"""The database file of a memory, and the translation of SQLite's errors.

OpenClaw's gateway may have the file open at the same time.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bsd.core.database_file import being_opened, has_room, logs_ahead
from bsd.core.errors import (
    BsdError,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
    os_problem,
)
from bsd.core.files import make_private_dir

# Seconds to wait for another program that writes, as in the plugin.
WAIT_SECONDS = 5.0
_CACHE_KIB = 64 << 10  # large enough for the pages of a large change, so that each is written once
_LEAST_ROOM = 64 << 10  # with fewer free bytes, the disk counts as full
_REBUILD = "INSERT INTO facts_fts (facts_fts) VALUES ('rebuild')"
_NAME_IT = "name the right one as `database` in [memory] of bsd.toml"

Parameters = Sequence[Any] | Mapping[str, Any]
Row = sqlite3.Row


class Database:
    """A connection to the database. Its methods convert SQLite's errors to BsdError."""

    def __init__(
        self,
        path: Path,
        *,
        readonly: bool = False,
        create: bool = False,
        wait: float = WAIT_SECONDS,
    ) -> None:
        """Open the file.

        Args:
            path: the database file.
            readonly: the caller will make no changes; `seal` enforces this.
            create: create the file with mode 0600 if it is missing.
            wait: seconds to wait for another program that writes.

        Raises:
            NotFound, Forbidden, Unavailable, Busy.
        """
        self.path = path
        self.readonly = readonly
        _prepare(path, create=create)
        if not readonly and not os.access(path, os.W_OK):
            # SQLite would notice later, and leave files of this user beside the database.
            raise forbidden(path, "its permissions forbid it")
        mode = _mode(path, readonly=readonly)
        if "immutable" not in mode and logs_ahead(path) and not has_room(path):
            raise no_room(path)
        with self._errors():
            self._db = _connection(path, mode, wait)

    def close(self) -> None:
        self._db.close()

    def seal(self) -> None:
        """Make the connection refuse all changes from now on."""
        self.run("PRAGMA query_only = ON")

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return all rows of a query."""
        with self._errors():
            return self._db.execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Return the first row of a query; None if there is no row."""
        with self._errors():
            row: Row | None = self._db.execute(sql, parameters).fetchone()
            return row

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """Return the first value of a query's first row; None if there is no row."""
        row = self.one(sql, parameters)
        return None if row is None else row[0]

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute a statement; return the number of changed rows."""
        with self._errors():
            return self._db.execute(sql, parameters).rowcount

    def run_many(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Execute a statement for each of `rows`; return the number of changed rows."""
        with self._errors():
            return self._db.executemany(sql, rows).rowcount

    @contextmanager
    def change(self) -> Iterator[None]:
        """Run the block as a transaction; raises Busy if another program writes for too long."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:  # also for an interrupt: a change is complete or does not happen
            with suppress(sqlite3.Error):  # SQLite may have rolled back already
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise problem_of(error, self.path) from error
        except OverflowError as error:
            raise Invalid(
                "a number is too large for a database", hint="times are in seconds since 1970"
            ) from error


def nothing_there(path: Path) -> NotFound:
    """Return the error for a file that is missing or has no tables yet."""
    return NotFound(f"there is no database {path}", hint="`bsd memory store` creates it")


def _prepare(path: Path, *, create: bool) -> None:
    """Check that `path` is a file; with `create`, create a missing file."""
    try:
        if not path.exists():
            if not create:
                raise nothing_there(path)
            make_private_dir(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        elif not path.is_file():
            raise Unavailable(f"{path} is not a file", hint=_NAME_IT)
    except OSError as error:
        raise os_problem(error, f"opening {path}") from error


def _mode(path: Path, *, readonly: bool) -> str:
    if not readonly or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return "rw"
    # If no process has the database open, SQLite would create the files of the write-ahead log.
    # Created by a user without write access to the database, these files would stay and prevent
    # other users from writing.
    return "ro" if Path(f"{path}-wal").exists() or not logs_ahead(path) else "ro&immutable=1"


def _connection(path: Path, mode: str, wait: float) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=wait,
        isolation_level=None,
        # A connection belongs to a single call, which may move between threads.
        check_same_thread=False,
    )
    with being_opened(database):
        database.row_factory = sqlite3.Row
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.create_function("bsd_normalized", 1, normalized_hash, deterministic=True)
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return database


# --- texts of facts: conversion for SQLite, and the hash by which texts are compared ---


def storable(text: str) -> str:
    """Return the text without lone surrogates and NULs, which SQLite cannot hold."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def normalized_hash(text: object) -> str | None:
    """Return the SHA-256 of the text in lower case with single spaces, as the plugin does.

    None for None.
    """
    if text is None:
        return None
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    normal = " ".join(decoded.split()).lower()
    return hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest()


# --- translation of SQLite's errors, with hints ---


def problem_of(error: sqlite3.Error, path: Path) -> BsdError:
    """Return the BsdError for an error of SQLite."""
    text = str(error)
    # The low byte is the primary result code, the other bytes are details.
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(
                f"{path} is in use by another program: {text}",
                hint="again in a moment; a backup or an SQLite shell may hold a transaction open",
            )
        case sqlite3.SQLITE_CORRUPT:
            return Unavailable(
                f"{path} is damaged: {text}",
                hint=f"keep a copy; {_anew(path)} repairs it if only the index of words is damaged,"
                f" `sqlite3 {path} .recover` saves the readable rows",
            )
        case sqlite3.SQLITE_NOTADB:
            return Unavailable(f"{path} is not a database", hint=_NAME_IT)
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR as kind:
            return _of_the_disk(path, text, full=kind == sqlite3.SQLITE_FULL or _is_full(path))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return forbidden(path, text)
        case sqlite3.SQLITE_CANTOPEN:
            return Unavailable(
                f"{path} cannot be opened: {text}",
                hint="allow bsd to write in its directory, where SQLite creates further files",
            )
        case sqlite3.SQLITE_CONSTRAINT:
            return Conflict(
                f"{path} refuses this change: {text}",
                hint="look for a key or trigger of another program; if there is none, rebuild the"
                f" index of words: {_anew(path)}",
            )
        case _:
            return _of_the_tables(path, text)


def forbidden(path: Path, why: str) -> Forbidden:
    """Return the error for a file that may not be written."""
    return Forbidden(
        f"{path} cannot be written: {why}",
        hint="run as the owner of this file, or correct its permissions and its directory's",
    )


def no_room(path: Path) -> Unavailable:
    """Return the error for a full disk."""
    return Unavailable(
        f"{path}: the disk is full",
        hint="free some space on this disk, then repeat the command; the database is intact",
    )


def _of_the_disk(path: Path, text: str, *, full: bool) -> Unavailable:
    if full:
        return no_room(path)
    return Unavailable(f"{path}: {text}", hint="look for errors of the disk in the system log")


def _is_full(path: Path) -> bool:
    # SQLite's error for its shared-memory file does not tell that the disk is full.
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_ROOM
    except OSError:
        return False


def _of_the_tables(path: Path, text: str) -> BsdError:
    if "fts5" in text and "no such module" in text:
        return Unavailable(
            "the memory needs SQLite with FTS5, which this Python does not have",
            hint="install Python or SQLite from your distribution",
        )
    if "no such table: facts_fts" in text:
        return Conflict(
            f"{path} has no index of words",
            hint="`bsd memory prune`, which creates the index, as every change does",
        )
    return Conflict(f"{path} is not a valid database of facts: {text}", hint=_NAME_IT)


def _anew(path: Path) -> str:
    return f'`sqlite3 {path} "{_REBUILD}"`'
