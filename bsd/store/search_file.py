"""`search.db`: its rows, how its file is made, opened, and known to be damaged.

And what is counted of a session while the index reads it: its figures, a column of its row.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from bsd.core.database_file import (
    being_opened,
    make_database_file,
    version_of,
    without_shared_memory,
)
from bsd.core.errors import Busy, Unavailable
from bsd.core.files import make_private_dir
from bsd.core.layout import inside
from bsd.store.search_words import TOKENIZE, without_fts5
from bsd.transcripts.agents.entry import Entry, Marker, answer_of, model_of, tokens_of
from bsd.transcripts.agents.format import EntryInfo, Rank, Title, better


@dataclass(frozen=True, slots=True)
class Known:
    """A session as it was when it was last read; the fields are columns of `sessions`."""

    name: str
    agent: str
    store: str  # name of its store directory
    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    offset: int  # up to here its lines are complete
    lines: int  # so many of them
    guard: bytes  # hash of the last bytes before the offset
    settled: str  # statistics of those lines; empty: they are all there was
    statistics: str  # of all there was
    away: bool  # words of it were read from store or archive


class KnownState(NamedTuple):
    """What tells whether a session is as it was; of many sessions, so small."""

    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    offset: int


class KnownTitle(NamedTuple):
    """How a session is called and how new it is, by what was counted in it; and of which file."""

    size: int
    mtime: int
    title: bytes | None  # UTF-8, since all are held at once: one … doubles a text's size in memory
    newest_ms: float | None


class TakenOut(NamedTuple):
    """What is out of the lines of a session, by the markers that stand in them."""

    entries: int  # with a marker
    content: int  # bytes of their original lines
    saved: int  # bytes by which the lines are shorter than these

    def __add__(self, other: object) -> TakenOut:
        """Return the sum of both."""
        if not isinstance(other, TakenOut):
            return NotImplemented
        return TakenOut(*map(sum, zip(self, other, strict=True)))


NOTHING_OUT = TakenOut(0, 0, 0)


def out_of(entry: Entry, size: int) -> TakenOut:
    """Return what is out of an entry; `size` is the length of its line in bytes."""
    marker = Marker.of(entry)
    return NOTHING_OUT if marker is None else TakenOut(1, marker.size, max(0, marker.size - size))


@dataclass(frozen=True, slots=True)
class Words:
    """The index text of one line, and the offset of the line in bytes."""

    line: int
    offset: int
    text: str


_VERSION = 5
WAIT_SECONDS = 60.0  # somebody may be reading a large session for the first time
# `words` keeps no text (`content = ''`), so FTS5 of SQLite 3.40 cannot delete from it by itself.
# `rows` says which line each of its rows is; those of session 0 are dead: no line says that any
# more. `terms` tells which words stand in which row.
CREATE = (
    "PRAGMA auto_vacuum = INCREMENTAL",
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, agent TEXT NOT NULL,
        store TEXT NOT NULL UNIQUE, dev INTEGER NOT NULL, ino INTEGER NOT NULL,
        size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
        offset INTEGER NOT NULL, lines INTEGER NOT NULL, guard BLOB NOT NULL,
        settled TEXT NOT NULL, statistics TEXT NOT NULL, away INTEGER NOT NULL)""",
    """CREATE TABLE rows (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, line INTEGER NOT NULL,
        offset INTEGER NOT NULL, digest INTEGER NOT NULL)""",
    "CREATE INDEX rows_by_line ON rows (session, line)",
    f"CREATE VIRTUAL TABLE words USING fts5 (text, content = '', {TOKENIZE})",
    "CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'instance')",
    # Whether there are words at all: the setting `search_index`, as it was when it was followed.
    "CREATE TABLE setting (has_words INTEGER NOT NULL)",
    "INSERT INTO setting VALUES (1)",
    f"PRAGMA user_version = {_VERSION}",
)


class Damaged(Exception):
    """The database is not what we wrote."""


class OfAnotherVersion(Damaged):
    """Another version of bsd wrote the database."""


