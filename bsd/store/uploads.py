"""The journal of uploads: what of this root's archive is in the bucket, and what was deleted here.

The file `.brainsurgeon/fleet/uploads.db` exists only if this host shares its archive (`[fleet]`).
It holds what a push needs to continue after any interruption (`store/upload_places.py`), what
reading a thin pack needs, and tombstones that wait for the bucket. Files are named by their path
relative to `archive/`.

Each change is durable when its function returns. If the journal is lost or damaged, the next push
rebuilds it from the bucket's manifests (`fleet/push.py`). Notes of deletions and tombstones are
taken over from a damaged journal, if they can be read.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog

from bsd.bucket.remote_file import RemoteFile
from bsd.core.database_file import (
    being_opened,
    make_database_file,
    version_of,
    without_shared_memory,
)
from bsd.core.errors import BsdError, NotFound, TemporaryFailure, Unavailable, os_problem
from bsd.core.files import Closing, make_private_dir
from bsd.core.layout import Layout

_log = structlog.stdlib.get_logger(module="fleet")

_VERSION = 1
_WAIT_SECONDS = 10.0
_CACHE_KIB = 2048
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# Endings of the names of packs, and of damaged packs that were set aside (`store/pack.py`).
PACK, SET_ASIDE = ".zst", ".zst.damaged"
# The archive of a session in the trash: `trash/<store>_archive_<time>/`.
_IN_TRASH = re.compile(r"(?P<store>.+)_archive_\d{8}T\d{6}\.\d{3}Z")

_TABLES = {
    # A place is a directory of a bucket; it is `lost` if another machine uses it. `newest_full` is
    # the last manifest that lists all files; with `is_full` the next one must. `pending`: a
    # manifest that may be in the bucket already. `sweeps`: 1: the bucket may have objects that no
    # row names; -1: such objects stay, since a manifest that may name them is damaged.
    "places": """
        number INTEGER PRIMARY KEY, url TEXT NOT NULL, directory TEXT NOT NULL, identity TEXT,
        is_current INTEGER NOT NULL, is_lost INTEGER NOT NULL, generation INTEGER NOT NULL,
        previous TEXT, newest_full INTEGER NOT NULL, is_full INTEGER NOT NULL, pending BLOB,
        pending_hash TEXT, pending_full INTEGER, sweeps INTEGER NOT NULL,
        UNIQUE (url, directory)""",
    # `document`: the RemoteFile; `copy`: facts about a copy of a session. `listed`: the newest
    # manifest has the file as it is here.
    "files": """
        place INTEGER NOT NULL, path TEXT NOT NULL, document BLOB NOT NULL, copy BLOB,
        size INTEGER NOT NULL, ino INTEGER NOT NULL, here INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL, is_thin INTEGER NOT NULL, listed INTEGER NOT NULL,
        PRIMARY KEY (place, path)) WITHOUT ROWID""",
    "parts": """
        place INTEGER NOT NULL, key TEXT NOT NULL, path TEXT NOT NULL,
        PRIMARY KEY (place, key, path)) WITHOUT ROWID""",
    # Files that manifests list, and that the next manifest removes.
    "removed": "place INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY (place, path)",
    # Objects that a file no longer uses; others may.
    "unused": "place INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (place, key)",
    "deleted": "path TEXT PRIMARY KEY, at REAL NOT NULL, must INTEGER NOT NULL) WITHOUT ROWID",
    # `document` is NULL once the tombstone is in the bucket and was obeyed here.
    "tombstones": "id TEXT PRIMARY KEY, document BLOB) WITHOUT ROWID",
    # Stores whose originals were packed early, and the time of their directories then.
    "packed": "store TEXT PRIMARY KEY, mtime_ns INTEGER NOT NULL) WITHOUT ROWID",
    "figures": "name TEXT PRIMARY KEY, value) WITHOUT ROWID",
}


# Tables that cannot be made again from the bucket, with the number of their columns.
_NOTES = {"deleted": 3, "tombstones": 2}


# --- for code that does not know of buckets ---


def journal_file(root: Path) -> Path:
    """Return the path of the journal of a root."""
    return Layout(root).fleet / "uploads.db"


def note_deleted(root: Path, paths: Iterable[Path], *, must: bool = False) -> None:
    """Record that files of the archive are about to be deleted here for good.

    Call it before the deletion: the next push then removes them from the bucket, too. A file that
    is missing without such a note stays in the bucket, since a disk may have failed. Without a
    journal (this host shares nothing), this costs one stat.

    Args:
        root: bsd's root.
        paths: files below `archive/`, or below the archive of a session in the trash, which count
            with the path that they had in `archive/`. Others are ignored.
        must: content is deleted on purpose: the bucket loses the files even if their successors
            are not uploaded yet, and the deletion must not go on if the note cannot be written.
            Otherwise the problem is logged, and the files stay in the bucket.

    Raises:
        Unavailable, TemporaryFailure: the note cannot be written (only with `must`).
    """
    if not journal_file(root).exists():
        return
    gone = [path for path in (archive_path(root, each) for each in paths) if path is not None]
    if not gone:
        return
    try:
        try:
            _note(root, gone, must=must)
        except JournalDamaged:  # it was moved away
            _note(root, gone, must=must)
    except BsdError as problem:
        if must:
            raise
        _log.warning("A deletion is not passed on to the bucket", problem=problem.message)


def note_directory_deleted(root: Path, directory: Path, *, must: bool = True) -> None:
    """Record that a directory is about to be deleted with all files in it; as `note_deleted`."""
    if journal_file(root).exists():
        tops = os.walk(directory)
        paths = (Path(top, name) for top, _, names in tops for name in names)
        note_deleted(root, paths, must=must)


def _note(root: Path, gone: list[str], *, must: bool) -> None:
    with UploadJournal(Layout(root), create=True) as journal:
        journal.note_deleted(gone, must=must)


def archive_path(root: Path, path: Path) -> str | None:
    """Return a file's path relative to `archive/`, as journal and manifests name it.

    A file in the archive of a session in the trash has the path that it had before, and a damaged
    pack that was set aside the name that it had before: the bucket may have it whole. None: the
    file lies elsewhere.
    """
    with suppress(ValueError):
        # A layout returns paths of directories with links resolved, others as they are named.
        if not path.is_relative_to(root):
            path, root = Path(os.path.realpath(path)), Path(os.path.realpath(root))
        top, *below = path.relative_to(root).parts
        if below and below[-1].endswith(SET_ASIDE):
            below[-1] = below[-1].removesuffix(SET_ASIDE) + PACK
        if top == "archive" and below:
            return "/".join(below)
        if top == "trash" and len(below) > 1 and (found := _IN_TRASH.fullmatch(below[0])):
            return "/".join((found["store"], *below[1:]))
    return None


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A directory of a bucket, and what is needed to read it without settings.

    Attributes:
        url: of the bucket, as in the settings (without credentials).
        identity: the file with the keys that decrypt; None: nothing is encrypted.
        directory: this root's directory there: `HOST/ID`.
    """

    url: str
    identity: Path | None
    directory: str


