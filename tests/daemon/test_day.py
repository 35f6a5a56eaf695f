"""A day in the life of a daemon, in seconds: what agents write leaves once, in time, always."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.care.verify import verify
from bsd.foundation.filesystem import strength
from bsd.foundation.layout import Layout, SessionName
from bsd.sample import session_lines
from tests.daemon.fast_forward import Clock, Machine, machine
from tests.daemon.patient import QUIET, RECENT, Agents, Surgeon
from tests.daemon.running import configure
from tests.daemon.zones import at, local, zone
from tests.needs import require_linux
from tests.openclaw_tree import add_session
from tests.verbs import performed

pytestmark = pytest.mark.daemon

HOUR, MINUTE = 3600.0, 60.0
RETENTION = 2 * HOUR
# After the last write: quiet time, a scan if the event was lost, one back-off if it came too early.
SCAN = 120.0
LATEST = QUIET + SCAN + 60.0
# A saving too small for a huge file waits for auto_cron at the latest.
LATEST_OF_HUGE = 30 * MINUTE + LATEST


def wall(moment: float) -> datetime:
    """What clocks on the wall show, wherever this is."""
    return datetime.fromtimestamp(moment)  # noqa: DTZ006


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """In memory if there is such a place: a day has very many small writes."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bsd-test-", dir=place) as directory:
        root = Path(directory) / "root"
        root.mkdir()
        yield root


class Day:
    """Fifty sessions from midnight to midnight, and a daemon that is not always there."""

    def __init__(self, root: Path, midnight: float, hours: float) -> None:
        self.root = root
        self.midnight, self.end = midnight, midnight + hours * HOUR
        self.clock = Clock(midnight + MINUTE)
        self.surgeon = Surgeon(Layout(root), self.clock)
        self.chance = random.Random(7)
        self.agents = Agents(self.surgeon, self.clock, self.chance)
        self.names = [SessionName(f"agent{n % 5}", f"s{n:02}") for n in range(49)]
        self.gone, self.busy, self.broken = self.names[:3]
        self.newcomer = SessionName("newcomer", "first")
        self.surgeon.huge = set(self.names[40:43])
        self.off = self.hour("09:33"), self.hour("10:00")
        self.suspend = self.hour("11:30"), self.hour("14:07")
        self.down = self.hour("17:30"), self.hour("18:42")
        self.jobs: list[tuple[str, float]] = []
        self.deleted = 0
        self._script: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def hour(self, text: str) -> float:
        """When a clock on the wall shows `HH:MM`, of an hour that comes once."""
        hours, minutes = map(int, text.split(":"))
        return wall(self.midnight).replace(hour=hours, minute=minutes).timestamp()

    def plan(self, moment: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._script, (moment, next(self._order), action))

    def plan_agents(self) -> None:
        last = self.end - 40 * MINUTE
        for name in self.names:
            self.agents.create(name)
            self._plan_turns(name, self.clock.wall + self.chance.uniform(0, HOUR), last)
            for _ in range(3):
                moment = self.chance.uniform(self.clock.wall, last - HOUR)
                self.plan(moment, lambda name=name: self.agents.restore(name))  # type: ignore[misc]
        self.plan(self.hour("10:30"), lambda: self.agents.create(self.newcomer))
        self._plan_turns(self.newcomer, self.hour("10:31"), last)
        self.names.append(self.newcomer)

    def _plan_turns(self, name: SessionName, begin: float, last: float) -> None:
        while begin < last:
            for moment, each in self.agents.turn(name, begin):
                self.plan(moment, lambda each=each: self.agents.append(each))  # type: ignore[misc]
            begin += self.chance.expovariate(1 / (45 * MINUTE)) + MINUTE

    def plan_life(self) -> None:
        """What else happens: settings change, a session vanishes, one fails, one is in use."""
        surgeon = self.surgeon
        self.plan(self.off[0], lambda: self.set(enabled=False))
        self.plan(self.off[1], lambda: self.set(enabled=True))
        self.plan(self.hour("16:00") + 1, lambda: self.set(min_value_length=400))
        self.plan(self.hour("19:10"), lambda: self.set(auto_cron="*/30 * * * *"))
        self.plan(self.hour("08:00"), lambda: self.agents.delete(self.gone))
        self.plan(self.hour("15:00"), lambda: surgeon.broken.add(self.broken))
        self.plan(self.hour("17:00"), lambda: surgeon.broken.discard(self.broken))
        self.plan(self.hour("20:00"), lambda: surgeon.busy.add(self.busy))
        self.plan(self.hour("21:00"), lambda: surgeon.busy.discard(self.busy))

    def set(self, **fields: Any) -> None:
        assert self.agents.machine is not None
        self.agents.machine.daemon.state.config.update(fields)
        self.agents.machine.daemon.config_changed()

    def play(self, until: float) -> None:
        """Let time pass for the agents and, if it is up, for the daemon."""
        here = self.agents.machine
        while self._script and self._script[0][0] <= until:
            moment, _, action = heapq.heappop(self._script)
            if here:
                here.run_until(moment)
            self.clock.go_to(moment)
            with suppress(FileNotFoundError):  # nobody writes into a session that was deleted
                action()
            if here:
                here.settle()
        if here:
            here.run_until(until)
        self.clock.go_to(until)

    def sleep(self, until: float) -> None:
        """Suspend the whole machine; what would have happened meanwhile does not."""
        self.clock.go_to(until)
        while self._script and self._script[0][0] < until:
            heapq.heappop(self._script)

    def up(self, running: Machine) -> None:
        """The daemon has started; at a start there is always a retention."""
        self.agents.machine = running
        self.jobs += running.jobs
        self.check_retention()
        running.ended = self.job_ended

    def job_ended(self, name: str) -> None:
        self.jobs.append((name, self.clock.wall))
        if name == "retention":
            self.check_retention()

    def check_retention(self) -> None:
        """What is older than the retention is gone after every run, and nothing else ever is."""
        stored = self.surgeon.stored
        expired = {file for file, at in stored.items() if at < self.clock.wall - RETENTION}
        assert {file for file in stored if not file.exists()} == expired
        self.deleted += len(expired)
        for file in expired:
            del stored[file]

    def runs(self, job: str) -> list[float]:
        return [started for name, started in self.jobs if name == job]

    def able(self, since: float, until: float) -> float:
        """How many of these seconds the daemon was up, awake and switched on."""
        lost = (self.off, self.suspend, self.down)
        return until - since - sum(max(0.0, min(b, until) - max(a, since)) for a, b in lost)


