"""The bytes that bsd takes and saves on disk: the totals, and the savings by hour (audit log).

Also the bytes of the directories in which agents' programs keep their sessions.
"""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bsd.core.errors import BsdError, os_problem
from bsd.core.files import LARGEST_RECORD, TooLarge, plain_file
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.core.sources import Source
from bsd.maintenance.archive_limit import USUAL_RATIO, archive_use
from bsd.maintenance.catalog import with_stats
from bsd.maintenance.titles import Titles
from bsd.sessions.commit.displaced import KEEP_NS
from bsd.sessions.commit.inflight import InFlight
from bsd.store.index import INDEX_FILE
from bsd.store.snapshots import archive_directories, snapshot_directories
from bsd.store.statistics import NOTHING_OUT, TakenOut
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.programs import kind_of

_DISK_BLOCK = 512  # the unit of st_blocks, on every system


@dataclass(frozen=True, slots=True)
class InFlightUse:
    """Replaced versions of sessions, which bsd watches for a minute and then deletes."""

    files: int = 0
    bytes: int = 0
    due_at: float | None = None  # when the last of them may be deleted (epoch seconds)

    def as_json(self) -> dict[str, Any]:
        due = None if self.due_at is None else iso_utc(self.due_at)
        return {"files": self.files, "bytes": self.bytes, "due_at": due}


@dataclass(frozen=True, slots=True)
class DiskBalance:
    """The bytes removed from sessions, the bytes that bsd keeps for them, and the difference.

    All interfaces show this figure. Removed bytes count only for existing sessions, by the markers
    in them. Kept bytes are the allocated disk blocks.
    """

    left: int  # bytes removed from sessions
    kept: dict[str, int]  # by purpose
    whole_sessions: dict[str, int]  # copies, trash, replaced versions: no removed bytes
    uncounted: int  # number of sessions whose removed bytes are not known
    packed: int  # the estimated sum of `kept` when the whole store is in the archive

    @property
    def net(self) -> int:
        return self.left - sum(self.kept.values())

    @property
    def net_with_copies(self) -> int:
        return self.net - sum(self.whole_sessions.values())

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the JSON answer."""
        kept = sum(self.kept.values())
        return {
            "saved": self.left,
            "uncounted": self.uncounted,
            "kept": kept,
            "total": kept + sum(self.whole_sessions.values()),
            "net": self.net,
            "net_with_copies": self.net_with_copies,
            "net_when_packed": self.left - self.packed,
        }


# Limit of the bytes read from sessions that the index does not know in their present state.
BUDGET = 1 << 30
_BLOCKS = 4096  # the allocation unit of most file systems


def disk_use(layout: Layout, budget: int = BUDGET) -> dict[str, Any]:
    """Return the allocated bytes by purpose, and the fields of the `DiskBalance`.

    Files whose stat fails count as 0.
    """
    in_flight = in_flight_use(layout)
    state, index = _database(layout.state_db), _database(layout.search_db)
    beside = {layout.history, layout.inflight, layout.orphans, *state, *index}
    copies = _copies_of_sessions(layout)
    kept = {
        "store": _taken(layout.extracted),
        "archive": _taken(layout.archive, copies),
        "index": sum(map(_taken, index)),
        "history": _taken(layout.history),
        "orphans": _taken(layout.orphans),
        "databases": sum(map(_taken, state)),
        "others": _taken(layout.own, beside),  # settings, audit and drafts
        "log": _taken(layout.log_file.parent),
    }
    whole = {
        "copies": sum(map(_taken, copies)),
        "trash": _taken(layout.trash),
        "in_flight": in_flight.bytes,
    }
    left, uncounted = NOTHING_OUT, 0
    with suppress(BsdError):  # a root without agents
        left, uncounted = _all_out(layout, budget)
    stays = sum(kept.values()) - kept["store"]
    balance = DiskBalance(left.saved, kept, whole, uncounted, stays + _packed(layout))
    return {**kept, **whole, "in_flight": in_flight.as_json(), **balance.as_json()}


def _all_out(layout: Layout, budget: int) -> tuple[TakenOut, int]:
    """Sum the extracted values of all existing sessions; also return how many are not counted.

    Up to `budget` bytes are read from sessions that the index does not know in their present state.
    """
    titles = Titles(layout)
    titles.budget = budget
    total, uncounted = NOTHING_OUT, 0
    for name, found in with_stats(layout):
        out = titles.out(name, found)
        uncounted += out is None
        total += out or NOTHING_OUT
    return total, uncounted


@dataclass(frozen=True, slots=True)
class FilesInDirectory:
    """Files in the directory of an agent's program, and their allocated bytes."""

    what: Annotated[str, Field(description="Their content, with the name of the file or directory")]
    bytes: int
    advice: Annotated[
        str | None, Field(description="How you get the space back; null: bsd has no advice")
    ]


