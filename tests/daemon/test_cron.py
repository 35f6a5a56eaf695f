"""Cron in local time: the change of clocks neither skips nor doubles a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bsd.core.errors import Invalid
from bsd.daemon.cron import Cron, Every
from tests.daemon.zones import at, local, zone

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def runs(expression: str, start: str, end: str) -> list[str]:
    """All runs in the local time span, as the wall clock shows them."""
    return [local(moment) for moment in moments(expression, at(start), at(end))]


def moments(expression: str, start: float, end: float) -> Iterator[float]:
    cron = Cron(expression)
    moment = cron.after(start)
    while moment <= end:
        yield moment
        moment = cron.after(moment)


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        # clocks go forward: 02:30 does not exist, and the run follows at once
        (
            BERLIN,
            "2026-03-28T12:00+01:00",
            "2026-03-30T12:00+02:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        ),
        (
            NEW_YORK,
            "2026-03-07T12:00-05:00",
            "2026-03-09T12:00-04:00",
            ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"],
        ),
        # clocks go back: 02:30 comes twice in Berlin, 01:30 in New York
        (
            BERLIN,
            "2026-10-24T12:00+02:00",
            "2026-10-26T12:00+01:00",
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
        ),
        (
            NEW_YORK,
            "2026-10-31T12:00-04:00",
            "2026-11-02T12:00-05:00",
            ["2026-11-01T02:30-05:00", "2026-11-02T02:30-05:00"],
        ),
    ],
)
def test_a_daily_job_runs_daily(name: str, before: str, after: str, expected: list[str]) -> None:
    with zone(name):
        assert runs("30 2 * * *", before, after) == expected


def test_a_slot_that_comes_twice_counts_once_in_new_york() -> None:
    with zone(NEW_YORK):
        assert runs("30 1 * * *", "2026-10-31T12:00-04:00", "2026-11-02T12:00-05:00") == [
            "2026-11-01T01:30-04:00",
            "2026-11-02T01:30-05:00",
        ]


def test_half_an_hour_on_lord_howe() -> None:
    with zone(LORD_HOWE):
        # Back from 02:00+11:00 to 01:30+10:30.
        assert runs("45 1 * * *", "2026-04-04T12:00+11:00", "2026-04-06T12:00+10:30") == [
            "2026-04-05T01:45+11:00",
            "2026-04-06T01:45+10:30",
        ]
        # Once in every hour of the wall clock, though a run lasts for ninety minutes.
        assert runs("45 * * * *", "2026-04-05T00:50+11:00", "2026-04-05T03:00+10:30") == [
            "2026-04-05T01:45+11:00",
            "2026-04-05T02:45+10:30",
        ]
        # Forward from 02:00+10:30 to 02:30+11:00.
        assert runs("15 2 * * *", "2026-10-03T12:00+10:30", "2026-10-05T12:00+11:00") == [
            "2026-10-04T02:30+11:00",
            "2026-10-05T02:15+11:00",
        ]


def test_several_missing_slots_are_made_up_for_by_one_run() -> None:
    with zone(BERLIN):
        assert runs("0,20,40 2 * * *", "2026-03-28T12:00+01:00", "2026-03-29T12:00+02:00") == [
            "2026-03-29T03:00+02:00"
        ]


def test_every_six_hours_is_four_times_a_day() -> None:
    with zone(BERLIN):
        for day, end in (("2026-03-29", "2026-03-30"), ("2026-10-25", "2026-10-26")):
            start = at(f"{day}T00:00+0{1 if day < '2026-10' else 2}:00") - 1
            stop = at(f"{end}T00:00+0{2 if day < '2026-10' else 1}:00") - 1
            assert len(list(moments("0 */6 * * *", start, stop))) == 4


@pytest.mark.parametrize(
    ("name", "middle"),
    [
        (BERLIN, "2026-03-29T01:00"),
        (BERLIN, "2026-10-25T01:00"),
        (NEW_YORK, "2026-03-08T07:00"),
        (NEW_YORK, "2026-11-01T06:00"),
        (LORD_HOWE, "2026-04-04T15:00"),
        (LORD_HOWE, "2026-10-03T15:30"),
    ],
)
def test_what_runs_all_the_time_never_pauses(name: str, middle: str) -> None:
    with zone(name):
        start, end = at(middle) - 2 * 3600, at(middle) + 1.5 * 3600
        found = list(moments("*/2 * * * *", start, end))
        assert {later - earlier for earlier, later in pairwise(found)} == {120.0}
        assert len(found) == 105


@pytest.mark.parametrize(
    "middle", ["2026-03-29T01:00", "2026-10-25T01:00"], ids=["forward", "back"]
)
def test_an_hourly_job_runs_every_hour(middle: str) -> None:
    with zone(BERLIN):
        found = list(moments("0 * * * *", at(middle) - 5 * 3600, at(middle) + 5 * 3600))
        assert {later - earlier for earlier, later in pairwise(found)} == {3600.0}


expressions = st.sampled_from(
    ["30 2 * * *", "*/7 1-3 * * *", "0 */2 * * *", "45 * * * *", "5 2 * * 0", "0 0 1 * *"]
)


@given(
    st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Africa/Casablanca"]),
    expressions,
    st.integers(int(at("2025-01-01")), int(at("2027-01-01"))),
    st.integers(0, 7 * 3600),
)
@example(BERLIN, "0 */2 * * *", int(at("2026-10-25T00:30")), 1800)
def test_where_one_starts_to_look_does_not_matter(
    name: str, expression: str, start: int, later: int
) -> None:
    with zone(name):
        first = Cron(expression).after(start)
        assert first > start
        between = min(start + later, first - 1)
        assert Cron(expression).after(between) == first


@pytest.mark.parametrize("text", ["", "every day", "61 * * * *", "* * * *", "0 0 31 2 *"])
def test_nonsense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(Invalid, match="not a cron expression") as caught:
        Cron(text)
    assert caught.value.hint


def test_an_interval_knows_no_calendar() -> None:
    assert Every(30).after(100) == 130
    assert str(Every(30)) == "every 30 s"
    for seconds in (0, -1, float("nan")):
        with pytest.raises(Invalid):
            Every(seconds)
