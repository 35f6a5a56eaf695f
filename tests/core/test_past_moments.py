"""Moments in the past as people name them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from bsd.core.errors import Invalid
from bsd.core.past_moments import parse_past, parse_until

NOW = 1_795_699_200.0  # 26 November 2026, 14:20 in Berlin


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("today", "2026-11-26T00:00"),
        (" Yesterday ", "2026-11-25T00:00"),
        ("2h", "2026-11-26T12:20"),
        ("1d12h", "2026-11-25T02:20"),
        ("14:19", "2026-11-26T14:19"),
        ("14:21", "2026-11-25T14:21"),
        ("2026-11-20", "2026-11-20T00:00"),
        ("2026-11-26T12:00:00Z", "2026-11-26T13:00"),
    ],
)
def test_moments(text: str, moment: str) -> None:
    assert parse_past(text, NOW) == datetime.fromisoformat(moment).astimezone().timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("today", "2026-11-27T00:00"),
        ("Yesterday", "2026-11-26T00:00"),
        ("2026-11-20", "2026-11-21T00:00"),
        ("2h", "2026-11-26T12:20"),
        ("2026-11-20T10:00", "2026-11-20T10:00"),
    ],
)
def test_a_day_lasts_until_its_end(text: str, moment: str) -> None:
    assert parse_until(text, NOW) == datetime.fromisoformat(moment).astimezone().timestamp()


def test_a_day_of_23_hours_begins_at_midnight_all_the_same() -> None:
    now = datetime(2026, 3, 29, 12, 0).astimezone().timestamp()  # the clocks went forward at 2:00
    assert now - parse_past("today", now) == 11 * 3600
    assert now - parse_past("yesterday", now) == 35 * 3600


@pytest.mark.parametrize("text", ["tomorrow", "", "5x", "30s", "2999-01-01", "soon", "25:00"])
def test_what_is_no_moment_in_the_past_is_named(text: str) -> None:
    with pytest.raises(Invalid) as error:
        parse_past(text, NOW)
    assert error.value.errors[0].field == "since"
    assert "yesterday" in str(error.value.hint)
