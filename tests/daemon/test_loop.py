"""A loop sleeps until its next step, wakes when told, and survives a failing step."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bsd.core.clock import steady
from bsd.daemon import loops
from bsd.daemon.loops import Beats, Loop, awake
from tests.waiting import DEADLINE_SECONDS


class Steps:
    """Counts steps and lets a test wait for a step."""

    def __init__(self) -> None:
        self.taken = threading.Semaphore(0)
        self.count = 0
        self.next: float | None = None
        self.fail = False

    def __call__(self, now: float) -> float | None:
        self.count += 1
        self.taken.release()
        if self.fail:
            raise RuntimeError("no")
        return self.next

    def wait(self) -> None:
        assert self.taken.acquire(timeout=DEADLINE_SECONDS)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def skipped() -> list[float]:
    """By how much the beats' clock is ahead of the loop's, in seconds."""
    return []


@pytest.fixture
def beats(skipped: list[float]) -> Beats:
    return Beats(clock=lambda: awake() + sum(skipped))


@pytest.fixture
def loop(steps: Steps, beats: Beats) -> Iterator[Loop]:
    loop = Loop("timer", steps, beats)
    yield loop
    loop.stop()
    if loop.alive:
        assert loop.join(DEADLINE_SECONDS)


def test_it_steps_once_and_then_when_woken(loop: Loop, steps: Steps) -> None:
    loop.start()
    steps.wait()
    loop.wake()
    steps.wait()
    assert not steps.taken.acquire(timeout=0.05)
    assert steps.count == 2


def test_it_comes_again_when_the_step_wants_it(loop: Loop, steps: Steps) -> None:
    steps.next = steady()
    loop.start()
    for _ in range(10):
        steps.wait()
    steps.next = None


def test_who_waits_for_a_time_looks_once_a_minute_and_who_waits_to_be_woken_seldom(
    loop: Loop, steps: Steps
) -> None:
    steps.next = steady() + 3600
    assert loop._once() == 60
    steps.next = None
    assert loop._once() == 600


def test_a_wake_during_the_step_is_not_lost(beats: Beats) -> None:
    inside, go = threading.Event(), threading.Event()
    count = 0
    twice = threading.Event()

    def step(now: float) -> None:
        nonlocal count
        count += 1
        if count == 1:
            inside.set()
            assert go.wait(DEADLINE_SECONDS)
        else:
            twice.set()

    loop = Loop("queue", step, beats)
    loop.start()
    try:
        assert inside.wait(DEADLINE_SECONDS)
        loop.wake()
        go.set()
        assert twice.wait(DEADLINE_SECONDS)
    finally:
        go.set()
        loop.stop()
        assert loop.join(DEADLINE_SECONDS)


def test_a_failing_step_is_survived(
    loop: Loop, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_AFTER_CRASH_SECONDS", 0.0)
    steps.fail = True
    loop.start()
    steps.wait()
    steps.wait()
    assert loop.alive
    assert loop.crashes >= 1


def test_it_beats_and_ends_without_owing(
    loop: Loop, steps: Steps, beats: Beats, skipped: list[float]
) -> None:
    loop.start()
    steps.wait()
    assert beats.late() == []
    skipped.append(1000.0)
    assert beats.late() == ["timer"]
    loop.stop()
    assert loop.join(DEADLINE_SECONDS)
    assert beats.late() == []


# --- loops that break their promise are named, others are not; then the watchdog gets no ping ---


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
def promises() -> Told:
    return Told()


def test_a_loop_is_late_after_its_promise_and_some_grace(promises: Told) -> None:
    promises.beat("queue", 100, within=30)
    assert promises.late(135) == []
    assert promises.late(135.1) == ["queue"]
    promises.beat("queue", 136, within=1)
    assert promises.late(136) == []


def test_who_sleeps_long_says_so(promises: Told) -> None:
    promises.beat("timer", 0, within=3600)
    promises.beat("worker 1", 0, within=10)
    assert promises.late(3600) == ["worker 1"]


def test_a_loop_that_was_never_heard_of_is_late_too(promises: Told) -> None:
    promises.expect("watcher", 0, within=10)
    assert promises.late(15) == []
    assert promises.late(16) == ["watcher"]
    promises.beat("watcher", 16, within=10)
    promises.expect("watcher", 0, within=1)
    assert promises.late(17) == []


def test_an_ended_loop_owes_nothing(promises: Told) -> None:
    promises.beat("worker 1", 0, within=1)
    promises.beats.end("worker 1")
    promises.beats.end("worker 2")
    assert promises.late(1000) == []
