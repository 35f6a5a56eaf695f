"""A daemon beside a gateway that writes real usage: it cuts when the rule says so, and in time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.store.state import StateDb
from tests.daemon.fast_forward import Clock, Machine, machine
from tests.daemon.running import QUIET_CONFIG, configure, launched
from tests.daemon.scripted_gateway import Provider, ScriptedGateway
from tests.needs import require_linux
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

MINUTE, HOUR = 60.0, 3600.0
SOON = 5.0  # seconds within which a cut follows the moment at which it is due
NAME = SessionName("main", "s1")
UNKNOWN = Provider("home", "made-up")  # no price: it never pays


class Desk:
    """A root, a clock, and gateways that write sessions."""

    def __init__(self, layout: Layout) -> None:
        require_linux()
        self.layout = layout
        self.clock = Clock(float(int(time.time())))
        (layout.agents / "main" / "sessions").mkdir(parents=True, exist_ok=True)
        self.configure(scan_interval_seconds=3600)

    def configure(self, **fields: object) -> None:
        configure(self.layout.root, **QUIET_CONFIG, **fields)

    def gateway(self, provider: Provider, session: str = "s1") -> ScriptedGateway:
        path = self.layout.agents / "main" / "sessions" / f"{session}.jsonl"
        return ScriptedGateway(path, provider)

    def turn(
        self,
        running: Machine,
        gateway: ScriptedGateway,
        *,
        wait: float = 20.0,
        calls: int = 1,
        result: str | None = None,
    ) -> None:
        """Let the gateway write a turn after a pause, and the daemon notice it."""
        running.run_until(self.clock.wall + wait)
        more = {} if result is None else {"result": result}
        gateway.turn(self.clock.wall, calls, **more)
        running.hint(SessionName("main", gateway.path.stem))
        running.settle()

    def cause(self, running: Machine) -> str | None:
        [row] = running.daemon.report.status()["sessions"][:1]
        cause: str | None = row.get("cut_reason")
        return cause


@pytest.fixture
def desk(layout: Layout) -> Desk:
    return Desk(layout)


@pytest.fixture
def running(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with machine(desk.layout.root, desk.clock, monkeypatch) as running:
        yield running


def test_it_waits_while_the_cache_is_warm_and_cuts_when_it_is_cold(
    desk: Desk, running: Machine
) -> None:
    gateway = desk.gateway(UNKNOWN)
    for _ in range(6):
        desk.turn(running, gateway)
    running.run_until(desk.clock.wall + 299)
    assert gateway.inline == 6
    assert desk.cause(running) == "warm"
    running.run_until(desk.clock.wall + 1 + SOON)
    assert gateway.inline == 1, "the last one is too recent"
    assert desk.cause(running) == "cold"
    assert running.daemon.report.status()["totals"]["cuts"] == {"cold": 1}


def test_without_a_cache_it_cuts_at_once(desk: Desk, running: Machine) -> None:
    gateway = desk.gateway(replace(UNKNOWN, life=0))
    for _ in range(6):
        desk.turn(running, gateway)
    running.run_until(desk.clock.wall + SOON)
    assert gateway.inline == 1
    assert desk.cause(running) == "no_cache"


def test_it_cuts_while_the_cache_is_warm_if_that_pays(desk: Desk, running: Machine) -> None:
    gateway = desk.gateway(Provider())
    desk.turn(running, gateway)
    running.run_until(desk.clock.wall + SOON)
    gateway.spent = 0  # what came before bsd is not counted
    for _ in range(24):
        desk.turn(running, gateway)
    running.run_until(desk.clock.wall + SOON)
    cuts = running.daemon.report.status()["totals"]["cuts"]
    assert set(cuts) == {"pays"}
    assert gateway.inline < 20
    account = StateDb(desk.layout.state_db).account(NAME)
    assert account is not None
    assert account.spent == pytest.approx(5 * gateway.spent, rel=0.01)


def test_it_cuts_before_a_price_step(desk: Desk, running: Machine) -> None:
    gateway = desk.gateway(Provider("anthropic", "claude-haiku-5-5"))
    desk.configure(when="cold")
    gateway.turn(desk.clock.wall, calls=84, result="s" * 4000)
    desk.configure(when="pays")
    running.daemon.scheduler.look_at_settings()
    for _ in range(10):
        desk.turn(running, gateway)
        running.run_until(desk.clock.wall + SOON)
    assert set(running.daemon.report.status()["totals"]["cuts"]) & {"step", "pays"}
    assert max(sum(request[1:]) for request in gateway.requests) < 101_000


@pytest.mark.parametrize(("when", "left"), [("now", 1), ("cold", 6), ("pays", 6)])
def test_sessions_that_wait_are_looked_at_again_under_another_setting(
    desk: Desk, running: Machine, when: str, left: int
) -> None:
    gateway = desk.gateway(UNKNOWN)
    for _ in range(6):
        desk.turn(running, gateway)
    running.run_until(desk.clock.wall + SOON)
    assert gateway.inline == 6
    desk.configure(when=when)
    running.daemon.scheduler.look_at_settings()
    running.settle()
    running.run_until(desk.clock.wall + SOON)
    assert gateway.inline == left
    running.run_until(desk.clock.wall + 300)
    assert gateway.inline == 1


def test_after_a_suspend_what_got_cold_meanwhile_is_cut_at_once(
    desk: Desk, running: Machine
) -> None:
    gateway = desk.gateway(UNKNOWN)
    for _ in range(6):
        desk.turn(running, gateway)
    running.run_until(desk.clock.wall + SOON)
    desk.clock.go_to(desk.clock.wall + 8 * HOUR)
    running.run_until(desk.clock.wall + 1)
    assert gateway.inline == 1


def test_a_daemon_started_after_the_clock_was_set_back_waits_no_longer_than_the_life(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = desk.gateway(UNKNOWN)
    with machine(desk.layout.root, desk.clock, monkeypatch) as running:
        for _ in range(6):
            desk.turn(running, gateway)
        running.run_until(desk.clock.wall + SOON)
    desk.clock = Clock(desk.clock.wall - 10 * HOUR)
    with machine(desk.layout.root, desk.clock, monkeypatch, may_fail="retention") as running:
        running.run_until(desk.clock.wall + 300 + SOON)
    assert gateway.inline <= 6
    assert gateway.inline == 1


def test_a_day_of_sessions_costs_little_more_than_without_bsd(desk: Desk, running: Machine) -> None:
    """Each waits until its cold moment, unless a cut pays; no session costs a tenth more."""
    chance = random.Random(7)
    begin = desk.clock.wall
    providers = [Provider(), UNKNOWN, replace(UNKNOWN, life=0), Provider("openai", "gpt-6-sol")]
    turns: list[tuple[float, int]] = []
    for number in range(len(providers)):
        at = begin + chance.uniform(0, HOUR)
        while at < begin + 24 * HOUR:
            for _ in range(chance.randint(2, 5)):
                turns.append((at, number))
                at += chance.uniform(15, 90)
            at += chance.uniform(4 * HOUR, 9 * HOUR)
    others = Path(str(desk.layout.root) + "-beside")
    with_bsd = [desk.gateway(each, f"s{number}") for number, each in enumerate(providers)]
    without = [ScriptedGateway(others / f"{n}.jsonl", each) for n, each in enumerate(providers)]
    for at, number in sorted(turns):
        running.run_until(max(at, desk.clock.wall))
        with_bsd[number].turn(desk.clock.wall)
        without[number].turn(desk.clock.wall)
        running.hint(SessionName("main", f"s{number}"))
        running.settle()
    running.run_until(desk.clock.wall + 26 * HOUR)
    assert [gateway.inline for gateway in with_bsd] == [1] * len(providers)
    for mine, theirs in zip(with_bsd, without, strict=True):
        assert mine.spent < 1.1 * theirs.spent
    assert sum(one.spent for one in with_bsd) < 0.8 * sum(one.spent for one in without)
    cuts = running.daemon.report.status()["totals"]["cuts"]
    assert {"cold", "no_cache"} <= set(cuts)


def test_a_cache_that_lives_a_few_seconds(layout: Layout, tmp_path: Path) -> None:
    """A real daemon in a process of its own, with a lifetime from a row of `[[prices]]`."""
    require_linux()
    desk = Desk(layout)
    life = 4.0
    place = tmp_path / "settings" / "bsd" / "bsd.toml"
    place.parent.mkdir(parents=True)
    place.write_text('[[prices]]\nmodel = "quick"\nlives = [{ seconds = 4, write = 1.25 }]\n')
    gateway = desk.gateway(Provider("home", "quick", life))
    for number in range(6):
        gateway.turn(time.time() - 100 + 10 * number)
    with launched(layout.root, tmp_path, XDG_CONFIG_HOME=str(tmp_path / "settings")) as daemon:
        wait_for(daemon.is_running, "the daemon")
        wait_for(lambda: gateway.inline == 1, "the cut of the session that is cold")
        used = 0.0

        def waits() -> bool:
            nonlocal used
            if gateway.inline == 1:  # also if the machine is so slow that the cache was cold again
                for _ in range(3):
                    gateway.turn(time.time())
                used = time.time()
            return daemon.said("waits: cache warm until")

        wait_for(waits, "the session waits")
        assert gateway.inline == 4
        wait_for(lambda: gateway.inline == 1, "the cut")
        assert time.time() >= used + life - 0.1
        assert '"because":"the cache was cold"' in daemon.log()
