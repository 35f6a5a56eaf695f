"""40 hours: ticks by the hour, one tick at the end, 40 calls in the last minute, the same facts.

The model is slow and obvious: a list of facts, checked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.memory import actions
from bsd.memory.memory import Memory
from tests.memory.memories import HOUR, NOW, Clock, rows, sound, store

END = NOW + 40 * HOUR


@dataclass(frozen=True)
class Made:
    """A fact at the beginning; times are relative to that moment."""

    confirmed: int | None
    expires: int | None
    confidence: float


facts = st.lists(
    st.builds(
        Made,
        # around every important moment: three quarters passed, the end, whole hours
        confirmed=st.none()
        | st.integers(-300, 40).map(lambda hour: hour * HOUR)
        | st.integers(-1_000_000, 40 * HOUR),
        expires=st.none()
        | st.integers(-1, 60).map(lambda hour: hour * HOUR)
        | st.integers(-HOUR, 400_000),
        confidence=st.sampled_from([1.0, 0.9, 0.8, 0.5, 0.4, 0.2, 0.1, 0.05])
        | st.floats(0, 1, allow_subnormal=False),
    ),
    min_size=1,
    max_size=25,
)


def model(facts: list[Made]) -> dict[str, float]:
    """Return the facts that are left at the end, and their confidence."""
    left = {}
    for number, fact in enumerate(facts):
        confidence = fact.confidence
        if fact.expires is not None:
            if NOW + fact.expires < END:
                continue
            if fact.confirmed is not None and confidence > 0.1:
                threshold = fact.confirmed + (fact.expires - fact.confirmed) * 0.75
                passed = 40 * HOUR - threshold
                if passed > 0:
                    for _ in range(1 + int(passed // HOUR)):
                        confidence *= 0.5
        if confidence >= 0.1:
            left[f"fact {number}"] = confidence
    return left


def run(path: Path, facts: list[Made], moments: Sequence[float]) -> dict[str, float]:
    """Make the facts, prune at these moments, and return the rest."""
    clock = Clock()
    with Memory(path, clock=clock) as memory:
        for number, fact in enumerate(facts):
            kept = store(memory, f"fact {number}")
            memory.open(write=True).run(
                "UPDATE facts SET last_confirmed_at = ?, expires_at = ?, confidence = ?"
                " WHERE id = ?",
                (
                    None if fact.confirmed is None else NOW + fact.confirmed,
                    None if fact.expires is None else NOW + fact.expires,
                    fact.confidence,
                    kept.id,
                ),
            )
        for moment in moments:
            clock.now = moment
            actions.prune(memory)
    sound(path)
    return dict(rows(path, "SELECT text, confidence FROM facts"))


@given(facts=facts, odd=st.lists(st.integers(0, 40 * HOUR), max_size=5))
@settings(max_examples=8, deadline=None)
def test_only_age_matters(
    facts: list[Made], odd: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("schedules")
    expected = model(facts)
    hourly = [NOW + hour * HOUR for hour in range(41)]
    assert run(place / "hourly.db", facts, hourly) == expected
    assert run(place / "once.db", facts, [END]) == expected
    calls = [END - 60 + second * 1.5 for second in range(41)]
    assert run(place / "calls.db", facts, calls) == expected
    restarts = [NOW + at for at in odd]  # and clocks that were set back
    assert run(place / "odd.db", facts, [*restarts, END]) == expected


def test_the_model_knows_all_three_ends() -> None:
    """The model must not delete all facts, or none, or it would prove little."""
    stays = Made(confirmed=0, expires=100 * HOUR, confidence=1.0)
    fades = replace(stays, expires=52 * HOUR)
    gone = replace(stays, expires=48 * HOUR)
    assert model([stays, fades, gone]) == {"fact 0": 1.0, "fact 1": 0.25}
