"""`search.db`: the words of sessions and of what was taken out of them (SQLite FTS5).

All of it can be made anew: a database that is missing, damaged or of another version is. The text
is kept packed, beside the index: a snippet needs no other file, and a piece can be taken out of the
index exactly, as retention must. What a person types is made into what FTS5 understands, and what
was found into a snippet.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeVar

from bsd.foundation.database_file import remove_database
from bsd.foundation.errors import BsdError, Invalid, Unavailable, os_problem
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.store.search_file import (
    WAIT_SECONDS,
    Damaged,
    Known,
    KnownState,
    KnownTitle,
    Slice,
    Words,
    connect,
    problem_of,
)

_PARTS = re.compile(r'"([^"]*)"?|([^\s"]+)')
# Scripts that put no space between words: each character becomes a word of its own.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f])")
_BREAK = "\u200b"
_START, _END = "\x02", "\x03"
# Colours of a terminal cling to the words they colour.
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_UNWANTED = re.compile(f"[\x00{_START}{_END}]")
_LONGEST_SNIPPET = 320  # characters
_BEFORE = 80
_MOST_WORDS = 64
_LONG_ENOUGH = 3  # characters: fewer begin too many words

# A snippet as FTS5 makes it, with the signs that `Snippet.read` looks for.
_SNIPPET = f"snippet(words, 0, '{_START}', '{_END}', '…', 24)"


def indexable(text: str) -> str:
    """Return `text` as the index keeps it: what UTF-8 or SQLite cannot hold is replaced."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # lone surrogates
        text = _UNSPACED.sub(rf"{_BREAK}\1{_BREAK}", text)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return _UNWANTED.sub(" ", text)


def terms_of(words: str) -> list[str]:
    """Return what was typed word by word; words in double quotes, which they keep, are one."""
    return [f'"{phrase}"' if phrase else word for phrase, word in _PARTS.findall(words)]


def match_expression(words: str, *, beginnings: bool = False) -> str:
    """Return the FTS5 expression for words that must all be there, in any order.

    `"several words"` stand together, `begin*` is any word that begins so, and with `beginnings`
    each word that stands alone and is not very short. Everything else a user may type is text.
    Raises Invalid if there is no word in it.
    """
    terms = []
    for phrase, word in _PARTS.findall(words):
        text = indexable(phrase or word)
        if not any(map(str.isalnum, text)):
            continue  # nothing that the index could know
        open_end = word.endswith("*") or (beginnings and len(word) >= _LONG_ENOUGH)
        prefix = " *" if open_end else ""
        terms.append(f'"{text}"{prefix}')
    if not terms:
        raise Invalid("there is no word to search for", hint='bsd search "two words" another')
    if len(terms) > _MOST_WORDS:
        raise Invalid(f"{len(terms)} words are too many", hint=f"at most {_MOST_WORDS}")
    return " ".join(terms)


@immutable
class Snippet:
    """A piece of text around what was found; `matches` are [start, end) in its characters."""

    text: str
    matches: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, marked: str) -> Snippet:
        """Read what the SQL expression _SNIPPET returned."""
        marked = " ".join(marked.replace(_BREAK, "").split())
        first = marked.find(_START)
        if len(marked) > _LONGEST_SNIPPET:  # words can be very long
            start = max(0, first - _BEFORE)
            marked = ("…" if start else "") + marked[start : start + _LONGEST_SNIPPET]
        text, matches, begun = "", [], None
        for part in re.split(f"([{_START}{_END}])", marked):
            if part == _START:
                begun = len(text)
            elif part == _END:
                if begun is not None:
                    matches.append((begun, len(text)))
                begun = None
            else:
                text += part
        if begun is not None:
            matches.append((begun, len(text)))
        return cls(text, tuple(matches))


@immutable
class SearchHit:
    """An entry in which all words were found."""

    session: SessionName
    entry: str | None  # its id
    index: int  # line number in the session; of extracted text: when it was taken out
    where: Literal["transcript", "extracted"]
    snippet: Snippet
    score: float  # the greater the better


# --- the index ---

_log = get_logger("search")

TRANSCRIPT, EXTRACTED = 0, 1
_WHERE: tuple[Literal["transcript", "extracted"], ...] = ("transcript", "extracted")
_MERGED_PAGES = 2000
_SHORT = 1 << 12  # bytes
_LITTLE_MEMORY = 4  # of 9
_LONGEST_PIECE = 1 << 20  # characters; words of one entry that are further apart are not "and"

_MATCHING = (
    "FROM words JOIN pieces ON pieces.id = words.rowid"
    " JOIN sessions ON sessions.id = pieces.session"
    " WHERE words MATCH :words AND (:agent IS NULL OR sessions.agent = :agent)"
)
_SEARCH = (
    "SELECT pieces.id, sessions.name, pieces.entry, pieces.line, pieces.place, words.rank "  # noqa: S608 - the same
    f"{_MATCHING}"
    " AND (:session IS NULL OR sessions.name = :session AND pieces.place = :place)"
    " AND (:among IS NULL OR sessions.name IN (SELECT value FROM json_each(:among)))"
    " ORDER BY words.rank, pieces.id"
)

