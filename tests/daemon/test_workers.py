"""Workers: they take jobs and survive failures; a worker that fails goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from bsd.core.clock import steady
from bsd.core.layout import SessionName
from bsd.daemon.child import Stopping
from bsd.daemon.queue import Finished, Verdict, WorkQueue
from bsd.daemon.state import DaemonState
from bsd.daemon.worker import Worker, Workers
from tests.loading import load_settings
from tests.waiting import DEADLINE_SECONDS, wait_for


class Task:
    """A task that the test chooses for each session."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.do: dict[str, Callable[[], None]] = {}

    def run(
        self,
        names: list[SessionName],
        alive: Callable[[], None],
        began: Callable[[SessionName], None],
    ) -> dict[SessionName, Verdict]:
        """Verdicts on sessions before the session that ends the task are lost."""
        verdicts: dict[SessionName, Verdict] = {}
        for name in names:
            alive()
            began(name)
            try:
                self.do.get(name.session, lambda: None)()
            except Stopping:
                break
            finally:
                self.done.append(name.session)
            verdicts[name] = Finished()
        return verdicts


class Office:
    def __init__(self, root: Path, workers: int, queue: WorkQueue) -> None:
        variables = {"HOME": str(root), "BRAINSURGEON_WORKERS": str(workers)}
        self.state = DaemonState(load_settings(root=root, environ=variables))
        self.queue = self.state.queue = queue
        self.ledger = self.state.ledger
        self.task = Task()
        self.workers = Workers(self.state, cast(Worker, self.task))

    def put(self, session: str) -> None:
        self.queue.put(SessionName("main", session), steady())

    def stop(self) -> None:
        self.state.stopping.set()
        self.queue.close()
        assert self.workers.join(time.monotonic() + DEADLINE_SECONDS)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path, 2, WorkQueue(workers=2, park_after=1))
    office.workers.start()
    yield office
    office.stop()
    assert office.state.beats._promised == {}, "who has ended as it should promises nothing"


def die() -> None:
    raise SystemExit


def test_a_death_in_a_batch_costs_one_session_an_attempt(tmp_path: Path) -> None:
    office = Office(tmp_path, 1, WorkQueue(workers=1, park_after=1))
    office.task.do["bad"] = die
    names = ["first", "bad", "last"]
    for due, session in enumerate(names):
        office.queue.put(SessionName("main", session), due, backlog=True)
    office.workers.start()
    wait_for(lambda: "last" in office.task.done and office.queue.counts().working == 0)
    office.stop()
    assert [str(one.session) for one in office.queue.parked()] == ["main/bad"]
    assert office.task.done == ["first", "bad", "first", "last"]
    assert office.queue.counts().failed == 1
    assert office.ledger.totals()["workers_replaced"] == 1


def test_a_worker_that_dies_goes_on_and_is_counted(office: Office) -> None:
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
    """A queue at which no caller waits for long."""

    def take(self, timeout: float = 0.0) -> SessionName | None:
        return super().take(0.005)


def test_what_a_start_and_much_work_took_is_given_back_when_nobody_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    office = Office(tmp_path, 1, Impatient())
    done = office.task.done
    monkeypatch.setattr("bsd.daemon.worker._MANY", 3)
    monkeypatch.setattr("bsd.daemon.worker.give_back_memory", lambda: given.append(len(done)))
    office.workers.start()
    wait_for(lambda: given == [0])
    for session in ("1", "2"):
        office.put(session)
    wait_for(lambda: len(done) == 2)
    office.put("3")
    wait_for(lambda: len(given) > 1)
    assert given == [0, 3]
    office.stop()


def test_a_stop_lets_work_give_up_where_nothing_is_half_done(office: Office) -> None:
    def until_stopped() -> None:
        office.state.stopping.wait(DEADLINE_SECONDS)
        raise Stopping

    office.task.do["huge"] = until_stopped
    office.put("huge")
    wait_for(lambda: any(each["session"] for each in office.workers.snapshot()))
    office.stop()
    assert office.ledger.totals()["crashes"] == 0
