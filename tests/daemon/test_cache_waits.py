"""The daemon waits until a prompt cache is cold, at no cost, and reports that; people need not
wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.extract import extract
from bsd.actions.list_sessions import list_all_sessions
from bsd.cli.status_lines import status_lines
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout
from bsd.daemon import tasks
from bsd.daemon.child import Child
from bsd.daemon.enqueue import Urgency
from bsd.planning.result import SessionResult, Status
from tests.daemon.fast_forward import Clock, Machine, machine
from tests.daemon.running import QUIET_CONFIG, configure
from tests.daemon.work_house import NAME, House
from tests.needs import require_linux
from tests.session_files import HEADER, LONG, entry, jsonl, write

MINUTE = 60.0
LIFE = 5 * MINUTE


def cached(used: float, results: int = 4) -> list[dict[str, Any]]:
    """Long results, and answers whose usage shows a cache that lives for five minutes."""
    entries = [HEADER, entry(0, "user", "look")]
    entries += [entry(n, "toolResult", f"{n} {LONG}") for n in range(1, results + 1)]
    entries += [entry(results + n, "assistant", "seen") for n in range(1, 6)]
    for one in entries[1:]:
        message = one["message"]
        one["timestamp"] = iso_utc(used)
        if message["role"] == "toolResult":
            message["details"] = {"log": LONG}
        elif message["role"] == "assistant":
            message["usage"] = {"input": 3, "cacheRead": 9, "cacheWrite": 9, "cacheWrite1h": 0}
    return entries


class Root:
    """A root with a session that was used just now."""

    def __init__(self, layout: Layout) -> None:
        require_linux()
        self.layout = layout
        self.begin = float(int(time.time()))
        self.clock = Clock(self.begin)
        self.path = write(layout, cached(self.begin))
        os.utime(self.path, (self.begin - 10, self.begin - 10))
        configure(layout.root, **QUIET_CONFIG)

    @property
    def left(self) -> int:
        """The number of long values in the session."""
        return self.path.read_text().count(LONG)


@pytest.fixture
def house(layout: Layout) -> Root:
    return Root(layout)


@pytest.fixture
def running(house: Root, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with machine(house.layout.root, house.clock, monkeypatch) as running:
        yield running


@pytest.mark.daemon
def test_values_that_are_sent_leave_when_the_cache_is_cold(
    house: Root, running: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.run_until(house.begin + MINUTE)
    assert house.left == 4, "what is never sent has left"
    status = running.daemon.report.status()
    assert status["queue"]["cache_warm"] == 1
    [told] = status["sessions"]
    assert told["cache_warm_until"] == iso_utc(house.begin + LIFE)
    characters = 4 * (len(LONG) + 2 - len("[[extracted-e1]]"))
    assert told["tokens_ready"] == int(characters / told["characters_per_token"])
    shown = list(status_lines(status, house.clock.wall))
    clock = time.strftime("%H:%M", time.localtime(house.begin + LIFE))
    assert any(f"waits: cache warm until {clock}, 7" in line for line in shown), shown
    assert any("1 waiting for a cold prompt cache" in line for line in shown)

    looked: list[Any] = []
    real = tasks.look_into_several

    def look(child: Child, wanted: list[tasks.ToLook]) -> list[tasks.Looked]:
        looked.append(wanted)
        return real(child, wanted)

    monkeypatch.setattr(tasks, "look_into_several", look)
    running.run_until(house.begin + LIFE - 1)
    assert looked == [], "it waits, and looks at nothing"
    [row] = list_all_sessions(running.child.context("cli")).sessions
    assert (row.cache_warm_until, row.tokens_ready) == (
        iso_utc(house.begin + LIFE),
        told["tokens_ready"],
    )

    running.run_until(house.begin + LIFE + 1)
    assert len(looked) == 1
    assert house.left == 0
    assert running.daemon.report.status()["queue"]["cache_warm"] == 0
    house.clock.go_to(house.clock.wall + MINUTE)
    running.settle()
    [row] = list_all_sessions(running.child.context("cli")).sessions
    assert row.cache_warm_until is None


@pytest.mark.daemon
def test_each_answer_puts_it_off(house: Root, running: Machine) -> None:
    running.run_until(house.begin + 4 * MINUTE)
    later = cached(house.clock.wall, results=0)[2:]
    for number, one in enumerate(later):
        one |= {"id": f"l{number}", "parentId": f"l{number - 1}" if number else "e9"}
    with house.path.open("ab") as file:
        file.write(jsonl(*later))
    os.utime(house.path, (house.clock.wall, house.clock.wall))
    running.hint(NAME)
    running.settle()
    running.run_until(house.begin + 8 * MINUTE)
    assert house.left == 4
    running.run_until(house.begin + 9 * MINUTE + 1)
    assert house.left == 0


@pytest.mark.daemon
def test_the_next_daemon_goes_on_waiting(house: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(house.layout.root, house.clock, monkeypatch) as running:
        running.run_until(house.begin + MINUTE)
        waiting = running.daemon.report.status()["prompt_cache"]
        assert (waiting["sessions"], waiting["next_cold"]) == (1, iso_utc(house.begin + LIFE))
    with machine(house.layout.root, house.clock, monkeypatch) as running:
        assert running.daemon.report.status()["queue"]["cache_warm"] == 1
        assert running.daemon.report.status()["prompt_cache"] == waiting
        running.run_until(house.begin + LIFE - 1)
        assert house.left == 4
        running.run_until(house.begin + LIFE + 1)
        assert house.left == 0


@pytest.mark.daemon
def test_cron_waits_and_a_person_who_runs_the_job_does_not(house: Root, running: Machine) -> None:
    running.run_until(house.begin + MINUTE)
    running.daemon._auto_cron.run()
    running.run_until(house.begin + MINUTE + 5)
    assert house.left == 4
    running.daemon.scheduler.run("auto_cron")
    running.run_until(house.begin + MINUTE + 10)
    assert house.left == 0


@pytest.mark.daemon
@pytest.mark.parametrize("when", ["now", "cold", "pays"])
def test_the_setting_says_whether_it_waits(house: Root, running: Machine, when: str) -> None:
    configure(house.layout.root, **QUIET_CONFIG, when=when)
    running.daemon.scheduler.look_at_settings()
    running.run_until(house.begin + 2 * MINUTE)
    assert house.left == (0 if when == "now" else 4)
    totals = running.daemon.report.status()["totals"]
    assert totals["cuts"] == ({"asked": 1} if when == "now" else {})
    assert bool(totals["tokens_rewritten"]) == (when == "now"), "the cache was warm"


@pytest.mark.daemon
def test_a_clock_that_is_put_back_makes_it_wait_no_longer_than_twice_the_life(
    house: Root, running: Machine
) -> None:
    """Times of the session are three minutes ahead then."""
    house.clock.wall = house.begin - 3 * MINUTE
    running.run_until(house.begin + LIFE + 1)
    assert house.left == 0


def test_a_command_does_not_wait(house: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(house.layout.root, house.clock, monkeypatch) as running:
        running.run_until(house.begin + MINUTE)
        context = running.child.context("cli")
        told = extract(context, NAME, dry_run=True)
        assert told.cache_warm_until == iso_utc(house.begin + LIFE)
        assert told.tokens_ready == told.tokens_saved > 400
        waits = extract(context, NAME, dry_run=True, settings={"when": "cold"})
        assert (waits.entries, waits.reasons["cache_warm"]) == (0, 4)
        done = extract(context, NAME)
        assert (done.status, done.values) == (Status.EXTRACTED, 4)
        assert done.cache_warm_until is None
        assert house.left == 0


def test_who_asked_is_known_until_it_is_done(tmp_path: Path) -> None:
    """A later run of cron does not extend the wait."""
    house = House(tmp_path)
    house.write()
    seen = house.look()
    assert seen == [NAME]
    house.auto_cron.run_asked()
    house.caller.answer = SessionResult(str(NAME), Status.BUSY)
    assert house.take(5) == NAME
    house.on(NAME)
    assert house.caller.asked
    assert house.enqueuer.take_urgency(NAME) is Urgency.ASKED
    house.enqueuer.return_urgency(NAME, Urgency.ASKED)
    house.enqueuer.return_urgency(NAME, Urgency.CRON)
    assert house.enqueuer.take_urgency(NAME) is Urgency.ASKED
    house.on(NAME)
    assert not house.caller.asked