class Stored(NamedTuple):
    """A file of the archive in a bucket."""

    file: RemoteFile
    place: BucketPlace


def stored_in_bucket(root: Path, path: Path) -> Stored | None:
    """Return where the bucket has a file of the archive.

    Args:
        root: bsd's root.
        path: the file, such as a thin pack, also if it lies in the trash.

    Returns:
        None: there is no journal, or it does not know the file.

    Raises:
        TemporaryFailure, Unavailable: the journal cannot be read.
    """
    name = archive_path(root, path)
    if name is None or not journal_file(root).exists():
        return None
    with suppress(NotFound), UploadJournal(Layout(root)) as journal:
        return journal.stored(name)
    return None


# --- the journal ---


class JournalDamaged(TemporaryFailure):
    """The journal was damaged and is moved away; the next call makes a new one."""


@dataclass(frozen=True, slots=True)
class UploadFigures:
    """The state of the uploads, as `bsd fleet status` and `/api/status` show it. Times: epoch.

    Attributes:
        last_success: when a push last ended with everything uploaded.
        last_error: why the last push failed or left files out; None after a success.
        last_error_at: when that was.
        errors: how many pushes failed, ever.
        waiting_files: files that are not in the bucket yet, as the last push left them.
        waiting_bytes: their size.
        waiting_since: since when files have been waiting without a break; None: none waits.
        files: files in the bucket.
        bytes: their size.
        generation: of the newest manifest; 0: none.
    """

    last_success: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None
    errors: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    waiting_since: float | None = None
    files: int = 0
    bytes: int = 0
    generation: int = 0


