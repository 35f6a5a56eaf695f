"""Expiry and fading as plain functions of time."""

from __future__ import annotations

import pytest

from bsd.foundation.errors import Invalid
from bsd.memory.classes import Classes
from bsd.memory.decay import faded, halvings

HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("name", "lifetime"),
    [
        ("permanent", None),
        ("stable", 90 * DAY),
        ("active", 14 * DAY),
        ("session", 24 * HOUR),
        ("checkpoint", 4 * HOUR),
    ],
)
def test_the_lifetimes_of_the_seed(name: str, lifetime: int | None) -> None:
    expected = None if lifetime is None else 1000 + lifetime
    assert Classes().expiry(name, 1000) == expected


def test_only_stable_and_active_facts_live_on() -> None:
    assert Classes().living_on() == {"stable": 90 * DAY, "active": 14 * DAY}


def test_classes_of_the_user_count_as_well() -> None:
    classes = Classes({"ephemeral": HOUR, "for_ever": None}, frozenset({"ephemeral", "for_ever"}))
    assert classes.expiry("ephemeral", 10) == 10 + HOUR
    assert classes.living_on() == {"ephemeral": HOUR}


def test_an_unknown_class_is_refused_with_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean stable") as caught:
        Classes().check("stabel")
    assert "permanent, stable, active" in (caught.value.hint or "")


def test_fading_begins_after_three_quarters_and_halves_every_hour() -> None:
    end = 400 * HOUR
    past = 300 * HOUR
    assert halvings(0, end, 0) == 0
    assert halvings(0, end, past) == 0, "more than 75 %, not just as much"
    assert halvings(0, end, past + 1) == 1
    assert halvings(0, end, past + HOUR - 1) == 1
    assert halvings(0, end, past + HOUR) == 2
    assert halvings(0, end, past + 40 * HOUR) == 41
    # 75 % of 10 s is no whole second
    assert halvings(0, 10, 7) == 0
    assert halvings(0, 10, 8) == 1


def test_confidence_is_halved_and_what_is_at_the_bottom_stays() -> None:
    assert [faded(1.0, 0, 4 * HOUR, 3 * HOUR + more * HOUR) for more in (0, 1)] == [1.0, 0.25]
    assert faded(1.0, 0, 4 * HOUR, 3 * HOUR + 1) == 0.5
    assert faded(0.1, 0, 4 * HOUR, 4 * HOUR) == 0.1
    assert faded(0.05, 0, 4 * HOUR, 4 * HOUR) == 0.05
