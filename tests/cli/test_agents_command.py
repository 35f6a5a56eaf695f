"""`bsd agents` as people and programs call it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from bsd.transcripts.agents.programs import take
from tests.cli.test_left_in_flight import let_pass
from tests.commands import Ended
from tests.openclaw_tree import set_idle
from tests.setup.homes import AGENTS, CLAUDE_SESSION, context_of, fill_home, foreign
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def home(clean_environment: Path) -> Path:
    return fill_home(clean_environment)


def call(capture: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    try:
        code = run([*arguments])
    finally:
        close_logs()
    out, err = capture.readouterr()
    assert "internal error" not in err, err
    return Ended(code, out, err)


def test_the_list_tells_what_is_set_up(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = call(capsys, "agents")
    assert listed.code == 0
    assert [name for name in AGENTS if name not in listed.out] == []
    assert "Try: `bsd agents on claude-code`" in listed.out
    document = call(capsys, "agents", "list", "--json").document
    [claude] = [one for one in document["agents"] if one["agent"] == "claude-code"]
    assert claude == {
        "agent": "claude-code",
        "title": "Claude Code",
        "directory": str(home / ".claude/projects"),
        "found": True,
        "sessions": 1,
        "subagents": 0,
        "bytes": (home / CLAUDE_SESSION).stat().st_size,
        "deleted_soon": 0,
        "to_copy": 0,
        "by_project": True,
        "command": "bsd agents on claude-code",
        "read_only": [],
        "on": False,
        "parts": dict.fromkeys(("source", "mcp", "skill", "hooks", "permission"), False),
        "turned_off": False,
    }


def test_on_and_off_with_diffs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = foreign(home)
    shown = call(capsys, "agents", "on", "claude-code", "--dry-run")
    assert shown.code == 0
    assert f"+++ {home}/.claude/settings.json" in shown.out
    assert '+kind = "claude-code"' in shown.out
    assert foreign(home) == before
    done = call(capsys, "agents", "on", "claude-code", "--yes", "--json").document
    assert (done["agent"], done["turn"], done["dry_run"]) == ("claude-code", "on", False)
    assert {Path(path).name for path in done["written"]} == {
        "bsd.toml",
        ".claude.json",
        "SKILL.md",
        "settings.json",
    }
    assert all(edit["diff"].startswith("--- ") for edit in done["files"])
    again = call(capsys, "agents", "on", "claude-code")  # no question without a change
    assert (again.code, "nothing to change" in again.out) == (0, True)
    off = call(capsys, "agents", "off", "claude-code", "--yes")
    assert (off.code, "Claude Code is off" in off.out) == (0, True)
    assert foreign(home) == before
    assert "Try:" not in call(capsys, "agents", "list").out.partition("pi")[0]


def test_without_a_terminal_nothing_is_done(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = foreign(home)
    for arguments in (("on", "pi"), ("on", "claude-code"), ("on", "codex", "--json")):
        refused = call(capsys, "agents", *arguments)
        assert refused.code == 2
        assert f"Try: `bsd agents on {arguments[1]} --yes`" in refused.err
    assert foreign(home) == before


def test_problems_end_with_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".codex/config.toml").write_text("broken = \n")
    ended = call(capsys, "agents", "on", "codex", "--yes")
    assert ended.code == 1
    assert "not valid TOML" in ended.err
    assert "Try: " in ended.err
    assert (home / ".codex/skills/brainsurgeon/SKILL.md").exists()
    again = call(capsys, "agents", "on", "codex", "--yes")
    assert (again.code, "nothing to change" in again.out) == (1, False)
    assert all("Codex is on in part" in one.out for one in (ended, again))
    unknown = call(capsys, "agents", "on", "claude")
    assert (unknown.code, "claude-code" in unknown.err) == (1, True)


@pytest.mark.parametrize("change", ["changed", "by hand"])
def test_an_agent_whose_source_stays_is_not_off(
    home: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    settings = home / ".config/bsd/bsd.toml"
    if change == "changed":
        call(capsys, "agents", "on", "codex", "--yes")
        settings.write_text(settings.read_text().replace('"codex"\n', '"codex"\nname = "cx"\n'))
    else:
        settings.parent.mkdir(parents=True)
        settings.write_text('[[sources]]\nkind = "codex"\npath = "~/.codex/sessions"\n')
    off = call(capsys, "agents", "off", "codex", "--yes")
    assert "Codex is not off" in off.out
    assert "--force" in off.err
    assert 'kind = "codex"' in settings.read_text()
    off = call(capsys, "agents", "off", "codex", "--yes", "--force")
    assert (off.code, "Codex is off" in off.out) == (0, True)


def test_an_agent_whose_source_cannot_be_named_is_not_on(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = home / ".config/bsd/bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("sources = []\n")
    on = call(capsys, "agents", "on", "codex", "--yes")
    assert (on.code, "Codex is not on" in on.out) == (1, True)


def test_a_source_that_another_root_serves_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "agents", "on", "codex", "--yes")
    layout = context_of(home).layout
    take(layout, layout.sources[0])
    other = home / "other.toml"
    other.write_text("")
    named = ("--root", str(home / "other"), "--config", str(other))
    (home / "other").mkdir()
    init = call(capsys, *named, "init", "--yes")
    assert "is served by the root" in init.out
    assert "Try: bsd agents on codex, then bsd sources claim codex" in init.out
    on = call(capsys, *named, "agents", "on", "codex", "--yes")
    assert "is served by the root" in on.err
    assert "Try: bsd sources claim codex" in on.err


def test_off_tells_what_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "agents", "on", "claude-code", "--yes")
    store = home / ".openclaw/extracted/claude-code:-home-me_5c0f"
    store.mkdir(parents=True)
    (store / "0001_tool_result.json").write_text("{}")
    off = call(capsys, "agents", "off", "claude-code", "--dry-run")
    assert "values of 1 session of Claude Code" in off.err
    assert "bsd restore-all" in off.err


def test_off_waits_for_late_lines(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, "agents", "on", "claude-code", "--yes")
    assert call(capsys, "extract", "--keep-recent", "0").code == 0
    (replaced,) = (home / ".openclaw/.brainsurgeon/inflight").glob("*.file")
    late = b'{"type":"user","uuid":"late","message":{"role":"user","content":"late"}}\n'

    def later(_seconds: float) -> None:
        if replaced.exists():
            replaced.write_bytes(replaced.read_bytes().removesuffix(late) + late)
            set_idle(replaced, 61)
        let_pass(home / ".openclaw", 61)
        set_idle(home / CLAUDE_SESSION)

    monkeypatch.setattr("bsd.cli.stopping.time.sleep", later)
    off = call(capsys, "agents", "off", "claude-code", "--yes")
    assert (off.code, "replaced versions of sessions are watched" in off.err) == (0, True)
    assert not replaced.exists()
    assert (home / CLAUDE_SESSION).read_bytes().endswith(late)


def test_on_a_terminal_it_asks_twice(home: Path) -> None:
    program = "import sys; from bsd.cli.main import run; sys.exit(run(sys.argv[1:]))"
    for answers, written in (
        (b"n\nn\n", None),
        (b"n\ny\n", ["Bash(ls)"]),
        (b"y\ny\n", ["Bash(ls)", "mcp__bsd"]),
    ):
        ours, theirs = pty.openpty()
        os.write(ours, answers)
        done = subprocess.run(
            [sys.executable, "-c", program, "agents", "on", "claude-code"],
            stdin=theirs,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        assert done.returncode == (1 if written is None else 0), done.stderr
        settings = json.loads((home / ".claude/settings.json").read_bytes())
        assert ("hooks" in settings) is (written is not None)
        assert settings["permissions"]["allow"] == (written or ["Bash(ls)"])
