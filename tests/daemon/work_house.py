"""A worker and its parts, with a caller that gives prepared answers, and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bsd.actions.extract import CallWatch
from bsd.core.errors import BsdError
from bsd.core.layout import SessionName
from bsd.daemon.auto_cron import AutoCron
from bsd.daemon.child import BEGAN, CallsInSession
from bsd.daemon.children import Children
from bsd.daemon.loops import Clocks
from bsd.daemon.queue import Verdict
from bsd.daemon.state import DaemonState
from bsd.daemon.tasks import ToLook
from bsd.daemon.worker import Worker
from bsd.planning.plan import Plan, Report
from bsd.planning.result import SessionResult, Status
from bsd.sessions.editor import Worth
from bsd.sessions.session import OpenSession
from bsd.transcripts.change import Edit, Identity
from tests.daemon.in_process import ChildrenHere, Here
from tests.loading import load_settings

NAME = SessionName("main", "s1")
MB = 1 << 20


class Surgeon:
    """Gives prepared answers; asks whether `plan` is worth it, as the real editor does."""

    def __init__(self) -> None:
        self.answer: SessionResult | BsdError = SessionResult(str(NAME), Status.UNCHANGED)
        self.plan: Plan | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self.progress: Callable[[int], None] = lambda _: None
        self.calls = 0
        self.committed = 0
        self.asked = False  # the last request, by a person

    def extract(
        self,
        name: SessionName,
        *,
        asked: bool = False,
        worth: Worth | None = None,
        goes_on: Callable[[], bool] = lambda: True,
        watch: object | None = None,
        told_idle: float | None = None,
    ) -> SessionResult | None:
        self.asked = asked
        if watch is not None:
            return None  # calls are due
        self.calls += 1
        self.meanwhile()
        self.progress(MB)
        if isinstance(self.answer, BsdError):
            raise self.answer
        if self.plan is not None and worth is not None:
            if not worth(self.plan):
                left = self.plan.planned_on
                return SessionResult(str(name), Status.UNCHANGED, left_as=left, postponed=True)
            self.committed += 1
        return self.answer


@dataclass
class _Calls:
    """Calls that are due in a session, and their outcomes."""

    answer: bool | BsdError

    def watch(self, opened: OpenSession) -> CallWatch:
        raise NotImplementedError

    def carry_out(self) -> bool:
        if isinstance(self.answer, BsdError):
            raise self.answer
        return self.answer


class House:
    """All parts around the work, with a clock that stands still unless moved."""

    def __init__(self, tmp_path: Path) -> None:
        self.now = 1_000_000.0
        self.steady = 50.0
        root = tmp_path / "root"
        self.sessions = root / "agents" / "main" / "sessions"
        self.sessions.mkdir(parents=True)
        self.caller = Surgeon()
        self.calls: bool | BsdError = False  # outcome of the calls in the session
        self.state = DaemonState(
            load_settings(root=root, environ={"HOME": str(tmp_path)}),
            Clocks(lambda: self.now, lambda: self.steady),
        )
        self.config = self.state.config
        self.queue = self.state.queue
        self.scan = self.state.scan
        self.enqueuer = self.state.enqueuer
        self.auto_cron = AutoCron(self.state)
        self.child = Here(
            self.state.layout, self.config, caller=self.caller, calls_in=self.calls_in
        )
        self.caller.progress = self.child.progress
        self.handed: list[ToLook] = []  # to a child, several at once
        # the session, and the error, that end a batch
        self.broken: tuple[SessionName, Exception] | None = None
        self.worked: list[SessionName] = []
        self.work = Worker(self.state, cast(Children, self), worked=self._worked)

    def call(
        self,
        task: Callable[..., Any],
        wanted: list[ToLook],
        *,
        several: Mapping[SessionName, int],
        handlers: Mapping[str, Callable[..., Any]],
        **_: Any,
    ) -> Any:
        """Stand in for `Children`; with `broken` set, one session ends the task."""
        self.handed += wanted
        if self.broken is not None:
            handlers[BEGAN](self.broken[0])
            raise self.broken[1]
        handlers = {**handlers, "checked": self.state.stop_here}
        return ChildrenHere(self.child).call(task, wanted, several=several, handlers=handlers)

    def on(self, name: SessionName) -> Verdict:
        """Work on a session."""
        return self.work.run([name])[name]

    def _worked(self, name: SessionName) -> None:
        self.worked.append(name)
        self.auto_cron.worked(name)

    def take(self, later: float = 0.0) -> SessionName | None:
        """Return the job that the queue gives `later` seconds later."""
        self.steady += later
        return self.queue.take(0)

    def write(self, content: bytes = b"{}\n", name: SessionName = NAME) -> Path:
        path = self.sessions / f"{name.session}.jsonl"
        path.write_bytes(content)
        return path

    def identity(self) -> Identity:
        return Identity.of((self.sessions / "s1.jsonl").stat())

    def calls_in(self, _: SessionName, *, waits: bool) -> CallsInSession | None:
        return _Calls(self.calls) if self.calls else None

    def look(self) -> list[SessionName]:
        return [name for name, _ in self.scan.step()]


def small_saving(house: House) -> Plan:
    edit = Edit(0, 1, b'{"id":"e1"}\n')
    report = Report("extract", 1, 1, 32 * MB + 10, 32 * MB)
    return Plan(house.identity(), (edit,), report)
