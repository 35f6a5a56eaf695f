"""Signals become messages to the main thread, which only waits for them."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Self

import structlog

from bsd.core.logs import close_logs

_log = structlog.stdlib.get_logger(module="signals")

STOP = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
DUMP = signal.SIGUSR1
_ALL = (*STOP, RELOAD, DUMP)
# No signal has these numbers.
RESTART = 255
_ENDED = 0


class Signals:
    """While it is entered, signals are kept in order until `wait` gives them."""

    def __init__(self) -> None:
        self._read, self._write = -1, -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Python writes the number of each signal itself, at once, even while its threads are busy.
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _noted) for number in _ALL}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout: float | None = None) -> list[int]:
        """Wait for signals; empty if there was none within `timeout` seconds, or at `end_wait`."""
        ready, _, _ = select.select([self._read], [], [], timeout)
        numbers = os.read(self._read, 512) if ready else b""
        return [number for number in numbers if number in _ALL or number == RESTART]

    def ask_restart(self) -> None:
        """Let `wait` return RESTART. From any thread."""
        os.write(self._write, bytes([RESTART]))

    def end_wait(self) -> None:
        """Let `wait` return. From any thread."""
        os.write(self._write, bytes([_ENDED]))


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the pipe knows."""


def die_by(number: int) -> None:
    """End at once, by the signal itself: as after a crash, the next start puts all in order."""
    _log.warning("Ended at once by a second signal", signal=signal.Signals(number).name)
    close_logs()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def wait_for_end(
    signals: Signals, ended: Callable[[], bool], seconds: float, insisted: Callable[[int], None]
) -> bool:
    """Wait until `ended` (`end_wait` is called then), `seconds` at most; returns True if it has.

    `insisted` is called with a further stop signal.
    """
    deadline = time.monotonic() + seconds
    while not ended():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        for number in stops_among(signals.wait(left)):
            insisted(number)
    return True


def stops_among(numbers: Iterable[int]) -> list[int]:
    """Return the signals that ask to stop."""
    return [number for number in numbers if number in STOP]