_FIGURES = {each.name for each in fields(UploadFigures)} - {"files", "bytes", "generation"}


class UploadJournal(Closing):
    """The journal, open; usable by one thread. Raises TemporaryFailure and Unavailable.

    Args:
        layout: of the root.
        create: make the journal if it is missing; otherwise a missing one is NotFound.

    Raises:
        JournalDamaged: the file is damaged; it was moved away.
    """

    def __init__(self, layout: Layout, *, create: bool = False) -> None:
        self.path = journal_file(layout.root)
        self._layout = layout
        self._open = True
        try:
            if create:
                make_private_dir(self.path.parent)
                make_database_file(self.path)
            elif not self.path.exists():
                raise NotFound(
                    f"{self.path} does not exist: this host has uploaded nothing",
                    hint="`bsd archive push`",
                )
        except OSError as error:
            raise os_problem(error, f"opening {self.path}") from error
        with self.errors():
            self.db = _connection(self.path)

    def close(self) -> None:
        if self._open:
            self._open = False
            self.db.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert SQLite's errors in the block."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: sqlite3.Error) -> BsdError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            with suppress(OSError):
                os.replace(self.path, aside)
                for rest in ("-journal", "-wal", "-shm"):
                    self.path.with_name(self.path.name + rest).unlink(missing_ok=True)
            _log.error("The journal of uploads is damaged and made anew", kept_as=str(aside))
            text = f"{self.path} was damaged ({error})"
            if not self._take_over(_notes_in(aside)):
                text += "; what was forgotten since the last push may still be in the bucket"
            return JournalDamaged(
                text, hint="the next push makes it anew from the bucket; run it again"
            )
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(
                f"{self.path}: {error}", hint="free some space on this disk and run it again"
            )
        return TemporaryFailure(f"{self.path}: {error}", hint="run it again")

    def _take_over(self, notes: dict[str, list[tuple[Any, ...]]]) -> bool:
        """Write notes into a new journal; return False if some are missing."""
        with suppress(BsdError), UploadJournal(self._layout, create=True) as fresh:
            with fresh.change() as db:
                for table, rows in notes.items():
                    marks = ", ".join("?" * _NOTES[table])
                    db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)  # noqa: S608 - no input
            return notes.keys() == _NOTES.keys()
        return False

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, durable at its end."""
        with self.errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back already
                    self.db.execute("ROLLBACK")
                raise

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self.errors():
            return self.db.execute(query, parameters).fetchall()

    # --- deletions, and reading what is in the bucket ---

    def note_deleted(self, paths: Iterable[str], *, must: bool) -> None:
        """Record that files are about to be deleted; see the function of this name."""
        now = time.time()
        with self.change() as db:
            db.executemany(
                "INSERT INTO deleted VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET at = excluded.at,"
                " must = max(must, excluded.must)",
                [(path, now, must) for path in paths],
            )

    def stored(self, path: str) -> Stored | None:
        """Return a file in the bucket, preferably in the current one."""
        query = """
            SELECT document, url, identity, directory FROM files JOIN places ON number = place
            WHERE path = ? ORDER BY is_current DESC, number DESC LIMIT 1"""
        for row in self.rows(query, (path,)):
            return _stored(*row)
        return None

    def were_here(self) -> dict[str, Stored]:
        """Return the files in the current place that were seen here, too, by path.

        A `copy.json` comes after its packs.
        """
        query = """
            SELECT path, document, url, identity, directory FROM files
            JOIN places ON number = place WHERE is_current AND mtime_ns != 0 ORDER BY path"""
        return {path: _stored(*stored) for path, *stored in self.rows(query)}

    # --- figures ---

    def figures(self) -> UploadFigures:
        """Return the state of the uploads to the current place."""
        stored = dict(self.rows("SELECT * FROM figures"))
        figures = UploadFigures(**{name: stored[name] for name in _FIGURES & stored.keys()})
        query = """
            SELECT count(path), coalesce(sum(size), 0), max(generation) FROM places
            LEFT JOIN files ON number = place WHERE is_current"""
        for files, size, generation in self.rows(query):
            counted = {"files": files, "bytes": size, "generation": generation or 0}
            return UploadFigures(**(asdict(figures) | counted))
        return figures

    def note_figures(self, **values: float | str | None) -> None:
        """Change fields of `UploadFigures` other than those that are counted."""
        with self.change() as db:
            db.executemany("INSERT OR REPLACE INTO figures VALUES (?, ?)", list(values.items()))

    # --- tombstones: documents that tell all hosts what was forgotten ---

    def add_tombstone(self, id: str, document: Mapping[str, Any]) -> None:
        """Keep a tombstone until the bucket has it.

        Args:
            id: its key below `tombstones/`, without `.json`.
            document: as it is uploaded.
        """
        with self.change() as db:
            db.execute(
                "INSERT OR IGNORE INTO tombstones VALUES (?, ?)", (id, orjson.dumps(document))
            )

    def pending_tombstones(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the tombstones that the bucket does not have yet, with their ids, by id."""
        found = self.rows("SELECT * FROM tombstones WHERE document IS NOT NULL ORDER BY id")
        return [(id_, orjson.loads(document)) for id_, document in found]

    def drop_tombstone(self, id: str) -> None:
        """Drop a pending document that is not needed any more."""
        with self.change() as db:
            db.execute("DELETE FROM tombstones WHERE id = ?", (id,))

    def tombstone_sent(self, id: str) -> None:
        """Record that the bucket has a tombstone, and that this host has obeyed it."""
        self.note_applied([id])

    def applied_tombstones(self) -> set[str]:
        """Return the ids of the tombstones that this host has obeyed, including its own."""
        return {id_ for (id_,) in self.rows("SELECT id FROM tombstones WHERE document IS NULL")}

    def note_applied(self, ids: Iterable[str]) -> None:
        """Record that this host has obeyed tombstones."""
        with self.change() as db:
            db.executemany(
                "INSERT OR REPLACE INTO tombstones VALUES (?, NULL)", [(id_,) for id_ in ids]
            )


