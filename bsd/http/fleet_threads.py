"""Threads for questions to the catalogue and the bucket, apart from those of other requests.

A database that hangs keeps at most these threads waiting. They do not keep the daemon from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from bsd.core.errors import TemporaryFailure

_T = TypeVar("_T")

MOST_THREADS = 4  # each has one connection to the database
_MOST_WAITING = 32
_IDLE_SECONDS = 60.0


class FleetThreads:
    """Up to `MOST_THREADS` threads, which are started when they are needed and end when idle."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue(_MOST_WAITING)
        self._lock = threading.Lock()
        self._threads = self._idle = 0

    def submit(self, call: Callable[[], _T]) -> Future[_T]:
        """Have a thread make a call; raises TemporaryFailure if too many calls wait."""
        future: Future[_T] = Future()
        try:
            self._calls.put_nowait((call, future))
        except queue.Full:
            hint = "run it again when the catalogue answers; `bsd doctor` checks it"
            raise TemporaryFailure("too many questions wait for the catalogue", hint=hint) from None
        with self._lock:
            if self._idle < self._calls.qsize() and self._threads < MOST_THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="bsd-fleet", daemon=True).start()
        return future

    async def ask(self, call: Callable[[], _T], seconds: float) -> _T:
        """Return the answer of a call; raises TemporaryFailure after `seconds`."""
        return await answer_of(self.submit(call), seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                call, future = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if not self._calls.empty():  # it came between the two
                        continue
                    self._threads -= 1
                    return
            with self._lock:
                self._idle -= 1
            if not future.set_running_or_notify_cancel():  # its request has given up
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the request reports it
                future.set_exception(error)


async def answer_of(future: Future[_T], seconds: float) -> _T:
    """Wait for an answer without cancelling it; raises TemporaryFailure after `seconds`."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
    except TimeoutError:
        raise TemporaryFailure(
            f"the catalogue has not answered within {seconds:.0f} s",
            hint="check that the database runs, and that this machine reaches it: `bsd doctor`",
        ) from None


class LastAnswer(Generic[_T]):
    """A cache: callers within some seconds share an answer, also while it is being made.

    Args:
        seconds: how long an answer is returned again; an error is returned to its callers only.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._future: Future[_T] | None = None
        self._at = 0.0

    def get(self, submit: Callable[[], Future[_T]]) -> Future[_T]:
        """Return the last answer, or the one that `submit` begins to make."""
        with self._lock:
            now, last = time.monotonic(), self._future
            is_old = last is None or (last.done() and now - self._at >= self._seconds)
            if last is None or is_old or (last.done() and last.exception() is not None):
                self._future, self._at = submit(), now
                return self._future
            return last