def directory_use(source: Source) -> tuple[FilesInDirectory, ...]:
    """Return what fills the directory of a source's program, the largest first.

    Files whose stat fails count as 0. Empty if the program names no files.
    """
    found = (
        FilesInDirectory(files.what, sum(map(_taken, files.paths)), files.advice)
        for files in kind_of(source.kind).directory_files(source.path)
    )
    return tuple(sorted((use for use in found if use.bytes), key=lambda use: -use.bytes))


def database_use(database: SessionDatabase) -> tuple[FilesInDirectory, ...]:
    """Return what fills a program's database and the files beside it, the largest first.

    Empty if the database cannot be read now.
    """
    found: list[FilesInDirectory] = []
    with suppress(BsdError):  # the list of agents reports the problem
        found += (FilesInDirectory(*fill) for fill in database.fills() if fill.bytes)
    return tuple(sorted(found, key=lambda use: -use.bytes))


def _database(file: Path) -> list[Path]:
    return [file.with_name(file.name + ending) for ending in ("", "-wal", "-shm", "-journal")]


def _copies_of_sessions(layout: Layout) -> list[Path]:
    with suppress(BsdError):
        return [copy for one in archive_directories(layout) for copy in snapshot_directories(one)]
    return []


def _packed(layout: Layout) -> int:
    """Estimate the bytes that the store will take in the archive, from the ratio of its packs.

    While there are no packs, the estimate uses the smallest measured ratio.
    """
    ratio = USUAL_RATIO
    with suppress(BsdError, OSError):
        ratio = archive_use(layout).ratio or USUAL_RATIO
    content: dict[str, int] = {}
    for path, found in _files(layout.extracted):
        directory, _, name = path.rpartition(os.sep)
        if name != INDEX_FILE:
            content[directory] = content.get(directory, 0) + found.st_size
    packs = (math.ceil(size / ratio / _BLOCKS) for size in content.values())
    return sum(_BLOCKS * (pack + 1) for pack in packs)  # each in a directory


def in_flight_use(layout: Layout) -> InFlightUse:
    """Return the disk use of commits that are not finished yet."""
    files = size = 0
    due_at: float | None = None
    for directory in InFlight(layout).directories():
        for path, found in _files(directory):
            size += found.st_blocks * _DISK_BLOCK
            files += path.endswith(".file")
            if path.endswith(".record"):
                due_at = max(due_at or 0.0, (found.st_mtime_ns + KEEP_NS) / 1e9)
    return InFlightUse(files, size, due_at)


def _taken(place: Path, but: Collection[Path] = ()) -> int:
    """Return the allocated bytes of a file, or of a directory and everything below it."""
    return sum(found.st_blocks * _DISK_BLOCK for _, found in _all(place, but))


