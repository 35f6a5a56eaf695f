"""The table `files` of the search index: which files the calls of each session name, and where.

A row is a file of a session and a use of it, with the numbers of the lines whose calls use it so.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from bsd.transcripts.agents.touched import FileUse, PathPattern, TouchedFile

CREATE = (
    """CREATE TABLE files (
        session INTEGER NOT NULL, directory TEXT NOT NULL, name TEXT NOT NULL, use TEXT NOT NULL,
        lines TEXT NOT NULL, PRIMARY KEY (session, directory, name, use)) WITHOUT ROWID""",
    "CREATE INDEX files_by_name ON files (name COLLATE NOCASE)",
)
_BEYOND = "\U0010ffff"  # comes after every name that begins with what stands before it
# By the name alone; the directories before it are compared afterwards.
_FIND = (
    "SELECT sessions.name, files.directory, files.name, files.use, files.lines,"
    " json_extract(sessions.statistics, '$.directory'),"
    " coalesce(json_extract(sessions.statistics, '$.last_ms') / 1000.0, sessions.mtime / 1e9)"
    " FROM files JOIN sessions ON sessions.id = files.session"
    " WHERE files.name >= :first COLLATE NOCASE AND files.name <= :last COLLATE NOCASE"
    " AND (:agent IS NULL OR sessions.agent = :agent)"
)


@dataclass(frozen=True, slots=True)
class UsedFile:
    """A file that calls of a session use; `lines` has the numbers of their lines, in order."""

    session: str
    path: str  # as the calls have it
    use: FileUse
    lines: tuple[int, ...]
    updated: float  # when the session was last written to; epoch seconds


def set_files(
    database: sqlite3.Connection,
    session: int,
    touched: Iterable[tuple[int, TouchedFile]],
    first: int,
    end: int | None,
) -> None:
    """Set the files that calls in the lines `[first, end)` of a session name; others stay.

    Args:
        session: its number in the table `sessions`.
        touched: line numbers in rising order, each with a file that a call there names.
    """
    found: dict[tuple[str, str, str], list[int]] = {}
    for line, (path, use) in touched:
        directory, slash, name = path.rpartition("/")
        lines = found.setdefault((directory + slash, name, use.value), [])
        if lines[-1:] != [line]:
            lines.append(line)
    query = "SELECT directory, name, use, lines FROM files WHERE session = ?"
    before = {tuple(key): text for *key, text in database.execute(query, (session,))}
    for key in before.keys() | found.keys():
        kept = [
            line
            for line in json.loads(before.get(key, "[]"))
            if line < first or (end is not None and line >= end)
        ]
        text = json.dumps(sorted(kept + found.get(key, [])), separators=(",", ":"))
        if text == before.get(key):
            continue
        if text == "[]":
            where = "session = ? AND directory = ? AND name = ? AND use = ?"
            database.execute(f"DELETE FROM files WHERE {where}", (session, *key))  # noqa: S608 - no input
        else:
            insert = "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)"
            database.execute(insert, (session, *key, text))


def find_files(
    database: sqlite3.Connection, pattern: PathPattern, agent: str | None = None
) -> list[UsedFile]:
    """Return the files whose paths end as the pattern says, in no order."""
    asked = {
        "first": pattern.name,
        "last": pattern.name + (_BEYOND if pattern.is_open else ""),
        "agent": agent,
    }
    rows = database.execute(_FIND, asked)
    return [
        UsedFile(session, path, FileUse(use), tuple(json.loads(lines)), float(updated))
        for session, directory, name, use, lines, began_in, updated in rows
        if pattern.matches(path := directory + name, began_in)
    ]
