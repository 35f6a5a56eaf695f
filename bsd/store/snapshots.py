"""Snapshots: copies of whole sessions in the archive, from which deleted sessions are restored.

A snapshot is the directory `<root>/archive/<agent>_<session>/session-<origin>/`. Its `copy.json`
lists the files of the session (the transcript first, then other files that belong to it) and the
parts of each; packs in the same directory hold the parts (`store/snapshot_parts.py`). The
transcript is stored lean: extracted values are already in the session's store and packs. `<origin>`
distinguishes the session from others that had the same name.

`copy.json` is trusted only if it is bsd's own file (`core/files`) and its values are possible: the
names must be those of its place, and every path must lie below the directory of its session, or of
its agent if that holds no other session (`owns_directory`). It has a checksum; older versions of
bsd wrote none.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import structlog
from pydantic import Field

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
from bsd.core.formatting import iso_utc
from bsd.core.layout import COPY, Layout, SessionName
from bsd.store.checked import (
    moment,
    path_below,
    relative_path,
    sha256_in_hex,
    text,
    text_or_none,
    truth,
    whole_number,
)
from bsd.store.pack import PACK, root_of
from bsd.store.uploads import note_directory_deleted
from bsd.transcripts.change import Identity, Written

_log = structlog.stdlib.get_logger(module="archive")

COPY_FILE = "copy.json"  # the list of the files of a snapshot
_ENDING = ".jsonl"
_VERSION = 1
_CHECKSUM = "sha256"  # of the document without this member
_COMPRESSED = "compressed"  # size of a file on disk that its program has compressed
_ORIGIN = re.compile(r"[0-9a-f]{16}")
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class Part(NamedTuple):
    """A piece of a file: its SHA-256 and its size in bytes."""

    hash: bytes
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file as it was copied; `path` is relative to the agent's session directory."""

    path: str
    was: Identity  # of the file on disk; its parts hold its lines, even if it was compressed
    mode: int
    uid: int
    gid: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot of a session; times are epoch seconds."""

    directory: Path
    name: SessionName
    origin: str  # 16 hex digits that distinguish the session from others of its name
    files: tuple[SnapshotFile, ...]  # the transcript first
    kept_at: float
    title: str | None = None
    parent: str | None = None  # the session of which this session is a part
    listed: str | None = None  # its program's record of it, for `AgentProgram.list_again`
    put_away: bool = False  # archived by its program, in another directory
    left_out: tuple[str, ...] = ()  # unreadable files of the session, each with the reason
    working_directory: str | None = None  # the first working directory
    gone_at: float | None = None  # time at which a run first found the session deleted
    owns_directory: bool = False  # as in `AgentProgram`
    begins_in: str | None = None  # the session in whose file it begins

    @property
    def id(self) -> str:
        """The session's name with the origin, as commands and routes accept it."""
        return f"{self.name}@{self.origin[:8]}"

    @property
    def transcript(self) -> SnapshotFile:
        """The transcript, which is the first file."""
        return self.files[0]

    @property
    def size(self) -> int:
        """The bytes of all its files, without extracted values."""
        return sum(part.size for file in self.files for part in file.parts)

    @property
    def packed(self) -> int:
        """The bytes that the snapshot takes on disk."""
        return sum(path.stat().st_size for path in packs_in(self.directory))


def packs_in(directory: Path) -> list[Path]:
    """Return the packs in the directory of a snapshot."""
    return sorted(directory.glob(f"*{PACK}"))


# --- directories of snapshots ---