Result = TypeVar("Result")
_KNOWN = tuple(Known.__dataclass_fields__)


def use(path: Path, work: Callable[[SearchIndex], Result], *, wait: float = WAIT_SECONDS) -> Result:
    """Do `work` with the index, and once more with a new one if it is damaged.

    Others are waited for `wait` seconds. Raises Unavailable (no FTS5, disk full), Busy, and what
    the work raises.
    """
    with suppress(Damaged):
        return _once(path, work, wait)
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


def _packed(text: str) -> bytes:
    data = text.encode()
    if len(data) > _SHORT:
        return zlib.compress(data, 6)
    # For a window of 32 KiB zlib clears 256: that takes longer than all the rest of a short text.
    packer = zlib.compressobj(6, zlib.DEFLATED, _SHORT.bit_length() - 1, _LITTLE_MEMORY)
    return packer.compress(data) + packer.flush()


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

    # --- what is known ---

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

    def slices(self, name: SessionName, first: int = 0) -> list[Slice]:
        """How the lines from number `first` on were read."""
        rows = self._db.execute(
            "SELECT first, lines, size, hash, statistics FROM slices"
            " WHERE session = ? AND first >= ? ORDER BY first",
            (self._id(name), first),
        )
        return [Slice(*row) for row in rows]

    def slice_before(self, name: SessionName, line: int) -> Slice | None:
        """The one that ends where line number `line` begins."""
        row = self._db.execute(
            "SELECT first, lines, size, hash, statistics FROM slices"
            " WHERE session = ? AND first < ? ORDER BY first DESC LIMIT 1",
            (self._id(name), line),
        ).fetchone()
        found = Slice(*row) if row else None
        return found if found and found.first + found.lines == line else None

    def set_slice(self, name: SessionName, read: Slice) -> None:
        """Keep how these lines were read; what began among them is forgotten."""
        session = self._id(name)
        self.drop_slices(name, read.first, read.first + read.lines)
        row = (session, read.first, read.lines, read.size, read.hash, read.statistics)
        self._db.execute("INSERT INTO slices VALUES (?, ?, ?, ?, ?, ?)", row)

    def drop_slices(self, name: SessionName, first: int, end: int | None = None) -> None:
        """Forget slices that begin at these line numbers."""
        self._db.execute(
            "DELETE FROM slices WHERE session = :session"
            " AND first >= :first AND (:end IS NULL OR first < :end)",
            {"session": self._id(name), "first": first, "end": end},
        )

    def set_lines(
        self, name: SessionName, words: Iterable[Words], first: int, end: int | None = None
    ) -> None:
        """The text of a session's lines `[first, end)`; of those that are as before it stays."""
        session = self._id(name)
        rows = self._db.execute(
            "SELECT line, part, id, digest FROM pieces"
            " WHERE session = :session AND place = :place"
            " AND line >= :first AND (:end IS NULL OR line < :end)",
            {"session": session, "place": TRANSCRIPT, "first": first, "end": end},
        )
        before = {(line, part): (row, digest) for line, part, row, digest in rows}
        for one in words:
            # One after the other: of a long line, not even all pieces are held at once.
            for part, text in enumerate(_parts(one.text)):
                was = before.pop((one.line, part), None)
                if was and was[1] == _digest(one, text):
                    continue
                if was:
                    self._drop([was[0]])
                self._insert(session, TRANSCRIPT, part, one, text)
        self._drop(row for row, _ in before.values())

    def stored(self, name: SessionName) -> set[str]:
        """Refs of the stored files whose text is in the index."""
        rows = self._db.execute(
            "SELECT DISTINCT ref FROM pieces WHERE session = ? AND place = ?",
            (self._id(name), EXTRACTED),
        )
        return {ref for (ref,) in rows}

    def add_stored(self, name: SessionName, words: Words) -> None:
        """The text of a stored file; one without any is noted, too, so as not to be read again."""
        session = self._id(name)
        for part, text in enumerate(_parts(words.text) if words.text else [""]):
            self._insert(session, EXTRACTED, part, words, text)

    def _insert(self, session: int, place: int, part: int, one: Words, text: str) -> None:
        entry = indexable(one.entry) if one.entry is not None else None
        row = (session, place, one.line, part, entry, one.ref, _digest(one, text), _packed(text))
        done = self._db.execute(
            "INSERT INTO pieces (session, place, line, part, entry, ref, digest, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (done.lastrowid, text))

    def _drop(self, rows: Iterable[int]) -> int:
        count = 0
        for row in list(rows):
            found = self._db.execute("SELECT text FROM texts WHERE id = ?", (row,)).fetchone()
            # FTS5 wants to be told the very text that it was given.
            self._db.execute(
                "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (row, *found)
            )
            self._db.execute("DELETE FROM pieces WHERE id = ?", (row,))
            count += 1
        return count

    # --- forgetting ---

    def forget(self, name: str) -> int:
        """Drop all that is known of a session; returns how many pieces of text."""
        row = self._db.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0
        pieces = self._db.execute("SELECT id FROM pieces WHERE session = ?", row)
        count = self._drop([piece for (piece,) in pieces])
        self._db.execute("DELETE FROM slices WHERE session = ?", row)
        self._db.execute("DELETE FROM sessions WHERE id = ?", row)
        return count

    def forget_stored(self, store: str, refs: Iterable[str]) -> int:
        """Drop the text of these files of the store directory called `store`."""
        row = self._db.execute("SELECT id FROM sessions WHERE store = ?", (store,)).fetchone()
        if row is None:
            return 0
        gone = set(refs)
        pieces = self._db.execute(
            "SELECT id, ref FROM pieces WHERE session = ? AND place = ?", (row[0], EXTRACTED)
        )
        return self._drop([piece for piece, ref in pieces if ref in gone])

    def all_stored(self) -> dict[str, set[str]]:
        """The stored files whose text is known: refs by the name of the store directory."""
        found: dict[str, set[str]] = {}
        rows = self._db.execute(
            "SELECT DISTINCT store, ref FROM pieces JOIN sessions ON sessions.id = session"
            " WHERE place = ?",
            (EXTRACTED,),
        )
        for store, ref in rows:
            found.setdefault(store, set()).add(ref)
        return found

    def scrub(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Take what was dropped out of the files, too: FTS5 only marks it, until it merges.

        What `optimize` does, in steps between which others may write.
        """
        pages, moved = -_MERGED_PAGES, True
        while moved and not stopping():
            before = self._db.total_changes
            with self.change():
                self._db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            # One change is the statement's own.
            pages, moved = _MERGED_PAGES, self._db.total_changes - before > 1
        self._db.execute("PRAGMA incremental_vacuum").fetchall()

    # --- searching ---

    def search(
        self,
        words: str,
        *,
        agent: str | None = None,
        limit: int = 20,
        extracted_from: SessionName | None = None,
        among: Iterable[SessionName] | None = None,
    ) -> list[SearchHit]:
        """The best entries first, each once; raises Invalid if there is no word in `words`.

        With `extracted_from` only what was taken out of that session is looked at, with `among`
        only these sessions.
        """
        expression = match_expression(words)
        asked = {
            "words": expression,
            "agent": agent,
            "session": extracted_from and str(extracted_from),
            "place": EXTRACTED,
            "among": None if among is None else json.dumps(list(map(str, among))),
        }
        hits: dict[tuple[str, str | int], SearchHit] = {}
        for piece, name, entry, line, place, rank in self._db.execute(_SEARCH, asked):
            key = (name, line if entry is None else entry)
            if key in hits:  # inline again, and still in the store; or a long one's other part
                continue
            session, snippet = SessionName.parse(name), self._snippet(expression, piece)
            hits[key] = SearchHit(session, entry, line, _WHERE[place], snippet, -float(rank))
            if len(hits) == limit:
                break
        return list(hits.values())

    def sessions_with(self, words: str, *, agent: str | None = None) -> set[str]:
        """The names of sessions with an entry that holds all the words, or words that begin so."""
        rows = self._db.execute(
            f"SELECT DISTINCT sessions.name {_MATCHING}",
            {"words": match_expression(words, beginnings=True), "agent": agent},
        )
        return {name for (name,) in rows}

    def _snippet(self, expression: str, piece: int) -> Snippet:
        (marked,) = self._db.execute(
            f"SELECT {_SNIPPET} FROM words WHERE words MATCH ? AND rowid = ?",  # noqa: S608
            (expression, piece),
        ).fetchone()
        return Snippet.read(marked)


def _parts(text: str) -> Iterator[str]:
    for at in range(0, len(text), _LONGEST_PIECE):
        yield indexable(text[at : at + _LONGEST_PIECE])


def _digest(one: Words, text: str) -> bytes:
    start = repr(one.entry).encode("utf-8", "replace")
    return blake2b(start + b"\0" + text.encode(), digest_size=8).digest()


def forget_sessions(path: Path, names: Iterable[SessionName]) -> None:
    """Take deleted sessions out of the index, for good; a problem is logged."""
    wanted = [str(name) for name in names]

    def drop(index: SearchIndex) -> bool:
        with index.change():
            return sum(map(index.forget, wanted)) > 0

    drop_for_good(path, drop)


def drop_for_good(path: Path, drop: Callable[[SearchIndex], bool]) -> bool:
    """Do `drop`, and overwrite what it dropped, if it says so.

    A problem is logged; returns whether there was none.
    """

    def work(index: SearchIndex) -> None:
        if drop(index):
            index.scrub()

    try:
        ask(path, work, None)
    except BsdError as problem:  # the next search brings the index up to date
        _log.error("Deleted text is still in the search index", problem=problem.message)
        return False
    return True
