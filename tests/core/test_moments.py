"""Moments as users type them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from bsd.core.errors import Invalid
from bsd.core.moments import parse_moment


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("typed", "now", "meant"),
    [
        ("now", "2026-11-26T14:00", "2026-11-26T14:00"),
        ("tonight", "2026-11-26T14:00", "2026-11-27T06:00"),
        ("Tonight", "2026-11-27T02:00", "2026-11-27T06:00"),
        ("tonight", "2026-11-27T06:00", "2026-11-28T06:00"),
        ("tonight", "2026-10-24T22:00", "2026-10-25T06:00"),  # clocks are set back
        ("tomorrow", "2026-11-26T14:00", "2026-11-28T00:00"),
        ("+24h", "2026-11-26T14:00", "2026-11-27T14:00"),
        ("+1d12h", "2026-11-26T14:00", "2026-11-28T02:00"),
        ("2026-11-27", "2026-11-26T14:00", "2026-11-27T00:00"),
        ("2026-11-27T06:00Z", "2026-11-26T14:00", "2026-11-27T07:00"),
    ],
)
def test_moments(typed: str, now: str, meant: str) -> None:
    assert parse_moment(typed, at(now)) == at(meant)


@pytest.mark.parametrize("typed", ["", "soon", "2026-11-25", "2028-01-01", "+5x", "+2y", "24h"])
def test_what_is_none(typed: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_moment(typed, at("2026-11-26T14:00"))
    assert caught.value.hint
