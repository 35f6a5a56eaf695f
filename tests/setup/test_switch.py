"""Turning agents on and off again leaves every file of their programs as it was."""

from __future__ import annotations

import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import BsdError, Conflict, NotFound, TemporaryFailure
from bsd.core.layout import Layout
from bsd.setup import switch
from bsd.setup.record import lock_record, read_record
from bsd.setup.states import AgentState, available
from bsd.setup.switch import SetupDone, SetupPlan, apply, plan_off, plan_on
from bsd.transcripts.agents.setup_files import SetupPart
from tests.setup.homes import AGENTS, context_of, fill_home, foreign

HOOKED = {"Stop", "SessionEnd", "SessionStart"}


@pytest.fixture
def home(clean_environment: Path) -> Path:
    """A home with all four agents; bsd's root is OpenClaw's directory."""
    return fill_home(clean_environment)


def turn_on(home: Path, agent: str, **how: bool) -> tuple[SetupPlan, SetupDone]:
    context = context_of(home)
    plan = plan_on(context, agent, **{"permission": True, **how})
    return plan, apply(context, plan)


def turn_off(home: Path, agent: str, **how: bool) -> tuple[SetupPlan, SetupDone]:
    context = context_of(home)
    plan = plan_off(context, agent, **how)
    return plan, apply(context, plan)


def states(home: Path) -> dict[str, AgentState]:
    return {state.agent: state for state in available(context_of(home), time.time())}


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.mark.parametrize("configured", [True, False])
def test_everything_is_as_before_after_on_and_off(
    clean_environment: Path, configured: bool
) -> None:
    home = fill_home(clean_environment, configured=configured)
    if not configured:  # an OpenClaw without a configuration does not name its version
        (home / ".openclaw" / "openclaw.json").write_text('{"mcp": {}}')
    before = foreign(home)
    for agent in AGENTS:
        plan, done = turn_on(home, agent)
        assert (plan.problems, done.failed, bool(done.written)) == ([], {}, True)
    for state in map(states(home).__getitem__, AGENTS):
        assert (state.on, set(state.parts.values()), state.sessions) == (True, {True}, 1)
    assert foreign(home) != before
    for agent in AGENTS:
        plan, done = turn_off(home, agent)
        assert (plan.problems, done.failed) == ([], {})
        assert states(home)[agent].turned_off
    assert foreign(home) == before
    record = read_record(context_of(home).layout)
    assert (record.additions, record.made) == ({}, {})


def test_each_program_gets_what_it_reads(home: Path) -> None:
    for agent in AGENTS:
        turn_on(home, agent)
    command = read_json(home / ".pi/agent/mcp.json")["mcpServers"]["bsd"]
    assert command["args"][-1] == "mcp"
    assert Path(command["command"]).is_absolute()
    claude = read_json(home / ".claude.json")["mcpServers"]["bsd"]
    assert claude == {"type": "stdio", **command, "env": {}}
    codex = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["bsd"]
    assert codex == command
    openclaw = read_json(home / ".openclaw/openclaw.json")["mcp"]["servers"]["bsd"]
    assert openclaw["args"] == [*command["args"], "--agent", "main"]
    settings = read_json(home / ".claude/settings.json")
    assert settings["permissions"]["allow"] == ["Bash(ls)", "mcp__bsd"]
    assert set(settings["hooks"]) == HOOKED
    [resumed] = settings["hooks"]["SessionStart"]
    assert resumed["matcher"] == "resume|compact"
    [hook] = settings["hooks"]["Stop"][0]["hooks"]
    assert " -I -S " in hook["command"]
    assert "claude_hook.py" in hook["command"]
    assert hook["timeout"] <= 5
    for skills in (".claude", ".codex", ".pi/agent", ".openclaw"):
        text = (home / skills / "skills" / "brainsurgeon" / "SKILL.md").read_text()
        assert text.startswith("---\nname: brainsurgeon\n")
    sources = tomllib.loads((home / ".config/bsd/bsd.toml").read_text())["sources"]
    assert [source["kind"] for source in sources] == [*AGENTS[:3]]
    assert sources[0]["path"] == "~/.claude/projects"


