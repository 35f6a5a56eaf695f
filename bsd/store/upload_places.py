"""The part of the journal that a push uses: the state of one place in a bucket.

The caller holds the lock of the push (`fleet/push.py`). An upload or deletion is noted together
with the objects that it leaves unused; they are deleted when the next manifest is durable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from bsd.bucket.remote_file import RemoteFile
from bsd.core.database_file import signed, unsigned
from bsd.core.files import FileStamp
from bsd.store.uploads import BucketPlace, Stored, UploadJournal

NO_STAMP: FileStamp = (0, 0, 0)  # of a file in the bucket that was not compared with a local file


@dataclass(frozen=True, slots=True)
class PlaceState:
    """The manifests of a place.

    Attributes:
        generation: of the newest manifest; 0: none.
        previous: SHA-256 of its object, in hex.
        newest_full: the last generation that lists all files.
        is_full: the next manifest must list all files.
        sweeps: the bucket may have objects that no file uses.
    """

    generation: int
    previous: str | None
    newest_full: int
    is_full: bool
    sweeps: bool


class PendingManifest(NamedTuple):
    """A manifest that is to be created, or may be there already."""

    generation: int
    data: bytes  # the object
    hash: str  # of the object, in hex
    is_full: bool


class NotedFile(NamedTuple):
    """A file in the journal: its stamp, and whether the local file is thin."""

    stamp: FileStamp
    is_thin: bool


class Upload(NamedTuple):
    """A file that the bucket has, and the stamp of the local file; `copy`: facts about a copy."""

    file: RemoteFile
    stamp: FileStamp
    copy: bytes | None = None  # JSON


class DeletedFile(NamedTuple):
    """A file that was deleted here on purpose. `at`: epoch seconds."""

    path: str
    at: float
    must: bool


class PlaceJournal:
    """The journal of a place.

    Args:
        journal: open.
        number: of the place, from `current_place` or `former_places`.
    """

    def __init__(self, journal: UploadJournal, number: int) -> None:
        self._journal = journal
        self._place = number

    def state(self) -> PlaceState:
        """Return the state of the manifests."""
        query = """
            SELECT generation, previous, newest_full, is_full, sweeps FROM places
            WHERE number = ?"""
        ((generation, previous, newest_full, is_full, sweeps),) = self._rows(query)
        return PlaceState(generation, previous, newest_full, bool(is_full), sweeps > 0)

    def is_new(self) -> bool:
        """Return whether the journal knows nothing of the place."""
        query = """
            SELECT generation = 0 AND pending IS NULL
            AND NOT EXISTS (SELECT * FROM files WHERE place = number)
            FROM places WHERE number = ?"""
        return bool(self._rows(query)[0][0])

    # --- files ---

    def noted_in(self, directory: str) -> dict[str, NotedFile]:
        """Return the noted files in a directory of the archive and below it, by path."""
        query = """
            SELECT path, ino, here, mtime_ns, is_thin FROM files
            WHERE place = ? AND path > ? AND path < ?"""
        found = self._rows(query, f"{directory}/", f"{directory}0")
        return {
            path: NotedFile((unsigned(ino), size, mtime_ns), bool(is_thin))
            for path, ino, size, mtime_ns, is_thin in found
        }

    def directories(self) -> set[str]:
        """Return the directories of the archive that have noted files."""
        query = "SELECT DISTINCT substr(path, 1, instr(path, '/') - 1) FROM files WHERE place = ?"
        return {directory for (directory,) in self._rows(query)}

    def file(self, path: str) -> RemoteFile | None:
        """Return a file as the bucket has it; None if it has not."""
        query = "SELECT document FROM files WHERE place = ? AND path = ?"
        for (document,) in self._rows(query, path):
            return RemoteFile.from_json(orjson.loads(document))
        return None

    def stored(self, path: str) -> Stored | None:
        """Return a file of this place, or of another one, such as one of a former name."""
        return self._journal.stored(path)

    def note_uploads(self, uploads: Iterable[Upload]) -> None:
        """Record files that the bucket has."""
        with self._journal.change() as db:
            for upload in uploads:
                self._note(db, upload, listed=False)

    def _note(self, db: sqlite3.Connection, upload: Upload, *, listed: bool) -> None:
        file = upload.file
        where = (self._place, file.path)
        self._release(db, file.path)
        ino, size, mtime_ns = upload.stamp
        row = (
            *where,
            orjson.dumps(file.as_json()),
            upload.copy,
            file.size,
            signed(ino),
            size,
            mtime_ns,
            False,
            listed,
        )
        db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM removed WHERE place = ? AND path = ?", where)
        db.executemany(
            "INSERT OR IGNORE INTO parts VALUES (?, ?, ?)",
            [(self._place, part.key, file.path) for part in file.parts],
        )

    def note_stamp(self, path: str, stamp: FileStamp, *, is_thin: bool = False) -> None:
        """Record the present stamp of a local file whose content the bucket has."""
        ino, size, mtime_ns = stamp
        with self._journal.change() as db:
            db.execute(
                "UPDATE files SET ino = ?, here = ?, mtime_ns = ?, is_thin = ?"
                " WHERE place = ? AND path = ?",
                (signed(ino), size, mtime_ns, is_thin, self._place, path),
            )

    def note_lost(self, path: str) -> None:
        """Record that the bucket does not have a file that it should have: it is uploaded again."""
        where = (self._place, path)
        with self._journal.change() as db:
            db.execute("DELETE FROM parts WHERE place = ? AND path = ?", where)
            db.execute("DELETE FROM files WHERE place = ? AND path = ?", where)

    def to_thin(self, before_ns: int) -> Iterator[str]:
        """Yield the paths of listed packs whose local files are whole and older than a moment.

        `before_ns`: epoch nanoseconds; an older file was last written before it.
        """
        query = """
            SELECT path FROM files WHERE place = ? AND listed AND NOT is_thin AND path > ?
            AND path LIKE '%.zst' AND mtime_ns BETWEEN 1 AND ? ORDER BY path LIMIT 500"""
        after = ""
        while found := self._rows(query, after, before_ns):
            for (after,) in found:
                yield after

    def _release(self, db: sqlite3.Connection, path: str) -> None:
        """Mark the objects of a file as unused; `delete_unused` spares those of other files."""
        where = (self._place, path)
        db.execute(
            "INSERT OR IGNORE INTO unused SELECT place, key FROM parts"
            " WHERE place = ? AND path = ?",
            where,
        )
        db.execute("DELETE FROM parts WHERE place = ? AND path = ?", where)

    # --- deletions ---

    def remove(self, notes: Collection[DeletedFile]) -> int:
        """Remove deleted files from what the next manifest lists; return how many were listed."""
        removed = 0
        with self._journal.change() as db:
            for path, _, must in notes:
                where = (self._place, path)
                self._release(db, path)
                if db.execute("DELETE FROM files WHERE place = ? AND path = ?", where).rowcount:
                    removed += 1
                    db.execute("INSERT OR IGNORE INTO removed VALUES (?, ?)", where)
                    if must:  # the name of a deleted session leaves the bucket, too
                        db.execute("UPDATE places SET is_full = 1 WHERE number = ?", where[:1])
        return removed

    # --- manifests ---

    def has_changes(self) -> bool:
        """Return whether the newest manifest does not list what the bucket has."""
        query = """
            SELECT is_full OR EXISTS (SELECT * FROM files WHERE place = number AND NOT listed)
            OR EXISTS (SELECT * FROM removed WHERE place = number) FROM places WHERE number = ?"""
        return bool(self._rows(query)[0][0])

    def to_list(self, *, full: bool) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the files for the next manifest as JSON, with facts about copies, by path."""
        query = """
            SELECT document, copy FROM files WHERE place = ? AND (? OR NOT listed) ORDER BY path"""
        with self._journal.errors():
            yield from self._journal.db.execute(query, (self._place, full))

    def removed(self) -> list[str]:
        """Return the paths that the next manifest removes."""
        query = "SELECT path FROM removed WHERE place = ? ORDER BY path"
        return [path for (path,) in self._rows(query)]

    def begin_manifest(self, manifest: PendingManifest) -> None:
        """Keep a manifest, so that a push that is interrupted creates the same one again."""
        with self._journal.change() as db:
            db.execute(
                "UPDATE places SET pending = ?, pending_hash = ?, pending_full = ?"
                " WHERE number = ?",
                (manifest.data, manifest.hash, manifest.is_full, self._place),
            )

    def pending_manifest(self) -> PendingManifest | None:
        """Return the manifest that an interrupted push has begun."""
        query = """
            SELECT generation, pending, pending_hash, pending_full FROM places WHERE number = ?"""
        ((generation, data, hash_, full),) = self._rows(query)
        return None if data is None else PendingManifest(generation + 1, data, hash_, bool(full))

    def manifest_written(self, manifest: PendingManifest) -> None:
        """Record that the bucket has a manifest; all files are listed now."""
        with self._journal.change() as db:
            db.execute(
                "UPDATE places SET pending = NULL, pending_hash = NULL, generation = ?,"
                " previous = ? WHERE number = ?",
                (manifest.generation, manifest.hash, self._place),
            )
            if manifest.is_full:
                db.execute(
                    "UPDATE places SET is_full = 0, newest_full = generation, sweeps ="
                    " iif(sweeps < 0, -1, 1) WHERE number = ?",
                    (self._place,),
                )
            db.execute("UPDATE files SET listed = 1 WHERE place = ? AND NOT listed", (self._place,))
            db.execute("DELETE FROM removed WHERE place = ?", (self._place,))

    def adopt(
        self, generation: int, previous: str | None, files: Iterable[Upload], *, whole: bool
    ) -> None:
        """Take over the newest manifest of the bucket, since the journal was lost.

        Args:
            generation: its number.
            previous: SHA-256 of its object, in hex.
            files: all files that it and those before it list.
            whole: no manifest is missing or damaged.
        """
        with self._journal.change() as db:
            for upload in files:
                self._note(db, upload, listed=True)
            db.execute(
                "UPDATE places SET generation = ?, previous = ?, is_full = ?, sweeps = ?"
                " WHERE number = ?",
                (generation, previous, not whole, 1 if whole else -1, self._place),
            )

    def give_up(self) -> None:
        """Write to the place no more, since another machine uses it."""
        with self._journal.change() as db:
            db.execute(
                "UPDATE places SET pending = NULL, pending_hash = NULL, is_lost = 1"
                " WHERE number = ?",
                (self._place,),
            )

    # --- objects ---

    def set_sweeps(self, *, on: bool) -> None:
        """Record whether the bucket may have objects that no file uses."""
        with self._journal.change() as db:
            db.execute(
                "UPDATE places SET sweeps = ? WHERE number = ? AND sweeps >= 0", (on, self._place)
            )

    def unused(self) -> list[str]:
        """Return keys of objects that no file uses any more."""
        with self._journal.change() as db:
            db.execute(
                "DELETE FROM unused WHERE place = ? AND key IN"
                " (SELECT key FROM parts WHERE place = unused.place)",
                (self._place,),
            )
        query = "SELECT key FROM unused WHERE place = ? LIMIT 1000"
        return [key for (key,) in self._rows(query)]

    def objects_deleted(self, keys: Iterable[str]) -> None:
        """Record that objects are no longer in the bucket."""
        with self._journal.change() as db:
            db.executemany(
                "DELETE FROM unused WHERE place = ? AND key = ?",
                [(self._place, key) for key in keys],
            )

    def uses(self, key: str) -> bool:
        """Return whether a file consists of this object."""
        query = "SELECT EXISTS (SELECT * FROM parts WHERE place = ? AND key = ?)"
        return bool(self._rows(query, key)[0][0])

    def _rows(self, query: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]
        return self._journal.rows(query, (self._place, *parameters))


