"""The store of a session: one file per extracted entry, holding its original line (SPEC §3)."""

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

from bsd.core.errors import Invalid, TemporaryFailure, os_problem
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
from bsd.transcripts.change import Readable

# A ref comes out of a transcript, which anybody may write: it is a name, never a path.
_REF = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?")
_COPY_BLOCK = 1 << 20
_MOST_TRIES = 100
_UNFINISHED, _FINISHED = ".tmp", ".json"
# A directory beside the stores: stores that are being written for the first time.
APART = ".unfinished"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes of the session file as planned: stored without passing through the plan's memory."""

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
    # A line as it stands in the session (the usual case), bytes that stand nowhere, or None: the
    # file is there already; its hash is checked and its mtime renewed.
    line: FileSpan | bytes | None

    @property
    def sizes_bytes(self) -> dict[str, int]:
        """Bytes of each text, by its key."""
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
    """Why a stored line cannot be had."""

    GONE = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"  # it is there, and is another entry's
    FORGOTTEN = "forgotten"  # by `forget`; other sessions may still have it
    UNREADABLE = "unreadable"  # it may lie where nothing can be read: see `OriginalStore.trouble`


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
    """The original lines of one session. A writer holds bsd's own lock of the session.

    `directory`: where the store lies, if it lies in the trash; it has no archive there.
    """

    def __init__(self, layout: Layout, name: SessionName, directory: Path | None = None) -> None:
        self.name = name
        self.directory = directory or layout.store_dir(name)
        self.archive = None if directory else SessionArchive(layout.archive_dir(name))
        self.index = Index(self.directory / INDEX_FILE, name)
        self._layout = layout
        self._contents: Contents = contents_of(layout)
        self._unread: Path | None = None  # a pack of another session that should have the line
        self._forgotten: frozenset[str] | None = None  # read when it is needed
        self._origins: dict[SessionName, bool] = {}  # answers of `is_origin`
        self._new: list[str] = []  # refs of the files that the `add` under way has begun

    # --- reading ---

    def file(self, ref: str) -> Path:
        """Return the path of a stored file; raises Invalid for a ref that is none."""
        return Path(self._stem(ref) + _FINISHED)

    def refs(self) -> list[str]:
        """Return the refs of all files that are there, in order."""
        refs = (name.removesuffix(_FINISHED) for name in self._names() if name.endswith(_FINISHED))
        return sorted(ref for ref in refs if _REF.fullmatch(ref))

    def read(self, ref: str, most: int = LARGEST_LINE) -> bytes | None:
        """Return a stored file's bytes, unchecked; None if it is not there."""
        try:
            return read_plain(self.file(ref), most)
        except (FileNotFoundError, NotADirectoryError, Invalid):
            return None
        except (NotPlain, TooLarge):  # it holds no line: the hash will say so
            return b""
        except OSError as error:
            raise os_problem(error, f"reading {self.file(ref)}") from error

    def own(self, ref: str, hash: str) -> bytes | Missing:
        """Return the original line that `ref` names in this very store, if it has this hash."""
        data = self.read(ref, sys.maxsize)
        if data is None:
            return Missing.GONE
        return data if digest(data) == hash else Missing.CORRUPT

    def load(self, ref: str, hash: str) -> bytes | Missing:
        """Return the original line: the file that `ref` names, else any stored line of this hash.

        The archive of the session is looked at next, then all stores and archives of the root.
        """
        found = self.own(ref, hash)
        if not isinstance(found, Missing):
            return found
        if self.archive and (line := self.archive.line(hash)) is not None:
            return line
        if self._has_forgotten(hash):
            return Missing.FORGOTTEN
        if (line := self._elsewhere(hash)) is not None:
            return line
        if found is Missing.GONE and self.trouble() is not None:
            return Missing.UNREADABLE
        if found is Missing.CORRUPT and self._is_anothers(ref):
            return Missing.GONE
        return found

    def trouble(self) -> str | None:
        """Return why a line was not found where it may lie, if something could not be read."""
        if self.archive and self.archive.trouble:
            return self.archive.trouble
        if self._unread:
            return f"{self._unread} cannot be read, or is damaged"
        return self._contents.trouble()

    def _has_forgotten(self, hash: str) -> bool:
        if self._forgotten is None:
            # A store in the trash has its history there.
            history = self._layout.history_dir(self.name)
            self._forgotten = forgotten_in(history) if self.archive else frozenset()
        return hash in self._forgotten

    def _elsewhere(self, hash: str) -> bytes | None:
        """Return the line as another store of the root has it, or its archive."""
        places = self._reached(self._contents.with_hash(hash))
        for place in places:
            if (line := place.line()) is not None:
                return line
        if places:  # it has just moved, if it is not damaged
            self._contents.changed()
            again = self._reached(self._contents.with_hash(hash))
            for place in again:
                if place not in places and (line := place.line()) is not None:
                    return line
            self._unread = next((place.file for place in again if place.pack), None)
        return None

    def _is_anothers(self, ref: str) -> bool:
        """Whether a file is whole, and holds another line than is asked for by this name."""
        places = self._here(digest(self.read(ref, sys.maxsize) or b""))
        return any(place.at and place.ref == ref for place in places)  # it is in the index

    # --- look-ups ---

    def of_entry(self, entry_id: str) -> list[StoredPlace]:
        """Return all lines that any store holds of an entry of this id, the newest first."""
        return self._reached(self._contents.of_entry(entry_id))

    def find(self, entry_id: str) -> tuple[str, str] | None:
        """Return (ref, hash) of the newest file of this store for this entry, if any."""
        for place in self._contents.of_entry(entry_id):
            if self.is_own(place) and not place.pack:
                return place.ref, place.hash
        return None

    def held(self, ref: str, hash: str) -> str | None:
        """Return the ref under which this very store has a line; it may differ from `ref`."""
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
        """Return the ids by which a program may know the session for which a line is stored."""
        name = self._layout.session_of_store(place.store)
        return ids_of(self._layout, name) if name else frozenset()

    def _reached(self, places: list[StoredPlace]) -> list[StoredPlace]:
        """Return the places that the caller may reach (see `Layout.bound_to`)."""
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
        """Return whether a file of this name exists, here or in the archive."""
        if os.path.lexists(self._stem(ref) + _FINISHED):
            return True
        with suppress(OSError):  # lines are found by their hash
            return self.archive is not None and ref in self.archive.names()
        return False

    def free_ref(self, ref: str, used: Container[str]) -> str:
        """Return `ref`, or the first name like it that neither is taken nor among `used`."""
        base, free, number = ref.partition("-")[0], ref, 1
        while free in used or self.taken(free):
            number += 1
            free = f"{base}-{number}"
        return free

    # --- writing ---

    def add(self, originals: Sequence[StoredOriginal], source: Readable | None = None) -> None:
        """Store originals durably: all of them, or none.

        Args:
            originals: the lines; spans are of `source`.
            source: the session, as planned.

        Raises:
            TemporaryFailure: the session is not as it was planned.
            Unavailable: the disk is full.
            Forbidden: bsd may not write here.
        """
        if not originals:
            return
        self._new = []
        try:
            if self.archive is None:  # in the trash, nothing else belongs beside it
                make_durable_dir(self.directory)
            if os.path.lexists(self.directory):
                self._add_files(originals, source)
            else:
                try:
                    self._make_directory(originals, source)
                finally:
                    self._sweep_apart()
            self._contents.changed()
        except BaseException as error:  # an interrupt, too: nothing refers to these files
            self._remove(map(self._stem, self._new))
            if isinstance(error, OSError):
                raise os_problem(error, f"writing to {self.directory}") from error
            raise

    def _make_directory(self, originals: Sequence[StoredOriginal], source: Readable | None) -> None:
        """Write a store that is not there yet as a whole, apart, and put it in its place.

        To rename each file once it is durable costs as much as to write it. In a backlog, only the
        directory is renamed.
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
            text = f"{self.directory} appeared while its name was to be used"
            raise TemporaryFailure(text) from error
        self._new = [original.ref for original in originals]
        # The old name must not come back after a power cut: files that lie apart are removed.
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
                        text = f"{stem}{_FINISHED} changed while it was to be used again"
                        raise TemporaryFailure(text)
                    os.utime(stem + _FINISHED)
                    continue
                if original.ref + _FINISHED in present:
                    text = f"{stem}{_FINISHED} appeared while its name was to be used"
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
            raise TemporaryFailure(f"{original.ref} is not there, and was to be used again")
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
        with suppress(OSError):  # other entries lie there, or it was never made
            self.directory.rmdir()

    def leftovers(self) -> list[Path]:
        """Return files that an interrupted `add` left behind; nothing refers to them."""
        with suppress(OSError):
            return sorted([*self.directory.glob(f"*{_UNFINISHED}"), *self._apart.glob("*")])
        return []

    def sweep(self) -> None:
        """Remove leftovers; under the session's lock no process is still writing them."""
        self._sweep(self._names())
        self._sweep_apart()

    def _sweep(self, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith(_UNFINISHED):
                with suppress(OSError):  # `verify` lists the leftovers
                    os.unlink(f"{self.directory}/{name}")

    @property
    def _apart(self) -> Path:
        """The directory in which a new store is written; no session's store has such a path."""
        return self.directory.parent / APART / self.directory.name

    def _make_apart(self) -> Path:
        for _ in range(_MOST_TRIES):
            with suppress(FileNotFoundError):  # another session has just removed the upper one
                make_private_dir(self._apart, durable=False)  # it goes when the store is made
                break
        return self._apart

    def _sweep_apart(self) -> None:
        if os.path.lexists(self._apart):
            shutil.rmtree(self._apart, ignore_errors=True)  # `verify` lists the leftovers
        with suppress(OSError):  # another session's store lies there, or it was never made
            self._apart.parent.rmdir()

    def _names(self) -> set[str]:
        try:
            return set(os.listdir(self.directory))
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise os_problem(error, f"reading {self.directory}") from error

    def _stem(self, ref: str) -> str:
        """Return a stored file's path without ending; as text, since a backlog has thousands."""
        if not _REF.fullmatch(ref):
            raise Invalid(f"{ref!r} is not the name of an extracted file")
        return f"{self.directory}/{ref}"


def _write_line(line: FileSpan | bytes, source: Readable | None, target: int) -> str:
    """Write an original line to a new file, a long one in blocks; return its digest."""
    if isinstance(line, bytes):
        write_all(target, line)
        return digest(line)
    assert source is not None  # noqa: S101 - a span is always one of a file
    hasher, end = hashlib.sha256(), line.offset + line.length
    for offset in range(line.offset, end, _COPY_BLOCK):
        block = source.read(offset, min(_COPY_BLOCK, end - offset))
        hasher.update(block)
        write_all(target, block)
    return f"sha256:{hasher.hexdigest()}"
