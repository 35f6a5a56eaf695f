"""A loop sleeps until its next step, wakes when told, and survives a failing one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bsd.daemon import loop as loop_module
from bsd.daemon.beats import Beats
from bsd.daemon.clock import awake, steady
from bsd.daemon.loop import Loop

DEADLINE = 20.0


class Steps:
    """Counts steps and lets a test wait for one."""

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
        assert self.taken.acquire(timeout=DEADLINE)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def beats() -> Beats:
    return Beats()


@pytest.fixture
def loop(steps: Steps, beats: Beats) -> Iterator[Loop]:
    loop = Loop("timer", steps, beats)
    yield loop
    loop.stop()
    if loop.alive:
        assert loop.join(DEADLINE)


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


def test_a_wake_during_the_step_is_not_lost(beats: Beats) -> None:
    inside, go = threading.Event(), threading.Event()
    count = 0
    twice = threading.Event()

    def step(now: float) -> None:
        nonlocal count
        count += 1
        if count == 1:
            inside.set()
            assert go.wait(DEADLINE)
        else:
            twice.set()

    loop = Loop("queue", step, beats)
    loop.start()
    try:
        assert inside.wait(DEADLINE)
        loop.wake()
        go.set()
        assert twice.wait(DEADLINE)
    finally:
        go.set()
        loop.stop()
        assert loop.join(DEADLINE)


def test_a_failing_step_is_survived(
    loop: Loop, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_AFTER_CRASH_SECONDS", 0.0)
    steps.fail = True
    loop.start()
    steps.wait()
    steps.wait()
    assert loop.alive
    assert loop.crashes >= 1


def test_it_beats_and_ends_without_owing(loop: Loop, steps: Steps, beats: Beats) -> None:
    loop.start()
    steps.wait()
    assert beats.late(awake()) == []
    assert beats.late(awake() + 1000) == ["timer"]
    loop.stop()
    assert loop.join(DEADLINE)
    assert beats.late(awake() + 1000) == []