def current_place(journal: UploadJournal, place: BucketPlace) -> PlaceJournal:
    """Return the journal of a place, which becomes the current one."""
    identity = str(place.identity) if place.identity else None
    with journal.change() as db:
        db.execute("UPDATE places SET is_current = 0 WHERE is_current")
        db.execute(
            "INSERT INTO places (url, directory, identity, is_current, is_lost, generation,"
            " newest_full, is_full, sweeps) VALUES (?, ?, ?, 1, 0, 0, 0, 0, 0)"
            " ON CONFLICT DO UPDATE SET is_current = 1, identity = excluded.identity",
            (place.url, place.directory, identity),
        )
    ((number,),) = journal.rows("SELECT number FROM places WHERE is_current")
    return PlaceJournal(journal, number)


def former_places(journal: UploadJournal, url: str) -> list[tuple[str, PlaceJournal]]:
    """Return other directories of a bucket that this host has used, with their journals."""
    query = """
        SELECT directory, number FROM places WHERE url = ? AND NOT is_current AND NOT is_lost
        AND EXISTS (SELECT * FROM files WHERE place = number)"""
    found = journal.rows(query, (url,))
    return [(directory, PlaceJournal(journal, number)) for directory, number in found]


def deleted_files(journal: UploadJournal) -> list[DeletedFile]:
    """Return the files that were deleted here on purpose, by path."""
    found = journal.rows("SELECT path, at, must FROM deleted ORDER BY path")
    return [DeletedFile(path, at, bool(must)) for path, at, must in found]


def drop_notes(journal: UploadJournal, notes: Iterable[DeletedFile]) -> None:
    """Forget notes of deletions, unless they were made anew."""
    with journal.change() as db:
        db.executemany(
            "DELETE FROM deleted WHERE path = ? AND at = ?", [note[:2] for note in notes]
        )
