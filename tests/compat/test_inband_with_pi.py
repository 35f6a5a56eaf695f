"""What is left of a session after its calls were carried out is one that pi reads and sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.foundation.layout import Layout
from tests.compat.pi import assert_sendable, read
from tests.doors.agent.conftest import LONG, Agent, Desk

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]  # the first to come installs pi

UNKNOWN = "Tool not found"


def test_a_session_in_which_an_agent_has_called_us(node: str, tmp_path: Path) -> None:
    desk = Desk(Layout(tmp_path / "root"))
    desk.path.parent.mkdir(parents=True)
    agent = Agent(desk)
    old = agent.past()
    desk.look()
    pin = {"action": "set_extractable", "entry": old, "value": False}
    agent.user("what was in the file?")
    agent.calls(("c1", "restore_remote", {"entry": old}), ("c2", "purge_control", pin))
    agent.result("c1", "restore_remote", UNKNOWN, error=True)
    agent.result("c2", "purge_control", UNKNOWN, error=True)
    agent.calls(("c3", "restore_remote", {"entry": "nowhere"}))
    agent.result("c3", "restore_remote", UNKNOWN, error=True)
    agent.says("well")
    agent.user("and?")
    agent.calls(("c5", "restore", {"entry_id": old}))
    agent.result("c5", "restore", UNKNOWN, error=True)
    agent.says("that is all")
    assert desk.look()
    assert LONG in desk.path.read_text()
    [seen] = read(node, [desk.path])
    assert (seen.lost, seen.rewritten) == (0, False)
    assert_sendable(seen)
    assert seen.unanswered() == []
    assert seen.unasked() == []
