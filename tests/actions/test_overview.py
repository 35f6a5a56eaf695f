"""The overview: sums by agent and project, content that is deleted soon, and values that would
leave.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.archive import copy_sessions
from bsd.actions.extract import extract
from bsd.actions.overview import fills_of, overview, would_leave
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.planning.survey import fingerprint
from bsd.store.state import Left, state_at
from bsd.transcripts.agents.programs import layout_of
from bsd.transcripts.change import Written
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Clock, make_caller, sample

_DAY = 86_400.0
_ID = "8463c716-a2ea-4c14-9efa-87158ebd9f2"
_PROJECT = "-home-ada-harbour"


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """Two agents of OpenClaw, and two sessions of a project of Claude Code, one with a subagent."""
    root, projects = tmp_path / "root", tmp_path / ".claude" / "projects"
    add_session(root, "main/long", sample(12))
    add_session(root, "main/short", sample(2, seed=2))
    add_session(root, "other/one", sample(1, seed=3))
    line = (
        b'{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s","cwd":"/home/ada/harbour",'
        b'"isSidechain":false,"message":{"role":"user","content":"hi"}}\n'
    )
    places = (f"{_ID}1.jsonl", f"{_ID}2.jsonl", f"{_ID}1/subagents/agent-a1.jsonl")
    for place in places:
        path = projects / _PROJECT / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(line)
        set_idle(path)
    set_idle(projects / _PROJECT / f"{_ID}2.jsonl", 28 * _DAY)
    source = SourceSettings(kind="claude-code", path=projects)
    return make_caller(layout_of(root, [source]), Clock())


def test_it_adds_up_what_each_agent_and_project_takes(caller: Caller) -> None:
    name = SessionName("main", "long")
    saved = extract(caller, name).bytes_saved
    path = caller.layout.session_file(name)
    found = overview(caller, largest=2)
    openclaw, claude = found.agents
    assert (openclaw.kind, openclaw.title, openclaw.sessions) == ("openclaw", "OpenClaw", 3)
    assert [(one.agent, one.sessions) for one in openclaw.projects] == [("main", 2), ("other", 1)]
    assert (
        openclaw.projects[0].saved_bytes == openclaw.saved_bytes == found.saved_bytes == saved > 0
    )
    assert found.bytes == openclaw.bytes + claude.bytes
    assert (claude.kind, claude.sessions, claude.parts) == ("claude-code", 2, 1)
    [project] = claude.projects
    assert (project.agent, project.title) == (f"claude-code:{_PROJECT}", "/home/ada/harbour")
    assert found.largest[0].session == "main/long"
    assert found.largest[0].size == path.stat().st_size
    assert (found.sessions, found.uncounted, found.archived) == (6, 0, 0)


def test_it_tells_what_its_program_deletes_soon_and_what_the_archive_has(caller: Caller) -> None:
    leaving = f"claude-code:{_PROJECT}/{_ID}2"
    _, claude = overview(caller).agents
    assert (claude.deleted_soon, claude.without_copy) == (1, 1)
    [session] = claude.leaving
    assert (session.session, session.has_copy) == (leaving, False)
    copy_sessions(caller, [leaving])
    _, claude = overview(caller).agents
    assert (claude.deleted_soon, claude.without_copy) == (1, 0)
    os.unlink(caller.layout.session_file(SessionName.parse(leaving)))
    found = overview(caller)
    _, claude = found.agents
    assert (claude.deleted_soon, claude.archived, claude.projects[0].archived) == (0, 1, 1)
    assert (claude.sessions, found.archived) == (1, 1)


def test_a_root_without_a_session_has_an_empty_overview(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    found = overview(make_caller(Layout(tmp_path), Clock()))
    assert (found.agents, found.largest, found.bytes) == ((), (), 0)


def test_what_would_leave_is_what_an_extraction_takes(caller: Caller) -> None:
    found = would_leave(caller, seconds=60.0)
    assert (found.sessions, found.read_sessions, found.is_sample) == (6, 6, False)
    names = [SessionName("main", "long"), SessionName("main", "short"), SessionName("other", "one")]
    assert found.bytes_saved == sum(extract(caller, name).bytes_saved for name in names) > 0


def test_sessions_that_the_daemon_has_left_are_not_read_again(caller: Caller) -> None:
    name = SessionName("main", "long")
    layout, settings = caller.layout, fingerprint(caller.config.current)
    before = would_leave(caller, seconds=60.0)
    seen = Written.of(os.lstat(layout.session_file(name)))
    state = state_at(layout.state_db)
    state.note_rests({name: Left(name, settings, seen, None)})
    found = would_leave(caller, seconds=60.0)
    assert found.bytes_saved < before.bytes_saved
    assert (found.read_sessions, found.read_bytes) == (before.read_sessions, before.read_bytes)
    state.note_rests({name: Left(name, settings, seen, caller.now() - 1)})  # it is due again
    assert would_leave(caller, seconds=60.0).bytes_saved == before.bytes_saved


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that advances by this amount whenever it is read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return clock


def test_what_fills_a_session_is_read_for_as_long_as_there_is_time(caller: Caller) -> None:
    names = ["main/long", "main/gone"]
    filled, gone = fills_of(caller, names, seconds=60.0)
    assert filled.fills[0].bytes == max(fill.bytes for fill in filled.fills)
    assert any(fill.what.startswith("tool results: ") for fill in filled.fills)
    assert gone.problem is not None
    assert "no session main/gone" in gone.problem
    late = fills_of(caller, names, seconds=1.0, clock=ticking(1.0))
    assert [each.problem for each in late] == ["there was no time to read it"] * 2
    assert replace(late[0], problem=None).fills == ()