def test_a_second_time_changes_nothing(home: Path) -> None:
    for agent in AGENTS:
        turn_on(home, agent)
    before = foreign(home)
    record = (home / ".openclaw/.brainsurgeon/agents.json").stat().st_mtime_ns
    for agent in AGENTS:
        plan, done = turn_on(home, agent)
        assert (plan.changes, plan.kept, done.written) == ([], [], [])
    assert foreign(home) == before
    assert (home / ".openclaw/.brainsurgeon/agents.json").stat().st_mtime_ns == record
    for agent in AGENTS:
        turn_off(home, agent)
    for agent in AGENTS:
        assert turn_off(home, agent)[0].changes == []


def test_what_was_there_before_stays_at_off(home: Path) -> None:
    mine = {"type": "stdio", "command": "bsd", "args": ["mcp"], "env": {}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"bsd": mine}}))
    skill = home / ".claude/skills/brainsurgeon/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("mine")
    settings = home / ".config/bsd/bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[[sources]]\nkind = 'claude-code'\npath = '{home}/.claude/projects'\n")
    before = foreign(home)
    plan, _ = turn_on(home, "claude-code")
    assert {kept.part for kept in plan.kept} == {SetupPart.MCP, SetupPart.SKILL, SetupPart.SOURCE}
    assert [edit.path.name for edit in plan.changes] == ["settings.json"]
    plan, _ = turn_off(home, "claude-code")
    assert [kept.part for kept in plan.kept] == [SetupPart.SOURCE]
    assert foreign(home) == before
    turn_off(home, "claude-code", force=True)
    assert tomllib.loads(settings.read_text()) == {}


def test_only_ours_goes_when_others_have_come(home: Path) -> None:
    for agent in ("claude-code", "pi", "codex"):
        turn_on(home, agent)
    for name in (".claude.json", ".claude/settings.json", ".pi/agent/mcp.json"):
        document = read_json(home / name)
        document.setdefault("mcpServers", {})["other"] = {"command": "x"}
        document.setdefault("hooks", {}).setdefault("Stop", []).append({"hooks": []})
        (home / name).write_text(json.dumps(document, indent=2))
    config = home / ".codex/config.toml"
    config.write_bytes(config.read_bytes() + b"\r\n# below\r\n[projects.x]\r\ntrust = 1\r\n")
    for agent in ("claude-code", "pi", "codex"):
        plan, _ = turn_off(home, agent)
        assert plan.problems == []
    assert read_json(home / ".pi/agent/mcp.json") == {
        "mcpServers": {"other": {"command": "x"}},
        "hooks": {"Stop": [{"hooks": []}]},
    }
    settings = read_json(home / ".claude/settings.json")
    assert settings["hooks"] == {"Stop": [{"hooks": []}]}
    assert settings["permissions"] == {"allow": ["Bash(ls)"]}
    assert "bsd" not in (home / ".claude.json").read_text()
    assert config.read_bytes().endswith(b"x=true\r\n# below\r\n[projects.x]\r\ntrust = 1\r\n")


def test_what_a_person_has_changed_stays_unless_forced(home: Path) -> None:
    turn_on(home, "claude-code")
    before = read_json(home / ".claude.json")
    before["mcpServers"]["bsd"]["args"].append("--tools")
    (home / ".claude.json").write_text(json.dumps(before))
    skill = home / ".claude/skills/brainsurgeon/SKILL.md"
    skill.write_text("mine")
    settings = read_json(home / ".claude/settings.json")
    settings["hooks"]["Stop"][0]["hooks"][0]["timeout"] = 9
    (home / ".claude/settings.json").write_text(json.dumps(settings))
    sources = home / ".config/bsd/bsd.toml"
    sources.write_text(sources.read_text() + 'name = "claude"\n')
    for _ in range(2):
        plan, _ = turn_off(home, "claude-code")
        assert {edit.path.name for edit in plan.problems} == {
            ".claude.json",
            "SKILL.md",
            "settings.json",
            "bsd.toml",
        }
        assert all("changed" in str(edit.problem) for edit in plan.problems)
    assert read_json(home / ".claude.json") == before
    assert skill.read_text() == "mine"
    assert [*read_json(home / ".claude/settings.json")["hooks"]] == ["Stop"]
    assert states(home)["claude-code"].on
    plan, _ = turn_off(home, "claude-code", force=True)
    assert plan.problems == []
    assert "hooks" not in read_json(home / ".claude/settings.json")
    assert not states(home)["claude-code"].on
    assert "mcpServers" not in read_json(home / ".claude.json")
    assert not skill.exists()


