"""Sessions that a program keeps in a SQLite database, which bsd reads and never writes.

A session in a database is read as the lines that it would have in a file. Its state is a made
`os.stat_result`, which changes with every change of the session as that of a file does. What is
particular to a program's tables stands in the program's module.

bsd delays no writer: it reads rows in short batches, each a read transaction of its own, and holds
no connection between two calls. It creates no file in a directory that it may not write to.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import tempfile
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar
from urllib.parse import quote

from bsd.core.errors import BsdError, Busy, Forbidden, LeftAlone, NotFound, Unavailable, os_problem
from bsd.core.files import NotPlain, plain_file
from bsd.core.layout import check_name
from bsd.transcripts.agents.program import Registry
from bsd.transcripts.reader import InBlocks, TranscriptCopy

BATCH_BYTES = 4 << 20  # of rows that a read transaction returns

_LOGS_AHEAD = 2  # in byte 18 of the header: the database has a write-ahead log
_WAIT_SECONDS = 0.5  # for a lock; the writers of a write-ahead log lock no reader out
_TRIES = 5
# A file that is written again within this time may keep its mtime.
_UNCERTAIN_NS = 50_000_000
_Result = TypeVar("_Result")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


class _Changed(Busy):
    """The database changed while it was read without locks, so that the reading was in vain."""


class SessionVersion(NamedTuple):
    """A state of one session in a database.

    Attributes:
        session: the session's id.
        last: the number of its last row; further rows get higher numbers.
        token: changes if other rows than the further ones changed.
        time_ms: the time of the last change, in milliseconds since 1970.
    """

    session: str
    last: int
    token: str
    time_ms: int

    def is_continued_by(self, later: SessionVersion) -> bool:
        """Return whether a later state has all rows of this state unchanged."""
        return self.token == later.token and self.last <= later.last


class DatabaseFill(NamedTuple):
    """Something in a database, or beside it, and how users get the space back, as a sentence."""

    what: str
    bytes: int
    advice: str | None


class ImportedFile(NamedTuple):
    """A file whose lines the program has imported into its database, compared with that."""

    path: Path
    lines: int
    missing: int  # lines that the database lacks
    problem: str | None = None  # why it could not be compared


@dataclass(frozen=True, slots=True)
class _Known:
    version: SessionVersion
    stat: os.stat_result


class _FileState(NamedTuple):
    """The state of the database's file and of its write-ahead log."""

    file: tuple[int, int, int, int]
    log: tuple[int, int, int, int] | None
    newest_ns: int


