"""The workers: threads that take sessions from the queue and have a child process them.

`Worker` processes a batch and turns each result into a verdict for the queue. `Workers` are the
threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Busy, NotFound, Paused
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.logs import BoundLogger
from bsd.core.processes import give_back_memory
from bsd.daemon import tasks
from bsd.daemon.child import BEGAN, Stopping
from bsd.daemon.children import LONGEST_STEP_SECONDS, Children
from bsd.daemon.enqueue import Urgency
from bsd.daemon.loops import LONGEST_SLEEP_SECONDS
from bsd.daemon.queue import Failed, Finished, TryLater, Verdict
from bsd.daemon.state import DaemonState
from bsd.planning.result import SessionResult, Status
from bsd.planning.timing_words import words
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.change import Written

_log: BoundLogger = structlog.get_logger(module="worker")

# The wait after a commit that included lines of another program, or that executed agents' calls.
# Such lines cause no further event, and the session must be idle first.
_LOOK_AGAIN_SECONDS = 3.0
_AFTER_FAILURE_SECONDS = 1.0
# After so many sessions followed by a minute without work, memory is returned to the system.
_MANY = 1000
_LARGEST_BATCH = 32  # small sessions of the backlog that a child processes in one task


class Worker:
    """Processes batches of one or more sessions. Thread-safe.

    `worked` is called with each session that was processed.
    """

    def __init__(
        self,
        state: DaemonState,
        children: Children,
        *,
        worked: Callable[[SessionName], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._children = children
        self._worked = worked

    def run(
        self,
        names: list[SessionName],
        alive: Callable[[], None] = lambda: None,
        began: Callable[[SessionName], None] = lambda _: None,
    ) -> dict[SessionName, Verdict]:
        """Process sessions in order.

        Args:
            alive: called repeatedly during the work.
            began: called with each session when the work on it begins.

        Returns:
            The verdict on each session; sessions without a verdict were not processed.
        """
        verdicts: dict[SessionName, Verdict] = {}
        if not self._state.config.current.enabled:  # sessions count as changed until it is enabled
            verdicts = dict.fromkeys(names, Finished())
        else:
            enqueuer = self._state.enqueuer
            taken = {name: enqueuer.take_urgency(name) for name in names}
            urgent = {name: urgency for name, urgency in taken.items() if urgency}
            try:
                self._extract(names, urgent, verdicts, alive, began)
            finally:
                for name, urgency in urgent.items():
                    if not isinstance(verdicts.get(name), Finished):
                        enqueuer.return_urgency(name, urgency)
        for name in verdicts:
            self._worked(name)
        return verdicts

    def _extract(
        self,
        names: list[SessionName],
        urgent: Mapping[SessionName, Urgency],
        verdicts: dict[SessionName, Verdict],
        alive: Callable[[], None],
        began: Callable[[SessionName], None],
    ) -> None:
        state, now = self._state, self._state.clocks.steady()
        before: dict[SessionName, Written] = {}
        for name in names:
            if (seen := self._look(name)) is None:
                verdicts[name] = self._forget(name)
            else:
                before[name] = seen
        if not before or state.stopping.is_set():
            return
        state.idle_sessions.unsettled(*before)
        order = list(before)
        at = order[0]

        def begin(name: SessionName) -> None:
            nonlocal at
            at = name
            began(name)

        def goes_on(name: SessionName) -> bool:
            return not state.queue.others_first(name, *order[order.index(name) + 1 :])

        try:
            results = self._children.call(
                tasks.look_into_several,
                [
                    tasks.ToLook(
                        name,
                        state.savings.waited(name, now),
                        urgent=name in urgent,
                        asked=urgent.get(name) is Urgency.ASKED,
                        told_idle=state.enqueuer.told_idle(name),
                        since_unpaid=state.savings.since_unpaid(name, now),
                    )
                    for name in order
                ],
                several={name: seen.size for name, seen in before.items()},
                background=True,
                handlers={"alive": alive, BEGAN: begin, "goes_on": goes_on},
            )
            for at, result in zip(order, results, strict=False):  # the batch may have ended early
                verdicts[at] = self._judge(at, result, before[at])
        except Stopping:
            return
        except BsdError as problem:  # the other sessions of the batch go back into the queue
            verdicts[at] = self._judge(at, problem, before[at])
        except Exception as error:  # noqa: BLE001 - one session must not stop the others
            _log.exception("Work on a session has failed", session=str(at))
            state.ledger.count("crashes")
            verdicts[at] = Failed(f"internal error: {error!r}")

    def _judge(
        self, name: SessionName, result: SessionResult | BsdError | None, before: Written
    ) -> Verdict:
        """Publish the result for a session, and return the verdict on it.

        Args:
            result: the answer of `tasks.look_into`, or the error that it raised.
            before: the state of the transcript when the work began.
        """
        match result:
            case None:  # bsd has just written to it: due values are extracted when it is idle
                return self._later(_LOOK_AGAIN_SECONDS)
            case NotFound():
                return self._forget(name)
            case Busy():
                return self._later(result.again_in, type(result))
            case BsdError():
                reason, hint = result.message, result.hint
                result = SessionResult(str(name), Status.FAILED, reason=reason, hint=hint)
        if result.status is Status.FAILED and self._look(name) is None:
            return self._forget(name)
        self._publish(name, result)
        state = self._state
        opens_again = state.not_understood.worked(name, result, before)
        match result.status:
            case Status.BUSY:
                return self._later(result.again_in, result.error)
            case Status.FAILED:
                return Failed(result.reason or "it failed")
            case Status.LEFT_ALONE:
                state.scan.note(name, before)
                if not opens_again:
                    state.idle_sessions.left(name, before, None)
                state.savings.clear(name)
                state.note_waiting(name, None)
                return Finished()
        return Finished(self._next_due(name, result))

    def _next_due(self, name: SessionName, result: SessionResult) -> float | None:
        """Record the state of a session; return when it is due even if it does not change."""
        state = self._state
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
                state.idle_sessions.left(name, seen, result.due_at, result.wait)
        if result.postponed:
            state.savings.wait(name, now)
            due.append(state.savings.due(name, now))
        else:
            state.savings.clear(name)
        if result.status is Status.EXTRACTED and not result.bytes_saved:
            state.savings.note_unpaid(name, now)
        state.note_waiting(name, result.wait)
        if result.due_at is not None:
            due.append(now + max(0.0, result.due_at - state.clocks.wall()))
        return min(due, default=None)

    def _later(self, seconds: float | None, error: type[BsdError] | None = None) -> Verdict:
        """Return the verdict for a session that must be tried again.

        A session that is paused until a user ends the pause is not tried again: the end of the
        pause queues it.

        Args:
            seconds: the time until the next attempt; None: use the backoff of the queue.
            error: the type of the error; `Paused` is handled separately.
        """
        due = None if seconds is None else self._state.clocks.steady() + seconds
        return Finished(due) if error is Paused else TryLater(due)

    def _publish(self, name: SessionName, result: SessionResult) -> None:
        at = self._state.clocks.wall()
        self._state.ledger.worked(name, result, at)
        if self._state.events.has_listeners:
            self._state.events.publish("session", **as_json(result))
        if result.wait is not None:
            _log.debug(
                f"Session {name} {words(result.wait, at)}",
                cache_warm_until=result.cache_warm_until,
                tokens_ready=result.tokens_ready,
                tokens_rewritten=result.tokens_rewritten,
            )
        if result.postponed:
            _log.debug(
                f"Session {name} would save too little, waiting for more",
                since=iso_utc(at),
            )

    def _look(self, name: SessionName) -> Written | None:
        with suppress(OSError, BsdError):
            if self._state.layout.excluded(name):
                return None
            return Written.of(stat_transcript(self._state.layout, name))
        return None

    def _forget(self, name: SessionName) -> Verdict:
        """Forget a deleted or excluded session; if it appears again, it counts as new."""
        self._state.scan.forget(name)
        self._state.ledger.forget(name)
        self._state.not_understood.forget(name)
        self._state.savings.clear(name)
        self._state.note_waiting(name, None)
        return Finished()


class _WorkerThread:
    """One of the threads; after any error in its work it goes on with the next session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: SessionName | None = None  # the session that it processes
        self.since = 0.0  # epoch seconds
        self.thread: threading.Thread | None = None


