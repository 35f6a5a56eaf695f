"""A log file from its end, and onwards: through rotation, truncation and absence."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bsd.doors.cli.log_lines import LineFilter
from bsd.foundation.closing import Closing
from bsd.foundation.errors import os_problem
from bsd.foundation.files import LARGEST_RECORD, plain_file

_BLOCK = 1 << 16  # bytes
_POLL_SECONDS = 0.5


class LogReader(Closing):
    """Lines of a file that others write. Opens it at the first question."""

    def __init__(self, path: Path, *, sleep: Callable[[float], None] | None = None) -> None:
        self.path = path
        self._sleep = sleep or time.sleep
        self._file: IO[bytes] | None = None
        self._begun = b""  # of a line whose end is still to come

    def is_there(self) -> bool:
        return self._open()

    def last(self, count: int, wanted: LineFilter) -> list[bytes]:
        """The last `count` wanted lines; `follow` goes on after them."""
        found: deque[bytes] = deque()
        if not self._open() or self._file is None:
            return []
        end = self._file.seek(0, os.SEEK_END)
        complete = True
        for line in _backwards(self._file, end):
            if complete:  # what stands after the last newline: nothing, or half a line
                self._begun, complete = line, False
            elif len(found) == count:
                break
            elif line and wanted.wants(line):
                found.appendleft(line)
        self._file.seek(end)
        return list(found)

    def follow(self, wanted: LineFilter) -> Iterator[bytes]:
        """Wanted lines as they come; never ends by itself. Looks twice a second."""
        while True:
            for line in self._new():
                if line and wanted.wants(line):
                    yield line
            self._sleep(_POLL_SECONDS)

    def _new(self) -> Iterator[bytes]:
        """What has come since: the rest of the file that we know, then its successor."""
        if self._file is None and not self._open():
            return
        # First the look, then the reading: what an old file gets after this is no longer ours.
        replaced = self._is_replaced()
        yield from self._rest()
        if replaced:
            if self._begun:
                yield self._take_begun()
            self.close()
            if self._open():
                yield from self._rest()

    def _rest(self) -> Iterator[bytes]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # truncated: all that is there now is new
            self._begun = b""
        while block := self._file.read(_BLOCK):
            *lines, rest = (self._begun + block).split(b"\n")
            self._begun = rest
            yield from lines

    def _take_begun(self) -> bytes:
        line, self._begun = self._begun, b""
        return line

    def _is_replaced(self) -> bool:
        """Whether the name stands for another file now. Between two of them it stands for none."""
        if self._file is None:
            return False
        here = os.fstat(self._file.fileno())
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def _open(self) -> bool:
        if self._file is None:
            try:
                self._file = plain_file(self.path)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise os_problem(error, f"reading {self.path}") from error
        return True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _backwards(file: IO[bytes], end: int) -> Iterator[bytes]:
    """The parts between newlines before `end`, the last first."""
    pieces: list[bytes] = []  # of the part whose begin is still to come, the last piece first
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        block = file.read(end - start)
        end = start
        *lines, last = block.split(b"\n")
        pieces.append(last)
        if not lines and len(pieces) * _BLOCK > LARGEST_RECORD:
            return  # no line of ours is so long: what stands before it is not looked for
        while lines:
            yield b"".join(reversed(pieces))
            pieces = [lines.pop()]
    yield b"".join(reversed(pieces))
