"""Extracted values on disk: one file per entry, holding its original line (SPEC §3 "Store")."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Collection, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import orjson
import structlog

from bsd.core.errors import Invalid, TemporaryFailure, os_problem
from bsd.core.files import (
    LARGEST_LINE,
    LARGEST_RECORD,
    NotPlain,
    TooLarge,
    create_private,
    make_durable_dir,
    make_private_dir,
    plain_file,
    read_plain,
    sync_dir,
    write_all,
    write_private,
)
from bsd.core.filesystem import Syncing
from bsd.core.layout import Layout, SessionName
from bsd.store.archive import SessionArchive
from bsd.store.contents import Contents, StoredPlace, contents_of
from bsd.store.index import INDEX_FILE, Index
from bsd.store.origins import ids_of, is_origin
from bsd.transcripts.change import Readable

# Refs come back to us out of transcripts, which anybody may write: a name, never a path.
_REF = re.compile(r"\d{4,}_[a-z0-9_]+(?:-\d+)?")
_COPY_BLOCK = 1 << 20
_UNFINISHED, _FINISHED = ".tmp", ".json"
# Below the directory of all stores: stores that are being written for the first time.
APART = ".unfinished"
_MOST_TRIES = 100
_FEW_LOOKS = 100
_READ_TWICE = 64 << 20  # bytes: of what is larger, the hash is compared before it is in memory


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes of the session file as planned: kept without passing through the plan's memory."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Keep:
    """An original line that must be durable before its session loses values."""

    ref: str  # file name without ending, e.g. `0045_thinking`
    entry_id: str
    index: int  # line number in the session, 0-based, at the time of extraction
    type: str
    hash: str  # `sha256:…` of the file's bytes
    size: int  # bytes of the file
    keys: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes in UTF-8 of each key's text; none if nobody has measured them
    # What to keep: a line as it stands in the session (the usual case), bytes that stand nowhere,
    # or None: the file is there already, check its hash and renew its mtime.
    line: FileSpan | bytes | None

    @property
    def sizes_bytes(self) -> dict[str, int]:
        """Bytes of each text, by its key."""
        return dict(zip(self.keys, self.sizes, strict=bool(self.sizes)))


class Missing(StrEnum):
    """Why stored content cannot be had."""

    GONE = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"  # it is there, and was another entry
    FORGOTTEN = "forgotten"  # somebody wanted it so; others may keep it
    UNREADABLE = "unreadable"  # it may lie where nobody could look: see `Stored.trouble`


class Stored(Protocol):
    """What planners may ask of a session's store."""

    def load(self, ref: str, hash: str) -> bytes | Missing:
        """The original line of this hash: that which `ref` holds here, or in any other store."""
        ...

    def own(self, ref: str, hash: str) -> bytes | Missing:
        """The original line that `ref` holds in this very store: it can be used again."""
        ...

    def trouble(self) -> str | None:
        """Why content was not found where it may lie, in words, if something could not be read."""
        ...

    def held(self, ref: str, hash: str) -> str | None:
        """Under which name this very store holds the line that `ref` names, if it does."""
        ...

    def find(self, entry_id: str) -> tuple[str, str] | None:
        """(ref, hash) of the newest file kept for this entry, if any."""
        ...

    def of_entry(self, entry_id: str) -> list[StoredPlace]:
        """All lines that any store keeps of an entry of this id, the newest first."""
        ...

    def is_own(self, place: StoredPlace) -> bool:
        """Return whether a line is stored for this very session."""
        ...

    def ids_of(self, place: StoredPlace) -> frozenset[str]:
        """The ids by which a program may know the session for which a line is stored."""
        ...

    def taken(self, ref: str) -> bool:
        """Whether a file of this name exists or was ever indexed."""
        ...

    def free_ref(self, ref: str, used: Container[str]) -> str:
        """`ref`, or the first name like it that neither is taken nor among `used`."""
        ...


