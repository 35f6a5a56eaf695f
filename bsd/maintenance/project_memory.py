"""Copies of the notes that a program keeps for all sessions of a project.

Claude Code keeps `memory/` beside the sessions of a project. Whenever its files change, they are
copied unmodified to `<root>/archive/<agent>/memory/`, once per project rather than per session. The
copy has the files of the last run that found any: if the directory is empty or missing, the copy
stays as it is. When a session of the project is brought back, missing files of the memory come back
too; existing files stay. Symbolic links are not followed.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from bsd.core.config import OFF
from bsd.core.directories import opened
from bsd.core.errors import BsdError, os_problem
from bsd.core.files import is_there, open_ours, open_plain, read_ours, sync_dir, write_private
from bsd.core.formatting import NEVER
from bsd.core.layout import COPY, Layout
from bsd.maintenance.expiry import (
    Cleaned,
    ExpirableFile,
    Expired,
    RetentionTarget,
    SessionFiles,
)
from bsd.store.uploads import note_deleted, note_directory_deleted
from bsd.transcripts.agents.programs import program_of

_log = structlog.stdlib.get_logger(module="archive")

_LARGEST_FILE = 16 << 20
_MOST_FILES = 2000
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class CopiedMemory:
    """The result of a run for the notes of one project."""

    files: list[Path] = field(default_factory=list)  # new and changed files, now copied
    left_out: list[str] = field(default_factory=list)  # files that are not copied, with the reason


def memory_of(layout: Layout, agent: str) -> Path | None:
    """Return the directory of an agent's notes, which need not exist; raises BsdError.

    None if the agent's program keeps no notes.
    """
    name = program_of(layout, agent).memory
    return None if name is None else layout.sessions_dir(agent) / name


def copy_memory(layout: Layout, agent: str) -> CopiedMemory:
    """Copy the notes that changed, and delete the copies of notes that no longer exist.

    If there are no notes at all, or some cannot be read, no copy is deleted.

    Raises:
        OSError: the disk is full. The earlier copies are intact.
        BsdError: the agent's directory leads elsewhere.
    """
    source, done = memory_of(layout, agent), CopiedMemory()
    if source is None:
        return done
    found = dict(_files_below(source, done.left_out))
    if not found:
        return done
    place = layout.memory_dir(agent)
    before = dict(_files_below(place, []))
    if not done.left_out:  # else a missing file may only be unreadable
        _drop(place, before.keys() - found.keys())
    for below, status in found.items():
        was = before.get(below)
        if was is not None and _version(was) == _version(status):
            continue
        _copy(source / below, place / below, done)
    if done.files:
        _log.info(f"archive: copied the memory of {agent}", files=len(done.files))
    return done


def _copy(path: Path, copy: Path, done: CopiedMemory) -> None:
    """Copy one file. Problems go to `done.left_out`; a full disk raises OSError."""
    try:
        data, mtime_ns = _read(path)
        write_private(copy, data)
        os.utime(copy, ns=(mtime_ns, mtime_ns))
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise
        if not isinstance(error, FileNotFoundError):  # else the file was just deleted
            done.left_out.append(os_problem(error, f"reading {path}").message)
    else:
        done.files.append(path)


def _drop(place: Path, gone: Iterable[str]) -> None:
    """Delete copies, and the directories that become empty."""
    gone = sorted(gone)
    note_deleted(place.parents[2], (place / below for below in gone), must=True)
    for below in gone:
        path = place / below
        path.unlink(missing_ok=True)
        for directory in path.relative_to(place).parents:
            with suppress(OSError):  # the directory is not empty
                (place / directory).rmdir()


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _read(path: Path) -> tuple[bytes, int]:
    """Return a file's content and mtime; raises OSError, also if the file changes meanwhile."""
    with opened(path.parent) as directory:
        descriptor = open_plain(path.name, directory=directory)
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        if before.st_size > _LARGEST_FILE:
            raise OSError(errno.EFBIG, f"larger than {_LARGEST_FILE >> 20} MB", str(path))
        data = file.read(before.st_size + 1)
        after = os.fstat(descriptor)
    if _version(before) != _version(after) or len(data) != after.st_size:
        raise OSError(errno.EBUSY, "it changed while it was read", str(path))
    return data, after.st_mtime_ns


