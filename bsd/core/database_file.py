"""SQLite files of bsd: creation, schema version, journal mode, removal.

Databases that only bsd opens do not use shared memory. A write-ahead log comes with a file that is
mapped into memory; if the disk has no room for a page of this file, an access to the page kills the
process (SIGBUS). With a rollback journal a full disk is an ordinary error.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# SQLite allocates the file by writing a byte per 4 KB, which is too few for smaller disk blocks.
_ROOM = 1 << 20
# Of the database file, and of the files that SQLite keeps beside it.
_SUFFIXES = ("", "-journal", "-wal", "-shm")


def make_database_file(path: Path) -> bool:
    """Create an empty file with mode 0600 if none exists; returns True if it is new.

    Raises OSError, also for a symbolic link.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a symbolic link", str(path))
    if path.exists():
        return False
    flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    return True


@contextmanager
def being_opened(database: sqlite3.Connection) -> Iterator[None]:
    """Close a connection if the `with` block, which prepares it for use, fails."""
    try:
        yield
    except BaseException:  # also at an interrupt
        database.close()
        raise


def remove_database(path: Path) -> None:
    """Remove a database and the files that SQLite keeps beside it; raises OSError."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def version_of(database: sqlite3.Connection) -> int:
    """Return the schema version of a database; 0 if it has no tables yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def signed(number: int) -> int:
    """Convert an unsigned 64-bit number, such as an inode, to SQLite's signed 64-bit integer."""
    return number - (1 << 64) if number >= 1 << 63 else number


def unsigned(number: int) -> int:
    """Reverse `signed`."""
    return number + (1 << 64) if number < 0 else number


def without_shared_memory(database: sqlite3.Connection, path: Path) -> None:
    """Switch a connection to a rollback journal, before its first read; raises sqlite3.Error.

    A file that an older version left in write-ahead mode is converted when no process has it open.
    """
    ahead = logs_ahead(path)
    if ahead:  # in exclusive mode, the shared memory is private to this process
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = TRUNCATE").fetchall()
    if ahead:
        database.execute("PRAGMA locking_mode = NORMAL").fetchall()
        database.execute("SELECT 1 FROM sqlite_master").fetchall()  # releases the exclusive lock
        with suppress(OSError):
            Path(f"{path}-shm").unlink()


def has_room(path: Path) -> bool:
    """Return True if the disk has room for the shared memory of a write-ahead log."""
    try:
        return shutil.disk_usage(path.parent).free >= _ROOM
    except OSError:
        return True  # SQLite reports the problem


def logs_ahead(path: Path) -> bool:
    """Return True if the file's header says that the database uses a write-ahead log."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # SQLite reports the problem