def digest(data: bytes) -> str:
    """The hash by which a marker names stored content: `sha256:` and hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class SessionStore:
    """The extracted lines of one session. Whoever writes holds bsd's own lock of the session."""

    def __init__(self, layout: Layout, name: SessionName, directory: Path | None = None) -> None:
        """`directory` is said of a store that lies in the trash."""
        self.name = name
        self._contents: Contents = contents_of(layout)  # asked when something is missing here
        self.directory = directory or layout.store_dir(name)
        # What lies in the trash is found as another session's would be.
        self.archive = None if directory else SessionArchive(layout.archive_dir(name))
        self._layout = layout
        self._unread: Path | None = None  # a pack of another session that has what was looked for
        self._forgotten: frozenset[str] | None = None  # read when it is asked for
        self._origins: dict[SessionName, bool] = {}  # whether these are, if somebody has asked
        self.index = Index(self.directory / INDEX_FILE, name)
        self._unfinished: list[str] = []  # refs of the files of the `keep` under way
        self._present: set[str] | None = None  # names in the directory, if many are asked for
        self._looks = 0

    def file(self, ref: str) -> Path:
        """Path of a stored file; raises Invalid for a ref that is none."""
        return Path(self._stem(ref) + _FINISHED)

    def refs(self) -> list[str]:
        """Refs of all files that are there, in order."""
        names = self._list()
        refs = (name.removesuffix(_FINISHED) for name in names if name.endswith(_FINISHED))
        return sorted(ref for ref in refs if _REF.fullmatch(ref))

    def leftovers(self) -> list[Path]:
        """Files that an interrupted `keep` left behind; nothing refers to them."""
        with suppress(OSError):
            found = [*self.directory.glob(f"*{_UNFINISHED}"), *self._apart.glob("*")]
            return sorted(found)
        return []

    def sweep(self) -> None:
        """Remove leftovers; under the session's lock nobody is still writing them."""
        self._sweep(self._list())
        self._sweep_apart()

    @property
    def _apart(self) -> Path:
        """Where a store is written that is not there yet: no session's store is called so."""
        return self.directory.parent / APART / self.directory.name

    def _make_apart(self) -> str:
        for _ in range(_MOST_TRIES):
            with suppress(FileNotFoundError):  # another session's has just taken the upper one away
                make_private_dir(self._apart, durable=False)  # it goes when the store is made
                break
        return str(self._apart)

    def _sweep_apart(self) -> None:
        if os.path.lexists(self._apart):
            shutil.rmtree(self._apart, ignore_errors=True)  # `verify` names what stays
        with suppress(OSError):  # another session's store lies there, or nothing ever did
            self._apart.parent.rmdir()

    def _sweep(self, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith(_UNFINISHED):
                with suppress(OSError):  # `verify` names what stays
                    os.unlink(f"{self.directory}/{name}")

    def read(self, ref: str, most: int = LARGEST_LINE) -> bytes | None:
        """A stored file's bytes, unchecked; None if it is not there."""
        try:
            return read_plain(self.file(ref), most)
        except (FileNotFoundError, NotADirectoryError, Invalid):
            return None
        except (NotPlain, TooLarge):  # what lies there holds no line: the hash will say so
            return b""
        except OSError as error:
            raise os_problem(error, f"reading {self.file(ref)}") from error

    def own(self, ref: str, hash: str) -> bytes | Missing:
        """The original line that `ref` holds, if it is there and has this hash."""
        if self._is_another(ref, hash):
            return Missing.CORRUPT
        data = self.read(ref, sys.maxsize)
        if data is None:
            return Missing.GONE
        return data if digest(data) == hash else Missing.CORRUPT

    def _is_another(self, ref: str, hash: str) -> bool:
        """Whether a large file has another hash: so that it is not held in memory for nothing."""
        with suppress(OSError, Invalid), plain_file(self.file(ref)) as stream:
            if os.fstat(stream.fileno()).st_size > _READ_TWICE:
                return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}" != hash
        return False

    def load(self, ref: str, hash: str) -> bytes | Missing:
        """The same; or what the archive, or any other store of the root, holds of this hash."""
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
        if found is Missing.CORRUPT and self._is_anothers(ref):  # only then: an index may be large
            return Missing.GONE
        return found

    def trouble(self) -> str | None:
        """Why content was not found where it may lie, in words, if something could not be read."""
        if self.archive and self.archive.trouble:
            return self.archive.trouble
        if self._unread:
            return f"{self._unread} cannot be read, or is damaged"
        return self._contents.trouble()

    def _has_forgotten(self, hash: str) -> bool:
        if self._forgotten is None:
            own = self.archive is not None  # what lies in the trash has its own history there
            history = self._layout.history_dir(self.name)
            self._forgotten = forgotten_in(history) if own else frozenset()
        return hash in self._forgotten

    def _elsewhere(self, hash: str) -> bytes | None:
        """The line as another store of the root has it, or its archive."""
        places = self._reached(self._contents.with_hash(hash))
        if line := next(filter(None, (place.line() for place in places)), None):
            return line
        if places:  # it has just moved, if it is not damaged
            self._contents.changed()
            again = self._reached(self._contents.with_hash(hash))
            new = (place for place in again if place not in places)
            if line := next(filter(None, (place.line() for place in new)), None):
                return line
            self._unread = next((place.file for place in again if place.pack), None)
        return None

    def _is_anothers(self, ref: str) -> bool:
        """Whether a file is whole, and holds another line than is asked for by this name."""
        record = self.index.records.get(f"{ref}{_FINISHED}")
        return record is not None and isinstance(self.own(ref, record.hash), bytes)

    def of_entry(self, entry_id: str) -> list[StoredPlace]:
        """All lines that any store of the root keeps of an entry of this id, the newest first."""
        return self._reached(self._contents.of_entry(entry_id))

    def is_own(self, place: StoredPlace) -> bool:
        """Whether a line lies in this store, or in the archive of the same session."""
        return place.directory.name == self.directory.name

    def ids_of(self, place: StoredPlace) -> frozenset[str]:
        """The ids by which a program may know the session for which a line is stored."""
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

    def held(self, ref: str, hash: str) -> str | None:
        """Under which name this very store holds a line: what was handed down may have another."""
        places = self._contents.with_hash(hash)
        here = (place.ref for place in places if place.directory == self.directory)
        for other in (ref, *here):
            if not isinstance(self.own(other, hash), Missing):
                return other
        return None

    def free_ref(self, ref: str, used: Container[str]) -> str:
        """`ref`, or the first name like it that neither is taken nor among `used`."""
        base, free, number = ref.partition("-")[0], ref, 1
        while free in used or self.taken(free):
            number += 1
            free = f"{base}-{number}"
        return free

    def find(self, entry_id: str) -> tuple[str, str] | None:
        """(ref, hash) of the newest file kept for this entry, if any."""
        record = self.index.newest(entry_id)
        return (record.ref, record.hash) if record else None

    def taken(self, ref: str) -> bool:
        """Whether a file of this name exists, or is known to have existed."""
        if self._is_there(ref) or self.index.names(ref):
            return True
        with suppress(OSError):  # it is by the hash that lines are found
            return self.archive is not None and ref in self.archive.names()
        return False

    def _is_there(self, ref: str) -> bool:
        # One look at a name costs as much as a hundred names in a list. Nobody else writes here
        # meanwhile, so a list stays true.
        if self._present is None:
            self._looks += 1
            if self._looks < _FEW_LOOKS:
                return os.path.lexists(self._stem(ref) + _FINISHED)
            self._present = self._list()
        return ref + _FINISHED in self._present

    def keep(self, keeps: Sequence[Keep], source: Readable | None = None) -> None:
        """Make all of `keeps` durable, or none of them; spans are of `source`, the planned session.

        Raises TemporaryFailure if the session turns out not to be the planned one, Unavailable on
        a full disk, Forbidden where we may not write.
        """
        if not keeps:
            return
        self._present, self._unfinished = None, []
        try:
            if self.archive is None:  # in the trash, where nothing else belongs beside it
                make_durable_dir(self.directory)
            if os.path.lexists(self.directory):
                self._add(keeps, source)
            else:
                try:
                    self._make(keeps, source)
                finally:
                    self._sweep_apart()
            self._contents.changed()
        except OSError as error:
            self._remove(map(self._stem, self._unfinished))
            raise os_problem(error, f"writing to {self.directory}") from error
        except BaseException:  # Ctrl-C included: what nothing refers to shall not stay
            self._remove(map(self._stem, self._unfinished))
            raise

    def _make(self, keeps: Sequence[Keep], source: Readable | None) -> None:
        """Write the store of a session that had none, apart, and put it in its place whole.

        To give each file its name once it is durable costs as much as to make it: of a backlog
        the whole directory gets its name instead.
        """
        self._sweep_apart()
        apart = self._make_apart()
        with Syncing(self._apart, len(keeps)) as syncing:
            for keep in keeps:
                path = f"{apart}/{keep.ref}{_FINISHED}"
                self._write(keep, path, source)
                syncing.add(path, keep.size)
            syncing.sync()
        sync_dir(self._apart)
        try:
            os.rename(apart, self.directory)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            text = f"{self.directory} appeared while its name was to be used"
            raise TemporaryFailure(text) from error
        self._unfinished = [keep.ref for keep in keeps]
        # Its old name must not come back: what lies apart is swept.
        top = self.directory.parent
        with suppress(FileNotFoundError):  # another session's has just taken it away, as `top` says
            sync_dir(self._apart.parent)
        for place in (top, top.parent):
            sync_dir(place)

    def _add(self, keeps: Sequence[Keep], source: Readable | None) -> None:
        """Write files beside others; each gets its name once its content is durable."""
        present = self._list()
        self._sweep(present)
        with Syncing(self.directory, len(keeps)) as syncing:
            for keep in keeps:
                if keep.line is None:
                    self._renew(keep)
                    continue
                stem = self._stem(keep.ref)
                if keep.ref + _FINISHED in present:
                    text = f"{stem}{_FINISHED} appeared while its name was to be used"
                    raise TemporaryFailure(text)
                self._unfinished.append(keep.ref)
                self._write(keep, stem + _UNFINISHED, source)
                syncing.add(stem + _UNFINISHED, keep.size)
            syncing.sync()
        for stem in map(self._stem, self._unfinished):
            os.rename(stem + _UNFINISHED, stem + _FINISHED)
        sync_dir(self.directory)

    def discard(self, keeps: Iterable[Keep]) -> None:
        """Remove what a successful `keep` wrote, since its commit gave up."""
        self._remove(self._stem(keep.ref) for keep in keeps if keep.line is not None)

    def _renew(self, keep: Keep) -> None:
        if not isinstance(self.own(keep.ref, keep.hash), bytes):
            raise TemporaryFailure(f"{self.file(keep.ref)} changed while it was to be used again")
        os.utime(self.file(keep.ref))

    def _write(self, keep: Keep, path: str, source: Readable | None) -> None:
        if keep.line is None or not _REF.fullmatch(keep.ref):
            raise TemporaryFailure(f"{keep.ref} is not there, and was to be used again")
        target = create_private(path)
        try:
            hash_ = _copied(keep.line, source, target)
        finally:
            os.close(target)
        if hash_ != keep.hash:
            raise TemporaryFailure(f"session {self.name} changed while it was read")

    def _list(self) -> set[str]:
        try:
            return set(os.listdir(self.directory))
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise os_problem(error, f"reading {self.directory}") from error

    def _stem(self, ref: str) -> str:
        """A stored file's path without its ending: as text, since a backlog has thousands."""
        if not _REF.fullmatch(ref):
            raise Invalid(f"{ref!r} is not the name of an extracted file")
        return f"{self.directory}/{ref}"

    def _remove(self, stems: Iterable[str]) -> None:
        self._present = None
        for stem in stems:
            for ending in (_UNFINISHED, _FINISHED):
                with suppress(FileNotFoundError):
                    os.unlink(stem + ending)
        with suppress(OSError):  # other entries lie there, or it was never made
            self.directory.rmdir()


