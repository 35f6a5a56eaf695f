"""Pauses: the sessions that they cover, their ends, and the content of their file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bsd.core import clock, pauses
from bsd.core.errors import NotFound, Paused, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.pauses import begin_pause, end_pause, pause_of, pauses_of

NAME = SessionName("main", "x")
NOON = 1_800_000_000.0
HOUR = 3600.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def pause(layout: Layout, name: str, seconds: float | None) -> None:
    """Begin a pause at noon, when the machine has run for a thousand seconds."""
    begin_pause(layout, name, seconds, lambda: NOON, lambda: 1000.0)


def is_paused(layout: Layout, name: SessionName, wall: float, steady: float) -> bool:
    return pause_of(layout, name, NOON + wall, 1000.0 + steady) is not None


@pytest.mark.parametrize(
    ("paused", "name", "is_covered"),
    [
        ("main", "main/x", True),
        ("main", "mainly/x", False),
        ("main/x", "main/x", True),
        ("main/x", "main/y", False),
        ("claude", "claude:-p/x", True),
        ("claude:-p", "claude:-p:x/agent-1", True),
        ("claude:-p/x", "claude:-p:x/agent-1", True),
        ("claude:-p/x", "claude:-p:y/agent-1", False),
    ],
)
def test_what_is_part_of_it_pauses_with_it(
    layout: Layout, paused: str, name: str, is_covered: bool
) -> None:
    pause(layout, paused, None)
    assert (pause_of(layout, SessionName.parse(name)) is not None) is is_covered


def test_it_ends_by_its_time(layout: Layout) -> None:
    pause(layout, "main", HOUR)
    assert is_paused(layout, NAME, HOUR - 1, HOUR - 1)
    assert not is_paused(layout, NAME, HOUR, HOUR)
    found = pause_of(layout, NAME, NOON + 600, 1600.0)
    assert found is not None
    assert found.left == HOUR - 600


def test_a_clock_that_is_put_forward_ends_it_no_earlier(layout: Layout) -> None:
    pause(layout, "main", HOUR)
    assert is_paused(layout, NAME, 1e6, HOUR - 1)
    assert not is_paused(layout, NAME, 1e6, HOUR)


def test_a_clock_that_is_put_back_makes_it_longer(layout: Layout) -> None:
    pause(layout, "main", HOUR)
    assert is_paused(layout, NAME, -1e6, 2 * HOUR)


def test_after_a_start_of_the_machine_the_wall_clock_counts(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(layout, "main", HOUR)
    monkeypatch.setattr(pauses, "boot_id", lambda: "another start")
    assert is_paused(layout, NAME, HOUR - 1, -900.0)
    assert not is_paused(layout, NAME, HOUR, -900.0)
    assert clock.boot_id() != "another start"


def test_without_an_end_it_lasts_until_it_is_ended(layout: Layout) -> None:
    pause(layout, "main/x", None)
    assert is_paused(layout, NAME, 1e9, 1e9)
    end_pause(layout, "main/x")
    assert not is_paused(layout, NAME, 0, 0)
    with pytest.raises(NotFound, match="no pause of main/x"):
        end_pause(layout, "main/x")


def test_a_second_one_sets_another_end_and_the_longest_of_several_counts(layout: Layout) -> None:
    pause(layout, "main", HOUR)
    pause(layout, "main", 60.0)
    assert [each.pause.until for each in pauses_of(layout, NOON, 1000.0)] == [NOON + 60]
    pause(layout, "main/x", HOUR)
    found = pause_of(layout, NAME, NOON, 1000.0)
    assert found is not None
    assert found.pause.name == "main/x"


def test_the_refusal_says_which_pause_it_is_and_how_it_ends(layout: Layout) -> None:
    pause(layout, "main", None)
    found = pause_of(layout, NAME)
    assert found is not None
    refusal = found.refusal(NAME)
    assert isinstance(refusal, Paused)
    assert refusal.message == "session main/x is paused until it is ended (`bsd pause main`)"
    assert refusal.hint == "`bsd pause main --end` ends the pause"
    assert refusal.again_in is None


def test_the_file_is_private_and_what_is_over_leaves_it(layout: Layout) -> None:
    pause(layout, "over", 60.0)
    begin_pause(layout, "main", None, lambda: NOON + 100, lambda: 1100.0)
    assert stat.S_IMODE(layout.pauses_file.stat().st_mode) == 0o600
    assert b"over" not in layout.pauses_file.read_bytes()


_AFTER_ALL_YEARS = {
    "name": "main",
    "since": "2026-01-01T00:00:00Z",
    "until": "9999-12-31T23:59:59-14:00",
    "steady_until": 0,
    "boot": "",
}


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"pauses": [{"name": 1}]}',
        json.dumps({"pauses": [_AFTER_ALL_YEARS]}).encode(),
    ],
)
def test_a_broken_file_is_an_error_and_not_taken_for_none(layout: Layout, content: bytes) -> None:
    layout.own.mkdir(0o700)
    layout.pauses_file.write_bytes(content)
    with pytest.raises(Unavailable, match="the list of paused sessions") as told:
        pause_of(layout, NAME)
    assert f"rm {layout.pauses_file}" in str(told.value.hint)
