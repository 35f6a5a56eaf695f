"""Generated sessions are well-formed, repeatable, and have the contents of real sessions."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from bsd.sample import session_lines


def _entries(**arguments: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in session_lines(**arguments)]


def test_same_arguments_same_bytes() -> None:
    assert list(session_lines(turns=5, seed=3)) == list(session_lines(turns=5, seed=3))
    assert list(session_lines(turns=5, seed=3)) != list(session_lines(turns=5, seed=4))


def test_entries_form_one_chain_with_ids_of_their_own() -> None:
    header, *entries = _entries(turns=60)
    assert header["type"] == "session"
    assert header["version"] == 3
    assert [entry["parentId"] for entry in entries] == [None, *(e["id"] for e in entries[:-1])]
    assert len({entry["id"] for entry in entries}) == len(entries)


def test_every_call_is_answered_and_the_last_turn_is_closed() -> None:
    messages = [e["message"] for e in _entries(turns=30) if e["type"] == "message"]
    calls = [
        block["id"]
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == "toolCall"
    ]
    results = [m["toolCallId"] for m in messages if m["role"] == "toolResult"]
    assert calls == results
    assert messages[-1]["role"] == "assistant"
    assert messages[-1]["stopReason"] == "stop"


def test_it_holds_every_kind_of_large_value() -> None:
    entries = _entries(turns=60)
    messages = [e["message"] for e in entries if e["type"] == "message"]
    blocks = [b for m in messages for b in m.get("content", ())]
    assert any(e["type"] == "compaction" for e in entries)
    assert any(m["role"] == "bashExecution" and len(m["output"]) > 1000 for m in messages)
    assert any("details" in m for m in messages)
    assert any(len(b.get("thinkingSignature", "")) > 3000 for b in blocks)
    assert any(b["type"] == "image" and len(b["data"]) > 10_000 for b in blocks)
    assert any(len(b.get("arguments", {}).get("content", "")) > 2000 for b in blocks)


def test_a_compaction_keeps_an_entry_that_exists() -> None:
    entries = _entries(turns=60)
    ids = {entry["id"] for entry in entries}
    kept = [e["firstKeptEntryId"] for e in entries if e["type"] == "compaction"]
    assert kept
    assert set(kept) <= ids


def test_size_is_reached_and_hardly_passed() -> None:
    made = b"".join(session_lines(size=2_000_000))
    assert 2_000_000 <= len(made) < 3_000_000
    assert made == b"".join(session_lines(size=2_000_000))


@pytest.mark.parametrize("goal", [{"turns": 9}, {"size": 400_000}])
def test_one_line_can_be_long(goal: dict[str, int]) -> None:
    lengths = sorted(map(len, session_lines(**goal, longest_line=3_000_000)))
    assert lengths[-1] > 3_000_000
    assert lengths[-2] < 1_000_000


@pytest.mark.parametrize("goal", [{}, {"turns": 1, "size": 1}])
def test_a_length_is_given_in_one_way(goal: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="either a number of turns or a size"):
        list(islice(session_lines(**goal), 1))
