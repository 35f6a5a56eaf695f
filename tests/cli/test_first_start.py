"""bsd on a machine without any configuration: the root that it chooses, and its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.machine import Machine
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import raw

# Each of these commands looks for a file under the root.
COMMANDS = (
    *("sources", "sessions", "show 84", "show main/one", "extract", "extract --dry-run", "verify"),
    *("search word", "trash list", "archive", "history main/one", "config show", "logs", "mcp"),
    *("config set keep_recent 4", "retention", "memory stats", "run", "restore-all --yes"),
)


def test_every_command_names_the_agents_it_sees_and_makes_nothing(machine: Machine) -> None:
    machine.has("claude-code")
    machine.has("pi")
    (machine.home / ".codex" / "sessions").mkdir(parents=True)  # without sessions
    before = sorted(machine.home.rglob("*"))
    for line in COMMANDS:
        ended = machine(line)
        assert ended.code == 78, line
        told = f"Claude Code in {machine.home}/.claude/projects, pi in {machine.home}/.pi/agent"
        assert told in ended.err, line
        assert "Codex" not in ended.err, line
        assert str(machine.settings) in ended.err, line
        assert sorted(machine.home.rglob("*")) == before, line
        assert "\nTry: bsd init\n" in ended.err, line
    assert machine("sessions --json").document["hint"].startswith("bsd init\n")
    assert "Try: bsd init" in machine("doctor").out


def test_status_says_that_nothing_is_configured(machine: Machine) -> None:
    machine.has("codex")
    ended = machine("status")
    assert ended.code == 3
    assert f"Codex in {machine.home}/.codex/sessions" in ended.err
    assert "Try: bsd init" in ended.err


def test_bsd_alone_says_how_to_begin_until_something_is_set_up(machine: Machine) -> None:
    machine.has("claude-code")
    (machine.openclaw / "agents").mkdir(parents=True)
    ended = machine("")
    assert (ended.code, ended.err) == (0, "")
    assert f"Claude Code  {machine.home}/.claude/projects\n" in ended.out
    assert f"OpenClaw     {machine.openclaw}\n" in ended.out
    assert "Try: bsd init" in ended.out
    assert len(ended.out.splitlines()) < 15
    (machine.openclaw / ".brainsurgeon").mkdir()
    assert "No sessions yet" in machine("").out


def test_bsd_alone_gives_an_overview_where_the_settings_name_something(machine: Machine) -> None:
    assert "No agent has sessions" in machine("").out
    machine.has("pi")
    machine.set('[[sources]]\nkind = "pi"\npath = "~/.pi/agent/sessions"\n')
    ended = machine("")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["SESSIONS", "SIZE", "SAVED", "ARCHIVED", "AGENT,", "PROJECT"]
    assert lines[1].split() == ["1", "3", "B", "pi,", "--home-me--"]
    assert "  pi:--home-me--/2026_x" in ended.out
    assert lines[-1].startswith("Try: bsd run")
    document = machine("--json").document
    assert [agent["kind"] for agent in document["agents"]] == ["pi"]
    assert document["would_leave"]["bytes_saved"] == 0
    assert document["fills"][0]["session"] == document["largest"][0]["session"]
    machine.set("broken")
    ended = machine("")
    assert (ended.code, ended.out) == (78, "")
    assert "bsd.toml: not valid TOML" in ended.err


def test_no_agent_at_all(machine: Machine) -> None:
    ended = machine("sessions")
    assert ended.code == 78
    assert "no other agent (Claude Code, Codex, GitHub Copilot CLI, " in ended.err
    assert f"add [[sources]] to {machine.settings}" in ended.err
    examined = machine("doctor")
    assert examined.code == 1
    [hint] = [line for line in examined.out.splitlines() if "Try: bsd init" in line]
    following = examined.out.splitlines()[examined.out.splitlines().index(hint) + 1]
    assert following.startswith(" " * hint.index("bsd init") + "For another directory")
    assert list(machine.home.iterdir()) == []


def test_agents_are_looked_for_where_their_variables_say(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sessions" / "2026" / "01" / "05").mkdir(parents=True)
    (tmp_path / "sessions" / "2026" / "01" / "05" / "rollout-x.jsonl").touch()
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    assert f"Codex in {tmp_path}/sessions" in machine("sessions").err


def test_a_source_that_is_written_by_hand_works(machine: Machine) -> None:
    path = machine.has("claude-code", raw(claude_code_lines()))
    moved = path.with_name(f"{CLAUDE_CODE.session}.jsonl")
    path.rename(moved)
    machine.set('[[sources]]\nkind = "claude-code"\npath = "~/.claude/projects"\n')
    for line in ("sources", "sessions", "extract --dry-run", "verify", "doctor", "trash list"):
        assert machine(line).code == 0, line
        assert not machine.own.exists(), line
    assert "creates it" in machine("doctor").out
    ended = machine("extract --min-value-length 40")
    assert ended.code == 0, ended.err
    assert b"[[extracted-" in moved.read_bytes()
    assert machine.own.stat().st_mode & 0o777 == 0o700
    assert (machine.own / "extracted").is_dir()
    assert not machine.openclaw.exists()
    # OpenClaw is installed later: bsd continues with the root that it has begun.
    (machine.openclaw / "agents").mkdir(parents=True)
    assert machine.root() == machine.own


@pytest.mark.parametrize("name", ["agents/main/sessions", "openclaw.json/"])
def test_openclaws_directory_is_the_root(machine: Machine, name: str) -> None:
    (machine.openclaw / name).mkdir(parents=True)
    machine.set('[[sources]]\nkind = "pi"\npath = "~/.pi/agent/sessions"\n')
    assert machine.root() == machine.openclaw
    (machine.openclaw / ".brainsurgeon").mkdir()
    assert machine.root() == machine.openclaw


def test_a_root_that_bsd_has_used_wins(machine: Machine) -> None:
    machine.set('[[sources]]\nkind = "pi"\npath = "~/.pi/agent/sessions"\n')
    machine.openclaw.mkdir()  # as bsd itself once left it
    assert machine.root() == machine.own
    (machine.openclaw / ".brainsurgeon").mkdir()
    assert machine.root() == machine.openclaw


def test_of_two_roots_none_is_chosen_silently(machine: Machine) -> None:
    for root in (machine.openclaw, machine.own):
        (root / ".brainsurgeon").mkdir(parents=True)
    machine.set('[[sources]]\nkind = "pi"\npath = "~/.pi/agent/sessions"\n')
    before = sorted(machine.home.rglob("*"))
    for line in ("sessions", "status", "run", "extract", "workspace list", "doctor"):
        ended = machine(line)
        assert ended.code == 78 or line == "doctor", line
        told = ended.err + ended.out
        assert f"there are two roots, {machine.openclaw} and {machine.own}" in told, line
        assert 'root = "' in told and str(machine.settings) in told, line  # noqa: PT018
    assert sorted(machine.home.rglob("*")) == before
    machine.set('root = "~/.openclaw"\n')
    assert machine.root() == machine.openclaw
    machine.settings.unlink()
    assert machine(f"--root {machine.own} config path").code == 0
    # One directory with two names is one root.
    (machine.own / ".brainsurgeon").rmdir()
    machine.own.rmdir()
    machine.own.symlink_to(machine.openclaw)
    assert machine.root() == machine.openclaw


def test_an_empty_root_names_the_agents_too(machine: Machine) -> None:
    machine.has("claude-code")
    (machine.openclaw / ".brainsurgeon").mkdir(parents=True)
    ended = machine("sessions")
    assert ended.code == 78
    assert f"Claude Code in {machine.home}/.claude/projects" in ended.err
    ended = machine("sources")
    assert ended.code == 0
    assert "Try: bsd init" in ended.out


def test_a_root_that_is_named_and_missing_says_only_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("claude-code")
    monkeypatch.setenv("OPENCLAW_ROOT", str(machine.home / "typo"))
    ended = machine("sessions")
    assert ended.code == 78
    assert f"there is no directory {machine.home / 'typo'}" in ended.err
    assert "[[sources]]" not in ended.err