def _files_below(top: Path, left_out: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a directory, with their relative paths.

    Items that are neither a file nor a directory, or cannot be read, are reported in `left_out`.
    """
    try:
        mode = top.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "not a directory"
        left_out.append(f"{top} is {what}: it is not copied")
        return

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            left_out.append(os_problem(error, f"reading {error.filename}").message)

    count = 0
    for directory, directories, names in os.walk(top, onerror=fail):
        directories.sort()
        for name in sorted((*directories, *names)):
            path = Path(directory, name)
            with suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    count += 1
                    if count > _MOST_FILES:
                        left_out.append(f"{top} has more than {_MOST_FILES:,} files")
                        return
                    yield str(path.relative_to(top)), status
                elif not stat.S_ISDIR(status.st_mode):
                    left_out.append(f"{path} is not a regular file: it is not copied")


# --- bringing back ---


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A copied file whose original is missing."""

    below: str
    copy: Path
    target: Path
    mtime_ns: int

    def read(self, layout: Layout) -> bytes:
        """Return the content of the copy; raises OSError, UntrustedFile."""
        return read_ours(self.copy, layout.root, _LARGEST_FILE)


@dataclass(frozen=True, slots=True)
class MissingMemory:
    """The files that can come back, and the copies that differ from the present files."""

    files: list[MemoryFile] = field(default_factory=list)
    stays: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # problems


def missing_memory(layout: Layout, agent: str) -> MissingMemory:
    """Compare the copy of a project's notes with the present files.

    Problems go to `left_out`; the function raises neither BsdError nor OSError.
    """
    missing = MissingMemory()
    try:
        source, place = memory_of(layout, agent), layout.memory_dir(agent)
        if source is None:
            return missing
        for below, status in _files_below(place, missing.left_out):
            found = MemoryFile(below, place / below, source / below, status.st_mtime_ns)
            if (obstacle := _obstacle(found.target, source)) is not None:
                what = "a symbolic link" if obstacle.is_symlink() else "not a directory"
                missing.left_out.append(f"{obstacle} is {what}: {found.target} cannot come back")
            elif not os.path.lexists(found.target):
                try:
                    os.close(open_ours(found.copy, layout.root))
                except OSError as error:
                    missing.left_out.append(os_problem(error, f"reading {found.copy}").message)
                else:
                    missing.files.append(found)
            elif not _is_same(found, layout):
                missing.stays.append(found.target)
    except (BsdError, OSError) as error:
        missing.left_out.append(os_problem(error, "bringing the memory back").message)
    return missing


def _obstacle(target: Path, top: Path) -> Path | None:
    """Return the link or file that blocks a directory on the way to `target`, if any."""
    for directory in target.parents:
        if os.path.lexists(directory) and (directory.is_symlink() or not directory.is_dir()):
            return directory
        if directory == top:
            break
    return None


def _is_same(found: MemoryFile, layout: Layout) -> bool:
    with suppress(OSError):
        return _read(found.target)[0] == found.read(layout)
    return False


# --- forgetting ---


def forget_memory(layout: Layout, agent: str) -> tuple[int, int]:
    """Delete the copy of a project's notes for good; return the number of files and their bytes."""
    place = layout.memory_dir(agent)
    sizes = [status.st_size for _, status in _files_below(place, [])]
    if os.path.lexists(place):
        note_directory_deleted(layout.root, place)
        shutil.rmtree(place)
        sync_dir(place.parent)
        with suppress(OSError):
            place.parent.rmdir()
    return len(sizes), sum(sizes)


def memory_copies(layout: Layout) -> Iterator[tuple[str, Path]]:
    """Yield the agents whose notes have a copy, and its directory; raises BsdError."""
    try:
        names = sorted(os.listdir(layout.refuse_outside(layout.archive)))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if "_" not in name:
            with suppress(BsdError):
                agent = name.replace("~", "_")
                place = layout.memory_dir(agent)
                if place.is_dir():
                    yield agent, place


class LoneMemories(RetentionTarget):
    """Copies of notes whose project is gone and no longer has copies of sessions.

    The age counts from the last change of the copy.
    """

    name = "memory"

    def __init__(self, layout: Layout, keep: str) -> None:
        self.keep = NEVER if keep == OFF else keep
        self.layout = layout

    def places(self) -> Iterator[Path]:
        for agent, place in memory_copies(self.layout):
            if self._is_lone(agent):
                yield place

    def look(self, place: Path) -> SessionFiles:
        found = [status for _, status in _files_below(place, [])]
        if not found:
            return SessionFiles([])
        size, newest = sum(each.st_size for each in found), max(each.st_ctime for each in found)
        return SessionFiles([ExpirableFile(place, size, newest)])

    def delete(self, place: Path, expired: Expired) -> Cleaned:
        if not any(map(expired, self.look(place).files)):
            return Cleaned()
        files, size = forget_memory(self.layout, place.parent.name.replace("~", "_"))
        return Cleaned(files, size)

    def _is_lone(self, agent: str) -> bool:
        """Return True if neither the project's directory nor a copy of its sessions exists."""
        source = self.layout.source_of(agent)
        if source is None or not source.path.is_dir():
            return False  # the source may be on a disk that is not mounted
        try:
            if is_there(self.layout.sessions_dir(agent)):
                return False
        except (BsdError, OSError):  # unknown, so the copy is kept
            return False
        archives = self.layout.archive.glob(f"{self.layout.memory_dir(agent).parent.name}_*")
        return not any(name.startswith(COPY) for each in archives for name in os.listdir(each))
