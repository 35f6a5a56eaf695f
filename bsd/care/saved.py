"""Bytes saved by hour, as the audit log tells; only what is new in it is read."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bsd.foundation.errors import os_problem
from bsd.foundation.files import LARGEST_RECORD, TooLarge, plain_file
from bsd.foundation.spelling import iso_utc

_HOUR = 3600
_MOST_HOURS = 24 * 366  # what is older is added to the oldest
_BLOCK = 1 << 20


@dataclass(slots=True)
class _Sum:
    saved: int = 0
    given_back: int = 0


class SavedByHour:
    """Adds up an audit log. May be asked from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None  # device and inode of what was read
        self._offset = 0
        self._hours: dict[int, _Sum] = {}

    def as_json(self) -> dict[str, Any]:
        """{step_seconds, points: [{at, saved, given_back}]}; raises Unavailable, Forbidden.

        Hours of which nothing is to be told are left out.
        """
        with self._lock:
            self._read()
            points = [
                {"at": iso_utc(hour), "saved": sum_.saved, "given_back": sum_.given_back}
                for hour, sum_ in sorted(self._hours.items())
            ]
        return {"step_seconds": _HOUR, "points": points}

    def total(self) -> int:
        """By how many bytes all sessions together became shorter; raises as `as_json`."""
        with self._lock:
            self._read()
            return sum(sum_.saved - sum_.given_back for sum_ in self._hours.values())

    def _read(self) -> None:
        try:
            self._catch_up()
        except OSError as error:
            raise os_problem(error, f"reading {self._path}") from error

    def _catch_up(self) -> None:
        try:
            file = plain_file(self._path)
        except FileNotFoundError:
            return  # rotated or never written; what is known stays known
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
        with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
            change = json.loads(line)
            saved = _saved(change)
            if saved:
                moment = datetime.fromisoformat(change["time"]).timestamp()
                sum_ = self._hours.setdefault(int(moment // _HOUR) * _HOUR, _Sum())
                sum_.saved += max(0, saved)
                sum_.given_back += max(0, -saved)
        while len(self._hours) > _MOST_HOURS:
            oldest = self._hours.pop(min(self._hours))
            into = self._hours[min(self._hours)]
            into.saved += oldest.saved
            into.given_back += oldest.given_back


def _saved(change: dict[str, Any]) -> int:
    """By how much a change made a session shorter."""
    if "bytesSaved" in change:
        return int(change["bytesSaved"])
    return int(change["bytesBefore"]) - int(change["bytesAfter"])