def _notes_in(damaged: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return those notes of a damaged journal that are nowhere else, by table.

    A table that cannot be read is left out.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    with suppress(sqlite3.Error), closing(sqlite3.connect(damaged, isolation_level=None)) as db:
        for table in _NOTES:
            with suppress(sqlite3.Error, ValueError):
                rows = db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - no input
                for row in rows if table == "tombstones" else ():
                    orjson.loads(row[1] or b"null")
                found[table] = rows
    return found


def _stored(document: bytes, url: str, identity: str | None, directory: str) -> Stored:
    place = BucketPlace(url, Path(identity) if identity else None, directory)
    return Stored(RemoteFile.from_json(orjson.loads(document)), place)


def _connection(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    with being_opened(database):
        without_shared_memory(database, path)
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        version = version_of(database)
        if version == 0:
            _create(database)
        elif version != _VERSION:
            raise Unavailable(
                f"{path} was written by another version of bsd (format {version})",
                hint="update bsd; or move the file away: the next push makes it anew",
            )
    return database


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")  # another process may create the tables at the same time
    if version_of(database) == 0:
        for name, columns in _TABLES.items():
            end = "" if columns.rstrip().endswith("ROWID") else ")"
            database.execute(f"CREATE TABLE {name} ({columns}{end}")
        database.execute("CREATE INDEX parts_by_path ON parts (place, path)")
        database.execute(f"PRAGMA user_version = {_VERSION}")
    database.execute("COMMIT")
