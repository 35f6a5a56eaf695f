"""The store of a session: one file per extracted entry, with its original line (SPEC §3)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bsd.core.errors import BsdError, Invalid, TemporaryFailure, os_problem
from bsd.core.files import (
    LARGEST_LINE,
    NotPlain,
    TooLarge,
    create_private,
    make_durable_dir,
    make_private_dir,
    read_plain,
    sync_dir,
    write_all,
)
from bsd.core.filesystem import Syncing
from bsd.core.layout import Layout, SessionName
from bsd.store.archive import SessionArchive
from bsd.store.contents import Contents, StoredPlace, contents_of
from bsd.store.entry_notes import forgotten_in
from bsd.store.index import INDEX_FILE, Index, Record
from bsd.store.origins import ids_of, is_origin
from bsd.store.pack import OnlyInBucket
from bsd.transcripts.change import Readable

# A ref comes from a transcript, which any program may write: it must be a name, never a path.
_REF = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?")
_COPY_BLOCK = 1 << 20
_MOST_TRIES = 100
_UNFINISHED, _FINISHED = ".tmp", ".json"
# A directory beside the stores, in which new stores are written before they get their place.
APART = ".unfinished"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes of the session file as planned; a plan refers to them instead of holding them."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class StoredOriginal:
    """An original line that must be durable before its session loses values."""

    ref: str  # file name without ending, e.g. `0045_thinking`
    entry_id: str
    index: int  # line number in the session, 0-based, at the time of extraction
    type: str
    hash: str  # `sha256:…` of the file's bytes
    size: int  # bytes of the file
    keys: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes in UTF-8 of each key's text; empty: not measured
    # A place in the session (the usual case); or bytes that no file holds; or None: the file exists
    # already, so its hash is checked and its mtime renewed.
    line: FileSpan | bytes | None

    @property
    def sizes_bytes(self) -> dict[str, int]:
        """The bytes of each text, by key."""
        return dict(zip(self.keys, self.sizes, strict=bool(self.sizes)))

    def record(self, extracted_at: str) -> Record:
        """Return its record for the index of the store; `extracted_at`: ISO 8601, Z."""
        return Record(
            entry_id=self.entry_id,
            index=self.index,
            file=f"{self.ref}.json",
            hash=self.hash,
            size=self.size,
            keys=self.keys,
            sizes_bytes=self.sizes_bytes,
            extracted_at=extracted_at,
        )


class Missing(StrEnum):
    """The reason why a stored line is not available."""

    GONE = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"  # the line exists, but belongs to another entry
    FORGOTTEN = "forgotten"  # by `forget`; other sessions may still have it
    UNREACHABLE = "unreachable"  # it is only in the bucket, which cannot be read now
    UNREADABLE = "unreadable"  # a place that may hold it is unreadable: see `OriginalStore.trouble`


class OriginalStore(Protocol):
    """The methods of `SessionStore` that planners use."""

    def load(self, ref: str, hash: str) -> bytes | Missing: ...
    def own(self, ref: str, hash: str) -> bytes | Missing: ...
    def trouble(self) -> str | None: ...
    def held(self, ref: str, hash: str) -> str | None: ...
    def find(self, entry_id: str) -> tuple[str, str] | None: ...
    def of_entry(self, entry_id: str) -> list[StoredPlace]: ...
    def is_own(self, place: StoredPlace) -> bool: ...
    def ids_of(self, place: StoredPlace) -> frozenset[str]: ...
    def taken(self, ref: str) -> bool: ...
    def free_ref(self, ref: str, used: Container[str]) -> str: ...


def digest(data: bytes) -> str:
    """Return the hash by which a marker names stored content: `sha256:` and hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class SessionStore:
    """The original lines of a session. A writer holds bsd's own lock of the session.

    `directory`: the place of the store if it lies in the trash, where it has no archive.
    """

    def __init__(self, layout: Layout, name: SessionName, directory: Path | None = None) -> None:
        self.name = name
        self.directory = directory or layout.store_dir(name)
        self.archive = None if directory else SessionArchive(layout.archive_dir(name))
        self.index = Index(self.directory / INDEX_FILE, name)
        self._layout = layout
        self._contents: Contents = contents_of(layout)
        self._unread: Path | None = None  # a pack of another session that should have the line
        self._unreached: OnlyInBucket | None = None  # of another session's archive
        self._forgotten: frozenset[str] | None = None  # read on demand
        self._origins: dict[SessionName, bool] = {}  # cached results of `is_origin`
        self._new: list[str] = []  # refs of the files that the current `add` has begun

    # --- reading ---

    def file(self, ref: str) -> Path:
        """Return the path of a stored file; raises Invalid if `ref` is not a valid ref."""
        return Path(self._stem(ref) + _FINISHED)

    def refs(self) -> list[str]:
        """Return the refs of all stored files, sorted."""
        refs = (name.removesuffix(_FINISHED) for name in self._names() if name.endswith(_FINISHED))
        return sorted(ref for ref in refs if _REF.fullmatch(ref))

    def read(self, ref: str, most: int = LARGEST_LINE) -> bytes | None:
        """Return a stored file's bytes, without comparing a hash; None if it does not exist."""
        try:
            return read_plain(self.file(ref), most)
        except (FileNotFoundError, NotADirectoryError, Invalid):
            return None
        except (NotPlain, TooLarge):  # not a line: the comparison of the hash will fail
            return b""
        except OSError as error:
            raise os_problem(error, f"reading {self.file(ref)}") from error

    def own(self, ref: str, hash: str) -> bytes | Missing:
        """Return the original line that `ref` names in this store, if it has this hash."""
        data = self.read(ref, sys.maxsize)
        if data is None:
            return Missing.GONE
        return data if digest(data) == hash else Missing.CORRUPT

    def load(self, ref: str, hash: str) -> bytes | Missing:
        """Return the original line: the file that `ref` names, or any stored line of this hash.

        Searches this store, then the archive of the session, then all stores and archives of the
        root. A line that this session has forgotten is not taken from other sessions.
        """
        found = self.own(ref, hash)
        if not isinstance(found, Missing):
            return found
        self._unreached = None
        if self.archive and (line := self.archive.line(hash)) is not None:
            return line
        if self._has_forgotten(hash):
            return Missing.FORGOTTEN
        if (line := self._elsewhere(hash)) is not None:
            return line
        if self._unreachable():
            return Missing.UNREACHABLE
        if found is Missing.GONE and self.trouble() is not None:
            return Missing.UNREADABLE
        if found is Missing.CORRUPT and self._is_anothers(ref):
            return Missing.GONE
        return found

    def trouble(self) -> str | None:
        """Return why a line may exist although it was not found; None if all places were read."""
        if away := self._unreachable():
            return away.message
        if self.archive and self.archive.trouble:
            return self.archive.trouble
        if self._unread:
            return f"{self._unread} cannot be read, or is damaged"
        return self._contents.trouble()

    def _unreachable(self) -> OnlyInBucket | None:
        """Return why the line that was last loaded cannot be read from the bucket, or None."""
        own = self.archive.unreached if self.archive else None
        return own or self._unreached

    def _has_forgotten(self, hash: str) -> bool:
        if self._forgotten is None:
            # For a store in the trash, the history also lies in the trash.
            history = self._layout.history_dir(self.name)
            self._forgotten = forgotten_in(history) if self.archive else frozenset()
        return hash in self._forgotten

    def _elsewhere(self, hash: str) -> bytes | None:
        """Return the line from another store or archive of the root."""
        places = self._reached(self._contents.with_hash(hash))
        for place in places:
            if (line := self._line_of(place)) is not None:
                return line
        if places:  # the line was moved just now, or it is damaged
            self._contents.changed()
            again = self._reached(self._contents.with_hash(hash))
            for place in again:
                if place not in places and (line := self._line_of(place)) is not None:
                    return line
            self._unread = next((place.file for place in again if place.pack), None)
        return None

    def _line_of(self, place: StoredPlace) -> bytes | None:
        try:
            return place.readable_line()
        except OnlyInBucket as error:
            self._unreached = error
        except BsdError:
            pass
        return None

    def _is_anothers(self, ref: str) -> bool:
        """Return whether the file `ref` is sound and holds another line than the requested line."""
        places = self._here(digest(self.read(ref, sys.maxsize) or b""))
        return any(place.at and place.ref == ref for place in places)  # listed in the index

    # --- look-ups ---

    def of_entry(self, entry_id: str) -> list[StoredPlace]:
        """Return the stored lines of an entry in all stores, the newest first."""
        return self._reached(self._contents.of_entry(entry_id))

    def find(self, entry_id: str) -> tuple[str, str] | None:
        """Return (ref, hash) of the newest file of this store for an entry, or None."""
        for place in self._contents.of_entry(entry_id):
            if self.is_own(place) and not place.pack:
                return place.ref, place.hash
        return None

    def held(self, ref: str, hash: str) -> str | None:
        """Return the ref under which this store holds a line, or None; it may differ from `ref`."""
        for other in (ref, *(place.ref for place in self._here(hash))):
            if not isinstance(self.own(other, hash), Missing):
                return other
        return None

    def _here(self, hash: str) -> list[StoredPlace]:
        """Return the files of this store with a hash."""
        places = self._contents.with_hash(hash)
        return [place for place in places if self.is_own(place) and not place.pack]

    def is_own(self, place: StoredPlace) -> bool:
        """Return whether a line lies in this store, or in the archive of the same session."""
        return place.directory.name == self.directory.name

    def ids_of(self, place: StoredPlace) -> frozenset[str]:
        """Return the ids by which a program may refer to the session of a stored line."""
        name = self._layout.session_of_store(place.store)
        return ids_of(self._layout, name) if name else frozenset()

    def _reached(self, places: list[StoredPlace]) -> list[StoredPlace]:
        """Return the places that the caller may read (see `Layout.bound_to`)."""
        bound = self._layout.bound_to
        if bound is None:
            return places
        return [place for place in places if self.is_own(place) or self._is_origin(place, bound)]

    def _is_origin(self, place: StoredPlace, bound: SessionName) -> bool:
        name = self._layout.session_of_store(place.store)
        if name is None:
            return False
        if name not in self._origins:
            self._origins[name] = is_origin(self._layout, name, bound)
        return self._origins[name]

    def taken(self, ref: str) -> bool:
        """Return whether a file of this name exists, in this store or in the archive."""
        if os.path.lexists(self._stem(ref) + _FINISHED):
            return True
        with suppress(OSError):  # a duplicate ref does no harm: lines are found by hash
            return self.archive is not None and ref in self.archive.names()
        return False

    def free_ref(self, ref: str, used: Container[str]) -> str:
        """Return `ref`, or a variant of it with a number, that is neither taken nor in `used`."""
        base, free, number = ref.partition("-")[0], ref, 1
        while free in used or self.taken(free):
            number += 1
            free = f"{base}-{number}"
        return free

    # --- writing ---

    def add(self, originals: Sequence[StoredOriginal], source: Readable | None = None) -> None:
        """Store originals durably: all of them, or none.

        Args:
            originals: the lines; spans refer to `source`.
            source: the session, as planned.

        Raises:
            TemporaryFailure: the session or the store has changed since it was planned.
            Unavailable: the disk is full.
            Forbidden: bsd may not write here.
        """
        if not originals:
            return
        self._new = []
        try:
            if self.archive is None:  # in the trash, no other directory belongs beside it
                make_durable_dir(self.directory)
            if os.path.lexists(self.directory):
                self._add_files(originals, source)
            else:
                try:
                    self._make_directory(originals, source)
                finally:
                    self._sweep_apart()
            self._contents.changed()
        except BaseException as error:  # an interrupt, too: no line refers to these files
            self._remove(map(self._stem, self._new))
            if isinstance(error, OSError):
                raise os_problem(error, f"writing to {self.directory}") from error
            raise

    def _make_directory(self, originals: Sequence[StoredOriginal], source: Readable | None) -> None:
        """Write a new store in a directory of its own, then move it to its place.

        Renaming each durable file costs as much as writing it. In a backlog, only the directory is
        renamed.
        """
        self._sweep_apart()
        apart = str(self._make_apart())  # as text: a backlog has thousands of files
        with Syncing(self._apart, len(originals)) as syncing:
            for original in originals:
                path = f"{apart}/{original.ref}{_FINISHED}"
                self._write(original, path, source)
                syncing.add(path, original.size)
            syncing.sync()
        sync_dir(self._apart)
        try:
            os.rename(apart, self.directory)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            text = f"{self.directory} appeared before bsd could create it"
            raise TemporaryFailure(text) from error
        self._new = [original.ref for original in originals]
        # After a power cut the old name must not return, since files under it are removed.
        with suppress(FileNotFoundError):  # another session has just removed the directory
            sync_dir(self._apart.parent)
        for directory in (self.directory.parent, self.directory.parent.parent):
            sync_dir(directory)

    def _add_files(self, originals: Sequence[StoredOriginal], source: Readable | None) -> None:
        """Write files beside others; each gets its name once its content is durable."""
        present = self._names()
        self._sweep(present)
        with Syncing(self.directory, len(originals)) as syncing:
            for original in originals:
                stem = self._stem(original.ref)
                if original.line is None:
                    if isinstance(self.own(original.ref, original.hash), Missing):
                        text = f"{stem}{_FINISHED} changed before bsd could reuse it"
                        raise TemporaryFailure(text)
                    os.utime(stem + _FINISHED)
                    continue
                if original.ref + _FINISHED in present:
                    text = f"{stem}{_FINISHED} appeared before bsd could create it"
                    raise TemporaryFailure(text)
                self._new.append(original.ref)
                self._write(original, stem + _UNFINISHED, source)
                syncing.add(stem + _UNFINISHED, original.size)
            syncing.sync()
        for stem in map(self._stem, self._new):
            os.rename(stem + _UNFINISHED, stem + _FINISHED)
        sync_dir(self.directory)

    def _write(self, original: StoredOriginal, path: str, source: Readable | None) -> None:
        if original.line is None or not _REF.fullmatch(original.ref):
            raise TemporaryFailure(f"{original.ref} is missing, so bsd cannot reuse it")
        target = create_private(path)
        try:
            hash_ = _write_line(original.line, source, target)
        finally:
            os.close(target)
        if hash_ != original.hash:
            raise TemporaryFailure(f"session {self.name} changed while it was read")

    def discard(self, originals: Iterable[StoredOriginal]) -> None:
        """Remove the files of a successful `add` whose commit gave up."""
        self._remove(
            self._stem(original.ref) for original in originals if original.line is not None
        )

    def _remove(self, stems: Iterable[str]) -> None:
        for stem in stems:
            for ending in (_UNFINISHED, _FINISHED):
                with suppress(FileNotFoundError):
                    os.unlink(stem + ending)
        with suppress(OSError):  # other files are left, or the directory does not exist
            self.directory.rmdir()

    def leftovers(self) -> list[Path]:
        """Return the files that an interrupted `add` left; no line refers to them."""
        with suppress(OSError):
            return sorted([*self.directory.glob(f"*{_UNFINISHED}"), *self._apart.glob("*")])
        return []

    def sweep(self) -> None:
        """Remove leftovers. Under the session's lock, no process is still writing them."""
        self._sweep(self._names())
        self._sweep_apart()

    def _sweep(self, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith(_UNFINISHED):
                with suppress(OSError):  # `verify` lists the leftovers
                    os.unlink(f"{self.directory}/{name}")

    @property
    def _apart(self) -> Path:
        """The directory in which a new store is written; no session's store has this path."""
        return self.directory.parent / APART / self.directory.name

    def _make_apart(self) -> Path:
        for _ in range(_MOST_TRIES):
            with suppress(FileNotFoundError):  # another session just removed the parent
                make_private_dir(self._apart, durable=False)  # it is temporary
                break
        return self._apart

    def _sweep_apart(self) -> None:
        if os.path.lexists(self._apart):
            shutil.rmtree(self._apart, ignore_errors=True)  # `verify` lists the leftovers
        with suppress(OSError):  # another session uses it, or it does not exist
            self._apart.parent.rmdir()

    def _names(self) -> set[str]:
        try:
            return set(os.listdir(self.directory))
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise os_problem(error, f"reading {self.directory}") from error

    def _stem(self, ref: str) -> str:
        """Return a stored file's path without ending, as text: a backlog has thousands of files."""
        if not _REF.fullmatch(ref):
            raise Invalid(f"{ref!r} is not the name of an extracted file")
        return f"{self.directory}/{ref}"


def _write_line(line: FileSpan | bytes, source: Readable | None, target: int) -> str:
    """Write an original line to a new file, a long line in blocks; return its digest."""
    if isinstance(line, bytes):
        write_all(target, line)
        return digest(line)
    assert source is not None  # noqa: S101 - spans always have a source
    hasher, end = hashlib.sha256(), line.offset + line.length
    for offset in range(line.offset, end, _COPY_BLOCK):
        block = source.read(offset, min(_COPY_BLOCK, end - offset))
        hasher.update(block)
        write_all(target, block)
    return f"sha256:{hasher.hexdigest()}"