class Workers:
    """The worker threads, which take sessions from the queue; the settings have their number."""

    def __init__(self, state: DaemonState, worker: Worker) -> None:
        self._state = state
        self._worker = worker
        count = state.settings.threads
        self._threads = [_WorkerThread(f"worker-{number}") for number in range(1, count + 1)]

    def start(self) -> None:
        for thread in self._threads:
            self._start(thread)

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); return True if all threads have ended.

        When the daemon stops, each thread finishes only a commit that has begun.
        """
        threads = [each.thread for each in self._threads if each.thread is not None]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return which thread works on which session: {name, session, since}."""
        at = [(each.name, each.session, each.since) for each in self._threads]
        return [
            {
                "name": name,
                "session": str(session) if session else None,
                "since": iso_utc(since) if session else None,
            }
            for name, session, since in at
        ]

    def _start(self, thread: _WorkerThread) -> None:
        self._state.beats.expect(thread.name, LONGEST_SLEEP_SECONDS)
        started = threading.Thread(target=self._run, args=(thread,), name=f"bsd-{thread.name}")
        started.start()
        thread.thread = started

    def _run(self, thread: _WorkerThread) -> None:
        state = self._state
        worked = _MANY  # return memory after the start, too, which takes much of it
        while not state.stopping.is_set():
            state.beats.beat(thread.name, LONGEST_SLEEP_SECONDS)
            try:
                if (first := state.queue.take()) is not None:
                    batch = [first, *state.queue.take_more(first, _LARGEST_BATCH - 1)]
                    self._work(thread, batch)
                    worked += len(batch)
                elif worked >= _MANY:
                    worked = 0
                    give_back_memory()
            except BaseException:  # noqa: BLE001 - the work must go on after any error
                _log.exception("A worker has failed and goes on", worker=thread.name)
                state.ledger.count("workers_replaced")
                state.stopping.wait(_AFTER_FAILURE_SECONDS)  # or the log would fill the disk
        state.beats.end(thread.name)

    def _work(self, thread: _WorkerThread, batch: list[SessionName]) -> None:
        queue = self._state.queue
        at = batch[0]
        verdicts: dict[SessionName, Verdict] = {}

        def alive() -> None:
            self._state.beats.beat(thread.name, LONGEST_STEP_SECONDS)

        def began(session: SessionName) -> None:
            nonlocal at
            thread.session = at = session

        alive()
        _log.trace("A session is being processed", session=str(at))
        thread.session, thread.since = at, time.time()
        try:
            verdicts = self._worker.run(batch, alive, began)
        except BaseException:  # `_run` handles it; the queue must learn that the session is free
            verdicts[at] = Failed("the worker died")
            raise
        finally:
            thread.session = None
            for session in batch:
                if session in verdicts:
                    queue.done(session, verdicts[session])
                else:
                    queue.give_back(session)
