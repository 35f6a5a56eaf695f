"""The database file: opened so that the gateway may have it open too, its errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bsd.foundation.errors import (
    BsdError,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
    os_problem,
)
from bsd.foundation.layout import make_private_dir
from bsd.memory.text import normalized_hash

# As the plugin does: whoever writes is done long before that.
WAIT_SECONDS = 5.0
_CACHE_KIB = 64 << 10  # what one large change touches, written once

Parameters = Sequence[Any] | Mapping[str, Any]
Row = sqlite3.Row


class Database:
    """One connection; every error that leaves it is a BsdError."""

    def __init__(
        self,
        path: Path,
        *,
        readonly: bool = False,
        create: bool = False,
        wait: float = WAIT_SECONDS,
    ) -> None:
        """Open the file; with `create` it is made, with mode 0600.

        `readonly`: nothing will be changed, `seal` makes sure of it. `wait`: seconds for others
        that write. Raises NotFound, Forbidden, Unavailable, Busy.
        """
        self.path = path
        self.readonly = readonly
        _prepare(path, create=create)
        with self._errors():
            self._db = sqlite3.connect(
                f"file:{quote(str(path))}?mode={_mode(path, readonly=readonly)}",
                uri=True,
                timeout=wait,
                isolation_level=None,
                # A connection belongs to one call, which may move from thread to thread.
                check_same_thread=False,
            )
        self._db.row_factory = sqlite3.Row
        self._db.text_factory = _text
        self._db.create_function("bsd_normalized", 1, normalized_hash, deterministic=True)
        try:
            self.run("PRAGMA foreign_keys = ON")
            self.run("PRAGMA synchronous = NORMAL")
            self.run(f"PRAGMA cache_size = -{_CACHE_KIB}")
        except BsdError:  # the caller gets a connection or none
            self.close()
            raise

    def close(self) -> None:
        self._db.close()

    def seal(self) -> None:
        """Refuse every change from now on."""
        self.run("PRAGMA query_only = ON")

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        with self._errors():
            return self._db.execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query."""
        with self._errors():
            row: Row | None = self._db.execute(sql, parameters).fetchone()
            return row

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """The only value of a query; None, if it has no row."""
        row = self.one(sql, parameters)
        return None if row is None else row[0]

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute a statement; returns how many rows it changed."""
        with self._errors():
            return self._db.execute(sql, parameters).rowcount

    def run_many(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Execute a statement for each of `rows`; returns how many rows that changed."""
        with self._errors():
            return self._db.executemany(sql, rows).rowcount

    @contextmanager
    def change(self) -> Iterator[None]:
        """All of what is done inside, or nothing; raises Busy if somebody else writes too long."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:  # an interrupt, too: all of it or nothing
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
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


def problem_of(error: sqlite3.Error, path: Path) -> BsdError:
    """Say what an error of SQLite means for the user."""
    text = str(error)
    # The low byte is the kind, the others are details.
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(
                f"{path} is in use by another program: {text}",
                hint="run it again in a moment; a backup or a shell may hold a transaction open",
            )
        case sqlite3.SQLITE_CORRUPT:
            return Unavailable(
                f"{path} is damaged: {text}",
                hint=f"keep a copy, then `sqlite3 {path} .recover` saves what can be saved",
            )
        case sqlite3.SQLITE_NOTADB:
            return Unavailable(
                f"{path} is not a database",
                hint="name the right one as `database` in [memory] of bsd.toml",
            )
        case sqlite3.SQLITE_FULL:
            return Unavailable(
                f"{path}: there is no room on the disk",
                hint="free some space on this disk and run it again; nothing was half written",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return Forbidden(
                f"{path} cannot be written: {text}",
                hint="run as the owner of this file, or mend its permissions and its directory's",
            )
        case sqlite3.SQLITE_CANTOPEN:
            return Unavailable(
                f"{path} cannot be opened: {text}",
                hint="bsd must be able to write in its directory, for the files beside it",
            )
        case sqlite3.SQLITE_IOERR:
            return Unavailable(f"{path}: {text}", hint="see the system log for trouble of the disk")
        case _ if "fts5" in text and "no such module" in text:
            return Unavailable(
                "the memory needs an SQLite with FTS5, which this Python's has not",
                hint="install Python or SQLite from your distribution",
            )
        case _:
            return Conflict(
                f"{path} is not as a database of facts should be: {text}",
                hint="name the right one as `database` in [memory] of bsd.toml",
            )


def _prepare(path: Path, *, create: bool) -> None:
    """See that there is a file, and that it is one."""
    try:
        if not path.exists():
            if not create:
                raise NotFound(f"there is no database {path}", hint="`bsd memory store` begins one")
            make_private_dir(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        elif not path.is_file():
            raise Unavailable(
                f"{path} is not a file",
                hint="name the right one as `database` in [memory] of bsd.toml",
            )
    except OSError as error:
        raise os_problem(error, f"opening {path}") from error


def _mode(path: Path, *, readonly: bool) -> str:
    # A connection that could not write would leave the files of the write-ahead log behind.
    may_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return "ro" if readonly and not may_write else "rw"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
