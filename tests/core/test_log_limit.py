"""What is complained of again and again is told once in a while."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from bsd.core.logs import LEVELS, MOST_ALIKE, PERIOD_SECONDS, LeftOut, Limit, Output


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def complain(limit: Limit, times: int, event: str = "It fails", level: str = "warn") -> int:
    return sum(limit.passes(level, "api", event) for _ in range(times))


def test_a_flood_is_cut_and_counted(clock: Clock) -> None:
    limit = Limit(clock)
    assert complain(limit, 1000) == MOST_ALIKE
    assert limit.left_out() == [], "not as long as the minute lasts"
    clock.now += PERIOD_SECONDS
    assert limit.left_out() == [LeftOut("warn", "api", "It fails", 1000 - MOST_ALIKE)]
    assert limit.left_out() == []
    assert complain(limit, 1000) == MOST_ALIKE


def test_at_the_end_all_is_told(clock: Clock) -> None:
    limit = Limit(clock)
    complain(limit, MOST_ALIKE + 1)
    assert [each.count for each in limit.left_out(all=True)] == [1]


def test_each_complaint_counts_for_itself(clock: Clock) -> None:
    limit = Limit(clock)
    complain(limit, 1000)
    assert complain(limit, 1, "Something else fails") == 1
    assert limit.passes("warn", "trash", "It fails")


def test_of_a_text_with_a_traceback_the_first_line_counts(clock: Clock) -> None:
    limit = Limit(clock)
    passed = sum(limit.passes("error", "asyncio", f"accept\nsocket: {n}") for n in range(1000))
    assert passed == MOST_ALIKE


@pytest.mark.parametrize("level", ["trace", "debug", "info"])
def test_what_is_no_complaint_always_passes(clock: Clock, level: str) -> None:
    assert complain(Limit(clock), 1000, level=level) == 1000


def test_now_and_then_is_no_flood(clock: Clock) -> None:
    limit = Limit(clock)
    for _ in range(10 * MOST_ALIKE):
        assert limit.passes("warn", "api", "It fails")
        clock.now += PERIOD_SECONDS / MOST_ALIKE + 0.001
    assert limit.left_out(all=True) == []


def test_memory_is_bounded(clock: Clock) -> None:
    limit = Limit(clock)
    for number in range(5000):
        limit.passes("error", "api", f"entry {number} fails")
    assert len(limit._kinds) <= 1000


class Kept(Output):
    def __init__(self, clock: Clock) -> None:
        super().__init__("kept", 0, limit=Limit(clock))
        self.lines: list[dict[str, Any]] = []

    def put(self, line: str) -> None:
        self.lines.append(json.loads(line))

    def say(self, level: str, module: str, event: str) -> None:
        self.handle(logging.makeLogRecord({"levelno": LEVELS[level], "name": module, "msg": event}))


def test_the_log_says_how_many_it_left_out(clock: Clock) -> None:
    kept = Kept(clock)
    for _ in range(100):
        kept.say("error", "bsd.api", "It fails")
    assert len(kept.lines) == MOST_ALIKE
    clock.now += PERIOD_SECONDS
    kept.say("info", "bsd.daemon", "Meanwhile")
    told, line = kept.lines[MOST_ALIKE:]
    assert (told["event"], told["like"], told["count"]) == ("Lines were left out", "It fails", 40)
    assert (told["level"], told["module"]) == ("error", "api")
    assert line["event"] == "Meanwhile"


def test_a_log_that_is_closed_owes_nothing(clock: Clock) -> None:
    kept = Kept(clock)
    for _ in range(61):
        kept.say("warn", "bsd.api", "It fails")
    kept.close()
    assert kept.lines[-1]["count"] == 1