def archive_directories(layout: Layout) -> list[Path]:
    """Return the directories of all sessions in the archive; raises BsdError."""
    try:
        with os.scandir(layout.refuse_outside(layout.archive)) as found:
            return sorted(Path(item.path) for item in found if item.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise Conflict(
            f"{layout.archive} is not a directory, so the archive cannot be read",
            hint="move that file away, and restore the directory from a backup",
        ) from error
    except OSError as error:
        raise os_problem(error, f"reading {layout.archive}") from error


def snapshot_directories(archive: Path) -> Iterator[Path]:
    """Yield the snapshot directories of a session, including damaged snapshots; raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(archive)):
            if name.startswith(COPY):
                yield archive / name


def snapshot_directory(layout: Layout, name: SessionName, origin: str) -> Path:
    """Return the path of a session's snapshot with this origin, which need not exist."""
    return layout.archive_dir(name) / f"{COPY}{origin}"


def snapshots_of(layout: Layout, name: SessionName) -> list[Snapshot]:
    """Return the snapshots of all sessions of this name, the latest first; raises OSError."""
    return _read_all(layout.archive_dir(name), strictly=False)


def snapshots_in(archive: Path, *, strictly: bool = False) -> list[Snapshot]:
    """Return the snapshots in the archive directory of a session, the latest first.

    A damaged snapshot is logged and left out.

    Args:
        archive: the session's directory in the archive.
        strictly: raise BsdError or OSError if a snapshot is temporarily unreadable; by default this
            is logged, too, and the result is empty.
    """
    try:
        return _read_all(archive, strictly=strictly)
    except OSError as error:
        if strictly:
            raise
        _log.warning("The copies of a session cannot be read", problem=str(error))
        return []


def sessions_needed_by_copies(layout: Layout) -> dict[str, set[SessionName]]:
    """Return the sessions in whose files others begin, with these others, as their copies say.

    A copy of the others cannot be continued without a copy of the session.
    """
    found: dict[str, set[SessionName]] = {}
    for archive in archive_directories(layout):
        for snapshot in snapshots_in(archive):
            if snapshot.begins_in is not None:
                found.setdefault(snapshot.begins_in, set()).add(snapshot.name)
    return found


def _read_all(archive: Path, *, strictly: bool) -> list[Snapshot]:
    found: list[Snapshot] = []
    for directory in snapshot_directories(archive):
        try:
            if snapshot := read_snapshot(directory):
                found.append(snapshot)
        except Unavailable as problem:
            if strictly and isinstance(problem.__cause__, OSError):
                raise
            _log.warning("A copy of a session is damaged", problem=problem.message)
    return sorted(found, key=lambda snapshot: snapshot.kept_at, reverse=True)


# --- copy.json ---


def read_snapshot(directory: Path) -> Snapshot | None:
    """Read `copy.json` of a snapshot.

    Returns:
        The snapshot; None if the directory contains none.

    Raises:
        Unavailable: `copy.json` is damaged, or is not bsd's own file.
        BsdError: it cannot be read.
    """
    path = directory / COPY_FILE
    try:
        return _parse(directory, orjson.loads(read_ours(path, root_of(path), LARGEST_RECORD)))
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
            hint="`bsd archive forget` removes this copy; its session cannot be restored from it",
        ) from error


def write_snapshot(snapshot: Snapshot) -> None:
    """Write `copy.json` durably, which makes the snapshot valid; raises OSError."""
    is_new = not snapshot.directory.is_dir()
    document = {
        "version": _VERSION,
        "session": str(snapshot.name),
        "origin": snapshot.origin,
        "kept_at": snapshot.kept_at,
        "title": snapshot.title,
        "parent": snapshot.parent,
        "listed": snapshot.listed,
        "put_away": snapshot.put_away,
        "left_out": snapshot.left_out,
        "working_directory": snapshot.working_directory,
        "gone_at": snapshot.gone_at,
        "files": [_file_document(file) for file in snapshot.files],
    }
    if snapshot.owns_directory:
        document["owns_directory"] = True
    if snapshot.begins_in is not None:
        document["begins_in"] = snapshot.begins_in
    document[_CHECKSUM] = _checksum(document)
    data = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
    write_private(snapshot.directory / COPY_FILE, data)
    if is_new:
        sync_dir(snapshot.directory.parent)


def delete_snapshot(directory: Path) -> None:
    """Delete a snapshot permanently, also from the bucket; raises OSError, BsdError."""
    note_directory_deleted(root_of(directory / COPY_FILE), directory, must=True)
    with suppress(FileNotFoundError):
        (directory / COPY_FILE).unlink()
        sync_dir(directory)
    shutil.rmtree(directory)
    with suppress(OSError):  # packs of values, or another snapshot, are left
        directory.parent.rmdir()


def _parse(directory: Path, document: Any) -> Snapshot:
    """Build a snapshot from JSON; raises an error of `_BROKEN`, or BsdError for a bad name."""
    if document["version"] != _VERSION:
        raise ValueError(f"its version is {document['version']!r:.20}")
    if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
        raise ValueError("its checksum does not match")
    name, origin = SessionName.parse(text(document["session"])), text(document["origin"])
    if not _ORIGIN.fullmatch(origin) or directory.name != f"{COPY}{origin}":
        raise ValueError("it lies in the directory of another copy")
    store, place = Layout(directory).store_name(name), directory.parent.name
    if place != store and not place.startswith(f"{store}_archive_"):  # the latter in the trash
        raise ValueError(f"it describes {name}, but lies in the directory of another session")
    files = tuple(map(_parse_file, document["files"]))
    if not files or files[0].path != f"{name.session}{_ENDING}":
        raise ValueError("its first file is not the transcript")
    owns_directory = truth(document.get("owns_directory", False))
    for file in files[1:]:
        if owns_directory:
            relative_path(file.path)
        else:
            path_below(file.path, name.session)
    if len({file.path for file in files}) < len(files):
        raise ValueError("it names a file twice")
    return Snapshot(
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
        working_directory=text_or_none(
            document.get("working_directory")
        ),  # older versions wrote none
        gone_at=None if document["gone_at"] is None else moment(document["gone_at"]),
        owns_directory=owns_directory,
        begins_in=text_or_none(document.get("begins_in")),
    )


