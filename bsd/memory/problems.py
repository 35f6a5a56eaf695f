"""What errors of SQLite mean for whoever uses the memory, and what to do about them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from bsd.foundation.errors import BsdError, Busy, Conflict, Forbidden, Unavailable

_LEAST_ROOM = 64 << 10  # bytes on the disk, or it is full
_REBUILD = "INSERT INTO facts_fts (facts_fts) VALUES ('rebuild')"
_NAME_IT = "name the right one as `database` in [memory] of bsd.toml"


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
                hint=f"keep a copy; {_anew(path)} mends it if only the index of words is damaged,"
                f" `sqlite3 {path} .recover` saves what can be saved",
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
                hint="bsd must be able to write in its directory, for the files beside it",
            )
        case sqlite3.SQLITE_CONSTRAINT:
            return Conflict(
                f"{path} refuses this change: {text}",
                hint="a key or trigger of another program forbids it; if there is none, make the"
                f" index of words anew: {_anew(path)}",
            )
        case _:
            return _of_the_tables(path, text)


def forbidden(path: Path, why: str) -> Forbidden:
    """For a file that we may not write."""
    return Forbidden(
        f"{path} cannot be written: {why}",
        hint="run as the owner of this file, or mend its permissions and its directory's",
    )


def no_room(path: Path) -> Unavailable:
    """For a disk on which nothing can be changed."""
    return Unavailable(
        f"{path}: there is no room on the disk",
        hint="free some space on this disk and run it again; nothing was half written",
    )


def _of_the_disk(path: Path, text: str, *, full: bool) -> Unavailable:
    if full:
        return no_room(path)
    return Unavailable(f"{path}: {text}", hint="see the system log for trouble of the disk")


def _is_full(path: Path) -> bool:
    # Before it writes, SQLite makes a file for what its processes share; that error has no name.
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_ROOM
    except OSError:
        return False


def _of_the_tables(path: Path, text: str) -> BsdError:
    if "fts5" in text and "no such module" in text:
        return Unavailable(
            "the memory needs an SQLite with FTS5, which this Python's has not",
            hint="install Python or SQLite from your distribution",
        )
    if "no such table: facts_fts" in text:
        return Conflict(
            f"{path} has no index of words",
            hint="the next call that changes something makes it, as `bsd memory prune` does",
        )
    return Conflict(f"{path} is not as a database of facts should be: {text}", hint=_NAME_IT)


def _anew(path: Path) -> str:
    return f'`sqlite3 {path} "{_REBUILD}"`'
