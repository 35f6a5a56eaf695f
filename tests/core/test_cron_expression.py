"""Cron expressions: their times, and the forms that bsd reads beside CronSim's own."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.cron_expression import cron_times, is_in_every_hour, matches

BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 - a Thursday


def times(expression: str, number: int = 4) -> list[str]:
    return [f"{moment:%d.%m. %H:%M}" for moment in islice(cron_times(expression, BEGIN), number)]


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("@hourly", "0 * * * *"),
        (" @Daily ", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-2/2 * * *", "0 22,0,2 * * *"),
        ("0 0 * nov-feb *", "0 0 * 11,12,1,2 *"),
        ("0 0 * * fri-mon", "0 0 * * 5,6,0,1"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * 6/1", "0 0 * * 6"),
        ("5/20 0 * * *", "5,25,45 0 * * *"),
        ("59/5 0 * * *", "59 0 * * *"),
        ("*/25 0 * * *", "0,25,50 0 * * *"),
        ("0 0 ? * MON", "0 0 * * mon"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 * * L5", "0 0 * * 5L"),
        ("0 0 * jan,Mar-apr *", "0 0 * 1,3,4 *"),
    ],
)
def test_two_spellings(expression: str, same: str) -> None:
    assert times(expression, 40) == times(same, 40)


def test_days_and_weekdays() -> None:
    assert times("0 3 1,15 * *", 3) == ["01.01. 03:00", "15.01. 03:00", "01.02. 03:00"]
    assert times("0 3 L * *", 3) == ["31.01. 03:00", "28.02. 03:00", "31.03. 03:00"]
    assert times("0 3 * * mon#2", 2) == ["12.01. 03:00", "09.02. 03:00"]
    # One of both is enough, also where the day has a step.
    assert times("0 3 15 * 1", 3) == ["05.01. 03:00", "12.01. 03:00", "15.01. 03:00"]
    assert times("0 3 */20 * 1", 3) == ["01.01. 03:00", "05.01. 03:00", "12.01. 03:00"]
    # A step of one is no limit.
    assert times("0 3 15 * */1", 2) == ["15.01. 03:00", "15.02. 03:00"]


@pytest.mark.parametrize(
    "expression",
    [
        "* * * *",
        "* * * * * *",
        "@reboot",
        "60 * * * *",
        "* 3-24 * * *",
        "* * 0 * *",
        "* * 15W * *",
        "* * * * 8",
        "*/0 * * * *",
        "? * * * *",
        "* * 31 4,6 *",
        "* * 1-L * *",
        "\u0665 * * * *",
        "-5 * * * *",
    ],
)
def test_nonsense_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"Bad|five fields"):
        cron_times(expression, BEGIN)


def test_the_next_leap_day_is_found() -> None:
    moment = next(cron_times("0 0 29 2 *", BEGIN))
    assert f"{moment:%Y-%m-%d}" == "2028-02-29"


@given(st.sampled_from(["*/7 * * * *", "5 4 * * sun", "0 22-2 1-9/4 * *", "30 2 L 2 *"]))
def test_each_time_matches_and_the_minutes_around_it_only_if_they_are_times(text: str) -> None:
    found = list(islice(cron_times(text, BEGIN), 20))
    for moment in found:
        assert matches(text, moment)
        for near in (moment - timedelta(minutes=1), moment + timedelta(minutes=1)):
            assert matches(text, near) == (near in found)


def test_hours_that_are_left_out() -> None:
    for text in ("@hourly", "*/2 * * * *", "0 */1 1 * *", "0 22-21 * * *"):
        assert is_in_every_hour(text)
    for text in ("@daily", "0 */2 * * *", "0 1-23 * * *"):
        assert not is_in_every_hour(text)
