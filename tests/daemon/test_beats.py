"""Loops that break their promise are named, others are not; the watchdog is pinged only then."""

from __future__ import annotations

from bsd.daemon.beats import Beats


def test_a_loop_is_late_after_its_promise_and_some_grace() -> None:
    beats = Beats(grace=5)
    beats.beat("queue", 100, within=30)
    assert beats.late(135) == []
    assert beats.late(135.1) == ["queue"]
    beats.beat("queue", 136, within=1)
    assert beats.late(136) == []


def test_who_sleeps_long_says_so() -> None:
    beats = Beats(grace=5)
    beats.beat("timer", 0, within=3600)
    beats.beat("worker 1", 0, within=10)
    assert beats.late(3600) == ["worker 1"]


def test_a_loop_that_was_never_heard_of_is_late_too() -> None:
    beats = Beats(grace=5)
    beats.expect("watcher", 0, within=10)
    assert beats.late(15) == []
    assert beats.late(16) == ["watcher"]
    beats.beat("watcher", 16, within=10)
    beats.expect("watcher", 0, within=1)
    assert beats.late(17) == []


def test_an_ended_loop_owes_nothing() -> None:
    beats = Beats(grace=5)
    beats.beat("worker 1", 0, within=1)
    beats.end("worker 1")
    beats.end("worker 2")
    assert beats.late(1000) == []
