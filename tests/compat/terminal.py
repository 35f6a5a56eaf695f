"""A program in a terminal of its own, and the keys that a person types there.

The program's actions are read from its files, not from its screen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.waiting import DEADLINE_SECONDS

_SETTLED_SECONDS = 0.4  # without output for this long, it has read the typed text
_ROWS, _COLUMNS = 50, 160

Found = TypeVar("Found")


class Terminal:
    """A program and the other end of its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self._end = end
        self._drawn = b""

    def type(self, text: str, *, enter: bool = True) -> None:
        """Type text; press the enter key when the program has read it."""
        self._read_until_settled()
        for piece in (text, "\r") if enter else (text,):
            os.write(self._end, piece.encode())
            self._read_until_settled()

    def wait_for(self, look: Callable[[], Found], what: str) -> Found:
        """Wait until `look` returns a true value, and return that."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (found := look()):
            assert time.monotonic() < deadline, f"waited for {what}; drawn last: {self.tail()}"
            assert self.process.poll() is None, f"it ended before {what}: {self.tail()}"
            self._read(0.1)
        return found

    def tail(self) -> str:
        """Its latest output, unchanged."""
        return self._drawn[-3000:].decode(errors="replace")

    def _read_until_settled(self) -> None:
        deadline = time.monotonic() + 10 * _SETTLED_SECONDS  # some never stop drawing
        while self._read(_SETTLED_SECONDS) and time.monotonic() < deadline:
            pass

    def _read(self, seconds: float) -> bool:
        """Read the output of that time; return whether there was any."""
        ready, _, _ = select.select([self._end], [], [], seconds)
        if not ready:
            return False
        with suppress(OSError):  # it has ended
            self._drawn += os.read(self._end, 1 << 16)
            return True
        return False


@contextmanager
def in_terminal(command: Sequence[str], cwd: Path, env: dict[str, str]) -> Iterator[Terminal]:
    """The program, until the end of the block."""
    end, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**env, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, end)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(end)
