"""bsd on a machine on which nothing has been configured: which root, and what is said."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from tests.commands import Ended
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import raw

PLACES = {
    "claude-code": ".claude/projects/-home-me/8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl",
    "codex": ".codex/sessions/2026/01/05/rollout-2026-01-05T09-00-00-x.jsonl",
    "pi": ".pi/agent/sessions/--home-me--/2026_x.jsonl",
}
# In every one of them something is looked for under the root.
COMMANDS = (
    *("sources", "sessions", "show 84", "show main/one", "extract", "extract --dry-run", "verify"),
    *("search word", "trash list", "archive", "history main/one", "config show", "logs", "mcp"),
    *("config set keep_recent 4", "retention", "memory stats", "run", "restore-all --yes"),
)


class Machine:
    """One user's home, and bsd called there without `--root`."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.openclaw = home / ".openclaw"
        self.own = home / ".local" / "share" / "bsd"
        self.settings = home / ".config" / "bsd" / "bsd.toml"
        self._capture = capture

    def __call__(self, line: str) -> Ended:
        code = run(line.split())
        out, err = self._capture.readouterr()
        assert "internal error" not in err, err
        return Ended(code, out, err)

    def has(self, kind: str, content: bytes = b"{}\n") -> Path:
        """Let a program have one session."""
        path = self.home / PLACES[kind]
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        set_idle(path)
        return path

    def set(self, text: str) -> None:
        self.settings.parent.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(text)

    def root(self) -> Path:
        """Which root is meant."""
        ended = self("config path --json")
        assert ended.code == 0, ended.err
        return Path(ended.document["path"]).parents[1]


@pytest.fixture
def machine(
    clean_environment: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Machine]:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield Machine(clean_environment, capsys)
    close_logs()


def lines_of(err: str) -> str:
    """The lines of bsd.toml in an error."""
    return err[err.index("\n[[sources]]") : err.index("\nFor OpenClaw")]


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
    sources = tomllib.loads(lines_of(machine("sources").err))["sources"]
    assert sources == [
        {"kind": "claude-code", "path": "~/.claude/projects"},
        {"kind": "pi", "path": "~/.pi/agent/sessions"},
    ]
    assert "[[sources]]" in machine("sessions --json").document["hint"]


def test_status_says_that_nothing_is_configured(machine: Machine) -> None:
    machine.has("codex")
    ended = machine("status")
    assert ended.code == 3
    assert f"Codex in {machine.home}/.codex/sessions" in ended.err
    assert 'kind = "codex"' in ended.err


def test_no_agent_at_all(machine: Machine) -> None:
    ended = machine("sessions")
    assert ended.code == 78
    assert "no other agent (Claude Code, Codex, pi) has sessions" in ended.err
    assert tomllib.loads(lines_of(ended.err))["sources"]
    assert list(machine.home.iterdir()) == []


def test_agents_are_looked_for_where_their_variables_say(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sessions" / "2026" / "01" / "05").mkdir(parents=True)
    (tmp_path / "sessions" / "2026" / "01" / "05" / "rollout-x.jsonl").touch()
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    ended = machine("sessions")
    (source,) = tomllib.loads(lines_of(ended.err))["sources"]
    assert source == {"kind": "codex", "path": f"{tmp_path}/sessions"}


def test_the_lines_that_are_told_work(machine: Machine) -> None:
    path = machine.has("claude-code", raw(claude_code_lines()))
    moved = path.with_name(f"{CLAUDE_CODE.session}.jsonl")
    path.rename(moved)
    machine.set(lines_of(machine("sessions").err))
    for line in ("sources", "sessions", "extract --dry-run", "verify", "doctor", "trash list"):
        assert machine(line).code == 0, line
        assert not machine.own.exists(), line
    assert "makes it" in machine("doctor").out
    ended = machine("extract --min-value-length 40")
    assert ended.code == 0, ended.err
    assert b"[[extracted-" in moved.read_bytes()
    assert machine.own.stat().st_mode & 0o777 == 0o700
    assert (machine.own / "extracted").is_dir()
    assert not machine.openclaw.exists()
    # OpenClaw comes later: what bsd has begun it goes on with.
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
    # One directory by two names is one root.
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
    assert 'kind = "claude-code"' in ended.out


def test_a_root_that_is_named_and_missing_says_only_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("claude-code")
    monkeypatch.setenv("OPENCLAW_ROOT", str(machine.home / "typo"))
    ended = machine("sessions")
    assert ended.code == 78
    assert f"there is no directory {machine.home / 'typo'}" in ended.err
    assert "[[sources]]" not in ended.err
