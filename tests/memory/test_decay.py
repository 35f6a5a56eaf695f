"""Lifetimes, and which facts have faded how far."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bsd.foundation.errors import Invalid
from bsd.memory.classes import Classes
from bsd.memory.decay import fading

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
    assert classes.living_on() == {"ephemeral": HOUR, "for_ever": None}


def test_an_unknown_class_is_refused_with_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean stable") as caught:
        Classes().check("stabel")
    assert "permanent, stable, active" in (caught.value.hint or "")


@pytest.mark.parametrize("now", [0, 1_800_000_001])
def test_every_moment_past_three_quarters_is_in_one_set(now: int) -> None:
    """A fact of confidence 1, confirmed at 0, that expires at `end`."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE TABLE facts (last_confirmed_at, expires_at, confidence, bsd_base_confidence)"
        )
        sets = list(fading(now))
        assert len(sets) == 4
        for late in (-1, 0, 1, HOUR - 1, HOUR, HOUR + 1, 2 * HOUR, 3 * HOUR, 9 * HOUR, 99 * HOUR):
            # 75 % was passed `late` seconds ago
            confirmed, expires = now - late - 300 * HOUR, now - late + 100 * HOUR
            db.execute("DELETE FROM facts")
            db.execute("INSERT INTO facts VALUES (?, ?, 1.0, NULL)", (confirmed, expires))
            found = [
                db.execute(f"SELECT {each.faded} FROM facts WHERE {each.when}", each.parameters)
                for each in sets
            ]
            left = [row for one in found for row in one]
            assert left == ([(0.5 ** min(1 + late // HOUR, 62),)] if 0 < late <= 100 * HOUR else [])