def _copied(line: FileSpan | bytes, source: Readable | None, target: int) -> str:
    """Write an original line to a new file, the longest in blocks; returns its digest."""
    if isinstance(line, bytes):
        write_all(target, line)
        return digest(line)
    assert source is not None  # noqa: S101 - a span is always one of a file
    if line.length <= _COPY_BLOCK:  # nearly all
        block = source.read(line.offset, line.length)
        write_all(target, block)
        return digest(block)
    hasher, end = hashlib.sha256(), line.offset + line.length
    for offset in range(line.offset, end, _COPY_BLOCK):
        block = source.read(offset, min(_COPY_BLOCK, end - offset))
        hasher.update(block)
        write_all(target, block)
    return f"sha256:{hasher.hexdigest()}"


# --- which lines a session shall never be given again, whoever else keeps them (SPEC §7a) ---

# Who forgets an entry, or all that is kept of a session that stays, takes nothing from forks that
# keep the same lines. Beside the history of a session a file holds the hashes of what was
# forgotten, no word of it: there it is not to be had from them either, unless the session itself
# keeps it anew.
FORGOTTEN = "forgotten.json"
_VERSION = 1
_history_log = structlog.stdlib.get_logger(module="history")


def forgotten_in(history: Path) -> frozenset[str]:
    """The hashes (`sha256:…`) of what the session with this directory of history has forgotten.

    Raises BsdError if that cannot be read.
    """
    path = history / FORGOTTEN
    try:
        return frozenset(map(str, orjson.loads(read_plain(path, LARGEST_RECORD))["hashes"]))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    except (ValueError, LookupError, TypeError) as error:
        _history_log.warning(
            "What was forgotten cannot be read", path=str(path), problem=str(error)
        )
        return frozenset()


def note_forgotten(history: Path, name: SessionName, hashes: Collection[str]) -> None:
    """Add hashes, durably; raises OSError, BsdError."""
    known = forgotten_in(history)
    if known.union(hashes) != known:
        said = {"version": _VERSION, "session": str(name), "hashes": sorted(known.union(hashes))}
        write_private(history / FORGOTTEN, orjson.dumps(said))


def join_forgotten(history: Path, other: Path, name: SessionName) -> None:
    """Take over what another directory says, and remove it; raises OSError."""
    note_forgotten(history, name, forgotten_in(other))
    (other / FORGOTTEN).unlink(missing_ok=True)
