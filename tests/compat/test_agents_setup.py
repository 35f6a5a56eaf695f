"""The real programs read the additions of `bsd agents on`, and `off` leaves their files as
before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.compat import claude_code
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model
from tests.needs import NOBODY, as_ordinary_user
from tests.setup.homes import AGENTS, fill_home, foreign
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.compat

_NOT_PASSED_ON = ("CLAUDE", "ANTHROPIC_", "CODEX", "PI_", "AI_AGENT", "BRAINSURGEON_")


@dataclass(frozen=True)
class Home:
    """A user's home, and the programs that run in it."""

    path: Path
    user: Sequence[str] = ()

    def run(self, *command: str) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
        kept = {k: v for k, v in kept.items() if not k.startswith("XDG_")}
        done = subprocess.run(
            [*self.user, *command],
            cwd=self.path,
            env={**kept, **claude_code.NO_NETWORK, "HOME": str(self.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def bsd(self, *arguments: str) -> Any:
        return json.loads(self.run(sys.executable, "-m", "bsd", "--json", *arguments))

    def json(self, name: str) -> Any:
        return json.loads((self.path / name).read_bytes())


@pytest.fixture
def home(clean_environment: Path) -> Home:
    return Home(fill_home(clean_environment))


def test_claude_code_connects_to_the_server(programs: str, home: Home) -> None:
    claude = claude_code.newest()
    before = home.json(".claude.json")
    home.bsd("agents", "on", "claude-code", "--yes")
    listed = home.run(*claude, "mcp", "list")
    assert "bsd:" in listed
    assert "Connected" in listed, listed
    # Claude Code writes the same as bsd, apart from its own notes.
    server = home.json(".claude.json")["mcpServers"]["bsd"]
    home.run(*claude, "mcp", "add", "--scope", "user", "mine", "--", server["command"], "mcp")
    mine = home.json(".claude.json")["mcpServers"]["mine"]
    assert {**server, "args": ["mcp"]} == mine
    home.bsd("agents", "off", "claude-code", "--yes")
    assert home.json(".claude.json")["mcpServers"] == {"mine": mine}
    assert home.json(".claude.json")["projects"].keys() >= before["projects"].keys()
    assert "bsd" not in home.run(*claude, "mcp", "list")


@pytest.mark.soak  # tests/setup keeps the promise without the program
def test_a_server_that_a_person_has_added_stays(programs: str, home: Home) -> None:
    claude = claude_code.newest()
    home.run(*claude, "mcp", "add", "--scope", "user", "bsd", "--", "bsd", "mcp")
    before = foreign(home.path)
    home.bsd("agents", "on", "claude-code", "--yes")
    assert (home.path / ".claude.json").read_bytes() == before[".claude.json"][1]
    home.bsd("agents", "off", "claude-code", "--yes")
    assert foreign(home.path) == before


def test_codex_reads_the_table(codex_program: str, home: Home) -> None:
    before = foreign(home.path)
    home.bsd("agents", "on", "codex", "--yes")
    [server] = json.loads(home.run(codex_program, "mcp", "list", "--json"))
    assert (server["name"], server["enabled"]) == ("bsd", True)
    assert server["transport"]["args"][-1] == "mcp"
    home.bsd("agents", "off", "codex", "--yes")
    after = foreign(home.path)
    assert {name: after[name] for name in before} == before
    assert json.loads(home.run(codex_program, "mcp", "list", "--json")) == []


@pytest.mark.soak  # tests/setup keeps the promise without the program
def test_codex_may_write_its_file_between(codex_program: str, home: Home) -> None:
    config = home.path / ".codex" / "config.toml"
    before = config.read_bytes()
    home.bsd("agents", "on", "codex", "--yes")
    home.run(codex_program, "mcp", "add", "mine", "--", "true")
    home.bsd("agents", "off", "codex", "--yes")
    [server] = json.loads(home.run(codex_program, "mcp", "list", "--json"))
    assert server["name"] == "mine"
    home.run(codex_program, "mcp", "remove", "mine")
    assert config.read_bytes().split() == before.split()


@pytest.mark.soak  # the file stays as it is: tests/setup
def test_a_running_claude_code_keeps_the_server(claude: ClaudeCode, model: Model) -> None:
    """Claude Code rewrites its file while it runs, and when it ends."""
    own = claude.beside.source.parent / ".claude.json"
    with claude.opened() as terminal:
        claude.beside.bsd("agents", "on", "claude-code", "--yes")
        written = own.read_bytes()
        terminal.type("Count to three.")
        terminal.wait_for(lambda: model.requests, "a request to the model")
        terminal.wait_for(claude.is_idle, "the answer")
        terminal.type("/exit")
        terminal.process.wait(DEADLINE_SECONDS)
    assert own.read_bytes() != written
    server = json.loads(own.read_bytes())["mcpServers"]["bsd"]
    assert server["args"][-1] == "mcp"
    claude.beside.bsd("agents", "off", "claude-code", "--yes")
    assert "mcpServers" not in json.loads(own.read_bytes())


def test_the_hooks_are_called(claude: ClaudeCode, session: str, tmp_path: Path) -> None:
    """The hooks as written, with another command; SessionStart only for continued sessions."""
    claude.beside.bsd("agents", "on", "claude-code", "--yes")
    settings = claude.beside.source.parent / "settings.json"
    document = json.loads(settings.read_bytes())
    for event, [group] in document["hooks"].items():
        group["hooks"][0]["command"] = f"cat >> {tmp_path}/{event}"
    settings.write_text(json.dumps(document))
    claude.run("Hello.")
    told = {path.name for path in tmp_path.iterdir()} & document["hooks"].keys()
    assert told == {"Stop", "SessionEnd"}
    claude.run("Hello again.", "--resume", session)
    assert json.loads((tmp_path / "SessionStart").read_bytes())["source"] == "resume"


@pytest.mark.soak
def test_an_ordinary_user_does_it_too(programs: str) -> None:
    user = as_ordinary_user()
    with tempfile.TemporaryDirectory() as directory:
        home = fill_home(Path(directory))
        if user:
            for path in (home, *home.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        ours = Home(home, user)
        before = foreign(home)
        for agent in AGENTS:
            ours.bsd("agents", "on", agent, "--yes")
        assert {path.stat().st_uid for path in home.rglob("*")} == {home.stat().st_uid}
        assert "bsd:" in ours.run(*claude_code.newest(), "mcp", "list")
        for agent in AGENTS:
            ours.bsd("agents", "off", agent, "--yes")
        after = foreign(home)
    own = before.keys() - {".claude.json"}  # content that the program wrote meanwhile
    assert {name: after.get(name) for name in own} == {name: before[name] for name in own}
