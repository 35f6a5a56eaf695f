"""How old things are when the clock is set: every reading is passed in."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.clock import Ages, ClockRecord, Reading, observed, trusted

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
NOW = 1_795_000_000.0
KEEP = DAY


class Machine:
    """A machine whose clocks a test sets; bsd looks when it is told to."""

    def __init__(self, wall: float = NOW, steady: float = 10 * DAY) -> None:
        self.reading = Reading(wall, steady, "boot-1")
        self.record: ClockRecord | None = None
        self.look()

    def look(self) -> Ages:
        self.record = observed(self.record, self.reading)
        self.record = ClockRecord.from_json(orjson.loads(orjson.dumps(self.record.as_json())))
        return Ages.by(self.record)

    def run(self, seconds: float, *, step: float = 0.0) -> Ages:
        """Let time pass, asleep or awake, and set the clock in the end."""
        now = self.reading
        self.reading = replace(now, wall=now.wall + seconds + step, steady=now.steady + seconds)
        return self.look()

    def start(self, wall: float, *, up: float = 20.0) -> Ages:
        """Switch it off and on; it has been up for a moment."""
        boot = f"boot-{int(self.reading.boot[5:]) + 1}"
        self.reading = Reading(wall, up, boot)
        return self.look()

    @property
    def wall(self) -> float:
        return self.reading.wall


def goes(ages: Ages, mtime: float, lifetime: float = KEEP) -> bool:
    return not ages.held_for(lifetime) and ages.age(mtime, lifetime) > lifetime


def test_while_nobody_sets_the_clock_age_is_what_it_always_was() -> None:
    machine = Machine()
    ages = machine.run(3 * DAY)
    assert (ages.wall, ages.age(NOW, KEEP), ages.now_for(KEEP)) == (
        machine.wall,
        3 * DAY,
        ages.wall,
    )
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW)
    assert not goes(ages, machine.wall - KEEP), "exactly as old as allowed"


def test_the_first_look_ever_is_believed() -> None:
    assert goes(Machine().look(), NOW - KEEP - 1)


def test_thirty_hours_forward_destroy_nothing_for_as_long_as_things_are_kept() -> None:
    machine = Machine()
    ages = machine.run(40.0, step=30 * HOUR)
    assert not goes(ages, NOW - HOUR)
    assert not goes(ages, NOW - 10 * DAY), "nor what was due before"
    why = ages.why_held(KEEP)
    assert why is not None
    assert "put forward by 1d 6h" in why
    assert "for another 1d of running" in why
    assert ages.held_for(None) == 0, "what is kept for ever is not waited for"
    assert not goes(machine.run(KEEP - MINUTE), NOW)
    assert goes(machine.run(2 * MINUTE), NOW)
    assert machine.look().why_held(KEEP) is None


def test_each_lifetime_waits_for_its_own_time() -> None:
    machine = Machine()
    machine.run(40.0, step=30 * HOUR)
    ages = machine.run(2 * DAY)
    assert goes(ages, NOW, DAY)
    assert ages.held_for(14 * DAY) == pytest.approx(12 * DAY)
    assert not goes(ages, NOW - 15 * DAY, 14 * DAY)
    assert ages.now_for(14 * DAY) == pytest.approx(machine.wall - 30 * HOUR, abs=5 * MINUTE)
    assert ages.now_for(DAY) == machine.wall


def test_sleep_is_time_that_passes() -> None:
    assert goes(Machine().run(3 * DAY), NOW)


def test_what_was_put_forward_and_back_again_was_never_set() -> None:
    machine = Machine()
    machine.run(40.0, step=30 * HOUR)
    ages = machine.run(HOUR, step=-30 * HOUR)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW - KEEP)
    assert not goes(ages, NOW + 20 * HOUR), "what was written meanwhile lies in the future"


def test_put_back_first_and_forward_again_is_no_reason_to_destroy() -> None:
    """What is written meanwhile looks two days older than it is."""
    machine = Machine()
    machine.run(HOUR, step=-2 * DAY)
    written = machine.wall
    ages = machine.run(HOUR, step=2 * DAY)
    assert not goes(ages, written)
    ages = machine.run(KEEP - HOUR)
    assert not goes(ages, written)


def test_put_back_alone_holds_nothing_up() -> None:
    ages = Machine().run(HOUR, step=-30 * HOUR)
    assert ages.why_held(KEEP) is None
    assert not goes(ages, NOW)


def test_slewing_is_no_step_and_many_small_steps_are() -> None:
    machine = Machine()
    for _ in range(60 * 24):  # ntpd at its fastest, for a day
        ages = machine.run(MINUTE, step=MINUTE * 0.0005)
    assert ages.why_held(KEEP) is None
    for _ in range(10):
        ages = machine.run(MINUTE, step=50.0)
    assert ages.why_held(KEEP) is not None


def test_a_virtual_machine_that_is_paused_every_night_is_not_held_for_ever() -> None:
    """Its clock is put forward each morning, and it never runs for a whole day in between."""
    machine = Machine()
    for _ in range(5):
        ages = machine.run(16 * HOUR, step=8 * HOUR)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW), "it has run for longer than that"
    assert not goes(ages, machine.wall - 30 * HOUR), "of which 8 h did not pass for it"


def test_a_wait_is_not_over_because_the_machine_was_started_anew() -> None:
    """Who shuts down writes the wrong time into the clock that goes on without power."""
    machine = Machine()
    machine.run(40.0, step=30 * HOUR)
    ages = machine.start(machine.wall + MINUTE)
    assert ages.why_held(KEEP) is not None
    assert machine.run(KEEP).why_held(KEEP) is None


def test_from_one_start_to_the_next_the_clock_is_believed() -> None:
    machine = Machine()
    ages = machine.start(NOW + 30 * DAY)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW)


def test_a_clock_that_begins_in_1970_neither_destroys_nor_is_held_for_ever() -> None:
    machine = Machine()
    ages = machine.start(20.0)
    why = ages.why_held(KEEP)
    assert why is not None
    assert "1970-01-01" in why
    written = machine.run(10.0).wall
    ages = machine.run(30.0, step=NOW + DAY)  # the network has told the time
    assert ages.why_held(KEEP) is None, "which is a correction"
    assert goes(ages, NOW - MINUTE)
    assert not goes(ages, machine.wall - HOUR)
    assert not goes(ages, written), "56 years old by its date"
    assert goes(machine.run(KEEP), written), "and a day later"


def test_a_clock_that_goes_on_from_the_last_shutdown_is_corrected_soon_after_the_start() -> None:
    machine = Machine()
    machine.start(NOW + MINUTE)
    written = machine.run(10.0).wall
    ages = machine.run(30.0, step=3 * DAY)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW - HOUR)
    assert not goes(ages, written)


def test_a_correction_that_comes_late_is_one_if_the_clock_was_behind() -> None:
    machine = Machine()
    machine.start(20.0)
    machine.run(5 * HOUR)
    assert machine.run(30.0, step=NOW).why_held(KEEP) is None


def test_a_machine_that_never_learns_the_time_waits_once() -> None:
    machine = Machine()
    for _ in range(3):
        ages = machine.start(20.0)
        ages = machine.run(10 * HOUR)
    assert ages.why_held(KEEP) is None
    assert not goes(ages, NOW)


def test_a_record_made_by_a_clock_that_was_wrong_holds_nothing_up_when_it_is_set_right() -> None:
    machine = Machine(wall=NOW + 3650 * DAY)
    ages = machine.run(HOUR, step=-3650 * DAY)
    assert ages.why_held(KEEP) is None
    ages = machine.start(NOW + 2 * DAY)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW)


def test_another_time_namespace_is_another_start() -> None:
    machine = Machine()
    machine.reading = Reading(NOW + HOUR, 5.0, "boot-1")
    assert machine.look().why_held(KEEP) is None


def test_who_says_that_the_clock_is_right_is_believed() -> None:
    machine = Machine()
    machine.run(40.0, step=30 * HOUR)
    machine.record = trusted(machine.record, machine.reading)
    ages = machine.run(MINUTE)
    assert ages.why_held(KEEP) is None
    assert goes(ages, NOW)


def test_a_look_into_the_future_counts_the_time_until_then() -> None:
    machine = Machine()
    ages = machine.run(40.0, step=30 * HOUR)
    assert ages.at(ages.wall + KEEP - 1).held_for(KEEP) == pytest.approx(1)
    assert ages.at(ages.wall + KEEP + 1).why_held(KEEP) is None


def test_few_steps_are_kept_and_nothing_is_older_by_that() -> None:
    machine = Machine()
    for _ in range(500):
        machine.run(20 * MINUTE, step=2 * HOUR)
    assert machine.record is not None
    assert len(machine.record.steps) <= 32
    assert machine.look().age(NOW, 52 * 7 * DAY) == pytest.approx(500 * 20 * MINUTE, rel=0.01)


steps = st.lists(
    st.tuples(
        st.floats(1, 3 * DAY),
        st.one_of(st.just(0.0), st.floats(-3 * DAY, 3 * DAY)),
    ),
    max_size=12,
)


@given(steps)
def test_nothing_goes_before_the_machine_has_run_for_as_long_as_it_is_kept(
    happened: list[tuple[float, float]],
) -> None:
    """Whatever is done to the clock within one start: a file that is written at some moment."""
    machine = Machine(steady=10 * DAY)
    files = [(machine.wall, machine.reading.steady)]
    for seconds, step in happened:
        ages = machine.run(seconds, step=step)
        for written, at in files:
            # A look sees steps of up to a minute as none, and what is slewed.
            slack = 2 * MINUTE * len(happened) + 0.01 * (machine.reading.steady - 10 * DAY)
            ran = machine.reading.steady - at
            assert not goes(ages, written) or ran > KEEP - slack
        files.append((machine.wall, machine.reading.steady))
    ages = machine.run(2 * KEEP)
    newest = max(written for written, _ in files)
    assert goes(machine.run(max(0.0, newest - machine.wall) + 2 * KEEP), files[0][0])
