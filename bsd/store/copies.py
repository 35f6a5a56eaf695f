"""Copies of whole sessions in the archive: what it takes to make one again when it is gone.

In `<root>/archive/<agent>_<session>/session-<origin>/` lies `copy.json`, which says of which parts
each file of the session is made, and packs (`store.pack`) that hold the parts, by their hashes. The
files are the transcript as it was, lean, and what else belongs to it; what was taken out of it lies
in store and packs already. `<origin>` tells the session from another one that came to its name.

`copy.json` is believed only if it is bsd's own (`core/files`) and what it says may be so:
the names are those of its place, and every path lies below the directory of its session. It has a
checksum; copies of bsd versions before that have none and are read by the same rules.

Parts are whole lines, cut where the lines say: one that changed leaves most others as they were, so
that a copy that is renewed costs what is new. New parts are durable before `copy.json` names them,
and it names none any more when they go.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
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
# More packs than these, or more than half of them of no use: they are written anew, as one.
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
    def of(cls, said: Any) -> CopiedFile:
        """Read what `as_json` wrote; raises as any broken document."""
        parts = tuple(
            Part(sha256_in_hex(known), whole_number(size)) for known, size in said["parts"]
        )
        dev, ino, size, *times = said["was"]
        mtime_ns, ctime_ns = (whole_number(one, least=-1 << 63) for one in times)
        was = Identity(
            whole_number(dev, 1 << 64),
            whole_number(ino, 1 << 64),
            whole_number(size),
            mtime_ns,
            ctime_ns,
        )
        if sum(part.size for part in parts) != was.size:
            raise ValueError("its parts are not as long as it was")
        # Never more than permissions: nothing that runs as its owner is made of a copy.
        mode = whole_number(said["mode"]) & 0o777
        return cls(
            text(said["path"]),
            was,
            mode,
            whole_number(said["uid"]),
            whole_number(said["gid"]),
            parts,
        )


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """What is kept of one session; times are epoch seconds."""

    directory: Path
    name: SessionName
    origin: str  # 16 hex digits that tell it from others of its name
    files: tuple[CopiedFile, ...]  # the transcript first
    kept_at: float
    title: str | None = None
    parent: str | None = None  # the session that it is a part of
    listed: str | None = None  # its program's record of it, for `AgentProgram.list_again`
    put_away: bool = False  # by its program, into another directory
    left_out: tuple[str, ...] = ()  # what belongs to it and could not be read
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
        told = {name: getattr(self, name) for name in _PLAIN}
        return {
            "version": _VERSION,
            "session": str(self.name),
            **told,
            "files": [file.as_json() for file in self.files],
        }


_PLAIN = (
    *("origin", "kept_at", "title", "parent", "listed", "put_away", "left_out"),
    "gone_at",
)


def copies_of(layout: Layout, name: SessionName) -> list[SessionCopy]:
    """All that are kept of sessions of this name, the latest first; raises OSError."""
    return _copies(layout.archive_dir(name))


def copies_in(archive: Path, *, but_one: bool = False, strictly: bool = False) -> list[SessionCopy]:
    """The same by the session's directory in the archive; what cannot be read is left out.

    `but_one` is of no interest: if there is only one, it is not even read. `strictly`: only what is
    damaged is left out; raises BsdError, OSError for what cannot be read now.
    """
    if strictly:
        return _copies(archive, but_one=but_one, strictly=True)
    try:
        return _copies(archive, but_one=but_one)
    except OSError as error:  # those of other sessions are none the worse for it
        _log.warning("The copies of a session cannot be read", problem=str(error))
        return []


def _copies(archive: Path, *, but_one: bool = False, strictly: bool = False) -> list[SessionCopy]:
    found: list[SessionCopy] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        names = sorted(name for name in os.listdir(archive) if name.startswith(COPY))
        if len(names) == 1 and but_one:
            return []
        for each in names:
            try:
                if copy := read_copy(archive / each):
                    found.append(copy)
            except Unavailable as problem:  # others are none the worse for it; verify tells, too
                if strictly and isinstance(problem.__cause__, OSError):
                    raise
                _log.warning("A copy of a session is damaged", problem=problem.message)
    return sorted(found, key=lambda copy: copy.kept_at, reverse=True)


def copy_directories(archive: Path) -> Iterator[Path]:
    """Where the copies of a session lie, damaged ones too; raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for each in sorted(os.listdir(archive)):
            if each.startswith(COPY):
                yield archive / each


def copy_directory(layout: Layout, name: SessionName, origin: str) -> Path:
    """Where the copy of the session of this name and origin lies, or would."""
    return layout.archive_dir(name) / f"{COPY}{origin}"


