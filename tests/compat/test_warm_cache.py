"""Claude Code's sessions record how warm its provider's cache is, and bsd follows these records."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bsd.actions.extract import extract_due
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.planning.result import SessionResult, Status
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.programs import layout_of
from tests.actions.performed import Caller
from tests.compat import messages_api
from tests.compat.claude_code import ClaudeCode
from tests.compat.messages_api import Model, asking

pytestmark = pytest.mark.compat

LIFE_SECONDS = 3600.0
COUNT = {"command": "seq 1 600", "description": "Count"}


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that reports a write to its cache, with a life of an hour."""
    written = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 90}
    usage: Any = messages_api._USAGE
    monkeypatch.setitem(usage, "cache_read_input_tokens", 900)
    monkeypatch.setitem(usage, "cache_creation_input_tokens", 90)
    monkeypatch.setitem(usage, "cache_creation", written)


def as_daemon(claude: ClaudeCode, session: str, ahead: float = 0.0) -> SessionResult:
    """Extract due values, as the daemon does, `ahead` seconds later."""
    source = SourceSettings(kind="claude-code", path=claude.beside.source, name="claude-code")
    layout: Layout = layout_of(claude.beside.root, [source])
    agent = layout.sources[0].agent_at(claude.path(session).parent)
    assert agent is not None
    claude.beside.rest()
    budget = RetryBudget(0.0, clock=lambda: time.time() + ahead)
    caller = Caller(layout=layout, config=ConfigService(layout.config_file), budget=budget)
    result = extract_due(caller, SessionName(agent, session))
    assert result is not None
    return result


@pytest.mark.usefixtures("cached")
def test_only_what_is_never_sent_leaves_a_session_whose_cache_is_warm(
    claude: ClaudeCode, model: Model
) -> None:
    session = claude.run(asking("Count.", ("Bash", COUNT)))
    claude.run("Thank you.", "--resume", session)
    usage = [
        json.loads(line)["message"]["usage"]
        for line in claude.path(session).read_bytes().splitlines()
        if b'"usage"' in line
    ]
    assert usage[-1]["cache_creation"]["ephemeral_1h_input_tokens"] == 90

    before = model.requests[-1]["messages"]
    result = as_daemon(claude, session)
    assert result.status is Status.EXTRACTED
    assert result.wait is not None
    assert 0 < (result.wait.cold_at or 0.0) - time.time() <= LIFE_SECONDS
    assert b"[[extracted-" in claude.path(session).read_bytes()
    claude.run("And now?", "--resume", session)
    sent = json.dumps(model.requests[-1]["messages"])
    assert "[[extracted-" not in sent
    assert json.dumps(before[0]["content"])[:200] in sent

    cold = as_daemon(claude, session, LIFE_SECONDS + 60)
    assert (cold.status, cold.wait) == (Status.EXTRACTED, None)
    claude.run("And then?", "--resume", session)
    assert "[[extracted-" in json.dumps(model.requests[-1]["messages"])
    assert model.refused == []