def _files(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file below a directory without following links."""
    return (one for one in _all(place) if stat.S_ISREG(one[1].st_mode))


def _all(place: Path, but: Collection[Path] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files and directories below a directory, or the file itself, with their stats.

    Names are strings, because there are several per session and making a `Path` of each takes
    twice the time.
    """
    left_out = set(map(str, but))
    if str(place) in left_out:
        return
    with suppress(OSError):
        if stat.S_ISREG((found := place.lstat()).st_mode):
            yield str(place), found
            return
    left = [str(place)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as items:
            for item in items:
                if item.path in left_out:
                    continue
                with suppress(OSError):
                    found = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        left.append(item.path)
                    elif not stat.S_ISREG(found.st_mode):
                        continue
                    yield item.path, found


_HOUR = 3600
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_MOST_HOURS = 24 * 366  # older hours are added to the oldest
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedInHour:
    """The bytes by which sessions became shorter and longer in one hour."""

    at: Annotated[str, Field(description="When the hour began")]
    saved: Annotated[int, Field(description="Bytes by which sessions became shorter")]
    given_back: Annotated[
        int, Field(description="Bytes by which sessions became longer through restore and undo")
    ]


@dataclass(frozen=True, slots=True)
class SavedOfAgent(SavedInHour):
    """The same for one agent's program."""

    agent: Annotated[
        str, Field(description="The source's name; for OpenClaw, the name of the agent")
    ]
    tokens: Annotated[
        int | None,
        Field(description="Estimated tokens that are no longer sent; null: no estimate was noted"),
    ]


@dataclass(frozen=True, slots=True)
class Savings:
    """Bytes saved over time; hours without a change are left out."""

    step_seconds: int
    points: list[SavedInHour]
    by_agent: list[SavedOfAgent]


@dataclass(slots=True)
class _Sum:
    saved: int = 0
    given_back: int = 0
    tokens: int | None = None

    def add(self, other: _Sum) -> None:
        self.saved += other.saved
        self.given_back += other.given_back
        if other.tokens is not None:
            self.tokens = (self.tokens or 0) + other.tokens


class SavedByHour:
    """Sums of an audit log by hour and agent. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None  # device and inode of the log that was read
        self._offset = 0
        self._hours: dict[int, dict[str, _Sum]] = {}  # sums by agent, by start of the hour

    def savings(self) -> Savings:
        """Read the lines added to the log and return the sums; raises Unavailable, Forbidden."""
        with self._lock:
            self._read()
            hours = [(iso_utc(hour), sums) for hour, sums in sorted(self._hours.items())]
            points = [
                SavedInHour(
                    hour,
                    sum(each.saved for each in sums.values()),
                    sum(each.given_back for each in sums.values()),
                )
                for hour, sums in hours
            ]
            by_agent = [
                SavedOfAgent(hour, each.saved, each.given_back, agent, each.tokens)
                for hour, sums in hours
                for agent, each in sorted(sums.items())
            ]
        return Savings(_HOUR, points, by_agent)

    def _read(self) -> None:
        try:
            self._catch_up()
        except OSError as error:
            raise os_problem(error, f"reading {self._path}") from error

    def _catch_up(self) -> None:
        try:
            file = plain_file(self._path)
        except FileNotFoundError:
            return  # rotated away or never written; the sums stay
        with file:
            stat = os.fstat(file.fileno())
            if self._file != (stat.st_dev, stat.st_ino) or stat.st_size < self._offset:
                self._file, self._offset = (stat.st_dev, stat.st_ino), 0
            rest = b""
            while piece := os.pread(file.fileno(), _BLOCK, self._offset + len(rest)):
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > LARGEST_RECORD:
                    raise TooLarge(self._path, LARGEST_RECORD)
                for line in lines:
                    self._offset += len(line) + 1
                    self._take(line)

    def _take(self, line: bytes) -> None:
        with suppress(*_BROKEN):
            change = json.loads(line)
            saved = _saved_by(change)
            tokens = change.get("tokensSaved")
            if saved or tokens:
                moment = datetime.fromisoformat(change["time"]).timestamp()
                sums = self._hours.setdefault(int(moment // _HOUR) * _HOUR, {})
                agent = str(change.get("agent", "")).partition(":")[0]
                sums.setdefault(agent, _Sum()).add(
                    _Sum(max(0, saved), max(0, -saved), tokens if type(tokens) is int else None)
                )
        while len(self._hours) > _MOST_HOURS:
            oldest = self._hours.pop(min(self._hours))
            into = self._hours[min(self._hours)]
            for agent, sum_ in oldest.items():
                into.setdefault(agent, _Sum()).add(sum_)


def _saved_by(change: dict[str, Any]) -> int:
    """Return the bytes by which a change made a session shorter; negative if longer."""
    if "bytesSaved" in change:
        return int(change["bytesSaved"])
    return int(change["bytesBefore"]) - int(change["bytesAfter"])
