"""`bsd sessions --sort`: the greatest first, over all agents, with the figure that decides."""

from __future__ import annotations

from tests.cli.conftest import Call
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, jsonl, sample


def _names(shown: str) -> list[str]:
    return [line.split()[0] for line in shown.splitlines()[1:] if "/" in line.split(" ")[0]]


def test_sessions_are_sorted_over_all_agents(bsd: Call) -> None:
    add_session(bsd.root, "zoo/largest", sample(20))
    usage = {"input": 1, "totalTokens": 12_000_000, "cost": {"total": 1.5}}
    message = {"role": "assistant", "content": [], "usage": usage}
    dear = {"type": "message", "id": "e1", "message": message}
    add_session(bsd.root, "zoo/dear", jsonl(HEADER, dear))
    del usage["cost"]
    add_session(bsd.root, "zoo/tokens", jsonl(HEADER, {**dear, "message": message}))
    assert _names(bsd("sessions", "--sort", "size", "--limit", "1").out) == ["zoo/largest"]
    assert bsd("extract", "zoo/largest").code == 0
    shown = bsd("sessions", "--sort", "saved", "--limit", "1").out
    assert _names(shown) == ["zoo/largest"]
    assert shown.splitlines()[0].split()[:3] == ["SESSION", "SAVED", "SIZE"]
    bsd("search", "nothing")  # counts the costs of sessions
    lines = bsd("sessions", "--agent", "zoo", "--sort", "cost").out.splitlines()
    [of_dear] = [line for line in lines if line.startswith("zoo/dear ")]
    [of_tokens] = [line for line in lines if line.startswith("zoo/tokens ")]
    assert "$1.50" in of_dear
    assert "12.0M tokens" in of_tokens
    assert lines.index(of_dear) < lines.index(of_tokens)
    assert bsd("sessions", "--sort", "colour").code == 2
