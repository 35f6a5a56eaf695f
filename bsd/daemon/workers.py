"""Threads that take sessions from the queue; one that dies is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from bsd.daemon.beats import Beats
from bsd.daemon.clock import LONGEST_SLEEP_SECONDS, awake
from bsd.daemon.jobs import Busy, Failed, Outcome
from bsd.daemon.ledger import Ledger
from bsd.daemon.queue import WorkQueue
from bsd.daemon.work import Stopping
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.process import give_back_memory
from bsd.foundation.spelling import iso_utc

_log = get_logger("worker")

# Between two signs of life: planning tells of every megabyte, but copying and flushing a file of
# many gigabytes is one step.
_LONGEST_STEP_SECONDS = 600.0
# After so many sessions, and then none for a minute, what they took is given back to the system.
_MANY = 1000


class Worked(Protocol):
    """What is done with a session; see `work.Work`."""

    stopping: threading.Event

    def on(self, name: SessionName, alive: Callable[[], None]) -> Outcome: ...


class _Worker:
    """One place at the table, whoever sits there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: SessionName | None = None
        self.since: float | None = None  # epoch seconds
        self.thread: threading.Thread | None = None


class Workers:
    """A fixed number of workers."""

    def __init__(
        self,
        number: int,
        queue: WorkQueue,
        work: Worked,
        beats: Beats,
        ledger: Ledger,
    ) -> None:
        self._queue = queue
        self._work = work
        self._beats = beats
        self._ledger = ledger
        self._workers = [_Worker(f"worker-{n}") for n in range(1, number + 1)]

    def start(self) -> None:
        for worker in self._workers:
            self._start(worker)

    def stop(self) -> None:
        """Let everyone finish a commit that has begun, and no more; `join` waits for that."""
        self._work.stopping.set()
        self._queue.close()

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); whether all have ended."""
        ended = True
        for worker in self._workers:
            if worker.thread is not None:
                worker.thread.join(max(0.0, deadline - time.monotonic()))
                ended &= not worker.thread.is_alive()
        return ended

    def snapshot(self) -> list[dict[str, Any]]:
        """Who works on what."""
        found = []
        for worker in self._workers:
            session, since = worker.session, worker.since
            found.append(
                {
                    "name": worker.name,
                    "session": str(session) if session else None,
                    "since": iso_utc(since) if session and since else None,
                }
            )
        return found

    def _start(self, worker: _Worker) -> None:
        self._beats.expect(worker.name, awake(), LONGEST_SLEEP_SECONDS)
        worker.thread = threading.Thread(
            target=self._run, args=(worker,), name=f"bsd-{worker.name}"
        )
        worker.thread.start()

    def _run(self, worker: _Worker) -> None:
        worked = _MANY  # a start takes much memory, too
        try:
            while not self._work.stopping.is_set():
                self._beats.beat(worker.name, awake(), LONGEST_SLEEP_SECONDS)
                session = self._queue.take()
                if session is not None:
                    self._one(worker, session)
                    worked += 1
                elif worked >= _MANY:
                    worked = 0
                    give_back_memory()
        except BaseException:  # noqa: BLE001 - whatever ended it: the work must go on
            _log.exception("A worker has died and is replaced", worker=worker.name)
            self._ledger.count("workers_replaced")
            if not self._work.stopping.is_set():
                self._start(worker)
                return
        self._beats.end(worker.name)

    def _one(self, worker: _Worker, session: SessionName) -> None:
        def alive() -> None:
            self._beats.beat(worker.name, awake(), _LONGEST_STEP_SECONDS)

        alive()
        worker.session, worker.since = session, time.time()
        outcome: Outcome = Failed("the worker died")
        try:
            outcome = self._work.on(session, alive)
        except Stopping:
            outcome = Busy()
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            _log.exception("Work on a session has failed", session=str(session))
            self._ledger.count("crashes")
            outcome = Failed(f"internal error: {error!r}")
        finally:
            worker.session = worker.since = None
            self._queue.done(session, outcome)
