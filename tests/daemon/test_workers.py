"""Workers: they take, they survive, and who dies is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bsd.daemon.beats import Beats
from bsd.daemon.clock import steady
from bsd.daemon.jobs import Finished, Outcome
from bsd.daemon.ledger import Ledger
from bsd.daemon.queue import WorkQueue
from bsd.daemon.work import Stopping
from bsd.daemon.workers import Workers
from bsd.foundation.layout import SessionName
from tests.logs import capture_logs
from tests.waiting import DEADLINE_SECONDS, wait_for


class Task:
    """Work that does to each session what a test wants."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.done: list[str] = []
        self.do: dict[str, Callable[[], None]] = {}

    def on(self, name: SessionName, alive: Callable[[], None]) -> Outcome:
        alive()
        try:
            self.do.get(name.session, lambda: None)()
        finally:
            self.done.append(name.session)
        return Finished()


class Office:
    def __init__(self) -> None:
        self.queue = WorkQueue(workers=2, park_after=1)
        self.task = Task()
        self.ledger = Ledger()
        self.beats = Beats()
        self.workers = Workers(2, self.queue, self.task, self.beats, self.ledger)

    def put(self, session: str) -> None:
        self.queue.put(SessionName("main", session), steady())


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    office.workers.start()
    yield office
    office.workers.stop()
    assert office.workers.join(time.monotonic() + DEADLINE_SECONDS)
    assert office.beats.late(float("inf")) == [], "who has ended as it should promises nothing"


def fail() -> None:
    raise RuntimeError("no")


def die() -> None:
    raise SystemExit


def test_a_failure_of_one_session_is_told_and_hurts_no_other(office: Office) -> None:
    office.task.do["bad"] = fail
    with capture_logs() as lines:
        for session in ("bad", "good"):
            office.put(session)
        wait_for(lambda: len(office.task.done) == 2 and office.queue.parked())
    (parked,) = office.queue.parked()
    assert str(parked.session) == "main/bad"
    assert "RuntimeError('no')" in parked.error
    assert office.ledger.totals()["crashes"] == 1
    assert [line["session"] for line in lines if line["log_level"] == "error"] == ["main/bad"]


def test_a_worker_that_dies_is_replaced_and_counted(office: Office) -> None:
    office.task.do = {"fatal-1": die, "fatal-2": die, "fatal-3": die}
    for session in office.task.do:
        office.put(session)
    wait_for(lambda: office.ledger.totals()["workers_replaced"] == 3)
    office.put("after")
    wait_for(lambda: "after" in office.task.done)
    assert len(office.queue.parked()) == 3, "what kills workers is not tried for ever"


def test_who_works_on_what_can_be_seen(office: Office) -> None:
    go_on = threading.Event()

    def wait() -> None:
        go_on.wait(DEADLINE_SECONDS)

    office.task.do["long"] = wait
    office.put("long")
    wait_for(lambda: any(each["session"] for each in office.workers.snapshot()))
    (busy,) = [each for each in office.workers.snapshot() if each["session"]]
    assert busy["session"] == "main/long"
    assert busy["since"].endswith("Z")
    go_on.set()
    wait_for(lambda: not any(each["session"] for each in office.workers.snapshot()))


class Impatient(WorkQueue):
    """A queue at which nobody waits for long."""

    def take(self, timeout: float = 0.0) -> SessionName | None:
        return super().take(0.005)


def test_what_a_start_and_much_work_took_is_given_back_when_nobody_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    queue, task = Impatient(), Task()
    monkeypatch.setattr("bsd.daemon.workers._MANY", 3)
    monkeypatch.setattr("bsd.daemon.workers.give_back_memory", lambda: given.append(len(task.done)))
    workers = Workers(1, queue, task, Beats(), Ledger())
    workers.start()
    wait_for(lambda: given == [0])
    for session in ("1", "2"):
        queue.put(SessionName("main", session), steady())
    wait_for(lambda: len(task.done) == 2)
    queue.put(SessionName("main", "3"), steady())
    wait_for(lambda: len(given) > 1)
    assert given == [0, 3]
    workers.stop()
    assert workers.join(time.monotonic() + DEADLINE_SECONDS)


def test_a_stop_lets_work_give_up_where_nothing_is_half_done(office: Office) -> None:
    def until_stopped() -> None:
        office.task.stopping.wait(DEADLINE_SECONDS)
        raise Stopping

    office.task.do["huge"] = until_stopped
    office.put("huge")
    wait_for(lambda: any(each["session"] for each in office.workers.snapshot()))
    office.workers.stop()
    assert office.workers.join(time.monotonic() + DEADLINE_SECONDS)
    assert office.ledger.totals()["crashes"] == 0