def problem_of(error: sqlite3.Error, path: Path) -> Exception:
    """What an error of SQLite means for whoever uses the index: Unavailable, Busy, Damaged."""
    text = str(error)
    if "fts5" in text and "no such module" in text:
        return without_fts5()
    if type(error) is sqlite3.DatabaseError or "no such" in text or "already exists" in text:
        return Damaged(text)
    if "locked" in text or "busy" in text:
        return Busy("the search index is in use by another bsd", hint="run it again in a moment")
    return Unavailable(f"{path}: {text}", hint="is there room on this disk, and may bsd write?")


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """Open it, or make it; others are waited for `wait` seconds.

    Raises OSError, sqlite3.Error, OfAnotherVersion, and Forbidden if a link leads
    out of the root, in whose `.brainsurgeon` it lies.
    """
    path = inside(path, path.parent.parent, "replace the symbolic link; the index can be made anew")
    make_private_dir(path.parent)
    make_database_file(path)
    database = sqlite3.connect(path, timeout=wait, isolation_level=None)
    with being_opened(database):
        without_shared_memory(database, path)
        version = version_of(database)
        if version == 0:
            _create(database)
        elif version != _VERSION:
            raise OfAnotherVersion(f"version {version}")
        # What is deleted is overwritten: retention means it.
        database.execute("PRAGMA secure_delete = ON")
        database.execute("PRAGMA synchronous = NORMAL")
    return database


def _create(database: sqlite3.Connection) -> None:
    auto_vacuum, *tables = CREATE
    database.execute(auto_vacuum)
    database.execute("BEGIN IMMEDIATE")
    if version_of(database) == 0:  # nobody else was quicker
        for statement in tables:
            database.execute(statement)
    database.execute("COMMIT")


# --- what is counted of a session ---

_MOST_MODELS = 50


@dataclass(slots=True)
class Statistics:
    """What was counted in the lines of a session. Times are milliseconds since 1970."""

    entries: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_outputs: int = 0
    models: list[str] = field(default_factory=list)  # in order of appearance
    tokens: dict[str, int] = field(default_factory=dict)  # input, output, cache_…, total
    created_ms: float | None = None
    last_ms: float | None = None
    extracted_entries: int = 0  # with a marker
    extracted_bytes: int = 0  # of their original lines
    saved_bytes: int = 0  # by which the lines are shorter than they were
    title: str | None = None  # how the session is called by what stands in it
    title_rank: int = 0  # `bsd.transcripts.agents.format.Rank`
    _answer: str | None = field(default=None, init=False, compare=False)  # whose tokens are counted

    def take(self, entry: Entry, info: EntryInfo | None, title: Title | None, size: int) -> None:
        """Count an entry; `size` is its line's bytes. A foreign dialect tells no facts."""
        self.entries += 1
        self._take_out(out_of(entry, size))
        if model := model_of(entry):
            self._add_model(model)
        answer = answer_of(entry)
        if answer is None or answer != self._answer:
            for word, count in tokens_of(entry).items():
                self.tokens[word] = self.tokens.get(word, 0) + count
        self._answer = answer or self._answer
        if info is None:
            return
        self._call(title)
        self.messages += info.is_message
        self.tool_calls += len(info.calls)
        self.tool_outputs += info.kind == "tool_result"
        if info.time_ms is not None:
            self.created_ms = min(info.time_ms, self.created_ms or info.time_ms)
            self.last_ms = max(info.time_ms, self.last_ms or info.time_ms)

    def add(self, later: Statistics) -> Statistics:
        """Count what was counted in the lines that follow, too; returns itself."""
        self.entries += later.entries
        self.messages += later.messages
        self.tool_calls += later.tool_calls
        self.tool_outputs += later.tool_outputs
        self._take_out(TakenOut(later.extracted_entries, later.extracted_bytes, later.saved_bytes))
        if later.title is not None:
            self._call(Title(later.title, Rank(later.title_rank)))
        for model in later.models:
            self._add_model(model)
        for word, count in later.tokens.items():
            self.tokens[word] = self.tokens.get(word, 0) + count
        times = [self.created_ms, later.created_ms]
        self.created_ms = min((time for time in times if time is not None), default=None)
        times = [self.last_ms, later.last_ms]
        self.last_ms = max((time for time in times if time is not None), default=None)
        return self

    def _take_out(self, out: TakenOut) -> None:
        self.extracted_entries += out.entries
        self.extracted_bytes += out.content
        self.saved_bytes += out.saved

    def _call(self, new: Title | None) -> None:
        old = None if self.title is None else Title(self.title, Rank(self.title_rank))
        if new is not None and better(old, new) is new:
            self.title, self.title_rank = new

    def _add_model(self, model: str) -> None:
        if model not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(model)

    def dumps(self) -> str:
        # In ASCII: a model's name may be any text. What was not counted is left out.
        counted = {name: value for name in _KEPT if (value := getattr(self, name))}
        return json.dumps(counted, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Statistics:
        """Read what `dumps` wrote; what another version wrote counts nothing."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(text))
        return cls()


_KEPT = tuple(one.name for one in fields(Statistics) if not one.name.startswith("_"))
