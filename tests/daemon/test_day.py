"""A day in the life of a daemon, in seconds: every value leaves once and in time."""

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
from typing import Any, NamedTuple

import pytest

from bsd.core.errors import NotFound
from bsd.core.filesystem import strength
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.verify import verify
from bsd.planning.plan import Plan, Report
from bsd.planning.result import SessionResult, Status
from bsd.sample import session_lines
from bsd.sessions.editor import Worth
from bsd.transcripts.change import Edit, Identity
from tests.actions import performed
from tests.daemon.fast_forward import Clock, Machine, machine
from tests.daemon.running import configure
from tests.daemon.zones import at, local, zone
from tests.needs import require_linux
from tests.openclaw_tree import add_session

pytestmark = pytest.mark.daemon


QUIET = 2.0  # seconds
RECENT = 3  # lines that stay
PROTECTED = 600.0  # seconds for which a restored line stays
BALLAST = 200 << 20  # bytes that a huge session has besides its lines
_LINE = 200  # bytes that leave with a line
_CLOSE = 1e-3  # floating seconds and a file's nanoseconds differ by less


# --- a recording editor, and agents that keep it busy, on a clock that a test drives ---


class Wait(NamedTuple):
    """The time from a session's readiness for work until the work (epoch seconds)."""

    name: SessionName
    since: float
    until: float


