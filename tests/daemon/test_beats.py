"""Loops that break their promise are named, others are not; the watchdog is pinged only then."""

from __future__ import annotations

import pytest

from bsd.daemon.loops import Beats


class Told:
    """Beats by a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.beats = Beats(grace=5, clock=lambda: self.now)

    def late(self, now: float) -> list[str]:
        self.now = now
        return self.beats.late()

    def beat(self, loop: str, now: float, within: float) -> None:
        self.now = now
        self.beats.beat(loop, within)

    def expect(self, loop: str, now: float, within: float) -> None:
        self.now = now
        self.beats.expect(loop, within)


@pytest.fixture
def beats() -> Told:
    return Told()


def test_a_loop_is_late_after_its_promise_and_some_grace(beats: Told) -> None:
    beats.beat("queue", 100, within=30)
    assert beats.late(135) == []
    assert beats.late(135.1) == ["queue"]
    beats.beat("queue", 136, within=1)
    assert beats.late(136) == []


def test_who_sleeps_long_says_so(beats: Told) -> None:
    beats.beat("timer", 0, within=3600)
    beats.beat("worker 1", 0, within=10)
    assert beats.late(3600) == ["worker 1"]


def test_a_loop_that_was_never_heard_of_is_late_too(beats: Told) -> None:
    beats.expect("watcher", 0, within=10)
    assert beats.late(15) == []
    assert beats.late(16) == ["watcher"]
    beats.beat("watcher", 16, within=10)
    beats.expect("watcher", 0, within=1)
    assert beats.late(17) == []


def test_an_ended_loop_owes_nothing(beats: Told) -> None:
    beats.beat("worker 1", 0, within=1)
    beats.beats.end("worker 1")
    beats.beats.end("worker 2")
    assert beats.late(1000) == []
