"""`search.db`: words in the lines of sessions (SQLite FTS5), files that calls name, statistics.

The index stores no text except paths of files (`file_uses`): snippets are read from the sessions.
The words of changed lines stay in it until their rows are swept (`SearchIndex.sweep`): at once
after text was deleted or forgotten, otherwise when there are many such rows. The file is rebuilt if
it is missing, damaged or of another version.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import structlog

from bsd.core.database_file import (
    being_opened,
    make_database_file,
    remove_database,
    version_of,
    without_shared_memory,
)
from bsd.core.errors import Busy, Unavailable, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import SessionName, inside
from bsd.store import file_uses
from bsd.store.file_uses import UsedFile
from bsd.store.search_filter import IN_SQL, NO_FILTER, SearchFilter, role_number, role_of
from bsd.store.search_rows import FoundRow, IndexedLine
from bsd.store.search_words import TOKENIZE, Snippet, indexable, match_expression, without_fts5
from bsd.store.statistics import TakenOut
from bsd.transcripts.agents.touched import PathPattern, TouchedFile

_log = structlog.stdlib.get_logger(module="search")

_VERSION = 8
WAIT_SECONDS = 60.0  # seconds; another process may be reading a large session for the first time
_MERGED_PAGES = 2000
# A sweep is due if more than this share of the rows, and at least this many rows, are dead.
_MOST_DEAD, _FEW_DEAD = 0.3, 100
_SWEPT_AT_ONCE = 20_000  # rows; their words are held in memory

# `words` stores no text (`content = ''`), so FTS5 of SQLite 3.40 needs a row's words to delete it.
# `rows` says to which line each row of `words` belongs; rows of session 0 are dead: no line has
# their words any more. `terms` lists the rows of each word. `setting` holds the setting
# `search_index` as it was at the last update.
CREATE = (
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, agent TEXT NOT NULL,
        store TEXT NOT NULL UNIQUE, dev INTEGER NOT NULL, ino INTEGER NOT NULL,
        size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
        offset INTEGER NOT NULL, lines INTEGER NOT NULL, guard BLOB NOT NULL,
        statistics TEXT NOT NULL, away INTEGER NOT NULL)""",
    """CREATE TABLE rows (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, line INTEGER NOT NULL,
        offset INTEGER NOT NULL, digest INTEGER NOT NULL, role INTEGER, time INTEGER)""",
    "CREATE INDEX rows_by_line ON rows (session, line)",
    f"CREATE VIRTUAL TABLE words USING fts5 (text, content = '', {TOKENIZE})",
    "CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'instance')",
    *file_uses.CREATE,
    "CREATE TABLE setting (has_words INTEGER NOT NULL)",
    "INSERT INTO setting VALUES (1)",
    f"PRAGMA user_version = {_VERSION}",
)
_MATCHING = (
    "FROM words JOIN rows ON rows.id = words.rowid"
    " JOIN sessions ON sessions.id = rows.session"
    " WHERE words MATCH :words AND (:agent IS NULL OR sessions.agent = :agent)"
)
_SEARCH = (
    "SELECT sessions.name, rows.line, rows.offset, rows.digest, words.rank,"  # noqa: S608 - the same
    f" rows.role, rows.time {_MATCHING}{IN_SQL}"
    " AND (:among IS NULL OR sessions.name IN (SELECT value FROM json_each(:among)))"
    " AND (:apart IS NULL OR sessions.name NOT IN (SELECT value FROM json_each(:apart)))"
    " ORDER BY words.rank, rows.id LIMIT :limit"
)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Known:
    """The state of a session when it was last read; the fields are columns of `sessions`."""

    name: str
    agent: str
    store: str  # name of the store directory
    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    offset: int  # bytes; the file was read up to this offset
    lines: int  # number of lines before the offset
    guard: bytes  # hash of the bytes before the offset; empty: an append has all read again
    statistics: str
    away: bool  # some of the words were read from store or archive

    @property
    def file(self) -> tuple[int, int, int, int, int]:
        """The state of the session file."""
        return self.dev, self.ino, self.size, self.mtime, self.ctime


_COLUMNS = tuple(Known.__dataclass_fields__)


