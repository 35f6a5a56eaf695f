"""`bsd leave`: all files as before bsd, the files that stay, and obstacles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.restore import restore_all
from bsd.cli import leave
from bsd.core.errors import Busy, Forbidden
from bsd.core.layout import SessionName
from bsd.planning.result import SessionResult, Status
from bsd.transcripts.agents.programs import claims_directory
from tests.cli.test_agents_command import call
from tests.cli.test_left_in_flight import let_pass
from tests.openclaw_tree import set_idle
from tests.setup.homes import CLAUDE_SESSION, fill_home, foreign

OWN = (".openclaw/extracted", ".openclaw/archive", ".openclaw/trash")


def others(home: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything below a home that is not bsd's own."""
    return {name: what for name, what in foreign(home).items() if not name.startswith(OWN)}


@pytest.fixture
def home(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which bsd serves Claude Code and Codex, and has extracted from both."""
    home = fill_home(clean_environment)

    def age(_seconds: float) -> None:
        let_pass(home / ".openclaw", 61)

    monkeypatch.setattr("bsd.cli.leave.time.sleep", age)
    return home


def set_up(home: Path, capture: pytest.CaptureFixture[str]) -> dict[str, tuple[int, bytes | None]]:
    before = others(home)
    for agent in ("claude-code", "codex"):
        assert call(capture, "agents", "on", agent, "--yes").code == 0
    assert call(capture, "extract", "--keep-recent", "0").code == 0
    assert others(home) != before
    return before


def test_all_is_as_it_was_and_again_there_is_nothing_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set_up(home, capsys)
    during = others(home)
    foretold = call(capsys, "leave", "--dry-run")
    assert foretold.code == 0
    assert "turn Claude Code off" in foretold.out
    assert others(home) == during
    assert call(capsys, "leave").code == 2  # no user could answer
    left = call(capsys, "leave", "--yes", "--json")
    assert left.code == 0, left.err
    assert others(home) == before
    document = left.document
    assert (document["complete"], document["purged"]) == (True, False)
    assert document["sessions_back"] >= 1
    assert {each["agent"]: each["off"] for each in document["agents"]} == {
        "claude-code": True,
        "codex": True,
    }
    again = call(capsys, "leave", "--yes")
    assert (again.code, others(home)) == (0, before)
    assert "`bsd leave --purge` deletes it" in again.out
    assert "none of it is needed any more" in again.out  # although no agent is on


def test_an_agent_that_was_turned_off_before_gets_its_values_back(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set_up(home, capsys)
    assert call(capsys, "agents", "off", "claude-code", "--yes").code == 0
    let_pass(home / ".openclaw", 61)
    assert call(capsys, "leave", "--purge", "--yes").code == 0
    assert others(home) == before


def busy_claude(context: ActionContext, name: SessionName, *, uninstalling: bool) -> SessionResult:
    if name.agent.startswith("claude-code"):
        return SessionResult(str(name), Status.UNCHANGED).failed(Busy("in use: by a test"))
    return restore_all(context, name, uninstalling=uninstalling)


def test_a_session_in_use_stops_no_other_and_no_directory_is_deleted(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set_up(home, capsys)
    with monkeypatch.context() as patch:
        patch.setattr(leave, "restore_all", busy_claude)
        left = call(capsys, "leave", "--purge", "--yes")
    assert left.code == 4
    assert "Claude Code stays on: 1 session not restored yet" in left.out
    assert "Codex is off" in left.out
    assert "bsd's directory is not deleted" in left.err
    assert "Try: `bsd leave` again" in left.err
    assert (home / ".openclaw/extracted").is_dir()
    then = call(capsys, "leave", "--yes")
    assert (then.code, others(home)) == (0, before)


def nuls(session: Path) -> None:
    session.write_bytes(bytes(5000))
    set_idle(session)


def test_sessions_that_cannot_be_looked_at_keep_their_values(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set_up(home, capsys)
    projects, away = home / ".claude/projects", home / ".claude/unmounted"
    projects.rename(away)
    left = call(capsys, "leave", "--purge", "--yes")
    assert left.code == 1
    assert f"{projects} does not exist, and bsd stores values of 1 session of it" in left.err
    assert "bsd's directory is not deleted" in left.err
    assert "Claude Code stays on" in left.out
    away.rename(projects)

    def unreadable(_: object) -> Iterator[tuple[str, Forbidden]]:
        yield "main", Forbidden("no permission to read it")

    with monkeypatch.context() as patch:
        patch.setattr("bsd.actions.leave.catalog.unreadable", unreadable)
        again = call(capsys, "leave", "--purge", "--yes")
    assert (again.code, (home / ".openclaw/extracted").is_dir()) == (1, True)
    assert "sessions of main are not back: no permission to read it" in again.err
    session = home / CLAUDE_SESSION
    content, mode = session.read_bytes(), session.stat().st_mode
    session.unlink()
    for make, said in (
        (os.mkfifo, "is not a regular file"),
        (nuls, f"{session.stem} is not restored"),
    ):
        make(session)
        again = call(capsys, "leave", "--purge", "--yes")
        assert (again.code, (home / ".openclaw/extracted").is_dir()) == (1, True)
        assert said in again.err
        session.unlink()
    session.write_bytes(content)
    session.chmod(mode)
    set_idle(session)
    assert call(capsys, "leave", "--purge", "--yes").code == 0
    assert others(home) == before


def test_a_session_that_comes_with_placeholders_before_the_purge_stops_it(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(home, capsys)
    session = home / CLAUDE_SESSION
    with_placeholders = session.read_bytes()

    def meanwhile(_question: str, _hint: str) -> bool:
        session.write_bytes(with_placeholders)  # by a program that had it in memory
        set_idle(session)
        return True

    monkeypatch.setattr(leave, "ask_first", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(leave, "confirm", meanwhile)
        left = call(capsys, "leave", "--purge")
    assert left.code == 1
    assert "sessions have changed since they were put back" in left.err
    assert b"[[extracted-" not in session.read_bytes()
    let_pass(home / ".openclaw", 61)
    assert call(capsys, "leave", "--purge", "--yes").code == 0
    assert not (home / ".openclaw/extracted").exists()


def test_what_is_not_bsds_own_stays_where_its_own_was(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(home, capsys)
    mine = home / ".openclaw/archive/taxes-2025"
    mine.mkdir(parents=True)
    (mine / "return.pdf").write_bytes(b"%PDF")
    note = home / ".openclaw/extracted/notes.txt"
    note.write_text("mine")
    assert call(capsys, "leave", "--purge", "--yes").code == 0
    assert (mine / "return.pdf").read_bytes() == b"%PDF"
    assert [path.name for path in note.parent.iterdir()] == ["notes.txt"]


def test_purging_deletes_what_is_bsds_own_and_names_what_is_lost(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set_up(home, capsys)
    assert list(claims_directory().glob("*.json"))
    call(capsys, "archive", "keep")
    (codex,) = (home / ".codex/sessions").rglob("*.jsonl")
    lost: dict[str, Any] = {str(codex.relative_to(home)): None}
    codex.unlink()
    kept = call(capsys, "leave", "--yes")
    assert "that their program has deleted: `bsd archive list`" in kept.out
    asked: list[str] = []

    def refuse(question: str, _hint: str) -> bool:
        asked.append(question)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(leave, "confirm", refuse)
        patch.setattr(leave, "ask_first", lambda *_: None)
        stays = call(capsys, "leave", "--purge")
    assert stays.code == 1
    assert "1 session" in asked[0]
    assert "that their program has deleted" in asked[0]
    assert (home / ".openclaw/archive").is_dir()
    done = call(capsys, "leave", "--purge", "--yes", "--json")
    assert (done.code, done.document["purged"]) == (0, True), done.err
    found = others(home)
    assert found == {name: what for name, what in before.items() if name not in lost}
    for place in (*OWN, ".openclaw/.brainsurgeon", ".openclaw/logs"):
        assert not (home / place).exists(), place
    assert not list(claims_directory().glob("*.json"))
    again = call(capsys, "leave", "--purge", "--yes")
    assert again.code == 0
    assert "bsd keeps nothing here" in again.err
    assert not (home / ".openclaw/.brainsurgeon").exists()