def read_copy(directory: Path) -> SessionCopy | None:
    """What is kept there; None if nothing is. Raises Unavailable if nobody can tell."""
    path = directory / _MANIFEST
    try:
        said = orjson.loads(read_ours(path, root_of(path), LARGEST_RECORD))
        return _copy_of(directory, said)
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


def _copy_of(directory: Path, said: Any) -> SessionCopy:
    """What a document says; raises as any broken document."""
    if said["version"] != _VERSION:
        raise ValueError(f"it is of version {said['version']!r:.20}")
    if _CHECKSUM in said and said.pop(_CHECKSUM) != _checksum(said):
        raise ValueError("its checksum is another one")
    name, origin = SessionName.parse(text(said["session"])), text(said["origin"])
    if not _ORIGIN.fullmatch(origin) or directory.name != f"{COPY}{origin}":
        raise ValueError("it lies in the place of another copy")
    store, place = Layout(directory).store_name(name), directory.parent.name
    if place != store and not place.startswith(f"{store}_archive_"):  # in the trash
        raise ValueError(f"it is about {name}, and lies in the place of another session")
    files = tuple(map(CopiedFile.of, said["files"]))
    if not files or files[0].path != f"{name.session}{_ENDING}":
        raise ValueError("it does not name the transcript first")
    for file in files[1:]:
        path_below(file.path, name.session)
    if len({file.path for file in files}) < len(files):
        raise ValueError("it names a file twice")
    return SessionCopy(
        directory,
        name,
        origin,
        files,
        kept_at=moment(said["kept_at"]),
        title=text_or_none(said["title"]),
        parent=text_or_none(said["parent"]),
        listed=text_or_none(said["listed"]),
        put_away=truth(said["put_away"]),
        left_out=tuple(map(text, said["left_out"])),
        gone_at=None if said["gone_at"] is None else moment(said["gone_at"]),
    )


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def damaged_copies(archive: Path) -> Iterator[tuple[Path, Unavailable]]:
    """Copies of a session that cannot be brought back whole; all of each is read."""
    for directory in copy_directories(archive):
        try:
            if copy := read_copy(directory):
                _read_all(copy)
        except Unavailable as problem:
            yield directory, problem


def _read_all(copy: SessionCopy) -> None:
    for file in copy.files:
        with CopiedTranscript(copy, file) as source:
            for _ in source.whole():
                pass


# --- reading ---


class CopiedParts:
    """The packs of one copy, opened when needed; to be closed. Raises Unavailable if damaged."""

    def __init__(self, copy: SessionCopy) -> None:
        self._copy = copy
        self._open = ExitStack()
        self._packs: list[Pack] | None = None
        self._unreadable: Exception | None = None  # why a pack could not be opened

    def close(self) -> None:
        self._open.close()
        self._packs = None

    def read(self, part: Part) -> bytes:
        """A part, whose hash is right."""
        if self._packs is None:
            self._packs = list(self._opened())
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

    def _opened(self) -> Iterator[Pack]:
        for path in _packs(self._copy.directory):
            try:
                yield self._open.enter_context(Pack(path))
            except (PackDamaged, OSError) as problem:  # what only it holds will be missed
                self._unreadable = problem


class CopiedTranscript(InBlocks):
    """A file of a copy, read as a session is."""

    def __init__(self, copy: SessionCopy, file: CopiedFile | None = None) -> None:
        self._file = file or copy.transcript
        self._name = copy.name
        super().__init__(self._file.was, _MOST)
        self._parts = CopiedParts(copy)
        self._ends = list(accumulate(part.size for part in self._file.parts))
        self._last: tuple[int, bytes] = (-1, b"")

    def close(self) -> None:
        self._parts.close()

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

    def _part(self, number: int) -> bytes:
        if self._last[0] != number:
            part = self._file.parts[number]
            content = self._parts.read(part)
            if len(content) != part.size:
                raise Unavailable(f"the copy of {self._name} says wrongly how long a part of it is")
            self._last = (number, content)
        return self._last[1]

    def whole(self) -> Iterator[bytes]:
        """All of it, part by part."""
        return map(self._part, range(len(self._ends)))


# --- keeping ---


