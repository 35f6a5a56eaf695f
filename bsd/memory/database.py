"""The database file: opened so that the gateway may have it open too, its errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bsd.foundation.database_file import has_room, logs_ahead
from bsd.foundation.errors import BsdError, Invalid, NotFound, Unavailable, os_problem
from bsd.foundation.files import make_private_dir
from bsd.memory.problems import forbidden, no_room, problem_of
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
        if not readonly and not os.access(path, os.W_OK):
            # SQLite would only find out later, and leave files of ours beside it.
            raise forbidden(path, "its permissions forbid it")
        mode = _mode(path, readonly=readonly)
        if "immutable" not in mode and logs_ahead(path) and not has_room(path):
            raise no_room(path)
        with self._errors():
            self._db = sqlite3.connect(
                f"file:{quote(str(path))}?mode={mode}",
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


def nothing_there(path: Path) -> NotFound:
    """For a file that is missing, or in which nothing has been stored yet."""
    return NotFound(f"there is no database {path}", hint="`bsd memory store` begins one")


def _prepare(path: Path, *, create: bool) -> None:
    """See that there is a file, and that it is one."""
    try:
        if not path.exists():
            if not create:
                raise nothing_there(path)
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
    if not readonly or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return "rw"
    # Where nobody has it open, files of the write-ahead log would be made, and stay: of somebody
    # who may not write, in the way of those who may.
    return "ro" if Path(f"{path}-wal").exists() or not logs_ahead(path) else "ro&immutable=1"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
