"""Immutable classes behave as frozen dataclasses do, for all who keep to their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest


@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    y: int = 0
    about: Mapping[str, int] = field(default_factory=dict, compare=False)


def test_they_are_values() -> None:
    assert _Point(1) == _Point(1, 0, {"other": 1})
    assert len({_Point(1), _Point(1, 0), _Point(2)}) == 2
    assert replace(_Point(1), y=2) == _Point(1, 2)
    assert repr(_Point(1, 2)) == "_Point(x=1, y=2, about={})"


@dataclass(frozen=True, slots=True)
class _Empty:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class _One:
    x: float

    def __repr__(self) -> str:
        return "one"


def test_they_equal_what_is_of_their_class_only() -> None:
    assert _One(1) == _One(1.0)
    assert hash(_One(1)) == hash(_One(1.0))
    assert _One(1) != _One(2)
    others: list[object] = [(1,), 1, None, _Point(1), _Empty()]
    assert _One(1) not in others
    assert _Empty() == _Empty()
    not_a_number = float("nan")
    assert _One(not_a_number) == _One(not_a_number)  # as in a tuple, and in any dataclass


def test_a_method_of_their_own_stays() -> None:
    assert repr(_One(1)) == "one"
    assert repr(_Empty()) == "_Empty()"


def test_they_are_matched_by_place() -> None:
    match _Point(1, 2):
        case _Point(x, 2):
            assert x == 1
        case _:
            raise AssertionError


def test_they_have_room_for_nothing_else() -> None:
    with pytest.raises(AttributeError):
        setattr(_Point(1), "z", 3)  # noqa: B010 - the type checker would refuse it otherwise