def _parse_file(document: Any) -> SnapshotFile:
    parts = tuple(
        Part(sha256_in_hex(hash_), whole_number(size)) for hash_, size in document["parts"]
    )
    dev, ino, size, mtime_ns, ctime_ns = document["was"]
    was = Identity(
        whole_number(dev, 1 << 64),
        whole_number(ino, 1 << 64),
        whole_number(size),
        whole_number(mtime_ns, least=-1 << 63),
        whole_number(ctime_ns, least=-1 << 63),
    )
    if sum(part.size for part in parts) != was.size:
        raise ValueError("the sizes of its parts do not add up")
    if (compressed := document.get(_COMPRESSED)) is not None:
        was = replace(was, size=whole_number(compressed))
    return SnapshotFile(
        path=text(document["path"]),
        was=was,
        mode=whole_number(document["mode"]) & 0o777,  # never setuid or setgid
        uid=whole_number(document["uid"]),
        gid=whole_number(document["gid"]),
        parts=parts,
    )


def _file_document(file: SnapshotFile) -> dict[str, Any]:
    was, size = file.was, sum(part.size for part in file.parts)
    document = {
        "path": file.path,
        "was": [was.dev, was.ino, size, was.mtime_ns, was.ctime_ns],
        "mode": file.mode,
        "uid": file.uid,
        "gid": file.gid,
        "parts": [[part.hash.hex(), part.size] for part in file.parts],
    }
    return document if was.size == size else {**document, _COMPRESSED: was.size}


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()


# --- copied.json ---


class CopiedVersions:
    """The version of each session's transcript that was copied last, by store name.

    This is a cache in `copied.json`: if the file is lost, it is rebuilt from the snapshots.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = layout.own / "copied.json"
        self._noted: dict[str, Written] = {}
        self._is_new = False
        try:
            self.versions = self._read()
        except (OSError, *_BROKEN):
            self._is_new = True
            self.versions = {
                archive.name: found[0].transcript.was.written
                for archive in archive_directories(layout)
                if (found := snapshots_in(archive))
            }

    def _read(self) -> dict[str, Written]:
        document = orjson.loads(read_ours(self._file, self._layout.root, LARGEST_RECORD))
        return {str(store): Written(*map(int, was)) for store, was in document.items()}

    def note(self, store: str, was: Written) -> None:
        """Record that a session was copied."""
        self.versions[store] = self._noted[store] = was

    def save(self) -> None:
        """Write the changes; if this fails, the next run reads some sessions again."""
        if not (self._noted or self._is_new):
            return
        with suppress(OSError, *_BROKEN):
            self.versions = self._read() | self._noted  # another run may have recorded more
        with suppress(OSError):
            plain = {store: tuple(was) for store, was in self.versions.items()}
            write_private(self._file, orjson.dumps(plain))


# --- sums ---


@dataclass(frozen=True, slots=True)
class CopiesUse:
    """The disk space of copies of sessions. Sizes are bytes, times ISO 8601."""

    sessions: int
    gone: Annotated[int, Field(description="Copied sessions that their program has deleted")]
    content: Annotated[int, Field(description="Of all their files, without extracted values")]
    kept: Annotated[int, Field(description="Size of the copies on disk")]
    ratio: Annotated[float | None, Field(description="Bytes of content per byte on disk")]
    oldest: Annotated[str | None, Field(description="Time of the oldest copy")]


NO_COPIES = CopiesUse(0, 0, 0, 0, None, None)


def copies_use(layout: Layout) -> CopiesUse:
    """Return the sums over all snapshots in the archive."""
    found = [each for archive in archive_directories(layout) for each in snapshots_in(archive)]
    if not found:
        return NO_COPIES
    content, kept = sum(each.size for each in found), sum(each.packed for each in found)
    return CopiesUse(
        sessions=len(found),
        gone=sum(each.gone_at is not None for each in found),
        content=content,
        kept=kept,
        ratio=round(content / kept, 2) if kept else None,
        oldest=iso_utc(min(each.kept_at for each in found)),
    )