def parts_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines, from where a part begins, as parts."""
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
    """The parts of a file that it still has, if it was only appended to; never the last one.

    Its first part and the last that counts are read, as that is where programs write anew.
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
    """Takes in parts, and packs those that are not there; to be used in a `with`."""

    def __init__(
        self, directory: Path, before: SessionCopy | None, now: float, *, mending: bool = False
    ) -> None:
        """`mending`: packs that are there are read whole; the damaged ones do not count."""
        self._directory = directory
        self._damaged = list(filter(why_damaged, _packs(directory))) if mending else []
        there = before or directory.is_dir()
        self._known = set(_held(directory, self._damaged)) if there else set()
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
        """Whether these are there, or were added."""
        return all(part.hash in self._known for part in parts)

    def add(self, content: bytes) -> Part:
        part = Part(_digest(content), len(content))
        if part.hash not in self._known:
            if self._writer is None:
                self._writer = self._unfinished.enter_context(PackWriter(self._directory))
            self._writer.add(content, {})
            self._known.add(part.hash)
            self.taken += len(content)
        return part

    def drop_damaged(self) -> None:
        """Remove packs that did not count, once all that they had lies elsewhere."""
        for path in self._damaged:
            if path != self._made:
                path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Make them durable; raises Unavailable, OSError."""
        if self._writer is not None:
            try:
                self._made = self._writer.finish(self._now, self._now)
            except PackDamaged as damaged:
                raise Unavailable(str(damaged), hint="check this disk") from damaged


def write_copy(copy: SessionCopy) -> None:
    """Say what is kept, durably: from now on it counts. Raises OSError."""
    new = not copy.directory.is_dir()
    said = copy.as_json()
    said[_CHECKSUM] = _checksum(said)
    write_private(copy.directory / _MANIFEST, orjson.dumps(said, option=_PRETTY) + b"\n")
    if new:
        sync_dir(copy.directory.parent)


_PRETTY = orjson.OPT_INDENT_2


def tidy_copy(copy: SessionCopy, now: float, *, strictly: bool = False) -> None:
    """Take away packs of no use, and make one of many; the caller holds the session's lock.

    If it is to be done `strictly`, no part stays that the copy does not need.

    Raises OSError, Unavailable; nothing that the copy needs goes before it lies elsewhere.
    """
    for path in copy.directory.glob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)
    needed = {part.hash: part for file in copy.files for part in file.parts}
    packs = {path: _hashes(path) for path in _packs(copy.directory)}
    if needed.keys() - set().union(*packs.values()):
        return  # something is damaged: whatever is left of it stays
    useful = sum(part.size for part in needed.values())
    content = sum(sum(held.values()) for held in packs.values())
    small = content <= _MOST_SMALL
    many = len(packs) > _MOST_PACKS or (small and len(packs) > 1)
    if many or content > 2 * useful or (strictly and content > useful):
        needed_packs = {_merged(copy, needed.values(), now)}
    else:
        needed_packs = {path for path, held in packs.items() if not held.keys().isdisjoint(needed)}
    if useless := packs.keys() - needed_packs:
        for path in useless:
            path.unlink(missing_ok=True)
        sync_dir(copy.directory)


def _merged(copy: SessionCopy, parts: Iterable[Part], now: float) -> Path:
    """All of it in one new pack, durably."""
    with closing(CopiedParts(copy)) as source, PackWriter(copy.directory) as writer:
        for part in parts:
            writer.add(source.read(part), {})
        try:
            return writer.finish(now, now)
        except PackDamaged as damaged:
            raise Unavailable(str(damaged), hint="check this disk") from damaged


def forget_copy(directory: Path) -> None:
    """Remove a copy for good; what says that it is there goes first. Raises OSError."""
    with suppress(FileNotFoundError):
        (directory / _MANIFEST).unlink()
        sync_dir(directory)
    shutil.rmtree(directory, ignore_errors=False)
    with suppress(OSError):  # packs of values lie there, or another copy
        directory.parent.rmdir()


def _packs(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{PACK}"))


def _held(directory: Path, but: Collection[Path] = ()) -> Collection[bytes]:
    return [one for path in _packs(directory) if path not in but for one in _hashes(path)]


def _hashes(path: Path) -> dict[bytes, int]:
    """What a pack holds, by hash; a damaged one holds nothing that could be relied on."""
    with suppress(PackDamaged, OSError), Pack(path) as pack:
        return {place.hash: place.size for place in pack.places()}
    return {}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def archived(layout: Layout) -> list[Path]:
    """The directories of sessions in the archive; raises BsdError if nobody can look there."""
    try:
        with os.scandir(layout.refuse_outside(layout.archive)) as found:
            return sorted(Path(one.path) for one in found if one.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise Conflict(
            f"{layout.archive} is not a directory, so nothing of the archive can be read",
            hint="move away what lies there, and bring the directory back",
        ) from error
    except OSError as error:
        raise os_problem(error, f"reading {layout.archive}") from error
