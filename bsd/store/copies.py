"""Copies of whole sessions in the archive: what it takes to make one again when it is gone.

`<root>/archive/<agent>_<session>/session-<origin>/` holds `copy.json`, which says of which parts
each file of the session is made, and packs (`store.pack`) that hold the parts, by their hashes. The
files are the transcript as it was, lean, and other files of the session; the values that were
extracted from it lie in store and packs already. `<origin>` tells the session from another one that
came to its name.

`copy.json` is believed only if it is bsd's own (`core/files`) and its content is plausible: the
names are those of its place, and every path lies below the directory of its session. It has a
checksum; copies of early bsd versions have none and are read by the same rules.

Parts are whole lines, cut where the lines say: a line that changed leaves most parts as they were,
so that renewing a copy costs what is new. New parts are durable before `copy.json` names them, and
it names none any more when they go.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
import structlog

from bsd.core.errors import BsdError, Conflict, Unavailable, os_problem
from bsd.core.files import (
    LARGEST_RECORD,
    NotPlain,
    TooLarge,
    UntrustedFile,
    read_ours,
    sync_dir,
    write_private,
)
from bsd.core.layout import COPY, Layout, SessionName
from bsd.store.checked import (
    moment,
    path_below,
    sha256_in_hex,
    text,
    text_or_none,
    truth,
    whole_number,
)
from bsd.store.pack import PACK, UNFINISHED, Pack, PackDamaged, PackWriter, root_of, why_damaged
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import ChangedWhileReading, InBlocks, Transcript

_log = structlog.stdlib.get_logger(module="archive")

_MANIFEST = "copy.json"
_ENDING = ".jsonl"
_VERSION = 1
_CHECKSUM = "sha256"  # of the document without it
_ORIGIN = re.compile(r"[0-9a-f]{16}")
# A part ends after so many bytes if its last line says so, and after so many in any case.
_LEAST, _MOST = 128 << 10, 1 << 20
_ONE_OF = 8
# If there are more packs than these, or less than half of them is of use, they become one.
_MOST_PACKS = 6
_MOST_SMALL = 2 << 20  # bytes, of which there is never more than one pack
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class Part(NamedTuple):
    """A piece of a file, by its SHA-256, and its bytes."""

    hash: bytes
    size: int


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """One file as it was; `path` is below the directory of its agent's sessions."""

    path: str
    was: Identity
    mode: int
    uid: int
    gid: int
    parts: tuple[Part, ...]

    def as_json(self) -> dict[str, Any]:
        was = self.was
        return {
            "path": self.path,
            "was": [was.dev, was.ino, was.size, was.mtime_ns, was.ctime_ns],
            "mode": self.mode,
            "uid": self.uid,
            "gid": self.gid,
            "parts": [[part.hash.hex(), part.size] for part in self.parts],
        }

    @classmethod
    def from_json(cls, document: Any) -> CopiedFile:
        """Read what `as_json` wrote; raises one of `_BROKEN`."""
        parts = tuple(
            Part(sha256_in_hex(hash_), whole_number(size)) for hash_, size in document["parts"]
        )
        dev, ino, size, *times = document["was"]
        mtime_ns, ctime_ns = (whole_number(each, least=-1 << 63) for each in times)
        was = Identity(
            whole_number(dev, 1 << 64),
            whole_number(ino, 1 << 64),
            whole_number(size),
            mtime_ns,
            ctime_ns,
        )
        if sum(part.size for part in parts) != was.size:
            raise ValueError("its parts are not as long as it was")
        # Permissions only: no file that runs as its owner is made of a copy.
        mode = whole_number(document["mode"]) & 0o777
        uid, gid = whole_number(document["uid"]), whole_number(document["gid"])
        return cls(text(document["path"]), was, mode, uid, gid, parts)


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """The copy of one session; times are epoch seconds."""

    directory: Path
    name: SessionName
    origin: str  # 16 hex digits that tell it from others of its name
    files: tuple[CopiedFile, ...]  # the transcript first
    kept_at: float
    title: str | None = None
    parent: str | None = None  # the session that it is a part of
    listed: str | None = None  # its program's record of it, for `AgentProgram.list_again`
    put_away: bool = False  # by its program, into another directory
    left_out: tuple[str, ...] = ()  # files of it that could not be read
    gone_at: float | None = None  # when it was first seen to be gone

    @property
    def id(self) -> str:
        """Its name, and what tells it from others of that name."""
        return f"{self.name}@{self.origin[:8]}"

    @property
    def transcript(self) -> CopiedFile:
        return self.files[0]

    @property
    def size(self) -> int:
        """Bytes of all its files, lean as they are."""
        return sum(file.was.size for file in self.files)

    @property
    def packed(self) -> int:
        """Bytes that it takes here."""
        return sum(path.stat().st_size for path in _packs(self.directory))

    def as_json(self) -> dict[str, Any]:
        members = ("origin", "kept_at", "title", "parent", "listed", "put_away", "left_out")
        return {
            "version": _VERSION,
            "session": str(self.name),
            **{name: getattr(self, name) for name in (*members, "gone_at")},
            "files": [file.as_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, directory: Path, document: Any) -> SessionCopy:
        """Read what `as_json` wrote, and check it; raises one of `_BROKEN`, BsdError."""
        if document["version"] != _VERSION:
            raise ValueError(f"it is of version {document['version']!r:.20}")
        if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
            raise ValueError("its checksum is another one")
        name, origin = SessionName.parse(text(document["session"])), text(document["origin"])
        if not _ORIGIN.fullmatch(origin) or directory.name != f"{COPY}{origin}":
            raise ValueError("it lies in the place of another copy")
        store, place = Layout(directory).store_name(name), directory.parent.name
        if place != store and not place.startswith(f"{store}_archive_"):  # in the trash
            raise ValueError(f"it is about {name}, and lies in the place of another session")
        files = tuple(map(CopiedFile.from_json, document["files"]))
        if not files or files[0].path != f"{name.session}{_ENDING}":
            raise ValueError("it does not name the transcript first")
        for file in files[1:]:
            path_below(file.path, name.session)
        if len({file.path for file in files}) < len(files):
            raise ValueError("it names a file twice")
        return cls(
            directory,
            name,
            origin,
            files,
            kept_at=moment(document["kept_at"]),
            title=text_or_none(document["title"]),
            parent=text_or_none(document["parent"]),
            listed=text_or_none(document["listed"]),
            put_away=truth(document["put_away"]),
            left_out=tuple(map(text, document["left_out"])),
            gone_at=None if document["gone_at"] is None else moment(document["gone_at"]),
        )


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()


# --- where copies are ---


def archived(layout: Layout) -> list[Path]:
    """Return the directories of sessions in the archive; raises BsdError if it cannot be read."""
    try:
        with os.scandir(layout.refuse_outside(layout.archive)) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise Conflict(
            f"{layout.archive} is not a directory, so nothing of the archive can be read",
            hint="move away what lies there, and bring the directory back",
        ) from error
    except OSError as error:
        raise os_problem(error, f"reading {layout.archive}") from error


def copy_directory(layout: Layout, name: SessionName, origin: str) -> Path:
    """Return where the copy of the session of this name and origin lies, or would."""
    return layout.archive_dir(name) / f"{COPY}{origin}"


def copy_directories(archive: Path) -> list[Path]:
    """Return where the copies of a session lie, damaged ones too; raises OSError."""
    try:
        return sorted(archive / name for name in os.listdir(archive) if name.startswith(COPY))
    except (FileNotFoundError, NotADirectoryError):
        return []


def copies_of(layout: Layout, name: SessionName) -> list[SessionCopy]:
    """Return all copies of sessions of this name, the latest first; raises OSError."""
    return _copies(layout.archive_dir(name))


def copies_in(archive: Path, *, but_one: bool = False, strictly: bool = False) -> list[SessionCopy]:
    """Return the copies in a session's directory in the archive, the latest first.

    Copies that cannot be read are logged and left out.

    Args:
        archive: the directory.
        but_one: one copy is of no interest: if there is only one, it is not even read.
        strictly: leave out only damaged copies; raise BsdError, OSError for a copy that cannot be
            read now.
    """
    try:
        return _copies(archive, but_one=but_one, strictly=strictly)
    except OSError as error:  # copies of other sessions can be read
        if strictly:
            raise
        _log.warning("The copies of a session cannot be read", problem=str(error))
        return []


def _copies(archive: Path, *, but_one: bool = False, strictly: bool = False) -> list[SessionCopy]:
    directories = copy_directories(archive)
    found: list[SessionCopy] = []
    for directory in directories if len(directories) > but_one else ():
        try:
            if copy := read_copy(directory):
                found.append(copy)
        except Unavailable as problem:  # others can be read; verify tells of this one, too
            if strictly and isinstance(problem.__cause__, OSError):
                raise
            _log.warning("A copy of a session is damaged", problem=problem.message)
    return sorted(found, key=lambda copy: copy.kept_at, reverse=True)


def read_copy(directory: Path) -> SessionCopy | None:
    """Return the copy that lies there, if any; raises Unavailable if it cannot be understood."""
    path = directory / _MANIFEST
    try:
        document = orjson.loads(read_ours(path, root_of(path), LARGEST_RECORD))
        return SessionCopy.from_json(directory, document)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (UntrustedFile, NotPlain, TooLarge) as error:
        problem = os_problem(error, f"reading {path}")
        raise Unavailable(problem.message, hint=problem.hint) from error
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    except (*_BROKEN, BsdError) as error:
        raise Unavailable(
            f"{path} is not as bsd wrote it ({error})",
            hint="what it is about cannot be brought back; `bsd archive forget` removes it",
        ) from error


def damaged_copies(archive: Path) -> Iterator[tuple[Path, Unavailable]]:
    """Yield the copies of a session that cannot be brought back whole; each is read whole."""
    for directory in copy_directories(archive):
        try:
            if copy := read_copy(directory):
                for file in copy.files:
                    with CopiedTranscript(copy, file) as source:
                        for _ in source.whole():
                            pass
        except Unavailable as problem:
            yield directory, problem


# --- reading ---


class CopiedTranscript(InBlocks):
    """A file of a copy, the transcript or another one, read as a session is."""

    def __init__(self, copy: SessionCopy, file: CopiedFile | None = None) -> None:
        self._file = file or copy.transcript
        self._copy = copy
        super().__init__(self._file.was, _MOST)
        self._open = ExitStack()
        self._packs: list[Pack] | None = None  # opened when needed
        self._unreadable: Exception | None = None  # why a pack could not be opened
        self._ends = list(accumulate(part.size for part in self._file.parts))
        self._last: tuple[int, bytes] = (-1, b"")

    def close(self) -> None:
        self._open.close()
        self._packs = None

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.identity.size:
            raise ChangedWhileReading(f"there are no {length} bytes at {offset}")
        pieces = []
        number = bisect_right(self._ends, offset)
        while length > 0:
            content = self._part(number)
            start = offset - (self._ends[number] - len(content))
            pieces.append(content[start : start + length])
            offset, length, number = offset + len(pieces[-1]), length - len(pieces[-1]), number + 1
        return b"".join(pieces)

    def _fill(self, view: memoryview, offset: int) -> None:
        view[:] = self.read(offset, len(view))

    def whole(self) -> Iterator[bytes]:
        """Yield all of it, part by part."""
        return map(self._part, range(len(self._ends)))

    def _part(self, number: int) -> bytes:
        """Return a part, whose hash is right; raises Unavailable if it is damaged or gone."""
        if self._last[0] != number:
            part = self._file.parts[number]
            content = self._find(part)
            if len(content) != part.size:
                raise Unavailable(
                    f"the copy of {self._copy.name} says wrongly how long a part of it is"
                )
            self._last = (number, content)
        return self._last[1]

    def _find(self, part: Part) -> bytes:
        if self._packs is None:
            self._packs = []
            for path in _packs(self._copy.directory):
                try:
                    self._packs.append(self._open.enter_context(Pack(path)))
                except (PackDamaged, OSError) as error:  # parts that only it holds are missing
                    self._unreadable = error
        problem = self._unreadable
        for pack in self._packs:
            try:
                if (place := pack.find(part.hash)) is not None:
                    return pack.line(place)
            except (PackDamaged, OSError) as error:
                problem = error
        raise Unavailable(
            f"the copy of {self._copy.name} in {self._copy.directory} is not whole"
            f" ({problem or 'a pack of it is gone'})",
            hint="bring that directory back from a backup, if there is one",
        )


# --- writing ---


def parts_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Cut lines into parts; the first line begins a part."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= _LEAST and (size >= _MOST or zlib.crc32(line) % _ONE_OF == 0):
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def unchanged_parts(source: Transcript, before: CopiedFile) -> tuple[Part, ...]:
    """Return the parts of a file that it still has, if it was only appended to; never the last.

    The first part and the last ones are read, as programs write anew at the beginning or the end.
    """
    kept = before.parts[:-1]
    now, was = source.identity, before.was
    appended = (now.dev, now.ino) == (was.dev, was.ino) and now.size >= was.size
    if not appended or not kept:
        return ()
    end = sum(part.size for part in kept)
    looked_at = {0: kept[0], end - kept[-1].size: kept[-1], end: before.parts[-1]}
    same = all(_digest(source.read(at, part.size)) == part.hash for at, part in looked_at.items())
    return kept if same else ()


class NewParts:
    """Takes in the parts of a copy, and packs those that are not there; to be used in a `with`.

    `mending`: packs that are there are read whole, and damaged ones do not count.
    """

    def __init__(
        self, directory: Path, before: SessionCopy | None, now: float, *, mending: bool = False
    ) -> None:
        self._directory = directory
        packs = _packs(directory) if before or directory.is_dir() else []
        self._damaged = list(filter(why_damaged, packs)) if mending else []
        self._known = {
            hash_ for path in packs if path not in self._damaged for hash_ in _hashes(path)
        }
        self._now = now
        self._writer: PackWriter | None = None
        self._unfinished = ExitStack()
        self._made: Path | None = None
        self.taken = 0  # bytes that were packed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._unfinished.close()

    def has(self, parts: Iterable[Part]) -> bool:
        """Return whether these are there, or were added."""
        return all(part.hash in self._known for part in parts)

    def add(self, content: bytes) -> Part:
        """Take in a part."""
        part = Part(_digest(content), len(content))
        if part.hash not in self._known:
            if self._writer is None:
                self._writer = self._unfinished.enter_context(PackWriter(self._directory))
            self._writer.add(content, {})
            self._known.add(part.hash)
            self.taken += len(content)
        return part

    def drop_damaged(self) -> None:
        """Remove packs that did not count, once the copy does not need them."""
        for path in self._damaged:
            if path != self._made:
                path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Make them durable; raises Unavailable, OSError."""
        if self._writer is not None:
            self._made = _finished(self._writer, self._now)


def write_copy(copy: SessionCopy) -> None:
    """Write `copy.json`, durably: from now on the copy counts. Raises OSError."""
    new = not copy.directory.is_dir()
    document = copy.as_json()
    document[_CHECKSUM] = _checksum(document)
    data = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
    write_private(copy.directory / _MANIFEST, data)
    if new:
        sync_dir(copy.directory.parent)


def tidy_copy(copy: SessionCopy, now: float, *, strictly: bool = False) -> None:
    """Remove packs of no use, and make one of many; the caller holds the session's lock.

    With `strictly`, no part stays that the copy does not need. Raises OSError, Unavailable; a part
    that the copy needs is removed only when it lies elsewhere.
    """
    for path in copy.directory.glob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)
    needed = {part.hash: part.size for file in copy.files for part in file.parts}
    packs = {path: _hashes(path) for path in _packs(copy.directory)}
    if needed.keys() - set().union(*packs.values()):
        return  # something is damaged: whatever is left of it stays
    useful = sum(needed.values())
    content = sum(sum(held.values()) for held in packs.values())
    many = len(packs) > _MOST_PACKS or (content <= _MOST_SMALL and len(packs) > 1)
    if many or content > 2 * useful or (strictly and content > useful):
        with PackWriter(copy.directory) as writer:
            for file in copy.files:
                with CopiedTranscript(copy, file) as source:
                    for part in source.whole():
                        writer.add(part, {})
            needed_packs = {_finished(writer, now)}
    else:
        needed_packs = {path for path, held in packs.items() if not held.keys().isdisjoint(needed)}
    if useless := packs.keys() - needed_packs:
        for path in useless:
            path.unlink(missing_ok=True)
        sync_dir(copy.directory)


def _finished(writer: PackWriter, now: float) -> Path:
    try:
        return writer.finish(now, now)
    except PackDamaged as damaged:
        raise Unavailable(str(damaged), hint="check this disk") from damaged


def forget_copy(directory: Path) -> None:
    """Remove a copy for good, its `copy.json` first. Raises OSError."""
    with suppress(FileNotFoundError):
        (directory / _MANIFEST).unlink()
        sync_dir(directory)
    shutil.rmtree(directory, ignore_errors=False)
    with suppress(OSError):  # packs of values lie there, or another copy
        directory.parent.rmdir()


def _packs(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{PACK}"))


def _hashes(path: Path) -> dict[bytes, int]:
    """Return the sizes of the lines of a pack, by hash; none of a damaged pack."""
    with suppress(PackDamaged, OSError), Pack(path) as pack:
        return {place.hash: place.size for place in pack.places()}
    return {}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