class Surgeon:
    """Takes lines out of sessions whose lines are `number state …`; records all its work."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.layout = layout
        self.clock = clock
        self.huge: set[SessionName] = set()
        self.broken: set[SessionName] = set()
        self.busy: set[SessionName] = set()
        self.calls: Counter[SessionName] = Counter()
        self.commits: Counter[SessionName] = Counter()
        self.taken: Counter[tuple[SessionName, int]] = Counter()
        self.written_at: dict[SessionName, float] = {}
        self.protected: dict[tuple[SessionName, int], float] = {}  # until when
        self.waits: list[Wait] = []
        self.stored: dict[Path, float] = {}  # file → its mtime

    def path(self, name: SessionName) -> Path:
        return self.layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"

    def extract(
        self,
        name: SessionName,
        *,
        asked: bool = False,
        worth: Worth | None = None,
        goes_on: Callable[[], bool] = lambda: True,
        watch: object | None = None,
        told_idle: float | None = None,
    ) -> SessionResult:
        self.calls[name] += 1
        path, now = self.path(name), self.clock.wall
        try:
            before = Identity.of(path.stat())
        except FileNotFoundError:
            raise NotFound(f"{name} is gone") from None
        if name in self.broken:
            return SessionResult(str(name), Status.FAILED, reason="no luck")
        if name in self.busy or now - before.mtime_ns / 1e9 < QUIET - _CLOSE:
            return SessionResult(str(name), Status.BUSY)
        lines, taken = path.read_bytes().splitlines(keepends=True), []
        due: float | None = None
        for number, line in enumerate(lines[:-RECENT]):
            end = self.protected.get((name, number), 0.0)
            if end > now + _CLOSE:
                due = min(end, due or end)
            elif not line.endswith(b" out\n"):
                taken.append(number)
        plan = self._plan(name, before, taken)
        assert worth is not None
        if taken and not worth(plan):
            return SessionResult(
                str(name), Status.UNCHANGED, left_as=before, postponed=True, due_at=due
            )
        if taken:
            self._commit(name, lines, taken)
        return SessionResult(
            str(name),
            Status.EXTRACTED if taken else Status.UNCHANGED,
            values=len(taken),
            bytes_before=_LINE * len(taken),
            left_as=Identity.of(path.stat()),
            due_at=due,
        )

    def _plan(self, name: SessionName, before: Identity, taken: list[int]) -> Plan:
        size = before.size + BALLAST * (name in self.huge)
        report = Report("extract", len(taken), len(taken), size, size - _LINE * len(taken))
        # A restored line carries its mark, as a real restored line does.
        edits = tuple(
            Edit(n, 0, b'{"_restored":""}' if (name, n) in self.protected else b"{}") for n in taken
        )
        return Plan(before, edits, report)

    def _commit(self, name: SessionName, lines: list[bytes], taken: list[int]) -> None:
        store, now = self.layout.store_dir(name), self.clock.wall
        store.mkdir(parents=True, exist_ok=True)
        since = self.written_at.pop(name, now)
        for number in taken:
            since = min(since, self.protected.pop((name, number), since))
            lines[number] = b"%06d out\n" % number
            self.taken[name, number] += 1
            file = store / f"{number:04}_tool_result.json"
            file.write_bytes(b"{}")
            os.utime(file, (now, now))
            self.stored[file] = file.stat().st_mtime
        self.commits[name] += 1
        self.waits.append(Wait(name, since, now))
        path = self.path(name)
        new = path.with_suffix(".new")
        new.write_bytes(b"".join(lines))
        os.replace(new, path)
        os.utime(path, (now, now))


class Agents:
    """Write into sessions, line by line; one event in ten is lost on its way to the daemon."""

    def __init__(self, caller: Surgeon, clock: Clock, chance: random.Random) -> None:
        self.machine: Machine | None = None  # the daemon, while it is up
        self.written: Counter[SessionName] = Counter()
        self.restored: Counter[tuple[SessionName, int]] = Counter()
        self.lost_events = 0
        self.turns = 0
        self._surgeon = caller
        self._clock = clock
        self._chance = chance

    def create(self, name: SessionName) -> None:
        path = self._surgeon.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._wrote(name)

    def append(self, name: SessionName) -> None:
        """Write a line; raises FileNotFoundError."""
        with self._surgeon.path(name).open("r+b") as file:  # never creates it
            file.seek(0, os.SEEK_END)
            file.write(b"%06d raw %b\n" % (self.written[name], b"x" * _LINE))
        self.written[name] += 1
        self._wrote(name)

    def turn(self, name: SessionName, begin: float) -> Iterator[tuple[float, SessionName]]:
        """When the lines of a turn are written; the pauses may be longer than the quiet time."""
        self.turns += 1
        for _ in range(self._chance.randrange(3, 9)):
            yield begin, name
            begin += self._chance.choice((0.05, 0.3, 1.0, 4.0))

    def restore(self, name: SessionName) -> None:
        """A user restores the first line that is out, if there is such a line."""
        path = self._surgeon.path(name)
        lines = path.read_bytes().splitlines(keepends=True)
        number = next((n for n, line in enumerate(lines) if line.endswith(b" out\n")), None)
        if number is None:
            return
        lines[number] = b"%06d back %b\n" % (number, b"x" * _LINE)
        path.write_bytes(b"".join(lines))
        self.restored[name, number] += 1
        self._surgeon.protected[name, number] = self._clock.wall + PROTECTED
        self._wrote(name, again=False)

    def delete(self, name: SessionName) -> None:
        self._surgeon.path(name).unlink()
        self._tell(name)

    def _wrote(self, name: SessionName, *, again: bool = True) -> None:
        now = self._clock.wall
        os.utime(self._surgeon.path(name), (now, now))
        if again or name in self._surgeon.written_at:
            self._surgeon.written_at[name] = now
        self._tell(name)

    def _tell(self, name: SessionName) -> None:
        if self.machine is None:
            return
        if self._chance.random() < 0.1:
            self.lost_events += 1
        else:
            self.machine.hint(name)


HOUR, MINUTE = 3600.0, 60.0
RETENTION = 2 * HOUR
# After the last write: quiet time, a scan if the event was lost, one back-off if it came too early.
SCAN = 120.0
LATEST = QUIET + SCAN + 60.0
# A saving too small for a huge file waits for auto_cron at the latest.
LATEST_OF_HUGE = 30 * MINUTE + LATEST


def wall(moment: float) -> datetime:
    """The time on the wall clock, independent of the machine's zone."""
    return datetime.fromtimestamp(moment)  # noqa: DTZ006


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: a day has very many small writes."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bsd-test-", dir=place) as directory:
        root = Path(directory) / "root"
        root.mkdir()
        yield root


