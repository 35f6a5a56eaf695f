"""Hooks report to the daemon: which sessions are queued, and the text that a model gets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import NotFound
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.layout import SessionName
from bsd.core.settings import SourceSettings
from bsd.daemon.enqueue import Enqueuer
from bsd.daemon.hooks import HookReceiver, sentence
from bsd.daemon.loops import Clocks
from bsd.daemon.queue import TryLater
from bsd.daemon.state import DaemonState
from bsd.planning.result import SessionResult, Status
from bsd.transcripts.agents.programs import session_at
from tests.daemon.taking import take_at
from tests.daemon.work_house import NAME, House
from tests.loading import load_settings
from tests.searching import read_all
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home

WALL, STEADY = 1_800_000_000.0, 50.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())


@pytest.fixture
def state(home: Home, tmp_path: Path) -> DaemonState:
    settings = load_settings(root=home.layout.root, environ={"HOME": str(tmp_path)})
    source = SourceSettings(kind="claude-code", path=home.source)
    return DaemonState(
        settings.model_copy(update={"sources": (source,)}),
        Clocks(lambda: WALL, lambda: STEADY),
    )


def tell(state: DaemonState, path: object, **said: Any) -> dict[str, Any] | None:
    return HookReceiver(state).receive("claude-code", {"transcript_path": str(path), **said})


# --- which session a path is ---


def test_a_transcript_is_known_by_its_path(home: Home, tmp_path: Path) -> None:
    assert session_at(home.layout, "claude-code", home.path) == home.name
    (tmp_path / "link").symlink_to(home.source.parent)
    by_link = tmp_path / "link" / home.path.relative_to(home.source.parent)
    assert session_at(home.layout, "claude-code", by_link) == home.name
    home.path.unlink()
    assert session_at(home.layout, "claude-code", home.path) == home.name, "nothing is opened"


def test_a_source_that_is_named_by_a_link_is_known_too(home: Home, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home.source.parent)
    [source] = home.layout.sources
    by_link = replace(source, path=tmp_path / "link" / home.source.name)
    layout = replace(home.layout, sources=(by_link,))
    assert session_at(layout, "claude-code", home.path) == home.name


def test_subagents_have_names_too(home: Home) -> None:
    path = home.path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    agent = f"{home.name.agent}:{home.name.session}"
    assert session_at(home.layout, "claude-code", path) == SessionName(agent, "agent-a1")


@pytest.mark.parametrize(
    "place",
    [
        "/etc/passwd",
        "/",
        "{source}",
        "{source}/x.jsonl",
        "{session}.bak",
        "{project}/notes.jsonl",
        "{project}/../../../etc/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
        "{project}/a/b/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
        "{source}/.hidden/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
        "/tmp/projects/-work/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
    ],
)
def test_what_is_no_session_of_a_source_is_ignored(
    home: Home, state: DaemonState, place: str
) -> None:
    words = {"source": home.source, "project": home.path.parent, "session": home.path}
    path = Path(place.format(**words))
    assert session_at(home.layout, "claude-code", path) is None
    assert tell(state, path, hook_event_name="Stop") is None
    assert state.queue.next_due() is None


def test_a_directory_behind_a_link_out_of_the_source_is_ignored(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / home.path.name).write_bytes(home.path.read_bytes())
    (home.source / "-linked").symlink_to(elsewhere)
    path = home.source / "-linked" / home.path.name
    assert session_at(home.layout, "claude-code", path) is None


def test_sources_of_other_programs_are_not_its_own(tmp_path: Path) -> None:
    codex = Home.of(CODEX, tmp_path, CODEX.lines())
    assert session_at(codex.layout, "claude-code", codex.path) is None
    assert session_at(codex.layout, "codex", codex.path) == codex.name


# --- a session is idle ---


@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_a_session_that_is_idle_is_queued(home: Home, state: DaemonState, event: str) -> None:
    assert tell(state, home.path, hook_event_name=event) is None
    assert state.queue.next_due() == STEADY + UNCERTAIN_SECONDS
    assert take_at(state.queue, STEADY + UNCERTAIN_SECONDS) == home.name
    assert state.enqueuer.told_idle(home.name) == WALL


def test_a_worker_hands_on_what_was_said_until_it_can_be_acted_on(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write()
    house.enqueuer.put_idle(NAME, house.steady, 123.0)
    house.caller.answer = SessionResult(str(NAME), Status.BUSY)
    assert house.on(NAME) == TryLater()
    house.on(NAME)
    assert [each.told_idle for each in house.handed] == [123.0, 123.0]


def test_only_the_latest_sessions_are_remembered(state: DaemonState) -> None:
    enqueuer: Enqueuer = state.enqueuer
    names = [SessionName("main", f"s{number}") for number in range(1002)]
    for number, name in enumerate(names):
        enqueuer.put_idle(name, STEADY, WALL + number)
        enqueuer.put_idle(names[0], STEADY, WALL + number)
    assert [enqueuer.told_idle(name) for name in (names[1], names[2])] == [None, None]
    assert enqueuer.told_idle(names[3]) == WALL + 3
    assert enqueuer.told_idle(names[0]) == WALL + 1001


def test_programs_that_are_not_known_are_told_so(state: DaemonState) -> None:
    with pytest.raises(NotFound, match="no program of the kind 'nonsense'"):
        HookReceiver(state).receive("nonsense", {})


# --- the text for a model ---


def resumed(state: DaemonState, home: Home) -> dict[str, Any] | None:
    return tell(state, home.path, hook_event_name="SessionStart", source="resume")


def test_a_model_is_told_how_much_can_be_restored(
    home: Home, state: DaemonState, clock: Clock
) -> None:
    assert resumed(state, home) is None, "there is no index"
    read_all(state.layout)
    assert resumed(state, home) is None, "nothing is out"
    result = make_caller(home.layout, clock).extract(home.name)
    assert result.status is Status.EXTRACTED
    read_all(state.layout)
    home.path.unlink()  # so it is not opened
    answer = resumed(state, home)
    assert answer is not None
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert text == sentence(result.entries)
    assert f" {result.entries} entries of this session " in text
    assert "the tool restore of the MCP server bsd" in text
    assert state.queue.next_due() is None, "no hook has said that it is idle"


def test_a_damaged_index_is_no_reason_to_fail(home: Home, state: DaemonState) -> None:
    read_all(state.layout)
    os.truncate(state.layout.search_db, 100)
    assert resumed(state, home) is None


def test_one_entry_is_one_entry() -> None:
    assert " 1 entry of this session " in sentence(1)
