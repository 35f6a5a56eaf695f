"""The first look at very many sessions: thousands at once, and sessions in use first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.daemon import queue
from tests.daemon.fast_forward import Clock, machine
from tests.daemon.running import configure
from tests.daemon.work_house import House
from tests.openclaw_tree import add_session

MANY = [SessionName(f"agent{n % 3}", f"s{n:02}") for n in range(20)]
HOUR = 3600.0


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "FULL", 5)
    monkeypatch.setattr(queue, "ROOMY", 2)


def add(root: Path, names: list[SessionName], mtime: float) -> None:
    for name in names:
        os.utime(add_session(root, str(name), b"{}\n"), (mtime, mtime))


@pytest.mark.usefixtures("few")
def test_all_are_looked_at_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time() + 60
    add(tmp_path, MANY, now - HOUR)
    configure(tmp_path, auto_cron="* * * * *", scan_interval_seconds=3600)
    clock = Clock(now)
    with machine(tmp_path, clock, monkeypatch) as running:
        status = running.daemon.report.status()
        assert (status["totals"]["sessions"], status["queue"]["ready"]) == (20, 15)
        assert running.daemon.state.config.current.last_run_at is None
        for _ in range(20):
            running.settle()
        status = running.daemon.report.status()
        assert (status["totals"]["sessions"], status["queue"]["ready"]) == (20, 0)
        assert {one["session"] for one in status["sessions"]} == set(map(str, MANY))
        assert running.daemon.state.scan.left == 0


@pytest.mark.usefixtures("few")
def test_who_writes_just_now_does_not_wait_for_the_others(tmp_path: Path) -> None:
    house = House(tmp_path)
    layout = Layout(house.state.layout.root)
    add(layout.root, MANY, house.now - HOUR)
    add(layout.root, [SessionName("zoe", "now")], house.now - 10)
    found = []
    for name, seen in house.scan.step(lambda stat: house.enqueuer.can_wait(stat, house.now)):
        assert seen is not None
        house.enqueuer.put_found(name, seen, house.steady, house.now)
        found.append(name)
    assert SessionName("zoe", "now") in found
    assert (len(found), house.scan.left) == (6, 15)
    assert house.take() == SessionName("zoe", "now")


@pytest.mark.usefixtures("few")
def test_what_waits_for_its_time_is_in_nobodys_way(tmp_path: Path) -> None:
    house = House(tmp_path)
    for number in range(9):
        house.queue.put(SessionName("main", f"later{number}"), house.steady + HOUR)
    assert (house.queue.is_full, house.queue.is_roomy) == (False, True)
    house.steady += HOUR
    assert (house.queue.is_full, house.queue.is_roomy) == (True, False)


@pytest.mark.usefixtures("few")
def test_auto_cron_waits_for_its_end(tmp_path: Path) -> None:
    house = House(tmp_path)
    add(house.state.layout.root, MANY, house.now - HOUR)
    list(house.scan.step(lambda _: True))
    house.auto_cron.run()
    assert house.take(60) is None
    assert house.config.current.last_run_at is None
    list(house.scan.step())
    house.auto_cron.run()
    assert house.take(60) is not None
