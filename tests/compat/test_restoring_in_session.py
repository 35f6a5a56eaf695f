"""A model in Claude Code restores a value that a daemon extracted from its session, in the same
turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.beside import Beside, placeholders
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Json, Model, asking
from tests.daemon.running import running
from tests.waiting import wait_for

pytestmark = pytest.mark.compat

BOOK = "299 a line of a file that somebody reads"  # its end


@contextmanager
def beside_a_daemon(beside: Beside, tmp_path: Path) -> Iterator[None]:
    """`bsd run` serves the sessions and has extracted every value that may leave."""
    with running(beside.root, tmp_path, XDG_CONFIG_HOME=str(beside.home / ".config")) as daemon:
        beside.rest()

        def lean() -> bool:
            daemon.must_run()
            return any(placeholders(path.read_bytes()) for path in beside.files())

        wait_for(lean, "the daemon to extract")
        yield


def servers(beside: Beside) -> str:
    """Return the option that gives Claude Code bsd's tools."""
    command, *arguments = beside.bsd_command("mcp")
    config = {"mcpServers": {"bsd": {"command": command, "args": arguments}}}
    return json.dumps(config)


def entry_with(path: Path, tool: str) -> str:
    """Return the id of the line from which a tool result was extracted."""
    calls: dict[str, str] = {}
    for line in path.read_bytes().splitlines():
        entry: Json = json.loads(line)
        content = entry.get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                calls[block["id"]] = block["name"]
            elif block["type"] == "tool_result" and calls[block["tool_use_id"]] == tool:
                found: str = entry["uuid"]
                return found
    raise AssertionError(f"no result of {tool}")


def test_a_model_in_claude_code_has_the_text_in_the_same_turn(
    claude: ClaudeCode, session: str, model: Model, tmp_path: Path
) -> None:
    with beside_a_daemon(claude.beside, tmp_path):
        entry = entry_with(claude.path(session), "Read")
        calls: list[tuple[str, Json]] = [
            ("mcp__bsd__restore_remote", {"session": session, "entry": entry}),
            ("mcp__bsd__restore_remote", {"entry": entry}),
            ("mcp__bsd__restore", {"entry_id": entry}),
            ("mcp__bsd__read_extracted", {"entry": entry}),
        ]
        lean = claude.path(session).read_bytes()
        prompt = asking("What was in the book?", *calls)
        claude.run(prompt, "--resume", session, "--mcp-config", servers(claude.beside))
        assert claude.path(session).read_bytes().startswith(lean)
    assert [BOOK in text for text in model.results()[-4:]] == [True] * 4


@pytest.mark.soak
def test_a_model_in_a_fork_has_the_text_of_its_original(
    claude: ClaudeCode, session: str, model: Model, tmp_path: Path
) -> None:
    with beside_a_daemon(claude.beside, tmp_path):
        call = {"entry": entry_with(claude.path(session), "Read")}
        fork = claude.run("Otherwise?", "--resume", session, "--fork-session")
        claude.path(session).unlink()
        prompt = asking("What was in the book?", ("mcp__bsd__restore_remote", call))
        claude.run(prompt, "--resume", fork, "--mcp-config", servers(claude.beside))
    assert BOOK in model.results()[-1]
