"""Lines written twice, finished turns, warm caches and checkpoints, in combination."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.planning.extract import plan_extraction
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from tests.planning.in_memory import NOW, Session, config, without_restored
from tests.planning.test_prompt_cache import (
    HOUR,
    LONG,
    MINUTE,
    away,
    claude_session,
    extract,
    time_of,
    written_for,
)
from tests.planning.test_silence import DAY, crashed
from tests.session_files import HEADER, jsonl
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.tree import raw

ALL: dict[str, Any] = {"keep_recent": 0, "min_value_length": 200}


def line(name: str, parent: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    entry = claude_code_line(0, kind, content, **more)
    return entry | {"uuid": name, "parentUuid": parent, "timestamp": time_of(NOW - MINUTE)}


def said(name: str, parent: str, answer: str, block: dict[str, Any], why: str) -> dict[str, Any]:
    entry = line(name, parent, "assistant", [block], stop_reason=why)
    entry["message"] |= {"id": answer, "usage": written_for("1h")}
    return entry


def result(name: str, parent: str, call: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": LONG}
    return line(name, parent, "user", [block], toolUseResult={"file": {"content": LONG}})


def calls_at_once() -> list[dict[str, Any]]:
    """Two calls of one answer; the way back from the end leads along the second."""
    calls = [{"type": "tool_use", "id": call, "name": "Read", "input": {}} for call in "cd"]
    done = {"type": "text", "text": "done"}
    return [
        line("u", None, "user", "go"),
        said("a1", "u", "one", calls[0], "tool_use"),
        said("a2", "a1", "one", calls[1], "tool_use"),
        result("r1", "a1", "c"),
        result("r2", "a2", "d"),
        said("b", "r2", "two", done, "end_turn"),
    ]


def test_results_of_calls_at_once_wait_from_a_checkpoint_on_too() -> None:
    session = Session(raw(calls_at_once()), CLAUDE_CODE)
    since = extract(session, **ALL).checkpoint
    assert since is not None
    assert since.index == 3  # between the calls and their results
    assert [away(session, index) for index in (3, 4)] == [(False, True)] * 2
    session.raw += raw([line("v", "b", "user", "and now?")])
    again = extract(session, NOW + MINUTE, since, **ALL)
    assert [away(session, index) for index in (3, 4)] == [(False, True)] * 2
    assert again.report.reasons["cache_warm"] == 2
    extract(session, NOW + HOUR, again.checkpoint, **ALL)
    assert [away(session, index) for index in (3, 4)] == [(True, True)] * 2


def test_all_lines_of_an_entry_that_is_sent_wait() -> None:
    text = {"type": "text", "text": "x"}
    twice = [line("u", None, "user", LONG), said("a", "u", "one", text, "end_turn")]
    end = [line("v", "a", "user", "go"), said("b", "v", "two", text, "end_turn")]
    session = Session(raw([*twice, *twice, *end]), CLAUDE_CODE)
    wanted = ALL | {"trigger_types": ["user"]}
    plan = extract(session, **wanted)
    assert (plan.edits, plan.report.reasons["cache_warm"]) == ((), 2)
    assert plan.due_at == NOW - MINUTE + HOUR
    assert len(extract(session, NOW + HOUR, **wanted).edits) == 2


def test_a_protected_copy_after_the_checkpoint_leaves_when_its_protection_ends() -> None:
    session = claude_session(used=NOW - DAY)
    old = session.raw
    since = extract(session, **ALL).checkpoint
    assert since is not None
    assert since.index > 6
    copy = old.splitlines(keepends=True)[6]
    restored = copy.replace(b"{", b'{"_restored":"%b",' % time_of(NOW).encode(), 1)
    end = said("z", "y", "z", {"type": "text", "text": "x"}, "end_turn")
    end |= {"timestamp": time_of(NOW - DAY)}
    added = restored + raw([line("y", None, "user", "go"), end])
    at = session.raw.count(b"\n")
    session.raw += added
    plan = extract(session, NOW + 1, since, **ALL)
    assert away(session, at) == (False, False)
    assert plan.due_at == pytest.approx(NOW + 600, abs=1)
    extract(session, NOW + 600, plan.checkpoint, **ALL)
    assert away(session, at) == (True, True)


def test_a_key_that_only_one_copy_has_away_comes_back() -> None:
    session = claude_session()
    old = session.raw
    extract(session, **ALL)  # the copy of the result
    again = old.splitlines(keepends=True)[2]
    session.raw += again
    lines = session.raw.splitlines(keepends=True)
    cold = Session(old, CLAUDE_CODE)
    cold.shelf = session.shelf
    extract(cold, NOW + HOUR, **ALL)
    session.raw = b"".join([*lines[:-1], cold.raw.splitlines(keepends=True)[2]])
    name = session.entry(2)["uuid"]
    answer = session.restore(name, ["message.content[0].content"])
    assert answer.keys_restored == ("message.content[0].content",)
    assert [away(session, index) for index in (2, 12)] == [(False, True)] * 2
    session.restore(name)
    session.restore_all()
    assert without_restored(session.raw) == old + again


def test_an_open_turn_is_not_looked_at_again_when_only_the_cache_gets_cold() -> None:
    entries = crashed(HOUR)
    entries[1]["message"] |= {"usage": {"cacheRead": 3}, "model": "claude-opus-5"}
    entries[1]["timestamp"] = time_of(NOW - MINUTE)
    session = Session(jsonl(HEADER, *entries), OPENCLAW)
    plan = plan_extraction(
        session.source, OPENCLAW, config(keep_recent=0), NOW, session.shelf, waits=True
    )
    assert plan.warm_until == NOW - MINUTE + HOUR
    assert plan.due_at == pytest.approx(NOW - MINUTE + DAY, abs=1)


def test_a_signature_that_leaves_sets_free_what_it_bound() -> None:
    def thought(text: str, model: str) -> dict[str, Any]:
        block = {"type": "thinking", "thinking": text, "thinkingSignature": "s" * 60}
        message = {"role": "assistant", "content": [block], "api": "anthropic-messages"}
        return {"type": "message", "message": message | {"stopReason": "stop", "model": model}}

    text = [{"type": "text", "text": LONG}]
    entries: list[dict[str, Any]] = [
        {"type": "message", "message": {"role": "toolResult", "content": text}},
        thought(LONG, "claude-opus-6"),
        {"type": "message", "message": {"role": "user", "content": "go"}},
        thought("t", "m"),
    ]
    parents = [None, "e0", "e1", "e2"]
    lines = [one | {"id": f"e{n}", "parentId": parents[n]} for n, one in enumerate(entries)]
    session = Session(jsonl(HEADER, *lines), OPENCLAW)
    plan = session.extract(**ALL)
    assert (plan.complete, plan.report.reasons["prefix_bound"]) == (False, 1)
    plan = session.extract(**ALL)
    assert (plan.complete, len(plan.edits)) == (True, 1)
    assert session.entry(1)["message"]["content"][0]["text"] == "[[extracted-e0]]"


def test_after_results_of_calls_at_once_an_append_is_read_alone() -> None:
    def turn(number: int) -> list[dict[str, Any]]:
        at, before = f"t{number}", f"t{number - 1}b" if number else None
        lines = calls_at_once()
        for one in lines:
            one["uuid"] = at + one["uuid"]
            one["parentUuid"] = at + one["parentUuid"] if one["parentUuid"] else before
            one["timestamp"] = time_of(NOW - MINUTE)
            if one["type"] == "assistant":
                one["message"]["id"] = at + one["message"]["id"]
        return lines

    session = Session(raw([one for number in range(5) for one in turn(number)]), CLAUDE_CODE)
    before = extract(session, keep_recent=3)
    for number in range(5, 9):
        session.raw += raw(turn(number))
        plan = extract(session, before=before, keep_recent=3)
        assert plan.report.partial
        assert plan.further is not None
        assert before.further is not None
        assert plan.further.index > before.further.index
        assert plan.report.tokens_ready > before.report.tokens_ready
        before = plan
