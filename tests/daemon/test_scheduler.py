"""Jobs run at their times, once, and fail alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Conflict, NotFound
from bsd.core.formatting import iso_utc
from bsd.daemon.cron import Cron, Every
from bsd.daemon.scheduler import Run, ScheduledJob, Scheduler
from tests.daemon.zones import at, zone
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS

START = at("2026-05-04T12:00:30")
HOUR = 3600.0


class World:
    """A scheduler, a clock to turn, and the jobs that have run."""

    def __init__(self, start: float = START, **given: Any) -> None:
        self.now = start
        self.ran: list[tuple[str, float]] = []
        self.ended: list[Run] = []
        config = ConfigService(Path("/nowhere/config.json"), create=False)
        given = {"ended": self.ended.append, "clock": lambda: self.now, **given}
        self.scheduler = Scheduler(config, **given)

    def job(self, name: str) -> None:
        self.ran.append((name, self.now))

    def add(
        self,
        name: str,
        schedule: Cron | Every | None,
        action: Callable[[], object] | None = None,
        **more: Any,
    ) -> None:
        action = action or (lambda: self.job(name))
        self.scheduler.add(ScheduledJob(name, action, schedule, **more))

    def step(self, seconds: float = 0) -> list[str]:
        self.now += seconds
        self.ended.clear()
        self.scheduler.step(self.now)
        return [run.job for run in self.ended]

    def run_until(self, end: float) -> None:
        """Do the work of the thread: sleep until the next job is due."""
        due = self.scheduler.step(self.now)
        while due is not None and due <= end:
            self.now = max(self.now, due)
            due = self.scheduler.step(self.now)
        self.now = end

    def next(self, name: str) -> float | None:
        return self.scheduler.next_run(name)

    def status(self) -> list[dict[str, Any]]:
        return self.scheduler.status()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 30.0), (0.1, 30.0), (0.5, 100.0), (7.0, 120.0)])
def test_what_takes_much_of_a_core_comes_less_often(cost: float, pause: float) -> None:
    spent = 0.0

    def job() -> None:
        nonlocal spent
        spent += cost

    world = World(spent=lambda: spent)
    world.add("scan", Every(30), job, at_start=True)
    for _ in range(2):
        assert world.scheduler.step(world.now) == world.now + pause
        world.now += pause
    world.add("seldom", Every(3600), job, at_start=True)
    world.scheduler.run("seldom")
    assert world.next("seldom") == world.now + 3600


def test_a_job_runs_at_its_time_and_then_at_the_next(world: World) -> None:
    world.add("extract", Cron("*/2 * * * *"))
    assert world.step() == []
    assert world.scheduler.step(world.now) == at("2026-05-04T12:02")
    assert world.step(90) == ["extract"]
    assert world.step() == []
    assert world.next("extract") == at("2026-05-04T12:04")


@pytest.mark.parametrize("gap", [5 * HOUR, 400 * HOUR])
def test_slots_missed_in_suspend_run_once(world: World, gap: float) -> None:
    world.add("extract", Cron("*/2 * * * *"))
    world.step()
    assert world.step(gap) == ["extract"]
    assert world.step() == []
    due = world.next("extract")
    assert due is not None
    assert world.now < due <= world.now + 120


def test_slots_missed_while_down_run_once(world: World) -> None:
    world.add("retention", Cron("0 */6 * * *"), last_run=START - 50 * HOUR)
    assert world.step() == ["retention"]
    assert world.step(60) == []


def test_without_a_missed_slot_a_restart_runs_nothing(world: World) -> None:
    world.add("retention", Cron("0 0 * * *"), last_run=START - HOUR)
    world.add("scan", Every(30), last_run=START - 10)
    assert world.step() == []
    assert world.next("scan") == START + 20


def test_some_run_at_start_in_any_case(world: World) -> None:
    world.add("retention", Cron("0 */6 * * *"), last_run=START - 1, at_start=True)
    assert world.step() == ["retention"]
    assert world.step() == []


def test_a_first_start_waits_for_the_first_slot(world: World) -> None:
    world.add("retention", Cron("0 */6 * * *"))
    assert world.next("retention") == at("2026-05-04T18:00")


def test_a_last_run_in_the_future_delays_nothing(world: World) -> None:
    world.add("extract", Cron("*/2 * * * *"), last_run=START + 1e8)
    assert world.next("extract") == at("2026-05-04T12:02")


def test_intervals_count_from_the_end(world: World) -> None:
    def slow() -> None:
        world.now += 100

    world.add("scan", Every(30), slow)
    world.step(30)
    assert world.next("scan") == world.now + 30


def test_slots_that_pass_while_it_runs_are_made_up_for_once(world: World) -> None:
    def slow() -> None:
        world.job("slow")
        if len(world.ran) == 1:
            world.now += 601

    world.add("slow", Cron("*/2 * * * *"), slow)
    assert world.step(90) == ["slow"]
    assert world.step() == ["slow"]
    assert world.step() == []


def test_a_new_expression_counts_at_once(world: World) -> None:
    world.add("extract", Cron("0 0 1 1 *"))
    assert world.scheduler.reschedule("extract", Cron("* * * * *"))
    assert not world.scheduler.reschedule("extract", Cron("* * * * *"))
    assert world.step(30) == ["extract"]
    assert world.scheduler.reschedule("extract", None)
    assert world.step(10 * HOUR) == []
    assert world.next("extract") is None
    assert world.scheduler.reschedule("extract", Every(5))
    assert world.step(5) == ["extract"]


def test_a_new_expression_does_not_cancel_what_is_overdue(world: World) -> None:
    world.add("extract", Cron("*/2 * * * *"))
    world.now += 500
    world.scheduler.reschedule("extract", Cron("0 0 1 1 *"))
    assert world.step() == ["extract"]


def test_failures_are_recorded_and_stop_nothing(world: World) -> None:
    world.add("bad", Every(10), raising(RuntimeError("disk on fire")))
    world.add("good", Every(10))
    assert world.step(10) == ["bad", "good"]
    assert world.step(10) == ["bad", "good"]
    bad, good = world.status()
    assert bad["last_result"]["error"] == "disk on fire"
    assert good["last_result"]["ok"]
    assert [run.error for run in world.ended] == ["disk on fire", None]


def test_a_run_that_cannot_be_noted_stops_nothing() -> None:
    ran = []
    world = World(ended=raising(OSError("full")))
    world.add("a", Every(1), lambda: ran.append("a"), at_start=True)
    world.add("b", Every(1), lambda: ran.append("b"), at_start=True)
    world.step()
    assert ran == ["a", "b"]


def test_the_longest_waiting_goes_first(world: World) -> None:
    world.add("a", Every(20))
    world.add("b", Every(10))
    assert world.step(30) == ["b", "a"]


def test_run_now_by_hand(world: World) -> None:
    world.add("doctor", None)
    assert world.step(1e6) == []
    assert world.scheduler.run("doctor").error is None
    [status] = world.status()
    assert (status["schedule"], status["last_run"]) == (None, iso_utc(world.now))
    with pytest.raises(NotFound, match="no job extrakt"):
        world.scheduler.run("extrakt")
    with pytest.raises(Conflict, match="already"):
        world.add("doctor", None)


def test_a_job_never_runs_twice_at_once(world: World) -> None:
    entered, leave = threading.Event(), threading.Event()

    def long() -> None:
        world.job("long")
        entered.set()
        assert leave.wait(DEADLINE_SECONDS)

    world.add("long", Every(10), long)
    world.add("short", Every(10))
    thread = threading.Thread(target=world.scheduler.run, args=["long"])
    thread.start()
    try:
        assert entered.wait(DEADLINE_SECONDS)
        with pytest.raises(Conflict, match="is running"):
            world.scheduler.run("long")
        assert world.step(100) == ["short"]
        assert [job["running"] for job in world.status()] == [True, False]
    finally:
        leave.set()
        thread.join(DEADLINE_SECONDS)
    assert [name for name, _ in world.ran] == ["long", "short"]
    assert world.step(10) == ["long", "short"]


def test_a_small_step_back_of_the_clock_runs_nothing_again(world: World) -> None:
    world.add("daily", Cron("5 12 * * *"))
    assert world.step(300) == ["daily"]
    assert world.step(-HOUR) == []
    assert world.step(HOUR) == []


def test_a_step_back_of_the_clock_does_not_hold_up_a_job_at_equal_distances(world: World) -> None:
    world.add("scan", Every(30))
    assert world.step(30) == ["scan"]
    assert world.step(-2 * HOUR) == []
    for _ in range(2):
        assert world.step(20) == []
        assert world.step(10) == ["scan"]


def test_a_clock_that_was_years_ahead_is_forgotten(world: World) -> None:
    world.now += 1e8
    world.add("extract", Cron("*/2 * * * *"))
    world.step(120)
    world.step(-1e8)
    due = world.next("extract")
    assert due is not None
    assert due <= world.now + 120


@pytest.mark.parametrize(
    ("name", "midnight", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T00:00+01:00", 23),
        ("Europe/Berlin", "2026-10-25T00:00+02:00", 25),
        ("America/New_York", "2026-11-01T00:00-04:00", 25),
        ("Australia/Lord_Howe", "2026-04-05T00:00+11:00", 24.5),
    ],
)
def test_a_day_on_which_the_clocks_change(name: str, midnight: str, hours: float) -> None:
    with zone(name):
        world = World(at(midnight) - 1)
        world.add("daily", Cron("30 2 * * *"))
        world.add("twice", Cron("45 1 * * *"))
        world.add("quarterly", Cron("0 */6 * * *"))
        world.add("often", Cron("*/30 * * * *"))
        world.run_until(at(midnight) + hours * HOUR - 1)
        count = {job: sum(name == job for name, _ in world.ran) for job, _ in world.ran}
        assert count == {"daily": 1, "twice": 1, "quarterly": 4, "often": hours * 2}


def test_who_travels_need_not_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with zone("UTC"):
        world = World(at("2026-05-04T12:00"))
        world.add("nightly", Cron("0 2 * * *"))
        assert world.next("nightly") == at("2026-05-05T02:00")
        monkeypatch.setenv("TZ", "Asia/Tokyo")  # as if /etc/localtime were another
        world.run_until(at("2026-05-05T02:00"))
        assert world.next("nightly") == at("2026-05-06T02:00+09:00")


def test_a_run_that_is_broken_off_is_recorded(world: World) -> None:
    world.add("stopped", Every(1), raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        world.scheduler.run("stopped")
    [status] = world.status()
    assert not status["running"]
    assert status["last_result"]["error"] == "it was interrupted"
