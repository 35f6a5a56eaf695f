"""The tools out of band: one definition, the seeds' answers."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.errors import BsdError, Forbidden, Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.mcp.scope import Scope
from tests.mcp.conftest import LONG, NAME, Desk, call


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
        "sizes_bytes": {"content": len(LONG)},
        "inline": "now",
        "texts": {"content": LONG},
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
    # A text that never left the session is no answer to this question.
    assert call(away, "search_extracted", session="s1", query="x")["results"] == []


def test_a_search_in_one_session_reads_no_other(away: Desk) -> None:
    for number in range(2, 5):
        other = away.path.with_name(f"s{number}.jsonl")
        other.write_bytes(away.path.read_bytes())
        other.chmod(0)
    assert call(away, "search_extracted", session="s1", query="dolor")["results"]
    assert not away.layout.search_db.exists(), "nothing is kept of it either"


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