class Day:
    """Fifty sessions from midnight to midnight, and a daemon that does not always run."""

    def __init__(self, root: Path, midnight: float, hours: float) -> None:
        self.root = root
        self.midnight, self.end = midnight, midnight + hours * HOUR
        self.clock = Clock(midnight + MINUTE)
        self.caller = Surgeon(Layout(root), self.clock)
        self.chance = random.Random(7)
        self.agents = Agents(self.caller, self.clock, self.chance)
        self.names = [SessionName(f"agent{n % 5}", f"s{n:02}") for n in range(49)]
        self.gone, self.busy, self.broken = self.names[:3]
        self.newcomer = SessionName("newcomer", "first")
        self.caller.huge = set(self.names[40:43])
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
        """Other events: settings change, a session vanishes, another fails, a third is in use."""
        caller = self.caller
        self.plan(self.off[0], lambda: self.set(enabled=False))
        self.plan(self.off[1], lambda: self.set(enabled=True))
        self.plan(self.hour("16:00") + 1, lambda: self.set(min_value_length=400))
        self.plan(self.hour("19:10"), lambda: self.set(auto_cron="*/30 * * * *"))
        self.plan(self.hour("08:00"), lambda: self.agents.delete(self.gone))
        self.plan(self.hour("15:00"), lambda: caller.broken.add(self.broken))
        self.plan(self.hour("17:00"), lambda: caller.broken.discard(self.broken))
        self.plan(self.hour("20:00"), lambda: caller.busy.add(self.busy))
        self.plan(self.hour("21:00"), lambda: caller.busy.discard(self.busy))

    def set(self, **fields: Any) -> None:
        assert self.agents.machine is not None
        self.agents.machine.daemon.state.config.update(fields)
        self.agents.machine.daemon.scheduler.look_at_settings()

    def play(self, until: float) -> None:
        """Let time pass for the agents and, if it is up, for the daemon."""
        here = self.agents.machine
        while self._script and self._script[0][0] <= until:
            moment, _, action = heapq.heappop(self._script)
            if here:
                here.run_until(moment)
            self.clock.go_to(moment)
            with suppress(FileNotFoundError):  # no program writes into a deleted session
                action()
            if here:
                here.settle()
        if here:
            here.run_until(until)
        self.clock.go_to(until)

    def sleep(self, until: float) -> None:
        """Suspend the whole machine; events of that time do not happen."""
        self.clock.go_to(until)
        while self._script and self._script[0][0] < until:
            heapq.heappop(self._script)

    def up(self, running: Machine) -> None:
        """The daemon has started; each start runs a retention."""
        self.agents.machine = running
        self.jobs += running.jobs
        self.check_retention()
        running.ended = self.job_ended

    def job_ended(self, name: str) -> None:
        self.jobs.append((name, self.clock.wall))
        if name == "retention":
            self.check_retention()

    def check_retention(self) -> None:
        """After every run, content older than the retention is gone, and no other content is."""
        stored = self.caller.stored
        expired = {file for file, at in stored.items() if at < self.clock.wall - RETENTION}
        assert {file for file in stored if not file.exists()} == expired
        self.deleted += len(expired)
        for file in expired:
            del stored[file]

    def runs(self, job: str) -> list[float]:
        return [started for name, started in self.jobs if name == job]

    def able(self, since: float, until: float) -> float:
        """The number of these seconds in which the daemon was up, awake and switched on."""
        lost = (self.off, self.suspend, self.down)
        return until - since - sum(max(0.0, min(b, until) - max(a, since)) for a, b in lost)


