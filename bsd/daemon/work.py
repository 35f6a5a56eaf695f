"""What a worker does with one session: extract what is due, and say when to come again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from bsd.daemon.clock import steady
from bsd.daemon.events import Events
from bsd.daemon.intake import Intake
from bsd.daemon.jobs import Busy, Failed, Finished, Outcome
from bsd.daemon.ledger import Ledger
from bsd.daemon.rest import Rests
from bsd.daemon.savings import Savings
from bsd.daemon.scan import Scan
from bsd.foundation.errors import BsdError, LeftAlone, NotFound
from bsd.foundation.errors import Busy as InUse
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.spelling import iso_utc
from bsd.session.operate import Worth
from bsd.surgery.plan import Plan
from bsd.surgery.result import SessionResult, Status
from bsd.text.change import Written

_log = get_logger("worker")

# Carries out calls that stand in a session at rest; whether it was changed by that.
InBand = Callable[[SessionName], bool]

# After others' lines came in with a commit: nobody will tell of them, and they want their rest.
_LOOK_AGAIN_SECONDS = 3.0


class Stopping(Exception):
    """The daemon stops; raised where nothing is half done."""


class Extractor(Protocol):
    """The part of the surgeon that is needed here."""

    def extract(
        self,
        name: SessionName,
        *,
        overrides: Mapping[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
        worth: Worth | None = None,
    ) -> SessionResult: ...


@traced(_log)
class Work:
    """Does one job after the other, on any thread, and tells everybody who must know."""

    def __init__(  # noqa: PLR0913 - everybody who must know
        self,
        layout: Layout,
        config: ConfigService,
        surgeon: Extractor,
        *,
        intake: Intake,
        scan: Scan,
        savings: Savings,
        ledger: Ledger,
        events: Events,
        rests: Rests,
        worked: Callable[[SessionName], None] = lambda _: None,
        in_band: InBand = lambda _: False,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
    ) -> None:
        self._layout = layout
        self._config = config
        self._surgeon = surgeon
        self._intake = intake
        self._scan = scan
        self._savings = savings
        self._ledger = ledger
        self._events = events
        self._rests = rests
        self._worked = worked
        self._in_band = in_band
        self._clock = clock
        self._steady = steady
        self.stopping = threading.Event()

    def on(self, name: SessionName, alive: Callable[[], None] = lambda: None) -> Outcome:
        """Work on a session; `alive` is called now and then. Raises Stopping."""
        try:
            return self._on(name, alive)
        finally:
            self._worked(name)

    def _on(self, name: SessionName, alive: Callable[[], None]) -> Outcome:
        if not self._config.current.enabled:
            return Finished()  # it counts as changed until it is looked into
        urgent = self._intake.take_urgency(name)
        outcome: Outcome | None = None
        try:
            outcome = self._extract(name, alive, urgent=urgent)
        finally:
            if urgent and not isinstance(outcome, Finished):
                self._intake.return_urgency(name)
        return outcome

    def _extract(self, name: SessionName, alive: Callable[[], None], *, urgent: bool) -> Outcome:
        before = self._look(name)
        if before is None:
            return self._gone(name)
        self._rests.unsettled(name)

        def progress(_: int) -> None:
            if self.stopping.is_set():
                raise Stopping
            alive()

        try:
            progress(0)
            if self._was_called(name):
                # Just written, by us: what may leave it now is seen when it rests.
                return Busy(self._steady() + _LOOK_AGAIN_SECONDS)
            result = self._surgeon.extract(
                name, progress=progress, worth=self._judge(name, urgent=urgent)
            )
        except NotFound:
            return self._gone(name)
        except InUse as problem:
            return self._busy(problem.again_in)
        except BsdError as problem:
            result = SessionResult(
                str(name), Status.FAILED, reason=problem.message, hint=problem.hint
            )
        if result.status is Status.FAILED and self._look(name) is None:
            return self._gone(name)
        self._tell(name, result)
        return self._conclude(name, result, before)

    def _was_called(self, name: SessionName) -> bool:
        """Carry out what the agent asks for in its session; whether that changed it.

        Before the extraction, which does not look again at what it has settled.
        """
        try:
            return self._in_band(name)
        except LeftAlone:
            return False  # as the extraction will say

    def _judge(self, name: SessionName, *, urgent: bool) -> Worth:
        told = False

        def worth(plan: Plan) -> bool:
            nonlocal told
            if not told and _log.is_enabled("debug"):
                entries = plan.report.reasons.total()
                _log.debug(f"Processing session {name}, {entries} entries to check")
            told = True
            return self._savings.are_worth(name, plan, self._steady()) or urgent

        return worth

    def _conclude(self, name: SessionName, result: SessionResult, before: Written) -> Outcome:
        match result.status:
            case Status.BUSY:
                return self._busy(result.again_in)
            case Status.FAILED:
                return Failed(result.reason or "it failed")
            case Status.LEFT_ALONE:
                self._scan.note(name, before)
                self._rests.left(name, before, None)
                self._savings.settle(name)
                return Finished()
        now = self._steady()
        due = []
        if result.left_as is None:
            due.append(now + _LOOK_AGAIN_SECONDS)
        else:
            seen = result.left_as.written
            self._scan.note(name, seen)
            if not result.postponed:
                self._rests.left(name, seen, result.due_at)
        if not result.postponed:
            self._savings.settle(name)
        elif (later := self._savings.due(name)) is not None:
            due.append(later)
        if result.due_at is not None:
            due.append(now + max(0.0, result.due_at - self._clock()))
        return Finished(min(due, default=None))

    def _busy(self, again_in: float | None) -> Busy:
        return Busy(None if again_in is None else self._steady() + again_in)

    def _tell(self, name: SessionName, result: SessionResult) -> None:
        at = self._clock()
        self._ledger.worked(name, result, at)
        self._events.publish("session", **result.as_json())
        if result.postponed:
            _log.debug(
                f"Session {name} can give up too little yet, waiting for more",
                since=iso_utc(at),
            )

    def _look(self, name: SessionName) -> Written | None:
        with suppress(OSError, BsdError):
            return Written.of(os.lstat(self._layout.transcript(name)))
        return None

    def _gone(self, name: SessionName) -> Outcome:
        self._ledger.forget(name)
        self._savings.settle(name)
        return Finished()
