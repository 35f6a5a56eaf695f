"""`bsd init` in a home of the real Claude Code: its old sessions are copied, and Claude Code
continues them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import pytest

from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model, asking
from tests.compat.test_clean_up import DAY, old_session
from tests.openclaw_tree import set_idle

pytestmark = pytest.mark.compat

SESSIONS = 5


def bsd(claude: ClaudeCode, *arguments: str) -> Any:
    """Call bsd without a root; return its document."""
    done = claude.beside.run(sys.executable, "-m", "bsd", "--json", *arguments)
    return json.loads(done.stdout)


@pytest.fixture
def fresh(claude: ClaudeCode, session: str) -> ClaudeCode:
    """A user who has run Claude Code for a month, and has never run bsd."""
    (claude.beside.home / ".config" / "bsd" / "bsd.toml").unlink()
    path = claude.path(session)
    for number in range(SESSIONS):
        other = path.with_name(f"{old_session(number)}.jsonl")
        other.write_bytes(path.read_bytes().replace(session.encode(), other.stem.encode()))
        then = time.time() - DAY * (1.5 + number)
        os.utime(other, (then, then))
    settings = claude.beside.source.parent / "settings.json"
    settings.write_text(json.dumps({"cleanupPeriodDays": 1}))
    set_idle(path)
    return claude


@pytest.mark.soak
def test_claude_code_goes_on_with_a_session_that_init_has_extracted(
    fresh: ClaudeCode, session: str, model: Model
) -> None:
    done = bsd(fresh, "init", "--yes", "--no-service")
    [agent] = done["agents"]
    assert agent["copied"] >= SESSIONS
    assert done["root"] == str(fresh.beside.home / ".local" / "share" / "bsd")
    assert done["extraction"]["bytes_saved"] > 0
    assert b"[[extracted-" in fresh.path(session).read_bytes()
    model.requests.clear()
    assert fresh.run(asking("Go on."), "--resume", session) == session
    assert model.requests
    assert model.refused == []