def slots(begin: float, end: float, minutes: int) -> Iterator[float]:
    """Moments from `begin` until before `end` when the wall shows a multiple of `minutes`."""
    moment = -(-begin // 60) * 60
    while moment < end:
        if wall(moment).minute % minutes == 0:
            yield moment
        moment += 60


@pytest.mark.soak  # the day with the real surgeon is shorter
@pytest.mark.parametrize(
    ("name", "midnight", "hours", "night"),
    [
        pytest.param(  # no 02:30 on that day; the jobs of such days: test_cron.py
            *("Europe/Berlin", "2027-03-28T00:00+01:00", 23, "03:00+02:00"), marks=pytest.mark.soak
        ),
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
    with machine(day.root, day.clock, patch, day.caller) as running:
        day.up(running)
        day.play(day.suspend[0])
        day.sleep(day.suspend[1])
        day.play(day.hour("16:55"))
        parked = running.daemon.report.status()["queue"]["parked"]
        assert [each["session"] for each in parked] == [str(day.broken)]
        day.play(day.down[0])
    day.agents.machine = None
    day.play(day.down[1])
    with machine(day.root, day.clock, patch, day.caller) as running:
        day.up(running)
        day.play(day.end - 1)
        status = running.daemon.report.status()
        assert status["queue"]["parked"] == []
        assert status["totals"]["crashes"] == 0
        assert status["totals"]["sessions"] == len(day.names) - 1


def check_jobs(day: Day, night: str) -> None:
    retention = [local(moment)[11:] for moment in day.runs("retention")]
    assert retention[1] == night
    assert [each[:5] for each in retention] == ["00:01", night[:5], "08:30", "14:07", "18:42"]
    assert day.runs("auto_cron") == [
        *slots(day.midnight + MINUTE, day.suspend[0] + 1, 15),
        day.suspend[1],  # once for the whole time of suspend
        *slots(day.suspend[1] + 1, day.down[0] + 1, 15),
        day.down[1],
        *slots(day.down[1] + 1, day.hour("19:10"), 15),
        *slots(day.hour("19:10"), day.end - 1, 30),
    ]
    scans = day.runs("scan")
    assert max(day.able(a, b) for a, b in itertools.pairwise(scans)) <= SCAN + 0.001


def check_sessions(day: Day) -> None:
    caller, agents = day.caller, day.agents
    assert agents.turns > 1000
    assert agents.lost_events > 300
    assert agents.restored.total() > 100
    assert day.deleted > 1000
    expected: Counter[tuple[SessionName, int]] = Counter()
    for name in day.names:
        if name == day.gone:
            continue
        lines = caller.path(name).read_bytes().splitlines()
        assert len(lines) == agents.written[name]
        assert [line for line in lines[:-RECENT] if not line.endswith(b" out")] == [], name
        expected.update((name, number) for number in range(len(lines) - RECENT))
    expected += Counter({key: n for key, n in agents.restored.items() if key[0] != day.gone})
    assert {k: n for k, n in caller.taken.items() if k[0] != day.gone} == expected, "each once"
    for name, since, until in caller.waits:
        if name not in {day.busy, day.broken}:
            limit = LATEST_OF_HUGE if name in caller.huge else LATEST
            assert day.able(since, until) <= limit, (name, local(since), local(until))
    # Its own writing never wakes it; nearly all calls found work to do.
    others = [name for name in day.names if name not in {day.busy, day.broken, *caller.huge}]
    idle = sum(caller.calls[name] - caller.commits[name] for name in others)
    assert idle < agents.turns / 2


def test_a_day_with_the_real_surgeon(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parts over real transcripts: an hour later no work is left, and no data is lost."""
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
        totals = running.daemon.report.status()["totals"]
        assert totals["commits"] > 24
        assert totals["failed"] == totals["crashes"] == 0
        caller = running.child.context("daemon")
        for name in written:
            left = performed.extraction(caller, name)
            assert (left.values, left.reason) == (0, None)
        clock.go_to(clock.wall + MINUTE)
        for name, lines in written.items():
            path = layout.session_file(name)
            assert path.stat().st_size < sum(map(len, lines)) / 2
            performed.restore_all(caller, name)
            restored = path.read_bytes().split(b"\n")
            for now, line in zip(restored, b"".join(lines).split(b"\n"), strict=True):
                assert without_note(now) == line
    assert verify(layout).clean


def without_note(line: bytes) -> bytes:
    """A line without the note of when it was restored."""
    begin, mark, rest = line.rpartition(b',"_restored":"')
    return begin + rest.partition(b'"')[2] if mark else line
