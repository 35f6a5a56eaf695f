"""Sizes of sessions and of bsd, noted once a day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bsd.core.layout import Layout
from bsd.maintenance.daily_sizes import note_sizes, read_sizes
from tests.openclaw_tree import add_session

_DAY = 86_400.0
_NOON = 20_000 * _DAY + _DAY / 2


def _disk() -> Mapping[str, Any]:
    return {"store": 10, "archive": 20, "in_flight": {"bytes": 5}, "net": -3}


def _not_asked() -> Mapping[str, Any]:
    raise AssertionError("nothing is noted, so nothing need be added up")


def test_a_day_has_one_line(tmp_path: Any) -> None:
    layout = Layout(tmp_path)
    add_session(layout.root, "main/a", b"x" * 100)
    layout.own.mkdir()
    assert read_sizes(layout.sizes_file) == []
    assert note_sizes(layout, _disk, _NOON)
    assert not note_sizes(layout, _not_asked, _NOON + 3600)
    add_session(layout.root, "main/b", b"x" * 11)
    assert note_sizes(layout, _disk, _NOON + _DAY)
    assert not note_sizes(layout, _not_asked, _NOON), "a clock that was put back notes nothing"
    first, second = read_sizes(layout.sizes_file)
    assert (first.sessions, first.counts) == ({"openclaw": 100}, {"openclaw": 1})
    assert (second.sessions, second.counts) == ({"openclaw": 111}, {"openclaw": 2})
    assert first.disk == {"store": 10, "archive": 20}
    assert (first.at[:10], second.at[:10]) == ("2024-10-04", "2024-10-05")


def test_damaged_lines_are_left_out_and_a_torn_one_is_ended(tmp_path: Any) -> None:
    layout = Layout(tmp_path)
    add_session(layout.root, "main/a", b"x")
    layout.own.mkdir()
    odd = b'[]\n{"at":1,"sessions":{},"counts":{},"disk":{}}\n{"at":"x","sessions":{"a":"b"}'
    layout.sizes_file.write_bytes(odd)
    assert note_sizes(layout, _disk, _NOON)
    [noted] = read_sizes(layout.sizes_file)
    assert noted.sessions == {"openclaw": 1}
