"""`search.db`: by which words the lines of sessions are found (SQLite FTS5), and what they count.

It holds no text: snippets are read where the text is. Words that no line says any more stay in it
until they are swept (`SearchIndex.sweep`): at once when something was deleted or forgotten, else
when they are many. All of it can be made anew: a database that is missing, damaged or of another
version is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeVar

import structlog

from bsd.core.database_file import remove_database
from bsd.core.errors import BsdError, Unavailable, os_problem
from bsd.core.layout import SessionName
from bsd.store.search_file import (
    WAIT_SECONDS,
    Damaged,
    Known,
    KnownState,
    KnownTitle,
    OfAnotherVersion,
    TakenOut,
    Words,
    connect,
    problem_of,
)
from bsd.store.search_words import Snippet, indexable, match_expression

_log = structlog.stdlib.get_logger(module="search")

_MERGED_PAGES = 2000
# Where so many of the rows are dead, they are swept; fewer than some are not worth it.
_MOST_DEAD, _FEW_DEAD = 0.3, 100
_SWEPT_AT_ONCE = 20_000  # rows, whose words are in memory

_MATCHING = (
    "FROM words JOIN rows ON rows.id = words.rowid"
    " JOIN sessions ON sessions.id = rows.session"
    " WHERE words MATCH :words AND (:agent IS NULL OR sessions.agent = :agent)"
)
_SEARCH = (
    "SELECT sessions.name, rows.line, rows.offset, rows.digest, words.rank "  # noqa: S608 - the same
    f"{_MATCHING}"
    " AND (:among IS NULL OR sessions.name IN (SELECT value FROM json_each(:among)))"
    " ORDER BY words.rank, rows.id LIMIT :limit"
)

Result = TypeVar("Result")
_KNOWN = tuple(Known.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An entry in which all words were found."""

    session: SessionName
    entry: str | None  # its id
    index: int  # line number in the session; of a stored original: when it was taken out
    where: Literal["transcript", "extracted"]
    snippet: Snippet
    score: float  # the greater the better


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A line in which all words were found; where it was, and how its text is known again."""

    session: SessionName
    line: int
    offset: int
    digest: int
    score: float  # the greater the better


def digest_of(text: str) -> int:
    """What tells one text from another: 64 bits, as SQLite can hold them."""
    data = text.encode("utf-8", "replace")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def use(path: Path, work: Callable[[SearchIndex], Result], *, wait: float = WAIT_SECONDS) -> Result:
    """Do `work` with the index, and once more with a new one if it is damaged.

    Others are waited for `wait` seconds. Raises Unavailable (no FTS5, disk full), Busy, and what
    the work raises.
    """
    try:
        return _once(path, work, wait)
    except OfAnotherVersion as other:
        _log.info(f"The search index is of another version of bsd ({other}) and made anew")
    except Damaged:
        _log.warning("The search index is damaged and made anew", path=str(path))
    remove_database(path)
    try:
        return _once(path, work, wait)
    except Damaged as error:
        raise Unavailable(f"{path} cannot be used: {error}", hint="check this disk") from error


def ask(
    path: Path,
    question: Callable[[SearchIndex], Result],
    nothing: Result,
    *,
    wait: float = WAIT_SECONDS,
) -> Result:
    """What the index knows already, or `nothing` if there is none; raises as `use`."""
    try:
        is_there = path.exists()
    except OSError as error:
        raise os_problem(error, f"looking at {path}") from error
    return use(path, question, wait=wait) if is_there else nothing


def _once(path: Path, work: Callable[[SearchIndex], Result], wait: float) -> Result:
    try:
        with closing(connect(path, wait)) as database:
            return work(SearchIndex(database))
    except OSError as error:
        raise os_problem(error, f"opening {path}") from error
    except sqlite3.Error as error:
        raise problem_of(error, path) from error


class SearchIndex:
    """The open database; `use` gives one. All changes stand in a `change()`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    @contextmanager
    def change(self) -> Iterator[None]:
        """All of what is done inside, or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # an interrupt, too: all of it or nothing
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def is_empty(self) -> bool:
        """Whether no session was read yet."""
        return self._db.execute("SELECT 1 FROM sessions LIMIT 1").fetchone() is None

    def agents(self) -> set[str]:
        """Whose sessions were read."""
        return {agent for (agent,) in self._db.execute("SELECT DISTINCT agent FROM sessions")}

    def seen(self, agent: str) -> dict[str, KnownState]:
        """The sessions of an agent as they were when they were last read, by name."""
        query = f"SELECT name, {', '.join(KnownState._fields)} FROM sessions"  # noqa: S608 - our own columns
        query += " WHERE agent = ?"
        return {name: KnownState(*row) for name, *row in self._db.execute(query, (agent,))}

    def known_among(self, names: Iterable[str]) -> dict[str, Known]:
        """Those of these sessions that were read, by name."""
        wanted = json.dumps(list(names))
        query = f"SELECT {', '.join(_KNOWN)} FROM sessions"  # noqa: S608 - our own columns
        query += " WHERE name IN (SELECT value FROM json_each(?))"
        rows = self._db.execute(query, (wanted,))
        return {row[0]: Known(*row) for row in rows}

    def known_as(self, name: SessionName) -> Known | None:
        """One of them."""
        return self._known("name", str(name))

    def kept_in(self, store: str) -> Known | None:
        """The one whose store directory is called so."""
        return self._known("store", store)

    def _known(self, column: str, value: str) -> Known | None:
        query = f"SELECT {', '.join(_KNOWN)} FROM sessions WHERE {column} = ?"  # noqa: S608 - the same
        row = self._db.execute(query, (value,)).fetchone()
        return Known(*row) if row else None

    def read_again(self, name: str | None = None) -> None:
        """Have a session read again, as a whole; or all of which text lay in store or archive."""
        condition = "away" if name is None else "name = ?"
        # As if it was another file by now. Its figures stay.
        update = f"UPDATE sessions SET dev = -1 WHERE {condition}"  # noqa: S608 - our own columns
        self._db.execute(update, () if name is None else (name,))

    def models(self, agent: str | None = None) -> dict[str, str]:
        """The names of the models that wrote in each session, by the session's name."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.models') FROM sessions"
            " WHERE :agent IS NULL OR agent = :agent",
            {"agent": agent},
        )
        return {name: models or "" for name, models in rows}

    def told(
        self, agent: str | None = None, only: SessionName | None = None
    ) -> dict[str, KnownTitle]:
        """How each session is called, or only one, by its name."""
        rows = self._db.execute(
            "SELECT name, size, mtime, CAST(json_extract(statistics, '$.title') AS BLOB),"
            " json_extract(statistics, '$.last_ms') FROM sessions"
            " WHERE (:agent IS NULL OR agent = :agent) AND (:only IS NULL OR name = :only)",
            {"agent": agent, "only": only and str(only)},
        )
        return {name: KnownTitle(*row) for name, *row in rows}

    def taken_out(
        self, agent: str | None = None, only: SessionName | None = None
    ) -> dict[str, TakenOut]:
        """Return what is out of each session, or of one, by name; none with nothing out."""
        rows = self._db.execute(
            "SELECT name, json_extract(statistics, '$.extracted_entries'),"
            " json_extract(statistics, '$.extracted_bytes'),"
            " json_extract(statistics, '$.saved_bytes') FROM sessions"
            " WHERE instr(statistics, '\"extracted_entries\"')"  # much quicker than to read all
            " AND (:agent IS NULL OR agent = :agent) AND (:only IS NULL OR name = :only)",
            {"agent": agent, "only": only and str(only)},
        )
        return {name: TakenOut(*(one or 0 for one in out)) for name, *out in rows}

    def note(self, known: Known) -> None:
        """Keep how a session was read."""
        columns = ", ".join(_KNOWN)
        marks = ", ".join("?" * len(_KNOWN))
        news = ", ".join(f"{column} = excluded.{column}" for column in _KNOWN[1:])
        self._db.execute(
            f"INSERT INTO sessions ({columns}) VALUES ({marks})"  # noqa: S608 - our own columns
            f" ON CONFLICT (name) DO UPDATE SET {news}",
            tuple(getattr(known, column) for column in _KNOWN),
        )

    def _id(self, name: SessionName) -> int:
        row = self._db.execute("SELECT id FROM sessions WHERE name = ?", (str(name),)).fetchone()
        if row is None:
            raise ValueError(f"{name} was not noted")
        return int(row[0])

    # --- words ---

    @property
    def has_words(self) -> bool:
        """Return whether the index holds words: the setting `search_index` at the last update."""
        return bool(self._db.execute("SELECT has_words FROM setting").fetchone()[0])

    def follow_setting(self, has_words: bool) -> bool:  # noqa: FBT001 - the setting itself
        """Keep words, or drop all; return whether that is new, so that sessions must be read."""
        if self.has_words == has_words:
            return False
        with self.change():
            self._db.execute("UPDATE setting SET has_words = ?", (has_words,))
            if has_words:
                # As if each was another file by now. The figures of sessions stay.
                self._db.execute("UPDATE sessions SET dev = -1")
            else:
                self._db.execute("INSERT INTO words (words) VALUES ('delete-all')")
                self._db.execute("DELETE FROM rows")
        self._vacuum()
        return True

    def set_lines(
        self, name: SessionName, words: Iterable[Words], first: int, end: int | None = None
    ) -> None:
        """The text of a session's lines `[first, end)`; of those that are as before it stays."""
        session = self._id(name)
        rows = self._db.execute(
            "SELECT line, id, offset, digest FROM rows WHERE session = :session"
            " AND line >= :first AND (:end IS NULL OR line < :end)",
            {"session": session, "first": first, "end": end},
        )
        before = {line: row for line, *row in rows}
        keeps = self.has_words
        for one in words:
            if not (one.text and keeps):
                continue
            row, offset, digest = before.get(one.line, (None, 0, 0))
            if row is None or digest != digest_of(one.text):
                self._insert(session, one)
                continue
            del before[one.line]
            if offset != one.offset:
                update = "UPDATE rows SET offset = ? WHERE id = ?"
                self._db.execute(update, (one.offset, row))
        self._bury(row for row, _, _ in before.values())

    def _insert(self, session: int, one: Words) -> None:
        done = self._db.execute(
            "INSERT INTO rows (session, line, offset, digest) VALUES (?, ?, ?, ?)",
            (session, one.line, one.offset, digest_of(one.text)),
        )
        insert = "INSERT INTO words (rowid, text) VALUES (?, ?)"
        self._db.execute(insert, (done.lastrowid, indexable(one.text)))

    def _bury(self, rows: Iterable[int]) -> None:
        """Mark these rows as dead."""
        dead = "UPDATE rows SET session = 0, line = 0, offset = 0, digest = 0 WHERE id = ?"
        self._db.executemany(dead, [(row,) for row in rows])

    # --- forgetting ---

    def forget(self, name: str) -> int:
        """Drop all that is known of a session; returns how many rows are dead by that."""
        row = self._db.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0
        rows = self._db.execute("SELECT id FROM rows WHERE session = ?", row).fetchall()
        self._bury(one for (one,) in rows)
        self._db.execute("DELETE FROM sessions WHERE id = ?", row)
        return len(rows)

    def dead(self) -> int:
        """Return the number of rows whose words stand in no line any more."""
        (count,) = self._db.execute("SELECT count(*) FROM rows WHERE session = 0").fetchone()
        return int(count)

    def is_due_to_be_swept(self) -> bool:
        """Return whether enough rows are dead to be worth the work."""
        dead = self.dead()
        if dead < _FEW_DEAD:
            return False
        (rows,) = self._db.execute("SELECT count(*) FROM rows").fetchone()
        return bool(dead > _MOST_DEAD * rows)

    def sweep(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Take the words of dead rows out of the index, and out of its files.

        To delete a row FTS5 wants the words that it was given. They are read from the index
        itself, in a pass over it: a word that was taken apart once is what it is from then on.
        Then as `optimize` does, in steps between which others may write.
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
            # One change is the statement's own.
            pages, moved = _MERGED_PAGES, self._db.total_changes - before > 1
        self._vacuum()

    def _drop_dead(self) -> bool:
        """Delete some dead rows; return whether there may be more."""
        with self.change():
            some = "SELECT id FROM rows WHERE session = 0 ORDER BY id LIMIT ?"
            gone = self._db.execute(some, (_SWEPT_AT_ONCE,)).fetchall()
            # As bytes: FTS5 may have cut a long word within a character.
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
    ) -> list[FoundRow]:
        """The best lines first; raises Invalid if there is no word in `words`.

        With `among` only these sessions are looked at.
        """
        asked = {
            "words": match_expression(words),
            "agent": agent,
            "among": None if among is None else json.dumps(list(map(str, among))),
            "limit": limit,
        }
        return [
            FoundRow(SessionName.parse(name), line, offset, digest, -float(rank))
            for name, line, offset, digest, rank in self._db.execute(_SEARCH, asked)
        ]

    def sessions_with(self, words: str, *, agent: str | None = None) -> set[str]:
        """The names of sessions with an entry that holds all the words, or words that begin so."""
        rows = self._db.execute(
            f"SELECT DISTINCT sessions.name {_MATCHING}",
            {"words": match_expression(words, beginnings=True), "agent": agent},
        )
        return {name for (name,) in rows}


def forget_sessions(path: Path, names: Iterable[SessionName]) -> None:
    """Take deleted sessions out of the index, for good; a problem is logged."""
    wanted = [str(name) for name in names]

    def drop(index: SearchIndex) -> None:
        with index.change():
            for name in wanted:
                index.forget(name)

    drop_for_good(path, drop)


def drop_for_good(path: Path, drop: Callable[[SearchIndex], object]) -> bool:
    """Do `drop`, and overwrite the words of what is dead then.

    A problem is logged; returns whether there was none.
    """

    def work(index: SearchIndex) -> None:
        drop(index)
        if index.dead():
            index.sweep()

    try:
        ask(path, work, None)
    except BsdError as problem:  # the next search brings the index up to date
        _log.error("Deleted text is still in the search index", problem=problem.message)
        return False
    return True
