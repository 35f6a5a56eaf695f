"""Trust of age-based deletion in the wall clock; the tests pass in every clock reading."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pytest

from bsd.core import clock
from bsd.core.clock import (
    ClockReading,
    RunTime,
    begin_run,
    check_clock,
    compare,
    note_first_use,
)
from bsd.core.layout import Layout

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
NOW = 1_795_000_000.0
LAST = ClockReading(NOW, 10 * DAY, "boot-1")


def later(seconds: float, step: float = 0.0) -> ClockReading:
    """Return the clocks after this many seconds, asleep or awake, while the wall clock was set."""
    return replace(LAST, wall=NOW + seconds + step, steady=LAST.steady + seconds)


def test_the_first_reading_is_believed() -> None:
    assert compare(None, LAST) == RunTime(NOW)


@pytest.mark.parametrize("seconds", [0.0, MINUTE, 6 * HOUR, 400 * DAY])
@pytest.mark.parametrize("step", [0.0, MINUTE, HOUR, -HOUR])
def test_up_to_an_hour_is_believed(seconds: float, step: float) -> None:
    assert compare(LAST, later(seconds, step)) == RunTime(NOW + seconds + step)


def test_put_forward_it_is_not_believed() -> None:
    found = compare(LAST, later(6 * HOUR, 30 * HOUR))
    assert found.ahead == 30 * HOUR
    assert found.now - found.ahead == NOW + 6 * HOUR
    assert found.doubt == (
        "the clock was put forward by 1d 6h since the last run, more than sleep can explain"
    )
    assert compare(LAST, later(6 * HOUR, HOUR + 1)).doubt


def test_put_back_it_is_not_believed_and_nothing_is_older_by_that() -> None:
    found = compare(LAST, later(6 * HOUR, -30 * HOUR))
    assert found.doubt == "the clock was put back by 1d 6h since the last run"
    assert found.ahead == 0


def test_from_one_start_to_the_next_it_is_believed() -> None:
    """The machine may have been off during that time."""
    started = ClockReading(NOW + 30 * DAY, 20.0, "boot-2")
    assert compare(LAST, started) == RunTime(NOW + 30 * DAY)


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_clock_that_begins_in_1970_is_not_believed(boot: str) -> None:
    """The same holds for an equal boot id in another time namespace, and without a boot id."""
    assert "put back" in str(compare(LAST, ClockReading(20.0, 20.0, boot)).doubt)


def test_a_clock_that_stands_still_without_power_is_not_believed_once_it_lags() -> None:
    started = ClockReading(NOW + MINUTE, 5 * HOUR, "boot-2")
    assert "put back by 4h 59m" in str(compare(LAST, started).doubt)


# --- the file ---


@dataclass
class Machine:
    """The machine's clocks, which a test sets."""

    layout: Layout
    wall: float = NOW
    steady: float = 10 * DAY

    def run(self, kind: str = "retention", *, trust: bool = False) -> RunTime:
        return begin_run(self.layout, kind, lambda: self.wall, lambda: self.steady, trust=trust)

    def check(self, kind: str = "retention") -> RunTime:
        return check_clock(self.layout, kind, lambda: self.wall, lambda: self.steady)

    def put_forward(self, seconds: float) -> None:
        self.wall += seconds


@pytest.fixture
def machine(root: Path) -> Machine:
    return Machine(Layout(root))


def test_one_run_deletes_nothing_and_the_next_does(machine: Machine) -> None:
    assert machine.run().doubt is None
    machine.put_forward(30 * HOUR)
    assert machine.check().doubt
    assert machine.check().doubt, "looking changes nothing"
    assert machine.run().doubt
    assert machine.check().doubt is None
    assert machine.run().doubt is None


def test_each_kind_of_run_doubts_for_itself(machine: Machine) -> None:
    for kind in ("retention", "memory"):
        assert machine.run(kind).doubt is None
    machine.put_forward(30 * HOUR)
    assert machine.run("retention").doubt
    assert machine.run("memory").doubt
    assert machine.run("workspaces").doubt, "its first run compares with the first reading of all"


def test_it_is_trusted_by_all_if_it_is_said_to_be_right(machine: Machine) -> None:
    for kind in ("retention", "memory"):
        machine.run(kind)
    machine.put_forward(30 * HOUR)
    assert machine.run(trust=True).doubt is None
    assert machine.run("memory").doubt is None
    assert machine.run("retention").doubt is None


def test_the_first_use_is_noted_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(root)
    note_first_use(layout)
    noted = layout.clock_file.read_bytes()
    assert layout.clock_file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(clock, "steady", lambda: 5.0)
    note_first_use(layout)
    assert layout.clock_file.read_bytes() == noted
    reading = orjson.loads(noted)
    ahead = begin_run(layout, "retention", lambda: reading["wall"] + DAY, lambda: reading["steady"])
    assert ahead.doubt


def test_what_an_earlier_version_has_noted_is_a_reading(machine: Machine) -> None:
    path = machine.layout.clock_file
    path.parent.mkdir(mode=0o700)
    earlier = {"wall": NOW, "steady": machine.steady, "boot": clock.boot_id()}
    path.write_bytes(orjson.dumps({**earlier, "running": 5.0, "newest": None, "steps": []}))
    os.chmod(path, 0o600)
    machine.put_forward(30 * HOUR)
    assert machine.check().doubt


@pytest.mark.parametrize(
    "broken", [b"", b"[]", b'{"boot": 1}', b'{"wall": "x"}', b'{"boot":"","wall":1e300,"steady":1}']
)
def test_a_note_that_cannot_be_read_is_written_anew(machine: Machine, broken: bytes) -> None:
    path = machine.layout.clock_file
    path.parent.mkdir(mode=0o700)
    path.write_bytes(broken)
    os.chmod(path, 0o600)
    assert machine.run().doubt is None
    machine.put_forward(30 * HOUR)
    assert machine.run().doubt
