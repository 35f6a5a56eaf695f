"""A disk that loses unsynced data at a power cut, wholly or in part.

The recorder notes every change with the content that it left behind. For one moment, `states` gives
the disks that a power cut may leave. Of the names that were not synced, all, none or a single one
took effect. Bytes that were not synced are there, missing, zeros, or cut in half.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sessions.commit.disk_calls import Call
from tests.sessions.commit.ledger import Ledger

_WRITES = {"write", "pwrite", "ftruncate", "copy_file_range", "sendfile", "utime", "fchmod"}
_DAMAGES = ("there", "missing", "zeros", "half")


@dataclass(frozen=True, slots=True)
class Data:
    """A file's bytes after a change."""

    inode: int
    content: bytes
    mtime_ns: int
    call: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Names that changed together: path → inode, or None if the name is gone."""

    sets: tuple[tuple[str, int | None], ...]
    is_directory: bool = False
    call: str = ""
    moved: bool = False  # the first to the second, a directory with its contents

    def directories(self) -> set[str]:
        return {os.path.dirname(path) for path, _ in self.sets}


@dataclass(frozen=True, slots=True)
class Sync:
    """A file or a directory reached the disk, or everything (no inode)."""

    inode: int | None
    directory: str | None
    call: str = ""


Event = Data | Names | Sync


class Recorder:
    """Write events to a log; continue a log that an earlier child began."""

    def __init__(self, root: Path, ledger: Ledger, log: Path) -> None:
        self._ledger = ledger
        self._seen_of_ledger = 0
        self._names: dict[str, int] = {}
        self._content: dict[int, bytes] = {}
        earlier = read_log(log) if log.exists() else []
        for event in earlier:
            self._take_note(event)
        self._log = log.open("ab", buffering=0)
        if not earlier:
            self._begin(root)
        self._seen_of_ledger = sum(
            event.call == "others" for event in earlier if isinstance(event, Data)
        )

    def __call__(self, call: Call) -> None:
        """Record a call that has just succeeded."""
        self.note_others()
        for event in self._events(call):
            self._add(event)

    def note_others(self) -> None:
        """Note the changes that other writers have reported since."""
        wrote = [event for event in self._ledger.events() if event["event"] == "wrote"]
        for event in wrote[self._seen_of_ledger :]:
            inode = event["inode"]
            content = self._content.get(inode, b"") + event["line"].encode()
            # A look at a name opens nothing, so it breaks no lease.
            mtimes = [os.stat(path).st_mtime_ns for path in self._names_of(inode)]
            self._add(Data(inode, content, max(mtimes, default=0), "others"))
            if event["durable"]:
                self._add(Sync(inode, None, "others"))
        self._seen_of_ledger = len(wrote)

    def _names_of(self, inode: int) -> list[str]:
        return [path for path, its in self._names.items() if its == inode]

    def _begin(self, root: Path) -> None:
        for path in sorted(root.rglob("*")):
            status = path.stat()
            self._add(Names(((str(path), status.st_ino),), path.is_dir()))
            self._add(Sync(0, str(path.parent)))
            if path.is_file():
                self._add(Data(status.st_ino, path.read_bytes(), status.st_mtime_ns))
                self._add(Sync(status.st_ino, None))

    def _add(self, event: Event) -> None:
        if isinstance(event, Names) and any(_is_nothing(path) for path, _ in event.sets):
            return
        self._take_note(event)
        pickle.dump(event, self._log)

    def _take_note(self, event: Event) -> None:
        if isinstance(event, Data):
            self._content[event.inode] = event.content
        elif isinstance(event, Names):
            if event.moved:
                _move(self._names, *(path for path, _ in event.sets))
                return
            for path, inode in event.sets:
                if inode is None:
                    self._names.pop(path, None)
                else:
                    self._names[path] = inode

    def _events(self, call: Call) -> Iterator[Event]:
        first = call.arguments[0]
        if call.name in ("fsync", "fdatasync"):
            status = os.fstat(first)
            path = os.readlink(f"/proc/self/fd/{first}")
            yield Sync(status.st_ino, path if os.path.isdir(path) else None, str(call))
        elif call.name == "syncfs":
            yield Sync(None, None, str(call))
        elif call.name == "open":
            path = os.path.abspath(first)
            inode = os.fstat(call.result).st_ino
            if self._names.get(path) != inode:
                yield Names(((path, inode),), call=str(call))
            yield self._data(call.result, call)
        elif call.name in _WRITES:
            fd = call.arguments[1] if call.name == "copy_file_range" else first
            if isinstance(fd, int):
                yield self._data(fd, call)
        elif call.name != "chmod":
            yield self._renaming(call)

    def _data(self, fd: int, call: Call) -> Data:
        status = os.fstat(fd)
        try:
            content = os.pread(fd, status.st_size, 0)
        except OSError:  # opened only for writing, so no process has a lease on it
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                content = file.read()
        return Data(status.st_ino, content, status.st_mtime_ns, str(call))

    def _renaming(self, call: Call) -> Names:
        one, *more = call.arguments
        match call.name:
            case "renameat2":
                a, b = os.fsdecode(call.arguments[1]), os.fsdecode(call.arguments[3])
                sets: list[tuple[str, int | None]] = [(a, _inode(a)), (b, _inode(b))]
            case "rename" | "replace":
                sets = [(str(one), None), (str(more[0]), _inode(str(more[0])))]
                if os.path.isdir(more[0]):
                    return Names(tuple(sets), is_directory=True, call=str(call), moved=True)
            case "link":
                sets = [(str(more[0]), _inode(str(more[0])))]
            case "mkdir":
                return Names(((str(one), _inode(str(one))),), is_directory=True, call=str(call))
            case "unlink" | "remove" | "rmdir":
                sets = [(str(one), None)]
            case _:
                raise NotImplementedError(call.name)
        return Names(tuple(sets), call=str(call))


def _is_nothing(path: str) -> bool:
    """Locks end with their process, and a probe is an empty file: neither is state of the
    session.
    """
    name = os.path.basename(path)
    return name.endswith(".lock") or name.startswith(".bsd-lock-") or "probe" in name


def _move(names: dict[str, int], old: str, new: str) -> None:
    """Give the contents of a renamed directory their new names."""
    for path in [path for path in names if path.startswith(f"{old}/")]:
        names[new + path[len(old) :]] = names.pop(path)


def _inode(path: str) -> int:
    return os.lstat(path).st_ino


def read_log(log: Path) -> list[Event]:
    events: list[Event] = []
    with log.open("rb") as file:
        while True:
            try:
                events.append(pickle.load(file))
            except EOFError:
                return events


@dataclass
class Disk:
    """Directories and files that a power cut left, by path."""

    directories: set[str]
    files: dict[str, Data]
    durable: bytes  # everything that was certain to survive, unordered
    how: str = ""
    inodes: dict[int, int] = field(default_factory=dict)

    def key(self) -> Any:
        return frozenset((path, data.content) for path, data in self.files.items())

    def materialise(self, root: Path) -> None:
        """Write the disk to `root`; correct the inode numbers in records."""
        shutil.rmtree(root)
        root.mkdir()
        for path in sorted(self.directories):
            os.makedirs(path, exist_ok=True)
        for path, data in self.files.items():
            with open(path, "wb") as file:
                file.write(data.content)
                self.inodes[data.inode] = os.fstat(file.fileno()).st_ino
        for path, data in self.files.items():
            if path.endswith(".record"):
                _rewrite(path, self._true_again)
            os.utime(path, ns=(data.mtime_ns, data.mtime_ns))

    def _true_again(self, content: bytes) -> bytes:
        def replaced(found: re.Match[bytes]) -> bytes:
            # An inode that is on no disk any more keeps a number that no other file has.
            inode = int(found[1])
            return b'"ino": %d' % self.inodes.get(inode, inode + 10**12)

        return re.sub(rb'"ino": (\d+)(?=\D)', replaced, content)


def _rewrite(path: str, change: Any) -> None:
    with open(path, "r+b") as file:
        content = change(file.read())
        file.seek(0)
        file.truncate()
        file.write(content)


def states(events: list[Event], moment: int, root: Path) -> Iterator[Disk]:
    """Every disk that a power cut after `moment` events may leave."""
    past = events[:moment]
    synced: dict[int, Data] = {}
    latest: dict[int, Data] = {}
    names: list[Names] = []
    pending: list[Names] = []
    for event in past:
        if isinstance(event, Data):
            latest[event.inode] = event
        elif isinstance(event, Names):
            names.append(event)
            pending.append(event)
        elif event.inode is None:
            pending = []
            synced |= latest
        elif event.directory is not None:
            pending = [one for one in pending if event.directory not in one.directories()]
        elif event.inode in latest:
            synced[event.inode] = latest[event.inode]
    certain = b"".join(data.content for data in synced.values())
    choices: list[tuple[str, list[Names]]] = [("no name", []), ("all names", pending)]
    choices += [(f"only {one.call}", [one]) for one in pending]
    choices += [
        (f"all but {one.call}", [other for other in pending if other is not one]) for one in pending
    ]
    known = {inode for change in names for _, inode in change.sets}
    last = past[-1]
    if isinstance(last, Data) and (last.inode not in known or last.call == "others"):
        # a file that is not counted; or a change that the next event of another writer makes
        # durable
        return
    for named, chosen in choices:
        directories, paths = _tree(names, pending, chosen, root)
        unsynced = {i for i in paths.values() if latest.get(i) is not synced.get(i)}
        for damage, hit in _damages(unsynced):
            files = {
                path: _damaged(
                    inode, synced.get(inode), latest.get(inode), damage if inode in hit else "there"
                )
                for path, inode in paths.items()
            }
            of = "" if hit == unsynced else f" of {[p for p, i in paths.items() if i in hit]}"
            yield Disk(directories, files, certain, f"{named}, bytes{of} {damage}")


def _damages(unsynced: set[int]) -> Iterator[tuple[str, set[int]]]:
    """The damage of each file that was not synced: all files, a single file, or all but one."""
    for damage in _DAMAGES:
        yield damage, unsynced
    if len(unsynced) > 1:
        for inode in unsynced:
            yield "missing", {inode}
            yield "missing", unsynced - {inode}


def _tree(
    names: list[Names], pending: list[Names], chosen: list[Names], root: Path
) -> tuple[set[str], dict[str, int]]:
    directories = {str(root)}
    paths: dict[str, int] = {}
    for change in names:
        if any(change is one for one in pending) and not any(change is one for one in chosen):
            continue
        if change.moved:
            _move(paths, *(path for path, _ in change.sets))
        for path, inode in change.sets:
            if inode is None:
                paths.pop(path, None)
                directories.discard(path)
            elif change.is_directory:
                directories.add(path)
            else:
                paths[path] = inode
    # A file in a directory that does not exist cannot be reached.
    reachable = {path: inode for path, inode in paths.items() if _is_reachable(path, directories)}
    return {path for path in directories if _is_reachable(path, directories)}, reachable


def _is_reachable(path: str, directories: set[str]) -> bool:
    parent = os.path.dirname(path)
    while parent not in directories:
        return len(parent) < len(min(directories, key=len))
    return parent == min(directories, key=len) or _is_reachable(parent, directories)


def _damaged(inode: int, synced: Data | None, latest: Data | None, damage: str) -> Data:
    if latest is None:  # just created
        return Data(inode, b"", 0)
    before = synced.content if synced else b""
    if synced is latest or damage == "there":
        return latest
    if damage == "missing" or not latest.content.startswith(before):
        return synced or Data(inode, b"", latest.mtime_ns)
    fresh = latest.content[len(before) :]
    rest = bytes(len(fresh)) if damage == "zeros" else fresh[: len(fresh) // 2]
    return Data(latest.inode, before + rest, latest.mtime_ns)
