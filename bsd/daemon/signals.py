"""Turn signals into messages to the main thread, which only waits for them."""

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
# Messages without a signal; no signal has these numbers.
RESTART = 255
_ENDED = 0


class Signals:
    """A context manager that queues signals in their order until `wait` returns them."""

    def __init__(self) -> None:
        self._read, self._write = -1, -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Python itself writes the number of each signal immediately, even if all threads are busy.
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
        """Wait for signals; return an empty list after `timeout` seconds, or after `end_wait`."""
        ready, _, _ = select.select([self._read], [], [], timeout)
        numbers = os.read(self._read, 512) if ready else b""
        return [number for number in numbers if number in _ALL or number == RESTART]

    def ask_restart(self) -> None:
        """Make `wait` return RESTART. May be called from any thread."""
        os.write(self._write, bytes([RESTART]))

    def end_wait(self) -> None:
        """Make `wait` return. May be called from any thread."""
        os.write(self._write, bytes([_ENDED]))


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: Python has written the signal to the pipe."""


def die_by(number: int) -> None:
    """End the process now, by the signal itself; the next start recovers as after a crash."""
    _log.warning("A second signal ends the process", signal=signal.Signals(number).name)
    close_logs()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def wait_for_end(
    signals: Signals, ended: Callable[[], bool], seconds: float, insisted: Callable[[int], None]
) -> bool:
    """Wait until `ended` returns True, at most for `seconds`; return True if it does.

    Args:
        ended: called at the beginning and after each `end_wait`.
        insisted: called with each further stop signal.
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
