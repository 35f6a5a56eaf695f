"""Ctrl-C and SIGTERM: a command that changes a session stops only between changes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The call was asked to stop, and did. `except Exception` does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


class StopRequest:
    """Remembers the signal that asks a command to stop.

    The command checks it between changes. A second signal does not wait for that: it raises
    `Stopped` at once, and the next call finishes or undoes the operation, as after a crash.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.insisted = False  # a second signal has come
        self._sleeping = False

    @property
    def exit_code(self) -> int:
        """The exit code of the call if everything else went well."""
        return 0 if self.number is None else 128 + self.number

    def check(self) -> None:
        """Raise Stopped if a signal has come."""
        if self.number is not None:
            raise Stopped(self.number)

    def sleep(self, seconds: float) -> None:
        """Wait as `time.sleep` does; a signal ends the wait at once and raises Stopped."""
        self._sleeping = True
        try:
            self.check()
            time.sleep(seconds)
        finally:
            self._sleeping = False

    def notice(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.insisted = self.number is not None and not self._sleeping
        self.number = number
        if self.insisted or self._sleeping:
            raise Stopped(number)
        with suppress(OSError):  # not sys.stderr: the interrupted code may be writing to it
            os.write(2, b"\nstopping as soon as nothing is half done (once more: at once)\n")


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a stop request while the block runs."""
    request = StopRequest()
    before = {number: signal.signal(number, request.notice) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
