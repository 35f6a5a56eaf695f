"""Models that call our tools in their own sessions, in the shipped programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model, asking

pytestmark = pytest.mark.timeout(400)  # the first to come installs them


def a_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """A result that is away: its entry, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        entry = json.loads(now)
        if "message.content[0].content" in entry.get("_extracted", {}).get("keys", ()):
            text = json.loads(was)["message"]["content"][0]["content"]
            assert isinstance(text, str)
            return entry["uuid"], text
    raise AssertionError("no result is away")


def server(root: Path) -> dict[str, Any]:
    words = ["-m", "bsd", "--root", str(root), "mcp", "--tools", "sessions"]
    return {"command": sys.executable, "args": words}


def test_claude_code_gives_its_model_the_text_in_the_same_turn(
    claude: ClaudeCode, session: str, model: Model
) -> None:
    path = claude.path(session)
    before = path.read_bytes()
    claude.beside.extract()
    lean = path.read_bytes()
    entry, text = a_result(before, lean)
    servers = {"mcpServers": {"bsd": server(claude.beside.root)}}
    options = ["--resume", session, "--mcp-config", json.dumps(servers), "--strict-mcp-config"]
    prompt = asking(
        "What was it?",
        ("mcp__bsd__restore_remote", {"entry": entry, "inline": True}),
        ("mcp__bsd__read_extracted", {"entry": entry, "keys": ["content"]}),
        ("mcp__bsd__purge_control", {"action": "get_context"}),
    )
    assert claude.run(prompt, *options) == session
    restored, read, listed = map(json.loads, model.results()[-3:])
    assert path.read_bytes().startswith(lean), "nothing of it was changed"
    assert text in restored["texts"].values()
    assert (restored["restored"], restored["inline"]) == (False, "not in this program")
    assert text in read["texts"].values()
    assert restored["session"] == read["session"] == listed["session"]
    assert listed["session"].endswith(f"/{session}")
    claude.beside.restore_all()
    assert path.read_bytes().startswith(before)
