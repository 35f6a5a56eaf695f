"""A program says that its session is idle: the time of quiet is over, and no other rule is."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.filesystem import Strength
from bsd.planning.result import SessionResult, Status
from bsd.sessions.idle import RetryBudget
from tests.actions.performed import Caller
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.session_files import Clock
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home


@pytest.fixture
def claude(tmp_path: Path) -> Home:
    require_linux()
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    (home.source.parent / "sessions").mkdir()
    return home


def extract(home: Home, clock: Clock, told_idle: float | None) -> SessionResult:
    """Extract as the daemon does; it waits for an hour of quiet unless `told_idle` is set."""
    budget = RetryBudget(0.0, 3600.0, clock=clock.now, sleep=clock.sleep)
    budget = replace(budget, told_idle=told_idle)
    config = ConfigService(home.layout.config_file)
    return Caller(layout=home.layout, config=config, budget=budget).extract(home.name)


def test_the_time_of_quiet_is_over(claude: Home, clock: Clock) -> None:
    set_idle(claude.path, 5.0)
    assert extract(claude, clock, None).status is Status.BUSY
    assert extract(claude, clock, clock.now() - 5.0).status is Status.EXTRACTED


def test_notes_of_the_turn_may_follow_and_nothing_else(claude: Home, clock: Clock) -> None:
    set_idle(claude.path, 20.0)
    assert extract(claude, clock, clock.now() - 24.0).status is Status.BUSY
    assert extract(claude, clock, clock.now() - 22.0).status is Status.EXTRACTED


def test_two_seconds_are_waited_for_all_the_same(claude: Home, clock: Clock) -> None:
    set_idle(claude.path, 0.5)
    result = extract(claude, clock, clock.now())
    assert result.status is Status.BUSY
    assert 0 < (result.again_in or 0.0) <= 1.6


def test_a_process_that_is_busy_with_it_counts_more(claude: Home, clock: Clock) -> None:
    running = claude.source.parent / "sessions" / f"{os.getpid()}.json"
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "busy"}))
    assert extract(claude, clock, clock.now()).status is Status.BUSY


def test_where_leases_prove_nothing_their_own_time_is_waited_for(
    claude: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = Strength("weak", "FUSE", "leases are no proof here")
    monkeypatch.setattr("bsd.sessions.idle.strength", lambda _: weak)
    set_idle(claude.path, weak.quiet_seconds - 5.0)
    result = extract(claude, clock, clock.now())
    assert result.status is Status.BUSY
    assert 4 < (result.again_in or 0.0) <= 5