class SessionDatabase(ABC):
    """The sessions in one database. Objects are shared by threads (`shared_database`).

    All methods raise Busy if another process locks the database, and Unavailable or Forbidden if it
    cannot be read.
    """

    # The rule for edits, as a sentence: its sessions are read only.
    left_alone: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._seen: tuple[_FileState, int] | None = None  # and the time at which it was read
        self._problem: str | None = None
        self._tables: frozenset[str] = frozenset()
        self._versions: dict[str, SessionVersion] = {}
        self._list = Registry()
        self._known: dict[str, _Known] = {}  # the sessions that were measured
        self._copy: tuple[SessionVersion, BinaryIO] | None = None

    # --- what a program's module tells ---

    @abstractmethod
    def find_problem(self, connection: sqlite3.Connection) -> str | None:
        """Return why the sessions cannot be read (a newer schema); None if they can."""

    @abstractmethod
    def versions(self, connection: sqlite3.Connection) -> Iterator[SessionVersion]:
        """Yield the state of each session that has at least one row."""

    def read_list(self, connection: sqlite3.Connection) -> Registry:
        """Return the program's list of conversations, if it is in the database."""
        return Registry()

    @abstractmethod
    def measure(
        self, connection: sqlite3.Connection, version: SessionVersion, after: int | None
    ) -> int:
        """Return the size of a session's lines in bytes, line ends included.

        `after`: only the lines after this row; None: all.
        """

    @abstractmethod
    def lines(self, connection: sqlite3.Connection, version: SessionVersion) -> Iterator[bytes]:
        """Yield the lines of a session up to the row `version.last`, each with its line end."""

    def fills(self) -> Iterator[DatabaseFill]:
        """Yield what fills the database and the files beside it; empty if that is not known."""
        yield from ()

    def imported(self) -> Iterator[ImportedFile]:
        """Compare the files that were imported into the database with it, and yield the results."""
        yield from ()

    # --- for readers ---

    @property
    def problem(self) -> str | None:
        """Why no session of the database can be read; None if they can be, or if it is busy."""
        try:
            self._refresh()
        except Busy:
            return None
        except BsdError as error:
            return error.message
        return self._problem

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of this name; True if that cannot be told."""
        try:
            self._refresh()
        except NotFound:
            return False
        except BsdError:
            return True
        return name in self._tables

    def registry(self) -> Registry:
        """Return the program's list of conversations; empty if it cannot be read now."""
        with self._lock, suppress(BsdError):  # the agent's note tells the problem
            self._refresh()
            return self._list
        return Registry()

    def sessions(self) -> Mapping[str, os.stat_result]:
        """Return the state of each session by its id; empty if there is a `problem`."""
        return self._repeated(self._sessions)

    def _sessions(self) -> Mapping[str, os.stat_result]:
        with self._lock:
            self._refresh()
            left = [one for one in self._versions.values() if self._stat_known(one) is None]
            if left:
                with self.connected() as connection:
                    for version in left:
                        self._measure(connection, version)
            return {session: self._known[session].stat for session in self._versions}

    def find(self, session: str) -> os.stat_result | None:
        """Return the state of a session; None if the database does not have it."""
        return self._repeated(lambda: self._find(session))

    def _find(self, session: str) -> os.stat_result | None:
        with self._lock:
            self._refresh()
            version = self._versions.get(session)
            return None if version is None else self._stat(version)

    def has(self, session: str) -> bool:
        """Return whether the database has a session, without measuring it."""
        with self._lock:
            self._refresh()
            return session in self._versions

    def open(self, session: str) -> InBlocks:
        """Open a session's lines for reading; raises NotFound."""
        return self._repeated(lambda: self._open(session))

    def _open(self, session: str) -> InBlocks:
        with self._lock:
            self._refresh()
            version = self._versions.get(session)
            if version is None:
                if self._problem is not None:
                    raise LeftAlone(self._problem)
                raise NotFound(f"there is no session {session} in {self.path}")
            state = self._stat(version)
            if self._copy is None or self._copy[0] != version:
                self._forget_copy()
                self._copy = version, self._written(version, state)
            descriptor = os.dup(self._copy[1].fileno())
            return TranscriptCopy(descriptor, state, f"{session} in {self.path}")

    def _repeated(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, which is repeated if the database changed meanwhile."""
        for _ in range(_TRIES - 1):
            with suppress(_Changed):
                return work()
        return work()

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Open the database for reading. No error of SQLite leaves the `with` block."""
        state = _state_of(self.path)
        uri, is_quiet = self._uri(state)
        try:
            # Threads take turns by the lock of this object or have a connection each.
            database = sqlite3.connect(
                uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            with closing(database) as connection:
                connection.text_factory = bytes
                for setting in ("query_only = ON", "trusted_schema = OFF"):
                    connection.execute(f"PRAGMA {setting}")
                yield connection
        except sqlite3.Error as error:
            if is_quiet and _state_of(self.path) != state:
                raise self._changed() from error
            raise self._told(error) from error
        if is_quiet and _state_of(self.path) != state:
            raise self._changed()

    def _changed(self) -> _Changed:
        return _Changed(f"{self.path} changed while it was read", hint="again later")

    # --- how it does it ---

    def _uri(self, state: _FileState) -> tuple[str, bool]:
        """Return SQLite's name of the database, and whether it must not change meanwhile.

        A database whose write-ahead log is empty is read as a file that does not change: otherwise
        SQLite would create a log and shared memory beside it.
        """
        uri = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        if not _logs_ahead(self.path):
            return uri, False
        has_memory = os.path.lexists(f"{self.path}-shm")
        if state.log is None or (state.log[2] == 0 and not has_memory):
            return f"{uri}&immutable=1", True
        if not has_memory and not os.access(self.path.parent, os.W_OK):
            raise Unavailable(
                f"{self.path} has a write-ahead log without its index (-shm), and"
                f" {self.path.parent} cannot be written to",
                hint="start the program that owns it once, or run bsd as its user",
            )
        return uri, False

    def _told(self, error: sqlite3.Error) -> BsdError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            return Busy(f"{self.path} is locked by another process", hint="again later")
        return Unavailable(
            f"{self.path} cannot be read: {error}",
            hint="check it with its program; bsd never writes to it",
        )

    def _refresh(self) -> None:
        """Read the states of all sessions again if the database's files changed."""
        self._repeated(self._read_if_changed)

    def _read_if_changed(self) -> None:
        with self._lock:
            state = _state_of(self.path)
            is_known = self._seen is not None and self._seen[0] == state
            if is_known and self._seen and state.newest_ns + _UNCERTAIN_NS < self._seen[1]:
                return
            began = time.time_ns()
            try:
                self._read_states()
            except Busy:
                self._seen = None
                raise
            except BaseException:
                self._seen, self._versions, self._known = None, {}, {}
                self._forget_copy()
                raise
            self._seen = state, began

    def _read_states(self) -> None:
        with self.connected() as connection:
            self._tables = tables_of(connection)
            self._problem = self.find_problem(connection)
            found = () if self._problem else self.versions(connection)
            self._versions = {one.session: one for one in found if _is_name(one.session)}
            self._list = Registry() if self._problem else self.read_list(connection)
        for session in self._known.keys() - self._versions.keys():
            del self._known[session]

    def _stat_known(self, version: SessionVersion) -> os.stat_result | None:
        known = self._known.get(version.session)
        return known.stat if known is not None and known.version == version else None

    def _stat(self, version: SessionVersion) -> os.stat_result:
        if (known := self._stat_known(version)) is not None:
            return known
        with self.connected() as connection:
            return self._measure(connection, version)

    def _measure(self, connection: sqlite3.Connection, version: SessionVersion) -> os.stat_result:
        before = self._known.get(version.session)
        size, after = 0, None
        if before is not None and before.version.is_continued_by(version):
            size, after = before.stat.st_size, before.version.last
        size += self.measure(connection, version, after)
        state = _made_stat(version, size, os.stat(self.path))
        self._known[version.session] = _Known(version, state)
        return state

    def _written(self, version: SessionVersion, state: os.stat_result) -> BinaryIO:
        """Write a session's lines into a temporary file; raises Busy if it changed meanwhile."""
        # The file has no name, and is closed by `_forget_copy`.
        file = tempfile.TemporaryFile(prefix="bsd-session-")  # noqa: SIM115
        try:
            size = 0
            with self.connected() as connection:
                for line in self.lines(connection, version):
                    size += file.write(line)
                now = {one.session: one for one in self.versions(connection)}
            file.flush()
        except OSError as error:
            file.close()
            raise os_problem(error, f"copying a session of {self.path}") from error
        except BaseException:
            file.close()
            raise
        after = now.get(version.session)
        if after is None or after.token != version.token or size != state.st_size:
            file.close()
            self._seen = None
            self._known.pop(version.session, None)
            raise self._changed()
        return file

    def _forget_copy(self) -> None:
        if self._copy is not None:
            self._copy[1].close()
            self._copy = None


def _is_name(session: str) -> bool:
    with suppress(BsdError):
        return bool(check_name(session, "session"))
    return False


def _made_stat(version: SessionVersion, size: int, file: os.stat_result) -> os.stat_result:
    """Return the state of a session as that of a file; `file`: the state of the database."""
    inode = int.from_bytes(hashlib.sha256(version.session.encode()).digest()[:7])
    told = f"{version.last} {version.token} {size}".encode()
    # A time in milliseconds has room for a checksum of everything else that changes.
    time_ns = max(0, version.time_ms) * 1_000_000 + zlib.crc32(told) % 1_000_000
    seconds = time_ns / 1e9
    whole = time_ns // 1_000_000_000
    return os.stat_result(
        (
            stat.S_IFREG | 0o400,
            inode,
            file.st_dev,
            1,
            file.st_uid,
            file.st_gid,
            size,
            whole,
            whole,
            whole,
            seconds,
            seconds,
            seconds,
            time_ns,
            time_ns,
            time_ns,
        )
    )


def _state_of(path: Path) -> _FileState:
    """Return the state of a database's files; raises Forbidden, NotFound, Unavailable."""
    found = _plain(path)
    if found is None:
        raise NotFound(f"there is no file {path}", hint="`bsd sessions` lists sessions")
    log = _plain(Path(f"{path}-wal"))
    _plain(Path(f"{path}-shm"))
    newest = max(each.st_mtime_ns for each in (found, log) if each is not None)
    return _FileState(_key(found), None if log is None else _key(log), newest)


def _plain(path: Path) -> os.stat_result | None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise os_problem(error, f"looking at {path}") from error
    if not stat.S_ISREG(found.st_mode):
        raise Forbidden(f"{path} is not a regular file", hint="bsd reads plain files only")
    return found


def _key(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _logs_ahead(path: Path) -> bool:
    try:
        with plain_file(path) as file:
            header = file.read(20)
    except NotPlain:
        raise Forbidden(f"{path} is not a regular file") from None
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    return len(header) > 18 and header[18] == _LOGS_AHEAD


def tables_of(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names of all tables."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return frozenset(text_in(name) for [name] in names)


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the names of a table's columns; empty if there is no such table."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return frozenset(text_in(name) for [name] in rows)


def table_fills(
    connection: sqlite3.Connection, contents: Mapping[str, str], compact: str | None = None
) -> Iterator[DatabaseFill]:
    """Yield the bytes of tables with their indexes, and of pages that are free.

    Each index and table is a statement of its own, since SQLite walks over all its pages.

    Args:
        contents: by the beginning of a table's name, its content in words for users.
        compact: how users get free pages back.
    """
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    names = connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE rootpage > 0")
    sizes: Counter[str] = Counter()
    with suppress(sqlite3.OperationalError):  # this SQLite has no dbstat
        for name, table in names.fetchall():
            query = "SELECT sum(pgsize) FROM dbstat WHERE name = ? AND aggregate = TRUE"
            (size,) = connection.execute(query, (text_in(name),)).fetchone()
            called = text_in(table)
            found = (what for begin, what in contents.items() if called.startswith(begin))
            sizes[next(found, "other tables")] += size or 0
    yield from (DatabaseFill(what, size, None) for what, size in sizes.items())
    yield DatabaseFill("free pages", free * page, compact)


def text_in(value: object) -> str:
    """Return a value of a row as text; empty for any other type."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


_Kind = TypeVar("_Kind", bound=SessionDatabase)

_shared: dict[Path, SessionDatabase] = {}
_sharing = threading.Lock()


def shared_database(kind: type[_Kind], path: Path) -> _Kind:
    """Return the object of a database, which is the same for all callers in this process."""
    with _sharing:
        found = _shared.get(path)
        if not isinstance(found, kind):
            found = _shared[path] = kind(path)
        return found