def test_one_file_that_cannot_be_edited_does_not_stop_the_others(home: Path) -> None:
    (home / ".claude/settings.json").write_text('{"model": "opus", // mine\n}')
    (home / ".claude.json").unlink()
    (home / ".claude.json").mkdir()
    before = foreign(home)
    plan, done = turn_on(home, "claude-code")
    assert {edit.path.name for edit in plan.problems} == {".claude.json", "settings.json"}
    assert all(edit.hint for edit in plan.problems)
    assert {path.name for path in done.written} == {"bsd.toml", "SKILL.md"}
    state = states(home)["claude-code"]
    assert state.on
    assert state.problem
    turn_off(home, "claude-code")
    assert foreign(home) == before


def test_a_file_in_the_place_of_a_directory_is_told(home: Path) -> None:
    (home / ".claude/skills").write_text("mine")
    before = foreign(home)
    _, done = turn_on(home, "claude-code")
    assert [Path(path).name for path in done.failed] == ["SKILL.md"]
    assert "move the file away" in next(iter(done.hints.values()))
    turn_off(home, "claude-code")
    assert foreign(home) == before


def test_one_broken_file_does_not_hide_what_the_others_hold(home: Path) -> None:
    turn_on(home, "claude-code")
    (home / ".claude.json").write_text("{ broken")
    state = states(home)["claude-code"]
    assert {part: there for part, there in state.parts.items() if not there} == {"mcp": False}
    assert "not plain JSON" in str(state.problem)


def test_nothing_is_written_if_one_file_has_changed_since(home: Path) -> None:
    context = context_of(home)
    plan = plan_on(context, "claude-code")
    (home / ".claude/settings.json").write_text("{}")
    before = foreign(home)
    with pytest.raises(Conflict, match="just been changed"):
        apply(context, plan)
    assert foreign(home) == before


@pytest.mark.parametrize("turn", ["on", "off"])
def test_a_bsd_that_was_killed_before_a_rename_leaves_nothing_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(_old: object, new: Path) -> None:
        if new.name == "settings.json":
            raise Killed
        os.rename(_old, new)  # type: ignore[arg-type]

    before = foreign(home)
    if turn == "off":
        turn_on(home, "claude-code")
    with monkeypatch.context() as patch:
        patch.setattr("bsd.setup.foreign_files.os.replace", kill)
        patch.setattr("bsd.setup.foreign_files.os.unlink", lambda _path: None)
        with pytest.raises(Killed):
            (turn_on if turn == "on" else turn_off)(home, "claude-code")
    assert [*(home / ".claude").glob(".*.bsd-tmp")]
    turn_off(home, "claude-code")
    assert foreign(home) == before


def test_two_at_once_do_not_lose_what_the_other_has_noted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(home)
    plan = plan_on(context, "codex")
    monkeypatch.setattr("bsd.setup.record._WAIT_SECONDS", 0.0)
    before = foreign(home)
    with lock_record(context.layout), pytest.raises(TemporaryFailure, match="another bsd"):
        apply(context, plan)
    assert foreign(home) == before
    assert not apply(context, plan).failed


