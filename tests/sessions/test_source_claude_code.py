"""Claude Code's sessions: when they are left alone, and the values that signatures protect."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.layout import SessionName
from bsd.maintenance import catalog
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import (
    claude_code_line,
    claude_code_lines,
    subagent_lines,
)
from tests.transcripts.agents.sources.tree import (
    EVERYTHING,
    Home,
    away,
    raw,
    without_restored,
    written_lately,
)


@pytest.fixture
def claude(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())


def test_a_session_is_left_alone_while_a_process_is_busy_with_it(
    claude: Home, clock: Clock
) -> None:
    running = claude.path.parents[2] / "sessions" / f"{os.getpid()}.json"
    running.parent.mkdir()
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "busy"}))
    caller = make_caller(claude.layout, clock, wait=0.0)
    assert caller.extract(claude.name).status is Status.BUSY
    running.write_text(json.dumps({"sessionId": claude.name.session, "status": "idle"}))
    assert caller.extract(claude.name).status is Status.EXTRACTED


def test_without_a_list_of_processes_it_waits_for_a_minute_of_quiet(
    claude: Home, clock: Clock
) -> None:
    then = clock.now() - 40
    os.utime(claude.path, (then, then))
    caller = make_caller(claude.layout, clock, wait=0.0)
    assert caller.extract(claude.name).status is Status.BUSY
    clock.ahead += 30
    assert caller.extract(claude.name).status is Status.EXTRACTED


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
    make_caller(home.layout, clock).extract(home.name, overrides={"keep_recent": 0})
    kept_copies = home.path.read_bytes().count(b'"stdout": "[[extracted-')
    assert kept_copies == 4  # values that are never sent leave all the same
    sent = home.path.read_bytes().count(b'"content": "[[extracted-')
    # The copy of the last turn, which no signature covers yet, and the copies before the
    # compaction.
    assert sent == (2 if compacted else 1)


# --- files of subagents: their owner, when they are idle, and their full restoration ---


NAME = SessionName(f"claude-code:-home-me-project:{CLAUDE_CODE.session}", "agent-a7be2f0c41d9")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A session and its own files beside it; `path` is a subagent's."""
    main = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    beside = main.path.with_suffix("")
    files = {
        "subagents/agent-a7be2f0c41d9.jsonl": raw(subagent_lines()),
        "subagents/agent-a7be2f0c41d9.meta.json": b'{"agentType":"Explore"}',
        "subagents/workflows/wf_1/agent-a01.jsonl": raw(subagent_lines(2, "a01")),
        "subagents/workflows/wf_1/journal.jsonl": b'{"type":"started","agentId":"a01"}\n',
        "tool-results/toolu_1.txt": b"t" * 5000,
        "../agent-0f.jsonl": raw(subagent_lines(2, "0f")),  # at the place that old versions use
    }
    for name, content in files.items():
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).write_bytes(content)
        set_idle(beside / name)
    return replace(main, name=NAME, path=beside / "subagents" / f"{NAME.session}.jsonl")


def test_everyones_file_has_a_name_that_leads_back_to_it(home: Home) -> None:
    project, session = "claude-code:-home-me-project", CLAUDE_CODE.session
    source = home.source / "-home-me-project"
    expected = {
        f"{project}/{session}": source / f"{session}.jsonl",
        f"{project}:{session}/agent-a7be2f0c41d9": home.path,
        f"{project}:{session}:wf_1/agent-a01": home.path.parent / "workflows/wf_1/agent-a01.jsonl",
    }
    names = [info.name for info in catalog.sessions(home.layout)]
    assert {str(name): home.layout.session_file(name) for name in names} == expected
    assert len({home.layout.store_dir(name) for name in names}) == len(names)


def test_what_a_subagent_has_seen_leaves_and_comes_back_exactly(home: Home, clock: Clock) -> None:
    before = {path: path.read_bytes() for path in home.source.rglob("*") if path.is_file()}
    old, mtime = before.pop(home.path), home.path.stat().st_mtime_ns
    caller = make_caller(home.layout, clock)
    result = caller.extract(NAME, overrides={"keep_recent": 0})
    assert result.status is Status.EXTRACTED
    new = home.path.read_bytes()
    assert away(old, new) == result.values == 5  # the results
    assert len(new) < len(old) * 2 // 3
    assert len(CLAUDE_CODE.reads(new)) == len(CLAUDE_CODE.reads(old))
    assert home.path.stat().st_mtime_ns == mtime
    assert {path: path.read_bytes() for path in before} == before
    assert verify(home.layout).clean
    assert performed.restore_all(caller, NAME).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == old


def test_it_rests_when_no_process_has_its_session(home: Home, clock: Clock) -> None:
    running = home.source.parent / "sessions" / f"{os.getpid()}.json"
    running.parent.mkdir()
    running.write_text(json.dumps({"sessionId": CLAUDE_CODE.session, "status": "idle"}))
    caller = make_caller(home.layout, clock, wait=0.0)
    assert caller.extract(NAME).status is Status.BUSY
    main = SessionName(NAME.agent.rpartition(":")[0], CLAUDE_CODE.session)
    assert caller.extract(main).status is Status.EXTRACTED
    running.unlink()
    assert caller.extract(NAME).status is Status.EXTRACTED


def test_one_that_came_to_no_end_keeps_its_turn(home: Home, clock: Clock) -> None:
    lines = subagent_lines()
    caller = make_caller(home.layout, clock)

    def leaves() -> int:
        set_idle(home.path)
        return performed.extraction(caller, NAME, overrides=EVERYTHING).values

    home.path.write_bytes(written_lately(raw(lines[:-1])))
    assert leaves() == 0
    home.path.write_bytes(raw(lines[:-1]))  # so long ago that it is over
    assert leaves() > 0
    # Continued later, it begins with another prompt; the earlier lines are as in any session.
    more = claude_code_line(10, "user", "And what is it called with?")
    lines[-2:] = [more | {"isSidechain": True, "agentId": "a"}]
    home.path.write_bytes(written_lately(raw(lines)))
    assert leaves() > 0
