"""Immutable classes behave as frozen dataclasses do, for all who keep to their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import pytest

from bsd.foundation.immutable import immutable


@immutable
class _Point:
    x: int
    y: int = 0
    about: Mapping[str, int] = field(default_factory=dict, compare=False)


def test_they_are_values() -> None:
    assert _Point(1) == _Point(1, 0, {"other": 1})
    assert len({_Point(1), _Point(1, 0), _Point(2)}) == 2
    assert replace(_Point(1), y=2) == _Point(1, 2)
    assert repr(_Point(1, 2)) == "_Point(x=1, y=2, about={})"


def test_they_have_room_for_nothing_else() -> None:
    with pytest.raises(AttributeError):
        setattr(_Point(1), "z", 3)  # noqa: B010 - the type checker would refuse it otherwise
