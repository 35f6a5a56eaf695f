"""Files of SQLite that bsd keeps: made, told apart by their version, and taken away again.

Databases that only bsd opens use no memory that processes share: a full disk must be an error, not
the end of us. A write-ahead log comes with a file that is mapped into memory. Where the disk has no
room for one of its pages, touching that page kills the process (SIGBUS).
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# SQLite asks for as much with a byte in every 4 KB, which is not enough on disks of smaller blocks.
_ROOM = 1 << 20
# Of the file, and of those that SQLite keeps beside it.
_SUFFIXES = ("", "-journal", "-wal", "-shm")


def make_database_file(path: Path) -> bool:
    """Make an empty file with mode 0600 unless there is one; returns whether it is new.

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
    """Close a connection again if its preparation for the first use fails."""
    try:
        yield
    except BaseException:  # an interrupt, too: the caller gets a connection or none
        database.close()
        raise


def remove_database(path: Path) -> None:
    """Remove it, with the files that SQLite keeps beside it; raises OSError if one stays."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def version_of(database: sqlite3.Connection) -> int:
    """The version of the tables in it; 0: there are none yet."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def signed(number: int) -> int:
    """Inode numbers have 64 bits, SQLite's integers 63 and a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def unsigned(number: int) -> int:
    """The number of 64 bits that `signed` was given."""
    return number + (1 << 64) if number < 0 else number


def without_shared_memory(database: sqlite3.Connection, path: Path) -> None:
    """Let a connection that has read nothing yet write by a rollback journal; raises sqlite3.Error.

    A file that an older version wrote with a log ahead is changed once no process has it open.
    """
    ahead = logs_ahead(path)
    if ahead:  # alone, its shared memory is our own
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = TRUNCATE").fetchall()
    if ahead:
        database.execute("PRAGMA locking_mode = NORMAL").fetchall()
        database.execute("SELECT 1 FROM sqlite_master").fetchall()  # only now others may have it
        with suppress(OSError):
            Path(f"{path}-shm").unlink()


def has_room(path: Path) -> bool:
    """Whether the disk has room for the shared memory of a database with a write-ahead log."""
    try:
        return shutil.disk_usage(path.parent).free >= _ROOM
    except OSError:
        return True  # SQLite reports the problem


def logs_ahead(path: Path) -> bool:
    """Whether writes go into a log of their own first, as the header of the file says."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # SQLite will say so
