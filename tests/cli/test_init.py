"""`bsd init`: its display, its questions, its changes, and a second call."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bsd.cli import init, init_work
from bsd.cli.service_manager import ServiceState, Systemd
from bsd.core.errors import Unavailable
from tests.cli.conftest import snapshot
from tests.cli.machine import Machine
from tests.setup.agent_homes import ALL, add_agent, add_all, add_claude_session, add_openclaw
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI

SMALL = '{"min_value_length": 40, "keep_recent": 1}'


class FakeManager(Systemd):
    """The user's systemd, as far as `bsd init` uses it; starts no unit."""

    def __init__(self, *, there: bool) -> None:
        super().__init__()
        self.there = there
        self.ran: list[str] = []

    def check(self) -> None:
        if not self.there:
            raise Unavailable("there is no systemd on this machine to start bsd", hint="-")

    def state(self) -> ServiceState:
        runs = self.file.exists()
        return ServiceState(running=runs, at_login=runs, state="active")

    def advice(self) -> str | None:
        return None


@pytest.fixture
def manager(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    """No service manager, until the test adds it."""
    fake = FakeManager(there=False)
    for module in ("init", "agents"):
        monkeypatch.setattr(f"bsd.cli.{module}.manager_here", lambda: fake)

    def note_commands(commands: list[list[str]]) -> None:
        fake.ran += [" ".join(argv) for argv in commands]

    monkeypatch.setattr("bsd.cli.service.run_commands", note_commands)
    return fake


@pytest.fixture(autouse=True)
def no_real_manager(manager: FakeManager) -> FakeManager:
    return manager


def answering(monkeypatch: pytest.MonkeyPatch, *refused: str) -> list[str]:
    """Sit at a terminal and agree to all questions except those that contain one of these words."""
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return not any(word in question for word in refused)

    monkeypatch.setattr(init, "_ask", ask)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    return asked


def settings_of(machine: Machine) -> dict[str, Any]:
    return tomllib.loads(machine.settings.read_text())


def changed_since(before: dict[str, Any], machine: Machine) -> set[str]:
    """The paths that were added or changed, except logs."""
    now = snapshot(machine.home)
    return {
        path
        for path in now.keys() | before.keys()
        if now.get(path) != before.get(path) and "/logs" not in path
    }


def files_of(machine: Machine) -> dict[str, bytes]:
    """Files and directories in other programs' directories."""
    return {
        str(path): path.read_bytes() if path.is_file() else b"a directory"
        for path in sorted(machine.home.rglob("*"))
        if not path.is_relative_to(machine.home / ".local") and ".config/bsd" not in str(path)
    }


# --- all agents -------------------------------------------------------------------------------


def test_one_command_sets_up_all_agents(machine: Machine) -> None:
    add_all(machine.home)
    ended = machine("init --yes")
    assert ended.code == 0, ended.err
    for title in ("Claude Code", "Codex", "pi", "OpenClaw"):
        assert f"bsd manages {title} now" in ended.out
    assert "saved" in ended.out
    assert "the store keeps them as they were for 24h, then the archive keeps them" in ended.out
    assert "bsd restore-all" in ended.out
    assert {source["kind"] for source in settings_of(machine)["sources"]} == {
        kind.kind for kind in ALL
    }
    assert machine.root() == machine.openclaw
    listed = machine("sessions --json").document["sessions"]
    assert len(listed) == 4
    assert sum(one["extracted_entries"] > 0 for one in listed) >= 1


def test_a_second_call_changes_nothing(machine: Machine) -> None:
    add_all(machine.home)
    add_claude_session(machine.home, 1, days=25)
    assert machine("init --yes").code == 0
    before = snapshot(machine.home)
    for line in ("init --yes", "init", "init --dry-run"):
        ended = machine(line)
        assert ended.code == 0, ended.err
        assert "everything is set up; nothing was changed" in ended.out
        assert changed_since(before, machine) == set(), line
    document = machine("init --json").document
    assert (document["to_do"], document["changed"]) == (False, False)
    assert all(agent["on"] for agent in document["agents"])


def test_agents_off_leaves_every_file_as_it_was(machine: Machine) -> None:
    add_all(machine.home)
    (machine.home / ".claude.json").write_text('{\t"numStartups":7 }')
    (machine.home / ".codex" / "config.toml").write_text('# mine\nmodel = "x" # so\n')
    before = files_of(machine)
    assert machine("init --yes --no-extract").code == 0
    assert files_of(machine) != before
    for kind in ("claude-code", "codex", "pi", "openclaw"):
        ended = machine(f"agents off {kind} --yes")
        assert ended.code == 0, ended.err
    kept = ("/.openclaw/.brainsurgeon", "/.openclaw/logs", "/.openclaw/archive")
    after = {
        path: raw for path, raw in files_of(machine).items() if not any(k in path for k in kept)
    }
    assert after == before
    assert machine("init --json").document["to_do"] is False, "what was turned off stays off"
    ended = machine("init --yes")
    assert "you turned it off; `bsd agents on codex` turns it on" in ended.out
    assert not machine.settings.exists()


# --- Claude Code alone ------------------------------------------------------------------------


@pytest.fixture
def claude_only(machine: Machine) -> Machine:
    """Sessions of which two will be deleted within a week."""
    for number, days in enumerate((0.1, 3, 24, 29)):
        add_claude_session(machine.home, number, days=days, turns=6)
    return machine


def test_what_is_deleted_soon_is_copied_at_once(claude_only: Machine) -> None:
    machine = claude_only
    ended = machine("init --yes")
    assert ended.code == 0, ended.err
    told = "2 sessions will be deleted by Claude Code within 7 days; bsd keeps copies from now on"
    assert told in ended.out
    assert "copied 2 sessions that Claude Code deletes within 7 days" in ended.out
    assert "4 sessions and 4 subagents" in ended.out
    project = machine.home / CLAUDE_CODE.sessions / CLAUDE_CODE.directory
    for number in (2, 3):  # as Claude Code does when it starts
        next(project.glob(f"{number:08x}-*.jsonl")).unlink()
    gone = machine("archive list --json").document["sessions"]
    assert {one["session"].rpartition("/")[2][:8] for one in gone} == {"00000002", "00000003"}


def test_its_root_is_written_down(claude_only: Machine) -> None:
    machine = claude_only
    assert machine("init --yes").code == 0
    assert settings_of(machine)["root"] == "~/.local/share/bsd"
    assert machine.root() == machine.own
    assert machine.own.stat().st_mode & 0o777 == 0o700
    (machine.openclaw / "agents").mkdir(parents=True)  # OpenClaw comes later
    assert machine.root() == machine.own


def test_its_sessions_are_extracted(claude_only: Machine) -> None:
    document = claude_only("init --yes --json").document
    done = document["extraction"]
    assert done["sessions"] >= 4
    assert done["bytes_saved"] > 0
    assert (done["busy"], done["failed"]) == (0, 0)
    [agent] = document["agents"]
    assert agent["would_leave"]["bytes_saved"] == done["bytes_saved"]
    assert agent["copied"] == agent["deleted_soon"] == 2
    assert (document["changed"], document["root_written"]) == (True, True)


def test_the_first_extraction_is_bounded_by_time(
    claude_only: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_work, "_EXTRACT_SECONDS", 0.0)
    ended = claude_only("init --yes")
    assert ended.code == 0, ended.err
    assert "8 sessions left for `bsd run`, or `bsd extract`" in ended.out
    assert "everything is set up" in claude_only("init --yes").out


def test_a_session_in_use_is_left_for_later(machine: Machine) -> None:
    path = add_agent(machine.home, PI)
    before = path.read_bytes()
    path.write_bytes(before)  # just now
    ended = machine("init --yes")
    assert ended.code == 0, ended.err
    assert "nothing was extracted\n  1 session in use left for later\n" in ended.out
    assert path.read_bytes() == before
    assert "everything is set up" in machine("init --yes").out


def test_without_extraction_the_sessions_stay_as_they_are(claude_only: Machine) -> None:
    before = {path: path.read_bytes() for path in claude_only.home.rglob("*.jsonl")}
    document = claude_only("init --yes --no-extract --json").document
    assert document["extraction"] is None
    assert {path: path.read_bytes() for path in before} == before
    assert document["agents"][0]["copied"] == 2


def test_where_no_copies_are_wanted_none_is_made(claude_only: Machine) -> None:
    own = claude_only.own / ".brainsurgeon"
    own.mkdir(parents=True, mode=0o700)
    (own / "config.json").write_text('{"archive_sessions": "off", "enabled": false}')
    ended = claude_only("init --yes")
    assert ended.code == 0, ended.err
    assert "2 sessions will be deleted by Claude Code within 7 days" in ended.out
    assert "bsd keeps copies" not in ended.out
    assert "nothing is extracted: the setting `enabled` is false" in ended.err
    assert not (claude_only.own / "archive").exists()


def test_permission_is_left_out_if_that_is_wanted(claude_only: Machine) -> None:
    settings = claude_only.home / ".claude" / "settings.json"
    assert claude_only("init --yes --no-permission --no-extract").code == 0
    assert "mcp__bsd" not in settings.read_text()
    assert "everything is set up" in claude_only("init --yes").out
    assert claude_only("agents off claude-code --yes").code == 0
    assert claude_only("agents on claude-code --yes").code == 0
    assert "mcp__bsd" in settings.read_text()


# --- asking -----------------------------------------------------------------------------------


def test_without_a_terminal_it_shows_all_and_changes_nothing(claude_only: Machine) -> None:
    before = snapshot(claude_only.home)
    ended = claude_only("init")
    assert ended.code == 2
    assert "2 sessions will be deleted by Claude Code" in ended.out
    assert '+kind = "claude-code"' in ended.out
    assert "Try: bsd init --yes" in ended.err
    assert changed_since(before, claude_only) == set()
    ended = claude_only("init --json")
    assert ended.code == 2
    assert ended.document["hint"] == "bsd init --yes"
    assert (ended.document["to_do"], ended.document["changed"]) == (True, False)
    assert changed_since(before, claude_only) == set()


def test_a_dry_run_changes_nothing(claude_only: Machine) -> None:
    before = snapshot(claude_only.home)
    ended = claude_only("init --dry-run --yes")
    assert ended.code == 0, ended.err
    assert '+kind = "claude-code"' in ended.out
    assert "This was a dry run: nothing was changed." in ended.out
    document = claude_only("init --dry-run --json").document
    assert document["dry_run"] is True
    [agent] = document["agents"]
    assert any("mcpServers" in file["diff"] for file in agent["files"])
    assert changed_since(before, claude_only) == set()


def test_each_agent_is_asked_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (CLAUDE_CODE, CODEX, PI):
        add_agent(machine.home, kind)
    asked = answering(monkeypatch, "Codex", "Extract", "without asking")
    ended = machine("init")
    assert ended.code == 0, ended.err
    assert [question for question in asked if question.startswith("Let bsd manage")] == [
        f"Let bsd manage {title}?" for title in ("Claude Code", "Codex", "pi")
    ]
    assert {source["kind"] for source in settings_of(machine)["sources"]} == {"claude-code", "pi"}
    assert "mcp__bsd" not in (machine.home / ".claude" / "settings.json").read_text()
    assert not (machine.own / "extracted").exists()
    # bsd does not mention a refused agent again.
    assert "Codex" not in machine("status").out


def test_a_permission_that_is_there_is_not_asked_for(
    claude_only: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = claude_only.home / ".claude" / "settings.json"
    settings.write_text('{"permissions": {"allow": ["mcp__bsd"]}}')
    asked = answering(monkeypatch)
    assert claude_only("init").code == 0
    assert "hooks" in settings.read_text()
    assert not any("without asking" in question for question in asked)


def test_an_agent_that_is_refused_is_no_root(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = add_openclaw(machine.home)
    add_agent(machine.home, CODEX)
    before = path.read_bytes()
    answering(monkeypatch, "OpenClaw")
    ended = machine("init")
    assert ended.code == 0, ended.err
    assert settings_of(machine)["root"] == "~/.local/share/bsd"
    assert path.read_bytes() == before
    assert not (machine.openclaw / ".brainsurgeon").exists()


def test_who_refuses_all_has_changed_nothing(
    claude_only: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(claude_only.home)
    answering(monkeypatch, "manage")
    ended = claude_only("init")
    assert ended.code == 0, ended.err
    assert "nothing was changed" in ended.out
    assert changed_since(before, claude_only) == set()


# --- the service ------------------------------------------------------------------------------


def test_it_starts_at_login(claude_only: Machine, manager: FakeManager) -> None:
    manager.there = True
    document = claude_only("init --yes --json").document
    assert document["service"] == "runs"
    assert "systemctl --user enable bsd.service" in manager.ran
    assert manager.file.exists()
    manager.ran.clear()
    assert "everything is set up" in claude_only("init --yes").out
    assert manager.ran == []


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turning an agent off does not wait a minute for late lines in replaced versions."""
    monkeypatch.setattr("bsd.actions.in_flight.replaced_versions", lambda layout, kind=None: 0)


@pytest.mark.usefixtures("no_wait")
def test_agents_that_are_all_off_are_not_called_set_up(claude_only: Machine) -> None:
    assert claude_only("init --yes").code == 0
    assert claude_only("agents off claude-code --yes").code == 0
    ended = claude_only("init --yes")
    assert ended.code == 0
    assert "everything is set up" not in ended.out
    assert "bsd manages none of these agents" in ended.out


@pytest.mark.usefixtures("no_wait")
def test_a_service_that_runs_is_started_again_when_an_agent_goes_off(
    claude_only: Machine, manager: FakeManager
) -> None:
    manager.there = True
    assert claude_only("init --yes").code == 0
    manager.ran.clear()
    assert claude_only("agents off claude-code --yes").code == 0
    assert "systemctl --user restart bsd.service" in manager.ran


def test_a_service_that_runs_is_started_again_for_a_new_agent(
    claude_only: Machine, manager: FakeManager
) -> None:
    manager.there = True
    assert claude_only("init --yes").code == 0
    add_agent(claude_only.home, PI)
    manager.ran.clear()
    assert claude_only("init --yes").code == 0
    assert "systemctl --user restart bsd.service" in manager.ran


def test_without_a_service_manager_it_says_what_runs_bsd(claude_only: Machine) -> None:
    ended = claude_only("init --yes")
    assert ended.code == 0
    assert "bsd does not start at login: there is no systemd on this machine" in ended.out
    assert "`bsd run`" in ended.err


def test_another_service_file_stays(claude_only: Machine, manager: FakeManager) -> None:
    manager.there = True
    manager.file.parent.mkdir(parents=True)
    manager.file.write_text("[Unit]\n")
    ended = claude_only("init --yes")
    assert ended.code == 0, ended.err
    assert "`bsd service install` asks what to do" in ended.out
    assert manager.file.read_text() == "[Unit]\n"


def test_no_service_if_none_is_wanted(claude_only: Machine, manager: FakeManager) -> None:
    manager.there = True
    assert claude_only("init --yes --no-service").code == 0
    assert manager.ran == []
    assert "everything is set up" in claude_only("init --yes --no-service").out


# --- roots and failures -----------------------------------------------------------------------


def test_without_any_agent_it_says_what_to_name(machine: Machine) -> None:
    ended = machine("init --yes")
    assert ended.code == 1
    assert "no agent has sessions" in ended.err
    assert str(machine.settings) in ended.err
    assert list(machine.home.iterdir()) == []


def test_a_root_that_is_chosen_is_written_down(claude_only: Machine, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    ended = claude_only(f"--root {chosen} init --yes")
    assert ended.code == 0, ended.err
    assert settings_of(claude_only)["root"] == str(chosen)
    assert claude_only.root() == chosen
    ended = claude_only(f"--root {tmp_path / 'other'} init --yes")
    assert ended.code == 78
    assert f"names the root {chosen}" in ended.err


def test_a_root_that_bsd_has_worked_on_is_not_written_down(claude_only: Machine) -> None:
    (claude_only.own / ".brainsurgeon").mkdir(parents=True, mode=0o700)
    assert claude_only("init --yes").code == 0
    assert "root" not in settings_of(claude_only)
    assert claude_only.root() == claude_only.own


def test_a_root_that_only_this_shell_knows_is_written_down(
    claude_only: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "bsd" / ".brainsurgeon").mkdir(parents=True, mode=0o700)
    assert claude_only("init --yes").code == 0
    assert settings_of(claude_only)["root"] == str(tmp_path / "bsd")


def test_an_agent_that_cannot_be_read_does_not_stop_the_others(
    claude_only: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_agent(claude_only.home, CODEX)
    closed = claude_only.home / CODEX.sessions
    scandir = os.scandir

    def refusing(place: Any = ".") -> Any:
        if str(place).startswith(str(closed)):
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    ended = claude_only("init --yes")
    assert ended.code == 1
    assert "bsd manages Claude Code now" in ended.out
    assert f"reading {closed}: Permission denied" in ended.out
    assert [source["kind"] for source in settings_of(claude_only)["sources"]] == ["claude-code"]


def test_a_file_that_cannot_be_edited_is_named_and_the_rest_is_done(claude_only: Machine) -> None:
    broken = claude_only.home / ".claude.json"
    broken.write_text("{ // mine\n}")
    ended = claude_only("init --yes")
    assert ended.code == 0
    assert f"{broken} stays as it is: " in ended.err
    assert broken.read_text() == "{ // mine\n}"
    assert settings_of(claude_only)["sources"][0]["kind"] == "claude-code"


def test_a_root_that_is_a_file_is_named(claude_only: Machine) -> None:
    claude_only.own.parent.mkdir(parents=True)
    claude_only.own.touch()
    ended = claude_only("init --yes")
    assert ended.code == 78
    assert f"{claude_only.own} is not a directory" in ended.err


def test_openclaw_in_a_root_of_its_own_is_named(claude_only: Machine) -> None:
    assert claude_only("init --yes").code == 0
    path = add_openclaw(claude_only.home)
    before = path.read_bytes()
    ended = claude_only("init --yes")
    assert "its directory is a root of its own" in ended.out
    assert f"bsd --root {claude_only.openclaw} init" in ended.out + ended.err
    assert path.read_bytes() == before


def test_where_bsd_may_only_read_nothing_is_changed(
    claude_only: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAINSURGEON_READONLY", "true")
    before = snapshot(claude_only.home)
    ended = claude_only("init --yes")
    assert ended.code == 77
    assert changed_since(before, claude_only) == set()
