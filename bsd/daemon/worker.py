"""The workers: each takes sessions from the queue, and has a child extract what is due in them.

`Work` is what is done with one session, `Workers` the threads that do it; one that dies is
replaced.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import structlog

from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Busy, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.logs import BoundLogger
from bsd.core.processes import give_back_memory
from bsd.daemon.child import Stopping
from bsd.daemon.children import LONGEST_STEP_SECONDS
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS
from bsd.daemon.queue import Ended, Failed, Finished, TryLater
from bsd.daemon.state import DaemonState
from bsd.daemon.tasks import Looked, ToLook
from bsd.planning.result import SessionResult, Status
from bsd.transcripts.change import Written

_log: BoundLogger = structlog.get_logger(module="worker")


class LookInto(Protocol):
    """Has a child extract what is due in a session (`tasks.look_into`)."""

    def __call__(
        self, name: SessionName, alive: Callable[[], None], waited: float, *, urgent: bool
    ) -> SessionResult | None:
        """`alive` hears now and then that it goes on; raises as the task."""
        ...


class LookIntoSeveral(Protocol):
    """Has a child extract what is due in sessions of a backlog (`tasks.look_into_several`)."""

    def __call__(
        self,
        wanted: Mapping[ToLook, int],
        alive: Callable[[], None],
        began: Callable[[SessionName], None],
    ) -> list[Looked]:
        """Each with its size; `began` hears at the end which one it began last."""
        ...


# After others' lines came in with a commit: nobody will tell of them, and they want their rest.
_LOOK_AGAIN_SECONDS = 3.0
# After so many sessions, and then none for a minute, what they took is given back to the system.
_MANY = 1000
_TOGETHER = 32  # small sessions of a backlog that a child is handed at once, at most


class Worker:
    """Does one job after the other, on any thread, and tells everybody who must know.

    `worked` hears of each session that has had its turn.
    """

    def __init__(
        self,
        state: DaemonState,
        look_into: LookInto,
        look_into_several: LookIntoSeveral,
        *,
        worked: Callable[[SessionName], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._look_into = look_into
        self._look_into_several = look_into_several
        self._worked = worked

    def on(self, name: SessionName, alive: Callable[[], None] = lambda: None) -> Ended:
        """Work on a session; `alive` is called now and then. Raises Stopping."""
        try:
            return self._on(name, alive)
        finally:
            self._worked(name)

    def on_several(
        self,
        names: list[SessionName],
        alive: Callable[[], None] = lambda: None,
        began: Callable[[SessionName], None] = lambda _: None,
    ) -> dict[SessionName, Ended]:
        """Work on sessions of a backlog; those that are not in the answer were not touched.

        `began` hears which one came last. Raises Stopping, and what nobody expected of that one.
        """
        ended: dict[SessionName, Ended] = {}
        if not self._state.config.current.enabled:
            ended = dict.fromkeys(names, Finished())
        else:
            urgent = {name for name in names if self._state.enqueuer.take_urgency(name)}
            try:
                self._extract_several(names, urgent, ended, alive, began)
            finally:
                for name in urgent:
                    if not isinstance(ended.get(name), Finished):
                        self._state.enqueuer.return_urgency(name)
        for name in ended:
            self._worked(name)
        return ended

    def _extract_several(
        self,
        names: list[SessionName],
        urgent: set[SessionName],
        ended: dict[SessionName, Ended],
        alive: Callable[[], None],
        began: Callable[[SessionName], None],
    ) -> None:
        now = self._state.clocks.steady()
        found: dict[ToLook, Written] = {}
        for name in names:
            if (before := self._look(name)) is None:
                ended[name] = self._gone(name)
            else:
                waited = self._state.savings.waited(name, now)
                found[ToLook(name, waited, name in urgent)] = before
        if not found:
            return
        self._state.idle_sessions.unsettled(*(one.name for one in found))
        self._state.stop_here()
        last = next(iter(found)).name

        def at(name: SessionName) -> None:
            nonlocal last
            last = name
            began(name)

        looked: Mapping[ToLook, Looked]
        try:
            sizes = {one: before.size for one, before in found.items()}
            # Shorter if others went first.
            looked = dict(zip(found, self._look_into_several(sizes, alive, at), strict=False))
        except BsdError as problem:  # the others were not touched, or are looked at once more
            looked = {one: problem for one in found if one.name == last}
        except Stopping:
            raise
        except Exception:  # whatever it was: the session that was worked on has had its turn
            self._worked(last)
            raise
        for one, answer in looked.items():
            ended[one.name] = self._judge(one.name, answer, found[one])

    def _on(self, name: SessionName, alive: Callable[[], None]) -> Ended:
        if not self._state.config.current.enabled:
            return Finished()  # it counts as changed until it is looked into
        urgent = self._state.enqueuer.take_urgency(name)
        ended: Ended | None = None
        try:
            ended = self._extract(name, alive, urgent=urgent)
        finally:
            if urgent and not isinstance(ended, Finished):
                self._state.enqueuer.return_urgency(name)
        return ended

    def _extract(self, name: SessionName, alive: Callable[[], None], *, urgent: bool) -> Ended:
        before = self._look(name)
        if before is None:
            return self._gone(name)
        self._state.idle_sessions.unsettled(name)
        waited = self._state.savings.waited(name, self._state.clocks.steady())
        looked: Looked
        try:
            self._state.stop_here()
            looked = self._look_into(name, alive, waited, urgent=urgent)
        except BsdError as problem:
            looked = problem
        return self._judge(name, looked, before)

    def _judge(self, name: SessionName, looked: Looked, before: Written) -> Ended:
        match looked:
            case None:  # calls in it were carried out
                # Just written, by us: what may leave it now is seen when it rests.
                return self._later(_LOOK_AGAIN_SECONDS)
            case NotFound():
                return self._gone(name)
            case Busy():
                return self._later(looked.again_in)
            case BsdError():
                result = SessionResult(
                    str(name), Status.FAILED, reason=looked.message, hint=looked.hint
                )
            case _:
                result = looked
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
                state.idle_sessions.left(name, before, None)
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
                state.idle_sessions.left(name, seen, result.due_at)
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
        if self._state.events.is_heard:
            self._state.events.publish("session", **as_json(result))
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

    def __init__(self, state: DaemonState, work: Worker) -> None:
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
                    sessions = [session, *state.queue.take_more(session, _TOGETHER - 1)]
                    self._some(worker, sessions)
                    worked += len(sessions)
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

    def _some(self, worker: _Worker, sessions: list[SessionName]) -> None:
        first, queue = sessions[0], self._state.queue
        at, ended = first, dict[SessionName, Ended]()

        def alive() -> None:
            self._state.beats.beat(worker.name, LONGEST_STEP_SECONDS)

        def began(session: SessionName) -> None:
            nonlocal at
            worker.session = at = session

        alive()
        _log.trace("A session is worked on", session=str(first))
        worker.session, worker.since = first, time.time()
        try:
            if len(sessions) > 1:
                ended = self._work.on_several(sessions, alive, began)
            else:
                ended[first] = self._work.on(first, alive)
        except Stopping:
            ended[at] = TryLater()
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            _log.exception("Work on a session has failed", session=str(at))
            self._state.ledger.count("crashes")
            ended[at] = Failed(f"internal error: {error!r}")
        except BaseException:  # the thread ends; what it was at must not stay in the queue as taken
            ended[at] = Failed("the worker died")
            raise
        finally:
            worker.session = worker.since = None
            for session in sessions:
                if session in ended:
                    queue.done(session, ended[session])
                else:
                    queue.give_back(session)
