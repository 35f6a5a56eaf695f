"""Agents that appear after bsd was set up are reported once, in the log and by `bsd status`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.cli.main import run
from bsd.core.layout import Layout
from bsd.core.logs import close_logs
from bsd.core.settings import SourceSettings
from bsd.setup.record import SetupRecord, write_record
from bsd.setup.unserved import ToldIn, dismissed, note_dismissed, note_told, unserved, untold
from bsd.transcripts.agents.programs import layout_of
from tests.commands import Ended
from tests.daemon.running import running
from tests.setup.agent_homes import add_agent, add_openclaw
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX


@pytest.fixture
def layout(clean_environment: Path) -> Layout:
    """The layout of a root that bsd has worked on and that serves Claude Code."""
    root = clean_environment / ".local" / "share" / "bsd"
    (root / ".brainsurgeon").mkdir(parents=True, mode=0o700)
    add_agent(clean_environment, CLAUDE_CODE)
    source = clean_environment / CLAUDE_CODE.sessions
    settings = clean_environment / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{source}"\n')
    return layout_of(root, [SourceSettings(kind=CLAUDE_CODE.kind, path=source)])


def kinds_untold(layout: Layout, place: ToldIn) -> list[str]:
    return [agent.kind for agent in untold(layout, os.environ, place)]


def test_only_agents_that_no_source_names_are_told(layout: Layout, clean_environment: Path) -> None:
    assert kinds_untold(layout, ToldIn.STATUS) == []
    add_agent(clean_environment, CODEX)
    assert kinds_untold(layout, ToldIn.STATUS) == ["codex"]


def test_each_place_tells_once(layout: Layout, clean_environment: Path) -> None:
    add_agent(clean_environment, CODEX)
    note_told(layout, ["codex"], ToldIn.LOG)
    assert kinds_untold(layout, ToldIn.LOG) == []
    assert kinds_untold(layout, ToldIn.STATUS) == ["codex"]
    note_told(layout, ["codex"])
    assert kinds_untold(layout, ToldIn.STATUS) == []
    assert layout.told_file.stat().st_mode & 0o777 == 0o600


def test_what_the_user_has_turned_off_is_not_told(layout: Layout, clean_environment: Path) -> None:
    add_agent(clean_environment, CODEX)
    write_record(layout, SetupRecord(turned_off={"codex"}))
    assert kinds_untold(layout, ToldIn.STATUS) == []


def test_an_openclaw_that_comes_later_is_told_until_bsd_works_there(
    layout: Layout, clean_environment: Path
) -> None:
    openclaw = clean_environment / ".openclaw"
    (openclaw / "agents" / "main" / "sessions").mkdir(parents=True)
    assert kinds_untold(layout, ToldIn.STATUS) == []  # the agent has no sessions yet
    add_openclaw(clean_environment)
    [told] = unserved(layout, os.environ)
    assert (told["kind"], told["hint"]) == ("openclaw", f"bsd --root {openclaw} run")
    assert unserved(Layout(openclaw), os.environ)[0]["kind"] != "openclaw"
    (openclaw / ".brainsurgeon").mkdir()
    assert kinds_untold(layout, ToldIn.STATUS) == []


def test_dismissed_notices_stand_beside_what_was_told(layout: Layout) -> None:
    note_told(layout, ["codex"], ToldIn.STATUS)
    note_dismissed(layout, ["clock", "disk"])
    assert dismissed(layout) == {"clock", "disk"}
    note_dismissed(layout, ["disk"])
    note_told(layout, ["pi"], ToldIn.STATUS)
    assert dismissed(layout) == {"disk"}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"status": 1}', '{"status": [["codex"]]}'])
def test_a_note_that_cannot_be_understood_counts_as_none(
    layout: Layout, clean_environment: Path, content: str
) -> None:
    add_agent(clean_environment, CODEX)
    layout.told_file.write_text(content)
    layout.told_file.chmod(0o600)
    assert kinds_untold(layout, ToldIn.STATUS) == ["codex"]
    note_told(layout, ["codex"])
    assert kinds_untold(layout, ToldIn.STATUS) == []


def test_a_root_that_is_not_there_gets_no_note(tmp_path: Path) -> None:
    note_told(Layout(tmp_path / "root"), ["codex"])
    assert not (tmp_path / "root").exists()


def call(capture: pytest.CaptureFixture[str], *words: str) -> Ended:
    code = run(list(words))
    out, err = capture.readouterr()
    close_logs()
    return Ended(code, out, err)


def test_status_without_a_daemon_tells_it_once(
    layout: Layout, clean_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_agent(clean_environment, CODEX)
    told = "Codex has sessions here that bsd does not manage (try: `bsd agents on codex`)"
    assert told in call(capsys, "status").out
    ended = call(capsys, "status")
    assert (ended.code, "Codex" in ended.out) == (3, False)


def test_status_for_programs_tells_it_once(
    layout: Layout, clean_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_agent(clean_environment, CODEX)
    [agent] = call(capsys, "status", "--json").document["unserved"]
    assert agent == {
        "kind": "codex",
        "title": "Codex",
        "directory": str(clean_environment / CODEX.sessions),
        "hint": "bsd agents on codex",
    }
    assert call(capsys, "status", "--json").document["unserved"] == []


@pytest.mark.daemon
def test_a_daemon_logs_it_once_and_tells_it_until_status_has(
    layout: Layout, clean_environment: Path, tmp_path: Path
) -> None:
    add_agent(clean_environment, CODEX)
    for times in (1, 1):
        with running(layout.root, tmp_path) as daemon:
            lines = [line for line in daemon.log().splitlines() if "Codex has sessions" in line]
            assert len(lines) == times
            assert "bsd agents on codex" in lines[0]
            assert [one["kind"] for one in daemon.status()["unserved"]] == ["codex"]
    with running(layout.root, tmp_path) as daemon:
        assert "bsd agents on codex" in daemon.bsd("status").stdout
        assert daemon.status()["unserved"] == []
        assert "bsd agents on codex" not in daemon.bsd("status").stdout