def test_a_file_that_cannot_be_written_is_told_and_not_recorded(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = switch._write

    def failing(edit: switch.FileEdit) -> None:
        if edit.path.name == "settings.json":
            raise Conflict("no room")
        write(edit)

    before = foreign(home)
    with monkeypatch.context() as patch:
        patch.setattr(switch, "_write", failing)
        _, done = turn_on(home, "claude-code")
    assert [*done.failed] == [str(home / ".claude/settings.json")]
    record = read_record(context_of(home).layout)
    assert {each.file.name for each in record.additions["claude-code"]} == {
        "bsd.toml",
        ".claude.json",
        "SKILL.md",
    }
    turn_off(home, "claude-code")
    assert foreign(home) == before


def test_a_new_version_replaces_what_an_older_one_wrote(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = foreign(home)
    turn_on(home, "claude-code")
    skill = home / ".claude/skills/brainsurgeon/SKILL.md"
    with monkeypatch.context() as patch:
        patch.setattr("bsd.setup.additions.skill_text", lambda _: "---\nnew\n")
        patch.setattr("sys.executable", "/opt/python")
        turn_on(home, "claude-code")
    assert skill.read_text() == "---\nnew\n"
    [stop] = read_json(home / ".claude/settings.json")["hooks"]["Stop"]
    assert stop["hooks"][0]["command"].startswith("/opt/python ")
    turn_off(home, "claude-code")
    assert foreign(home) == before


def test_without_the_permission_the_program_asks(home: Path) -> None:
    turn_on(home, "claude-code", permission=False)
    assert read_json(home / ".claude/settings.json")["permissions"]["allow"] == ["Bash(ls)"]
    turn_on(home, "claude-code", permission=True)
    turn_on(home, "claude-code", permission=False)  # an existing permission stays
    settings = home / ".claude/settings.json"
    assert read_json(settings)["permissions"]["allow"] == ["Bash(ls)", "mcp__bsd"]
    turn_off(home, "claude-code")
    assert read_json(settings)["permissions"]["allow"] == ["Bash(ls)"]


def test_variables_name_the_directories(
    clean_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = clean_environment
    for variable, sessions in (
        ("CLAUDE_CONFIG_DIR", "projects"),
        ("CODEX_HOME", "sessions"),
        ("PI_CODING_AGENT_DIR", "sessions"),
        ("OPENCLAW_ROOT", "agents/solo/sessions"),
    ):
        directory = tmp_path / variable
        (directory / sessions).mkdir(parents=True)
        monkeypatch.setenv(variable, str(directory))
    (tmp_path / "OPENCLAW_ROOT/openclaw.json").write_text('{"mcp": {}}')
    for agent in AGENTS:
        turn_on(home, agent)
    assert read_json(tmp_path / "CLAUDE_CONFIG_DIR/.claude.json")["mcpServers"]["bsd"]
    assert (tmp_path / "CODEX_HOME/config.toml").exists()
    assert (tmp_path / "PI_CODING_AGENT_DIR/mcp.json").exists()
    server = read_json(tmp_path / "OPENCLAW_ROOT/openclaw.json")["mcp"]["servers"]["bsd"]
    assert server["args"][-1] == "solo"
    assert sorted(os.listdir(home)) == [".config"]


def test_an_openclaw_that_may_not_know_the_key_keeps_its_file(home: Path) -> None:
    config = home / ".openclaw/openclaw.json"
    for text in ('{"meta": {"lastTouchedVersion": "2026.2.12"}}', "{}", "// JSON5\n{}"):
        config.write_text(text)
        plan, done = turn_on(home, "openclaw")
        assert [edit.path for edit in plan.problems] == [config]
        assert config not in done.written
        assert config.read_text() == text
        turn_off(home, "openclaw")


def test_a_root_of_its_own_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = home / "other"
    (other / ".brainsurgeon").mkdir(parents=True)
    settings = home / ".config/bsd/bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'root = "{other}"\n')
    with pytest.raises(Conflict, match="root of its own") as caught:
        plan_on(context_of(home), "openclaw")
    assert "--root" in str(caught.value.hint)
    assert not states(home)["openclaw"].on


def test_the_root_is_written_if_that_is_wanted_and_stays(clean_environment: Path) -> None:
    home = fill_home(clean_environment)
    settings = home / ".config/bsd/bsd.toml"
    turn_on(home, "pi", root=True)
    assert tomllib.loads(settings.read_text())["root"] == "~/.openclaw"
    turn_off(home, "pi")
    assert settings.read_text() == 'root = "~/.openclaw"\n'


@pytest.mark.parametrize("agent", ["codexx", "codex"])
def test_an_agent_that_is_not_here_is_told(clean_environment: Path, agent: str) -> None:
    with pytest.raises(NotFound) as caught:
        plan_on(context_of(clean_environment), agent)
    assert "codex" in f"{caught.value.message} {caught.value.hint}".lower()


def test_a_broken_record_is_told(home: Path) -> None:
    layout: Layout = context_of(home).layout
    turn_on(home, "pi")
    layout.agents_file.write_text("{")
    with pytest.raises(BsdError, match="broken"):
        plan_off(context_of(home), "pi")
    assert states(home).keys() >= {*AGENTS}
