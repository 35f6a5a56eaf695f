"""Which sessions are copied first, and which do not wait for a day of idleness."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.store.snapshots import snapshots_of
from tests.maintenance.keeping import DAY, ClaudeHome, keep
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, entry, jsonl, make_caller, write
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home

HOUR = 3600.0


def set_cleanup_days(source: Path, days: object, name: str = "settings.json") -> None:
    (source.parent / name).write_text(json.dumps({"cleanupPeriodDays": days}))


@pytest.fixture
def young(tmp_path: Path) -> Home:
    """A session of Claude Code that was written to an hour ago."""
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    set_idle(home.path, HOUR)
    return home


def test_one_that_its_program_deletes_soon_does_not_rest(young: Home, clock: Clock) -> None:
    assert keep(young.layout, clock).sessions == 0
    set_cleanup_days(young.source, 9)
    assert keep(young.layout, clock).sessions == 0
    set_cleanup_days(young.source, 7)
    assert keep(young.layout, clock).sessions == 1
    assert keep(young.layout, clock).sessions == 0, "it is as it was when it was copied"


@pytest.mark.parametrize(
    "settings",
    [
        *('{"cleanupPeriodDays": "1"}', '{"cleanupPeriodDays": true}', '{"cleanupPeriodDays": 0}'),
        *('{"cleanupPeriodDays": -3}', '{"cleanupPeriodDays": 1.5}', "[1]", "{", "", "[" * 100_000),
        '{"cleanupPeriodDays": 1' + "0" * 400 + "}",
    ],
)
def test_settings_that_say_nothing_are_as_none(young: Home, clock: Clock, settings: str) -> None:
    (young.source.parent / "settings.json").write_text(settings)
    assert keep(young.layout, clock).sessions == 0
    set_cleanup_days(young.source, 2, "settings.local.json")
    assert keep(young.layout, clock).sessions == 1


def test_settings_that_are_no_file_are_as_none(young: Home, clock: Clock) -> None:
    os.mkfifo(young.source.parent / "settings.json")
    assert keep(young.layout, clock).sessions == 0


def test_subagents_go_with_their_session(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 1)
    [name] = home.names
    for path in home.source.rglob("*.jsonl"):
        set_idle(path, HOUR)
    assert keep(home.layout, clock).sessions == 0
    set_idle(home.layout.session_file(name), 25 * DAY)
    done = keep(home.layout, clock)
    assert done.sessions == 4
    for each in (name, *home.subagents(name)):
        assert snapshots_of(home.layout, each)


def test_what_is_deleted_soonest_is_copied_first(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 3, small=True)  # the last is the oldest
    first = [name.session for name in reversed(home.names)]
    add = home.layout.root / "agents" / "main" / "sessions"
    add.mkdir(parents=True)
    (add / "s1.jsonl").write_bytes(jsonl(*conversation()))
    set_idle(add / "s1.jsonl", 100 * DAY)
    order: list[str] = []
    while (done := keep(home.layout, clock, most_bytes=1)).sessions:
        there = {path.parent.parent.name for path in home.layout.archive.glob("*/*/copy.json")}
        order += sorted(there - set(order))
    assert done.complete
    heads = [one for one in order if "agent-" not in one and not one.startswith("main_")]
    assert [next(s for s in first if s in head) for head in heads] == first
    assert order[-1].startswith("main_"), "nothing deletes that one by its age"


def test_an_extraction_does_not_restart_the_day_of_rest(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    make_caller(layout, clock).extract(NAME, overrides={"keep_recent": 0})
    assert time.time() - path.stat().st_mtime < HOUR, "OpenClaw is to see that it has changed"
    clock.ahead += 120
    assert keep(layout, clock).sessions == 1


def test_whatever_its_program_writes_does(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    make_caller(layout, clock).extract(NAME, overrides={"keep_recent": 0})
    clock.ahead += 120
    with path.open("ab") as file:  # a clock that is wrong, or no time at all
        file.write(jsonl(entry(20, "user", "go on"), without_time(21)))
    os.utime(path, (clock.now() - 60, clock.now() - 60))
    assert keep(layout, clock).sessions == 0
    clock.ahead += DAY
    assert keep(layout, clock).sessions == 1


def without_time(number: int) -> dict[str, Any]:
    made = entry(number, "user", "and on")
    del made["timestamp"]
    return made


def test_who_went_on_after_an_extraction_is_not_at_rest(layout: Layout, clock: Clock) -> None:
    lines = conversation()
    lines[-1]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() - HOUR))
    path = write(layout, lines)
    make_caller(layout, clock).extract(NAME, overrides={"keep_recent": 0})
    clock.ahead += 120
    assert path.exists()
    assert keep(layout, clock).sessions == 0
