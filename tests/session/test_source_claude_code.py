"""Claude Code's sessions: when they are left alone, and what signatures keep."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bsd.surgery.result import Status
from tests.agents.sources import CLAUDE_CODE
from tests.agents.sources.claude_code import claude_code_line, claude_code_lines
from tests.agents.sources.tree import Home
from tests.session.conftest import Clock, make_surgeon


@pytest.fixture
def claude(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())


def test_a_session_is_left_alone_while_a_process_is_busy_with_it(
    claude: Home, clock: Clock
) -> None:
    running = claude.path.parents[2] / "sessions" / f"{os.getpid()}.json"
    running.parent.mkdir()
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "busy"}))
    surgeon = make_surgeon(claude.layout, clock, wait=0.0)
    assert surgeon.extract(claude.name).status is Status.BUSY
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "idle"}))
    assert surgeon.extract(claude.name).status is Status.EXTRACTED


def test_without_a_list_of_processes_it_waits_for_a_minute_of_quiet(
    claude: Home, clock: Clock
) -> None:
    then = clock.now() - 40
    os.utime(claude.path, (then, then))
    surgeon = make_surgeon(claude.layout, clock, wait=0.0)
    assert surgeon.extract(claude.name).status is Status.BUSY
    clock.ahead += 30
    assert surgeon.extract(claude.name).status is Status.EXTRACTED


@pytest.mark.parametrize("compacted", [False, True], ids=["bound", "compacted"])
def test_signatures_keep_what_they_cover(tmp_path: Path, clock: Clock, *, compacted: bool) -> None:
    lines = claude_code_lines(4)
    for line in lines[1:]:
        if line["type"] == "assistant":
            line["message"]["model"] = "claude-opus-5-5"
    if compacted:
        boundary = claude_code_line(100, "system", None, subtype="compact_boundary")
        boundary["parentUuid"] = None
        lines.insert(8, boundary)
        lines[9]["parentUuid"] = boundary["uuid"]
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    make_surgeon(home.layout, clock).extract(home.name, overrides={"keep_recent": 0})
    kept_copies = home.path.read_bytes().count(b'"stdout": "[[extracted-')
    assert kept_copies == 4  # what is never sent leaves all the same
    sent = home.path.read_bytes().count(b'"content": "[[extracted-')
    # That of the last turn, on which no signature stands yet, and what is before the compaction.
    assert sent == (2 if compacted else 1)
