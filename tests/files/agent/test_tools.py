"""The tools out of band: one definition, the seeds' answers."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import pytest

from bsd.agent.scope import Scope
from bsd.agent.tools import carry_out, read_call
from bsd.foundation.errors import BsdError, Busy, Forbidden, Invalid, NotFound
from bsd.foundation.layout import Layout, SessionName
from bsd.surgeon import Surgeon
from tests.files.agent.conftest import LONG, NAME, Desk, Flat


@dataclass
class Hands:
    desk: Desk

    @property
    def layout(self) -> Layout:
        return self.desk.layout

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:
        assert name == NAME
        return self.desk.surgeon(actor="agent")


def call(desk: Desk, tool: str, **arguments: Any) -> dict[str, Any]:
    then = time.time() - 3600
    os.utime(desk.path, (then, then))
    asked = read_call(tool, arguments)
    return carry_out(asked, Scope().find(desk.layout, asked.session), Hands(desk))


@pytest.fixture
def away(desk: Desk, flat: Flat) -> Desk:
    """Seed 001's entry, out of its session."""
    flat({"__id": "msg-456", "type": "tool_result", "content": LONG, "output": LONG + LONG})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    assert desk.entry("msg-456")["output"] == "[[extracted-msg-456]]"
    return desk


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("restore", {"entry_id": "msg-456", "keys": ["content"]}),
        ("restore_remote", {"entry": "msg-456", "keys": "content"}),
        ("purge_control", {"action": "restore", "entry": "msg-456", "keys": ["content"]}),
    ],
)
def test_seed_001_answers(away: Desk, tool: str, arguments: dict[str, Any]) -> None:
    first = call(away, tool, session="s1", **arguments)
    assert first == {
        "restored": True,
        "entry_id": "msg-456",
        "keys_restored": ["content"],
        "sizes_bytes": {"content": len(LONG) + 2},
    }
    restored_at = away.entry("msg-456")["_restored"]
    away.ahead += 3600
    away.look()
    assert away.entry("msg-456")["content"] == "[[extracted-msg-456]]"
    assert call(away, tool, session="main/s1", **arguments) == {
        **first,
        "previous_restored_at": restored_at,
        "suggestion": "This entry was previously restored. If you need to keep this content "
        "long-term, consider setting _extractable: false on the entry.",
    }


def test_what_is_away_is_found_without_coming_back(away: Desk) -> None:
    found = call(away, "search_extracted", session="s1", query='"dolor sit"', limit=3)
    assert [one["entry_id"] for one in found["results"]] == ["msg-456"]
    assert "dolor sit" in found["results"][0]["snippet"]
    assert away.entry("msg-456")["content"] == "[[extracted-msg-456]]"
    assert call(away, "search_extracted", session="s1", query="nowhere")["results"] == []
    # What is in the session, and never left it, is no answer to this question.
    assert call(away, "search_extracted", session="s1", query="x")["results"] == []


def test_get_context_and_distill_by_its_hash(away: Desk) -> None:
    context = call(away, "purge_control", session="s1", action="get_context")
    assert (context["extracted_entries"], context["extracted_ids"]) == (1, ["msg-456"])
    away_now = call(away, "restore", session="s1", entry_id="msg-456")
    assert away_now["restored"] is True
    context = call(away, "purge_control", session="s1", action="get_context")
    hash_ = context["entries"][0]["hash"]
    answer = call(away, "context", session="s1", action="distill", targets=[[hash_, "fine"]])
    assert answer["success"] is True
    assert [one["messageId"] for one in answer["replacements"]] == ["msg-456"]
    assert away.entry("msg-456")["output"] != LONG + LONG


def test_busy_says_what_to_do(away: Desk) -> None:
    away.path.with_name("sessions.json").write_text('{"a":{"sessionId":"s1","status":"running"}}')
    with pytest.raises(Busy) as busy:
        call(away, "restore", session="s1", entry_id="msg-456")
    assert "when the turn is over" in (busy.value.hint or "")


@pytest.mark.parametrize(
    ("scope", "text", "found"),
    [
        (Scope(), "s1", NAME),
        (Scope(), "main/s1", NAME),
        (Scope(), "s9", NotFound),
        (Scope(), None, Invalid),
        (Scope(), "../s1", Invalid),
        (Scope("main"), "s1", NAME),
        (Scope("main"), "other/s1", Forbidden),
        (Scope("main"), None, Invalid),
        (Scope(session=NAME), None, NAME),
        (Scope(session=NAME), "s1", NAME),
        (Scope(session=NAME), "main/s1", NAME),
        (Scope(session=NAME), "main/s2", Forbidden),
    ],
)
def test_which_sessions_a_caller_may_name(
    away: Desk, scope: Scope, text: str | None, found: SessionName | type[BsdError]
) -> None:
    if isinstance(found, SessionName):
        assert scope.find(away.layout, text) == found
    else:
        with pytest.raises(found):
            scope.find(away.layout, text)