class KnownTitle(NamedTuple):
    """The title and other facts from the content of a session, and the state of its file.

    Texts are UTF-8 bytes, since all titles are in memory at once and a single `…` doubles the size
    of a `str`.
    """

    size: int
    mtime: int
    title: bytes | None
    newest_ms: float | None  # time of the newest entry; epoch milliseconds
    directory: bytes | None  # the first working directory
    parent: str | None = None  # id of the session of which it is a fork


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An entry that contains all words of a search."""

    session: SessionName
    entry: str | None  # id of the entry
    index: int  # line number in the session; for a stored original: at the time of extraction
    where: Literal["transcript", "extracted"]
    snippet: Snippet
    score: float  # higher is better
    role: str | None = None
    time: float | None = None  # time of the entry; epoch seconds


def digest_of(text: str) -> int:
    """Return a 64-bit hash of a text, in the range of a signed SQLite integer."""
    data = text.encode("utf-8", "replace")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


# --- the file ---


class Damaged(Exception):
    """The database is damaged, or of another version."""


def use(
    path: Path, work: Callable[[SearchIndex], _Result], *, wait: float = WAIT_SECONDS
) -> _Result:
    """Call `work` with the index; if the index is damaged, rebuild it and call `work` again.

    Args:
        path: the file, in a root's `.brainsurgeon`; it is created if necessary.
        work: receives the open index; its result is returned.
        wait: seconds to wait for other processes.

    Raises:
        Unavailable: SQLite has no FTS5, or the disk is full.
        Busy: another process uses the index.
        BsdError: any error that `work` raises.
    """
    try:
        return _once(path, work, wait)
    except Damaged as problem:
        _log.warning("The search index is rebuilt", path=str(path), problem=str(problem))
    remove_database(path)
    try:
        return _once(path, work, wait)
    except Damaged as error:
        raise Unavailable(f"{path} cannot be used: {error}", hint="check this disk") from error


def ask(
    path: Path,
    question: Callable[[SearchIndex], _Result],
    nothing: _Result,
    *,
    wait: float = WAIT_SECONDS,
) -> _Result:
    """Return the answer of the index as it is, or `nothing` if no file exists; raises as `use`."""
    try:
        is_there = path.exists()
    except OSError as error:
        raise os_problem(error, f"looking at {path}") from error
    return use(path, question, wait=wait) if is_there else nothing


def _once(path: Path, work: Callable[[SearchIndex], _Result], wait: float) -> _Result:
    try:
        with closing(_connect(path, wait)) as database:
            return work(SearchIndex(database))
    except OSError as error:
        raise os_problem(error, f"opening {path}") from error
    except sqlite3.Error as error:
        raise _problem_of(error, path) from error


def _problem_of(error: sqlite3.Error, path: Path) -> Exception:
    """Translate an error of SQLite for the caller: Unavailable, Busy, Damaged."""
    text = str(error)
    if "fts5" in text and "no such module" in text:
        return without_fts5()
    if type(error) is sqlite3.DatabaseError or "no such" in text or "already exists" in text:
        return Damaged(text)
    if "locked" in text or "busy" in text:
        return Busy("the search index is in use by another bsd", hint="run it again in a moment")
    return Unavailable(f"{path}: {text}", hint="check the free space and permissions")


def _connect(path: Path, wait: float) -> sqlite3.Connection:
    """Open or create the database; refuses a link that leads out of the root."""
    path = inside(path, path.parent.parent, "replace the symbolic link; the index can be made anew")
    make_private_dir(path.parent)
    make_database_file(path)
    database = sqlite3.connect(path, timeout=wait, isolation_level=None)
    with being_opened(database):
        without_shared_memory(database, path)
        version = version_of(database)
        if version == 0:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("BEGIN IMMEDIATE")
            if version_of(database) == 0:  # unless another process was quicker
                for statement in CREATE:
                    database.execute(statement)
            database.execute("COMMIT")
        elif version != _VERSION:
            raise Damaged(f"version {version}")
        database.execute("PRAGMA secure_delete = ON")  # overwrite deleted words in the file
        database.execute("PRAGMA synchronous = NORMAL")
    return database


# --- the index ---


class SearchIndex:
    """The open database, as `use` passes it. Every change is made inside `change()`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    @contextmanager
    def change(self) -> Iterator[None]:
        """Apply all changes made inside the block, or none."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # an interrupt, too: all changes or none
            with suppress(sqlite3.Error):  # SQLite may have rolled back already
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- sessions ---

    def is_empty(self) -> bool:
        """Return whether no session has been read yet."""
        return self._db.execute("SELECT 1 FROM sessions LIMIT 1").fetchone() is None

    def agents(self) -> set[str]:
        """Return the agents with sessions in the index."""
        return {agent for (agent,) in self._db.execute("SELECT DISTINCT agent FROM sessions")}

    def files(self, agent: str) -> dict[str, tuple[int, ...]]:
        """Return the recorded file states (`Known.file`) of an agent's sessions, by name."""
        query = "SELECT name, dev, ino, size, mtime, ctime FROM sessions WHERE agent = ?"
        return {name: tuple(file) for name, *file in self._db.execute(query, (agent,))}

    def known_among(self, names: Iterable[str]) -> dict[str, Known]:
        """Return those of these sessions that are in the index, by name."""
        found = self._known("IN (SELECT value FROM json_each(?))", json.dumps(list(names)))
        return {known.name: known for known in found}

    def known_as(self, name: SessionName) -> Known | None:
        """Return a session, or None if it is not in the index."""
        return next(self._known("= ?", str(name)), None)

    def known_by_store(self, store: str) -> Known | None:
        """Return the session with this store directory, or None if it is not in the index."""
        return next(self._known("= ?", store, column="store"), None)

    def _known(self, condition: str, value: str, column: str = "name") -> Iterator[Known]:
        query = f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE {column} {condition}"  # noqa: S608 - our own columns
        return (Known(*row) for row in self._db.execute(query, (value,)))

    def note(self, known: Known) -> None:
        """Record the state in which a session was read."""
        columns, marks = ", ".join(_COLUMNS), ", ".join("?" * len(_COLUMNS))
        news = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[1:])
        self._db.execute(
            f"INSERT INTO sessions ({columns}) VALUES ({marks})"  # noqa: S608 - our own columns
            f" ON CONFLICT (name) DO UPDATE SET {news}",
            tuple(getattr(known, column) for column in _COLUMNS),
        )

    def read_again(self, name: str | None = None) -> None:
        """Make the next update read a session whole; without a name, all that used stored text.

        The session then counts as another file. Its figures stay.
        """
        condition = "away" if name is None else "name = ?"
        update = f"UPDATE sessions SET dev = -1 WHERE {condition}"  # noqa: S608 - our own columns
        self._db.execute(update, () if name is None else (name,))

    def models(self, agent: str | None = None) -> dict[str, str]:
        """Return the names of the models that wrote in each session, by session name."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.models') FROM sessions"
            " WHERE :agent IS NULL OR agent = :agent",
            {"agent": agent},
        )
        return {name: models or "" for name, models in rows}

    def titles(
        self, agent: str | None = None, only: SessionName | None = None
    ) -> dict[str, KnownTitle]:
        """Return the title of each session, or only of `only`, by session name."""
        rows = self._db.execute(
            "SELECT name, size, mtime, CAST(json_extract(statistics, '$.title') AS BLOB),"
            " json_extract(statistics, '$.last_ms'),"
            " CAST(json_extract(statistics, '$.directory') AS BLOB),"
            " json_extract(statistics, '$.parent') FROM sessions"
            " WHERE (:agent IS NULL OR agent = :agent) AND (:only IS NULL OR name = :only)",
            {"agent": agent, "only": only and str(only)},
        )
        return {name: KnownTitle(*row) for name, *row in rows}

    def spending(self, agent: str | None = None) -> dict[str, tuple[float, int]]:
        """Return the recorded cost of each session, by name: US dollars and tokens."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.cost'),"
            " json_extract(statistics, '$.tokens.total') FROM sessions"
            " WHERE :agent IS NULL OR agent = :agent",
            {"agent": agent},
        )
        return {name: (cost or 0.0, tokens or 0) for name, cost, tokens in rows}

    def titles_with(self, terms: list[str], agent: str | None = None) -> dict[str, KnownTitle]:
        """Return a superset of the titles that contain all these lowercase words, as `titles`."""
        # JSON holds ASCII words unchanged, so most sessions need not be parsed.
        words = [term for term in terms if term.isascii() and term.replace(" ", "").isalnum()]
        held = " AND instr(lower(statistics), ?)" * len(words)
        rows = self._db.execute(
            "SELECT name, size, mtime, CAST(json_extract(statistics, '$.title') AS BLOB),"  # noqa: S608 - no input
            " json_extract(statistics, '$.last_ms'),"
            " CAST(json_extract(statistics, '$.directory') AS BLOB),"
            " json_extract(statistics, '$.parent') FROM sessions"
            f" WHERE (? IS NULL OR agent = ?){held}",
            (agent, agent, *words),
        )
        return {name: KnownTitle(*row) for name, *row in rows}

    def taken_out(
        self, agent: str | None = None, only: SessionName | None = None
    ) -> dict[str, TakenOut]:
        """Return the extracted values of each session that has any, or only of `only`, by name."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.extracted_entries'),"
            " json_extract(statistics, '$.extracted_bytes'),"
            " json_extract(statistics, '$.saved_bytes') FROM sessions"
            " WHERE instr(statistics, '\"extracted_entries\"')"  # much faster than parsing all rows
            " AND (:agent IS NULL OR agent = :agent) AND (:only IS NULL OR name = :only)",
            {"agent": agent, "only": only and str(only)},
        )
        return {name: TakenOut(*(one or 0 for one in out)) for name, *out in rows}

    # --- words ---

    @property
    def has_words(self) -> bool:
        """Whether the index holds words: the setting `search_index` at the last update."""
        return bool(self._db.execute("SELECT has_words FROM setting").fetchone()[0])

    def follow_setting(self, has_words: bool) -> None:  # noqa: FBT001 - the setting itself
        """Apply the setting; a change drops all words, or makes all sessions due for reading."""
        if self.has_words == has_words:
            return
        with self.change():
            self._db.execute("UPDATE setting SET has_words = ?", (has_words,))
            if has_words:
                self._db.execute("UPDATE sessions SET dev = -1")
            else:
                self._db.execute("INSERT INTO words (words) VALUES ('delete-all')")
                self._db.execute("DELETE FROM rows")
                self._db.execute("DELETE FROM files")
        self._vacuum()

    def set_lines(
        self,
        name: SessionName,
        lines: Iterable[IndexedLine],
        first: int,
        end: int | None = None,
    ) -> None:
        """Set words and files of a session's lines `[first, end)`; equal lines keep their rows.

        The session must be in the index already (`note`).
        """
        query = "SELECT id FROM sessions WHERE name = ?"
        (session,) = self._db.execute(query, (str(name),)).fetchone()
        rows = self._db.execute(
            "SELECT line, id, offset, digest FROM rows WHERE session = :session"
            " AND line >= :first AND (:end IS NULL OR line < :end)",
            {"session": session, "first": first, "end": end},
        )
        before = {line: row for line, *row in rows}
        has_words = self.has_words
        touched: list[tuple[int, TouchedFile]] = []
        for line in lines:
            if not has_words:
                continue
            touched += [(line.number, each) for each in line.touched]
            if not line.text:
                continue
            digest = digest_of(line.text)
            row, offset_before, digest_before = before.get(line.number, (None, 0, 0))
            if row is not None and digest_before == digest:
                del before[line.number]
                if offset_before != line.offset:
                    update = "UPDATE rows SET offset = ? WHERE id = ?"
                    self._db.execute(update, (line.offset, row))
                continue
            role = role_number(line.role)
            columns = (session, line.number, line.offset, digest, role, line.time)
            insert = (
                "INSERT INTO rows (session, line, offset, digest, role, time)"
                " VALUES (?, ?, ?, ?, ?, ?)"
            )
            row = self._db.execute(insert, columns).lastrowid
            insert = "INSERT INTO words (rowid, text) VALUES (?, ?)"
            self._db.execute(insert, (row, indexable(line.text)))
        self._bury(row for row, _, _ in before.values())
        file_uses.set_files(self._db, session, touched, first, end)

    def _bury(self, rows: Iterable[int]) -> None:
        """Mark rows as dead."""
        dead = (
            "UPDATE rows SET session = 0, line = 0, offset = 0, digest = 0, role = NULL,"
            " time = NULL WHERE id = ?"
        )
        self._db.executemany(dead, [(row,) for row in rows])

    # --- forgetting ---

    def forget(self, name: str) -> int:
        """Drop a session from the index; return the number of rows that are dead now."""
        row = self._db.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0
        rows = self._db.execute("SELECT id FROM rows WHERE session = ?", row).fetchall()
        self._bury(id_ for (id_,) in rows)
        self._db.execute("DELETE FROM files WHERE session = ?", row)
        self._db.execute("DELETE FROM sessions WHERE id = ?", row)
        return len(rows)

    def dead(self) -> int:
        """Return the number of rows whose words are in no line any more."""
        (count,) = self._db.execute("SELECT count(*) FROM rows WHERE session = 0").fetchone()
        return int(count)

    def is_due_to_be_swept(self) -> bool:
        """Return whether enough rows are dead to be worth a sweep."""
        dead = self.dead()
        if dead < _FEW_DEAD:
            return False
        (rows,) = self._db.execute("SELECT count(*) FROM rows").fetchone()
        return bool(dead > _MOST_DEAD * rows)

    def sweep(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Remove the words of dead rows from the index and from its file.

        FTS5 needs the words of a row to delete it. They are read from the index itself, in one
        pass. Then the index is merged as by `optimize`, but in steps between which other processes
        may write.

        Args:
            stopping: called from time to time; if it returns True, the sweep ends early.
        """
        self._db.set_progress_handler(lambda: int(stopping()), 1_000_000)
        try:
            while self._drop_dead():
                pass
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                return
            raise
        finally:
            self._db.set_progress_handler(None, 0)
        pages, moved = -_MERGED_PAGES, True
        while moved and not stopping():
            before = self._db.total_changes
            with self.change():
                self._db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            # One change belongs to the statement itself.
            pages, moved = _MERGED_PAGES, self._db.total_changes - before > 1
        self._vacuum()

    def _drop_dead(self) -> bool:
        """Delete some dead rows; return whether there may be more."""
        with self.change():
            some = "SELECT id FROM rows WHERE session = 0 ORDER BY id LIMIT ?"
            gone = self._db.execute(some, (_SWEPT_AT_ONCE,)).fetchall()
            # As bytes, since FTS5 may have cut a long word within a character.
            found = self._db.execute(
                "SELECT doc, CAST(group_concat(term, ' ') AS BLOB) FROM terms"  # noqa: S608 - no input
                f" WHERE doc IN ({some}) GROUP BY doc",
                (_SWEPT_AT_ONCE,),
            )
            texts = dict.fromkeys((row for (row,) in gone), b"") | dict(found.fetchall())
            delete = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, CAST(? AS TEXT))"
            self._db.executemany(delete, texts.items())
            self._db.executemany("DELETE FROM rows WHERE id = ?", gone)
        return len(gone) == _SWEPT_AT_ONCE

    def _vacuum(self) -> None:
        self._db.execute("PRAGMA incremental_vacuum").fetchall()

    # --- searching ---

    def search(
        self,
        words: str,
        *,
        agent: str | None = None,
        limit: int = 20,
        among: Iterable[SessionName] | None = None,
        apart: Iterable[SessionName] | None = None,
        wanted: SearchFilter = NO_FILTER,
    ) -> list[FoundRow]:
        """Return the matching lines, the best first.

        Args:
            words: the words as typed.
            agent: search only sessions of this agent.
            limit: the most lines to return.
            among: search only these sessions.
            apart: search all sessions but these.
            wanted: further conditions. `gone`, `place`, `project` and `file` are ignored: the
                caller translates them into `among` and `apart`.

        Raises:
            Invalid: `words` contains no word.
        """
        asked = {
            "words": match_expression(words),
            "agent": agent,
            "among": None if among is None else json.dumps(list(map(str, among))),
            "apart": None if apart is None else json.dumps(list(map(str, apart))),
            "limit": limit,
            **wanted.as_parameters(),
        }
        return [
            FoundRow(SessionName.parse(name), line, start, digest, -rank, role_of(role), time)
            for name, line, start, digest, rank, role, time in self._db.execute(_SEARCH, asked)
        ]

    def files_named(self, pattern: PathPattern, agent: str | None = None) -> list[UsedFile]:
        """Return the files that calls name and whose paths match, in no particular order."""
        return file_uses.find_files(self._db, pattern, agent)

    def begun(self, names: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
        """Return title and first working directory of those of these sessions that are indexed."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.title'),"
            " json_extract(statistics, '$.directory') FROM sessions"
            " WHERE name IN (SELECT value FROM json_each(?))",
            (json.dumps(list(names)),),
        )
        return {name: (title, directory) for name, title, directory in rows}

    def sessions_with(self, words: str, *, agent: str | None = None) -> set[str]:
        """Return the sessions with an entry that holds all words, or words with these prefixes."""
        rows = self._db.execute(
            f"SELECT DISTINCT sessions.name {_MATCHING}",
            {"words": match_expression(words, beginnings=True), "agent": agent},
        )
        return {name for (name,) in rows}
