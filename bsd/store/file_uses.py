"""The table `files` of the search index: the files that calls in each session name.

Each row describes a kind of use of a file in a session. It lists the numbers of the lines whose
calls use the file in this way.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from bsd.transcripts.agents.touched import FileUse, PathPattern, TouchedFile

# `use` is a position in `_USES`, `lines` a JSON array of line numbers.
CREATE = (
    """CREATE TABLE files (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, directory TEXT NOT NULL,
        name TEXT NOT NULL, use INTEGER NOT NULL, lines TEXT NOT NULL)""",
    "CREATE INDEX files_by_session ON files (session)",
    "CREATE INDEX files_by_name ON files (name COLLATE NOCASE)",
)
_USES = (FileUse.CHANGED, FileUse.READ, FileUse.NAMED)
_BEYOND = "\U0010ffff"  # sorts after every name that continues the text before it
# Selects by file name; the directories are compared afterwards.
_NAMED = "FROM files WHERE name >= :first COLLATE NOCASE AND name <= :last COLLATE NOCASE"
_FIND = f"SELECT session, directory, name, use, lines {_NAMED}"
_SESSIONS = (
    "SELECT id, name, json_extract(statistics, '$.directory'),"  # noqa: S608 - no input
    " coalesce(json_extract(statistics, '$.last_ms') / 1000.0, mtime / 1e9) FROM sessions"
    f" WHERE id IN (SELECT session {_NAMED}) AND (:agent IS NULL OR agent = :agent)"
)


@dataclass(frozen=True, slots=True)
class UsedFile:
    """A file, and a way in which calls of a session use it."""

    session: str
    path: str  # as written in the calls
    use: FileUse
    updated: float  # when the session was last written to; epoch seconds
    lines_json: str

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the lines with these calls, in order."""
        return tuple(json.loads(self.lines_json))  # parsed on demand: of many files, few are shown


def set_files(
    database: sqlite3.Connection,
    session: int,
    touched: Iterable[tuple[int, TouchedFile]],
    first: int,
    end: int | None,
) -> None:
    """Set the files that calls in the lines `[first, end)` of a session name.

    Uses in other lines stay.

    Args:
        database: the open search index, inside a change.
        session: the session's number in the table `sessions`.
        touched: line numbers in ascending order, each with a file that a call in the line names.
        first: 0-based line number.
        end: line number after the last line; None: the end of the session.
    """
    found: dict[tuple[str, str, int], list[int]] = {}
    for line, (path, use) in touched:
        directory, slash, name = path.rpartition("/")
        lines = found.setdefault((directory + slash, name, _USES.index(use)), [])
        if lines[-1:] != [line]:
            lines.append(line)
    query = "SELECT id, directory, name, use, lines FROM files WHERE session = ?"
    for row, directory, name, use, before in database.execute(query, (session,)).fetchall():
        others = [
            line for line in json.loads(before) if line < first or (end is not None and line >= end)
        ]
        lines = sorted(others + found.pop((directory, name, use), []))
        if not lines:
            database.execute("DELETE FROM files WHERE id = ?", (row,))
        elif (text := _dumps(lines)) != before:
            database.execute("UPDATE files SET lines = ? WHERE id = ?", (text, row))
    insert = "INSERT INTO files (session, directory, name, use, lines) VALUES (?, ?, ?, ?, ?)"
    new = ((session, *key, _dumps(lines)) for key, lines in found.items())
    database.executemany(insert, new)


def _dumps(lines: list[int]) -> str:
    return json.dumps(lines, separators=(",", ":"))


def find_files(
    database: sqlite3.Connection, pattern: PathPattern, agent: str | None = None
) -> list[UsedFile]:
    """Return the files whose paths match the pattern, in no particular order."""
    asked = {
        "first": pattern.name,
        "last": pattern.name + (_BEYOND if pattern.is_open else ""),
        "agent": agent,
    }
    sessions = {row: rest for row, *rest in database.execute(_SESSIONS, asked)}
    found = []
    for row, directory, name, use, lines in database.execute(_FIND, asked):
        if row in sessions:
            session, began_in, updated = sessions[row]
            if pattern.matches(path := directory + name, began_in):
                found.append(UsedFile(session, path, _USES[use], float(updated), lines))
    return found
