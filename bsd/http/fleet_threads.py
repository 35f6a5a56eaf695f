"""Threads for questions to the catalogue and the bucket, apart from those of other requests.

A database that hangs keeps at most these threads waiting. They do not keep the daemon from ending.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from bsd.core.errors import TemporaryFailure

_T = TypeVar("_T")

MOST_THREADS = 4  # each has one connection to the database
_MOST_WAITING = 32


class FleetThreads:
    """Up to `MOST_THREADS` threads, each of which ends as soon as no call waits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._threads = 0

    def submit(self, call: Callable[[], _T]) -> Future[_T]:
        """Have a thread make a call; raises TemporaryFailure if too many calls wait."""
        future: Future[_T] = Future()
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                hint = "run it again when the catalogue answers; `bsd doctor` checks it"
                raise TemporaryFailure("too many questions wait for the catalogue", hint=hint)
            self._waiting.append((call, future))
            if self._threads < MOST_THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="bsd-fleet", daemon=True).start()
        return future

    async def ask(self, call: Callable[[], _T], seconds: float) -> _T:
        """Return the answer of a call; raises TemporaryFailure after `seconds`."""
        return await answer_of(self.submit(call), seconds)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            call, future = waiting
            if not future.set_running_or_notify_cancel():  # its request has given up
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the request reports it
                future.set_exception(error)

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


async def answer_of(future: Future[_T], seconds: float) -> _T:
    """Wait for an answer; after `seconds`, raise TemporaryFailure and cancel a call that waits."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except TimeoutError:
        raise TemporaryFailure(
            f"the catalogue has not answered within {seconds:.1f} s",
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
        self._last: Future[_T] | None = None
        self._at = 0.0

    def get(self, submit: Callable[[], Future[_T]]) -> Future[_T]:
        """Return a future of the caller's own, of the last answer or of one that `submit` makes."""
        with self._lock:
            if self._last is None or self._is_over(self._last):
                self._last, self._at = submit(), time.monotonic()
            last = self._last
        answer: Future[_T] = Future()
        last.add_done_callback(lambda _: _copy(last, answer))
        return answer

    def _is_over(self, last: Future[_T]) -> bool:
        if not last.done():
            return False
        is_old = time.monotonic() - self._at >= self._seconds
        return is_old or last.exception() is not None


def _copy(done: Future[_T], to: Future[_T]) -> None:
    if not to.set_running_or_notify_cancel():  # its request has given up
        return
    if (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())
