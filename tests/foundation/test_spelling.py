"""Suggestions: only of what looks very much like the word, unless the nearest is wanted."""

from __future__ import annotations

import pytest

from bsd.foundation.decay_classes import LIFETIMES
from bsd.foundation.spelling import meant, nearest


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("permanant", "; did you mean permanent?"),
        ("Sesion", "; did you mean session?"),
        ("nope", ""),
        ("", ""),
    ],
)
def test_what_was_probably_meant(word: str, told: str) -> None:
    assert meant(word, LIFETIMES) == told


def test_the_nearest_of_all() -> None:
    assert nearest("KEEP_recent", ["scope", "keep_recent"]) == "keep_recent"
    assert nearest("", ["scope"]) == "scope"
