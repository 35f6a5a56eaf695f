"""The workers: each takes sessions from the queue, and has a child extract what is due in them.

`Work` is what is done with one session, `Workers` the threads that do it; one that dies is
replaced.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from bsd.daemon.child import Stopping
from bsd.daemon.children import LONGEST_STEP_SECONDS
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS
from bsd.daemon.queue import Ended, Failed, Finished, TryLater
from bsd.daemon.state import DaemonState
from bsd.foundation.errors import BsdError, Busy, NotFound
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.processes import give_back_memory
from bsd.foundation.spelling import iso_utc
from bsd.surgery.result import SessionResult, Status
from bsd.text.change import Written

_log = get_logger("worker")


class LookInto(Protocol):
    """Has a child extract what is due in a session (`tasks.look_into`)."""

    def __call__(
        self, name: SessionName, alive: Callable[[], None], waited: float, *, urgent: bool
    ) -> SessionResult | None:
        """`alive` hears now and then that it goes on; raises as the task."""
        ...


# After others' lines came in with a commit: nobody will tell of them, and they want their rest.
_LOOK_AGAIN_SECONDS = 3.0
# After so many sessions, and then none for a minute, what they took is given back to the system.
_MANY = 1000


@traced(_log)
class Work:
    """Does one job after the other, on any thread, and tells everybody who must know.

    `worked` hears of each session that has had its turn.
    """

    def __init__(
        self,
        state: DaemonState,
        look_into: LookInto,
        *,
        worked: Callable[[SessionName], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._look_into = look_into
        self._worked = worked

    def on(self, name: SessionName, alive: Callable[[], None] = lambda: None) -> Ended:
        """Work on a session; `alive` is called now and then. Raises Stopping."""
        try:
            return self._on(name, alive)
        finally:
            self._worked(name)

    def _on(self, name: SessionName, alive: Callable[[], None]) -> Ended:
        if not self._state.config.current.enabled:
            return Finished()  # it counts as changed until it is looked into
        urgent = self._state.intake.take_urgency(name)
        ended: Ended | None = None
        try:
            ended = self._extract(name, alive, urgent=urgent)
        finally:
            if urgent and not isinstance(ended, Finished):
                self._state.intake.return_urgency(name)
        return ended

    def _extract(self, name: SessionName, alive: Callable[[], None], *, urgent: bool) -> Ended:
        before = self._look(name)
        if before is None:
            return self._gone(name)
        self._state.at_rest.unsettled(name)
        waited = self._state.savings.waited(name, self._state.clocks.steady())
        try:
            self._state.stop_here()
            result = self._look_into(name, alive, waited, urgent=urgent)
            if result is None:  # calls in it were carried out
                # Just written, by us: what may leave it now is seen when it rests.
                return self._later(_LOOK_AGAIN_SECONDS)
        except NotFound:
            return self._gone(name)
        except Busy as problem:
            return self._later(problem.again_in)
        except BsdError as problem:
            result = SessionResult(
                str(name), Status.FAILED, reason=problem.message, hint=problem.hint
            )
        if result.status is Status.FAILED and self._look(name) is None:
            return self._gone(name)
        self._tell(name, result)
        return self._conclude(name, result, before)

    def _conclude(self, name: SessionName, result: SessionResult, before: Written) -> Ended:
        state = self._state
        match result.status:
            case Status.BUSY:
                return self._later(result.again_in)
            case Status.FAILED:
                return Failed(result.reason or "it failed")
            case Status.LEFT_ALONE:
                state.scan.note(name, before)
                state.at_rest.left(name, before, None)
                state.savings.settle(name)
                return Finished()
        now = state.clocks.steady()
        due = []
        if result.unfinished:
            due.append(now)
        elif result.left_as is None:
            due.append(now + _LOOK_AGAIN_SECONDS)
        else:
            seen = result.left_as.written
            state.scan.note(name, seen)
            if not result.postponed:
                state.at_rest.left(name, seen, result.due_at)
        if result.postponed:
            state.savings.wait(name, now)
        else:
            state.savings.settle(name)
        if (later := state.savings.due(name)) is not None:
            due.append(later)
        if result.due_at is not None:
            due.append(now + max(0.0, result.due_at - state.clocks.wall()))
        return Finished(min(due, default=None))

    def _later(self, again_in: float | None) -> TryLater:
        return TryLater(None if again_in is None else self._state.clocks.steady() + again_in)

    def _tell(self, name: SessionName, result: SessionResult) -> None:
        at = self._state.clocks.wall()
        self._state.ledger.worked(name, result, at)
        self._state.events.publish("session", **result.as_json())
        if result.postponed:
            _log.debug(
                f"Session {name} can give up too little yet, waiting for more",
                since=iso_utc(at),
            )

    def _look(self, name: SessionName) -> Written | None:
        with suppress(OSError, BsdError):
            return Written.of(os.lstat(self._state.layout.transcript(name)))
        return None

    def _gone(self, name: SessionName) -> Ended:
        self._state.ledger.forget(name)
        self._state.savings.settle(name)
        return Finished()


class _Worker:
    """One place at the table, whoever sits there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: SessionName | None = None
        self.since: float | None = None  # epoch seconds
        self.thread: threading.Thread | None = None


class Workers:
    """As many threads as the settings say, which take sessions from the queue."""

    def __init__(self, state: DaemonState, work: Work) -> None:
        self._state = state
        self._work = work
        self._workers = [_Worker(f"worker-{n}") for n in range(1, state.settings.threads + 1)]

    def start(self) -> None:
        for worker in self._workers:
            self._start(worker)

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); whether all have ended.

        After the daemon was told to stop, everyone finishes a commit that has begun, and no more.
        """
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
        self._state.beats.expect(worker.name, LONGEST_SLEEP_SECONDS)
        worker.thread = threading.Thread(
            target=self._run, args=(worker,), name=f"bsd-{worker.name}"
        )
        worker.thread.start()

    def _run(self, worker: _Worker) -> None:
        state = self._state
        worked = _MANY  # a start takes much memory, too
        try:
            while not state.stopping.is_set():
                state.beats.beat(worker.name, LONGEST_SLEEP_SECONDS)
                session = state.queue.take()
                if session is not None:
                    self._one(worker, session)
                    worked += 1
                elif worked >= _MANY:
                    worked = 0
                    give_back_memory()
        except BaseException:  # noqa: BLE001 - whatever ended it: the work must go on
            _log.exception("A worker has died and is replaced", worker=worker.name)
            state.ledger.count("workers_replaced")
            if not state.stopping.is_set():
                self._start(worker)
                return
        state.beats.end(worker.name)

    def _one(self, worker: _Worker, session: SessionName) -> None:
        def alive() -> None:
            self._state.beats.beat(worker.name, LONGEST_STEP_SECONDS)

        alive()
        worker.session, worker.since = session, time.time()
        ended: Ended = Failed("the worker died")
        try:
            ended = self._work.on(session, alive)
        except Stopping:
            ended = TryLater()
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            _log.exception("Work on a session has failed", session=str(session))
            self._state.ledger.count("crashes")
            ended = Failed(f"internal error: {error!r}")
        finally:
            worker.session = worker.since = None
            self._state.queue.done(session, ended)
