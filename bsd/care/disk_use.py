"""What bsd itself takes on disk, beside what it saves there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.care.saved import SavedByHour
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout
from bsd.foundation.spelling import iso_utc
from bsd.session.commit.displaced import KEEP_NS
from bsd.session.commit.inflight import InFlight

_BLOCK = 512  # what st_blocks counts, on every system


@dataclass(frozen=True, slots=True)
class InFlightUse:
    """Replaced versions of sessions that are watched for a minute, and go then."""

    files: int = 0
    bytes: int = 0
    due_at: float | None = None  # when the last of them may go (epoch seconds)

    def as_json(self) -> dict[str, Any]:
        due = None if self.due_at is None else iso_utc(self.due_at)
        return {"files": self.files, "bytes": self.bytes, "due_at": due}


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes that the disk has given out, by what they are for."""

    store: int
    history: int
    trash: int
    in_flight: InFlightUse
    orphans: int
    databases: int  # the index of words, and what is known of sessions: made anew if lost
    others: int  # settings, audit and drafts
    log: int
    saved: int  # by which sessions have become shorter, as the audit log tells

    @property
    def total(self) -> int:
        parts = (self.store, self.history, self.trash, self.in_flight.bytes, self.orphans)
        return sum(parts) + self.databases + self.others + self.log

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        told = {name: getattr(self, name) for name in self.__slots__}
        net = self.saved - self.total
        return {**told, "in_flight": self.in_flight.as_json(), "total": self.total, "net": net}


def disk_use(layout: Layout, saved: SavedByHour | None = None) -> DiskUse:
    """Add it up; what cannot be looked at counts for nothing.

    Whoever asks again and again gives the same `saved`, which reads only what is new.
    """
    databases = (layout.state_db, layout.search_db)
    beside = (layout.history, layout.inflight, layout.orphans)
    return DiskUse(
        store=_taken([layout.extracted]),
        history=_taken([layout.history]),
        trash=_taken([layout.trash]),
        in_flight=in_flight_use(layout),
        orphans=_taken([layout.orphans]),
        databases=_taken(_with_its_journals(databases)),
        others=_taken([layout.own], but={*beside, *_with_its_journals(databases)}),
        log=_taken([layout.log_file.parent]),
        saved=_saved(saved or SavedByHour(layout.audit_file)),
    )


def in_flight_use(layout: Layout) -> InFlightUse:
    """What commits have left that nobody has finished yet."""
    files = size = 0
    due_at: float | None = None
    for directory in InFlight(layout).directories():
        for path, found in _files(directory, set()):
            size += found.st_blocks * _BLOCK
            files += path.suffix == ".file"
            if path.suffix == ".record":
                due_at = max(due_at or 0.0, (found.st_mtime_ns + KEEP_NS) / 1e9)
    return InFlightUse(files, size, due_at)


def _saved(saved: SavedByHour) -> int:
    with suppress(BsdError):
        return saved.total()
    return 0


def _with_its_journals(databases: Iterable[Path]) -> list[Path]:
    return [
        file.with_name(file.name + ending)
        for file in databases
        for ending in ("", "-wal", "-shm", "-journal")
    ]


def _taken(places: Iterable[Path], but: set[Path] | None = None) -> int:
    return sum(
        found.st_blocks * _BLOCK for place in places for _, found in _files(place, but or set())
    )


def _files(place: Path, but: set[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file in a directory (or the file itself), links not followed."""
    left = [place]
    while left:
        path = left.pop()
        if path in but:
            continue
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode):
                left += [path / name for name in os.listdir(path)]
            elif stat.S_ISREG(found.st_mode):
                yield path, found