def slots(begin: float, end: float, minutes: int) -> Iterator[float]:
    """Moments from `begin` until before `end` when the wall shows a multiple of `minutes`."""
    moment = -(-begin // 60) * 60
    while moment < end:
        if wall(moment).minute % minutes == 0:
            yield moment
        moment += 60


@pytest.mark.parametrize(
    ("name", "midnight", "hours", "night"),
    [
        ("Europe/Berlin", "2027-03-28T00:00+01:00", 23, "03:00+02:00"),  # no 02:30 on that day
        ("Europe/Berlin", "2027-10-31T00:00+02:00", 25, "02:30+02:00"),  # two of them
    ],
)
def test_a_day_of_fifty_sessions(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    midnight: str,
    hours: float,
    night: str,
) -> None:
    fields = {"auto_cron": "*/15 * * * *", "scan_interval_seconds": int(SCAN)}
    configure(root, **fields, retention_cron="30 2,8,12,18 * * *", retention="2h")
    with zone(name):
        day = Day(root, at(midnight), hours)
        live_through(day, monkeypatch)
        check_jobs(day, night)
        check_sessions(day)


def live_through(day: Day, patch: pytest.MonkeyPatch) -> None:
    day.plan_agents()
    day.plan_life()
    with machine(day.root, day.clock, patch, day.surgeon) as running:
        day.up(running)
        day.play(day.suspend[0])
        day.sleep(day.suspend[1])
        day.play(day.hour("16:55"))
        parked = running.daemon.status()["queue"]["parked"]
        assert [each["session"] for each in parked] == [str(day.broken)]
        day.play(day.down[0])
    day.agents.machine = None
    day.play(day.down[1])
    with machine(day.root, day.clock, patch, day.surgeon) as running:
        day.up(running)
        day.play(day.end - 1)
        status = running.daemon.status()
        assert status["queue"]["parked"] == []
        assert status["totals"]["crashes"] == 0
        assert status["totals"]["sessions"] == len(day.names) - 1


def check_jobs(day: Day, night: str) -> None:
    retention = [local(moment)[11:] for moment in day.runs("retention")]
    assert retention[1] == night
    assert [each[:5] for each in retention] == ["00:01", night[:5], "08:30", "14:07", "18:42"]
    assert day.runs("auto_cron") == [
        *slots(day.midnight + MINUTE, day.suspend[0] + 1, 15),
        day.suspend[1],  # once for all that was slept through
        *slots(day.suspend[1] + 1, day.down[0] + 1, 15),
        day.down[1],
        *slots(day.down[1] + 1, day.hour("19:10"), 15),
        *slots(day.hour("19:10"), day.end - 1, 30),
    ]
    scans = day.runs("scan")
    assert max(day.able(a, b) for a, b in itertools.pairwise(scans)) <= SCAN + 0.001


def check_sessions(day: Day) -> None:
    surgeon, agents = day.surgeon, day.agents
    assert agents.turns > 1000
    assert agents.lost_events > 300
    assert agents.restored.total() > 100
    assert day.deleted > 1000
    expected: Counter[tuple[SessionName, int]] = Counter()
    for name in day.names:
        if name == day.gone:
            continue
        lines = surgeon.path(name).read_bytes().splitlines()
        assert len(lines) == agents.written[name]
        assert [line for line in lines[:-RECENT] if not line.endswith(b" out")] == [], name
        expected.update((name, number) for number in range(len(lines) - RECENT))
    expected += Counter({key: n for key, n in agents.restored.items() if key[0] != day.gone})
    assert {k: n for k, n in surgeon.taken.items() if k[0] != day.gone} == expected, "each once"
    for name, since, until in surgeon.waits:
        if name not in {day.busy, day.broken}:
            limit = LATEST_OF_HUGE if name in surgeon.huge else LATEST
            assert day.able(since, until) <= limit, (name, local(since), local(until))
    # Its own writing wakes it never; nearly all calls are those that found something to do.
    others = [name for name in day.names if name not in {day.busy, day.broken, *surgeon.huge}]
    idle = sum(surgeon.calls[name] - surgeon.commits[name] for name in others)
    assert idle < agents.turns / 2


def test_a_day_with_the_real_surgeon(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machinery over real transcripts: an hour later nothing is left to do, or lost."""
    require_linux()
    if strength(root).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    written = {
        SessionName("main", f"s{n}"): list(session_lines(turns=10, seed=n)) for n in range(4)
    }
    layout, begin = Layout(root), time.time() + MINUTE
    begun = 30  # lines
    for name, lines in written.items():
        add_session(root, str(name), b"".join(lines[:begun]))
    configure(root, auto_cron="0 */3 * * *", retention="never")
    clock, chance = Clock(begin), random.Random(3)
    with machine(root, clock, monkeypatch) as running:
        for hour in range(24):
            for name, lines in written.items():
                running.run_until(begin + hour * HOUR + chance.uniform(0, 600))
                path = layout.session_file(name)
                share = (len(lines) - begun) / 24
                some = lines[begun + round(hour * share) : begun + round((hour + 1) * share)]
                with path.open("ab") as file:
                    file.writelines(some)
                os.utime(path, (clock.wall, clock.wall))
                if some and chance.random() < 0.8:
                    running.hint(name)
                running.settle()
            running.run_until(begin + (hour + 1) * HOUR)
        running.run_until(begin + 25 * HOUR + LATEST)  # savings too small gather for an hour
        totals = running.daemon.status()["totals"]
        assert totals["commits"] > 24
        assert totals["failed"] == totals["crashes"] == 0
        surgeon = running.daemon._surgeon
        for name in written:
            left = surgeon.extraction(name)
            assert (left.values, left.reason) == (0, None)
        clock.go_to(clock.wall + MINUTE)
        for name, lines in written.items():
            path = layout.session_file(name)
            assert path.stat().st_size < sum(map(len, lines)) / 2
            performed.restore_all(surgeon, name)
            restored = path.read_bytes().split(b"\n")
            for now, line in zip(restored, b"".join(lines).split(b"\n"), strict=True):
                assert without_note(now) == line
    assert verify(layout).clean


def without_note(line: bytes) -> bytes:
    """A line without the note of when it was restored."""
    begin, mark, rest = line.rpartition(b',"_restored":"')
    return begin + rest.partition(b'"')[2] if mark else line
