"""A warm prompt cache: an agent's call is carried out, and removed when the cache is cold."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from bsd.actions.extract import extract_due
from bsd.core.formatting import iso_utc
from bsd.mcp.inband import InBand
from tests.actions import performed
from tests.mcp.conftest import NAME, UNKNOWN, Agent, Desk, call, text_of

LIFE_SECONDS = 3600.0  # of the cache of the model in this session


def warm(desk: Desk) -> None:
    """Make the session's answers show a cache, and date the newest answer just now."""
    entries: list[dict[str, Any]] = desk.entries()
    for entry in entries:
        if entry.get("message", {}).get("role") == "assistant":
            entry["message"]["usage"] = {"input": 3, "cacheRead": 900, "cacheWrite": 30}
            entry["timestamp"] = iso_utc(desk.clock())
    desk.path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    desk.rest()


def answered(desk: Desk, agent: Agent) -> str:
    """A session in which a tool has restored a value at once; returns the id of the result."""
    old = agent.past()
    desk.look()
    desk.rest()
    done = performed.restore(desk.caller(), NAME, old)
    agent.user("again")
    agent.calls(("c1", "mcp__bsd__restore", {"session": "s1", "entry_id": old}))
    answer = agent.result("c1", "mcp__bsd__restore", json.dumps(done))
    agent.says("ok")
    return answer


def test_a_call_that_was_answered_is_tidied_when_the_cache_is_cold(
    desk: Desk, agent: Agent
) -> None:
    answer = answered(desk, agent)
    warm(desk)
    before = desk.path.read_bytes()
    assert not desk.look()
    desk.ahead += LIFE_SECONDS / 2
    assert not desk.look()
    assert desk.path.read_bytes() == before
    desk.ahead += LIFE_SECONDS / 2 + 1
    assert desk.look()
    assert text_of(desk.entry(answer)) == "[done: mcp__bsd__restore]"
    assert not desk.look()


def test_it_is_due_again_when_the_cache_is_cold(desk: Desk, agent: Agent) -> None:
    answered(desk, agent)
    warm(desk)
    calls, now = InBand(desk.caller(actor="agent"), NAME), desk.clock()
    result = extract_due(desk.caller(), NAME, watch=calls.watch)
    assert result is not None
    assert result.due_at is not None
    assert now < result.due_at <= now + LIFE_SECONDS


def test_settings_and_people_do_not_wait(desk: Desk, agent: Agent) -> None:
    answer = answered(desk, agent)
    warm(desk)
    assert InBand(desk.caller(actor="agent"), NAME, waits=False).carry_out()
    assert text_of(desk.entry(answer)) == "[done: mcp__bsd__restore]"


def test_the_setting_now_waits_for_nothing(desk: Desk, agent: Agent) -> None:
    answer = answered(desk, agent)
    warm(desk)
    desk.settings(when="now")
    assert desk.look()
    assert text_of(desk.entry(answer)) == "[done: mcp__bsd__restore]"


def test_what_an_agent_asks_for_is_done_at_once(desk: Desk, agent: Agent) -> None:
    answer = answered(desk, agent)
    first = text_of(desk.entry(answer))
    agent.user("and now this")
    pin = {"action": "set_extractable", "entry": "e3", "value": False}
    agent.calls(("c2", "purge_control", pin))
    pinned = agent.result("c2", "purge_control", UNKNOWN, error=True)
    agent.says("done")
    warm(desk)
    assert desk.look()
    assert desk.entry("e3")["_extractable"] is False
    assert text_of(desk.entry(pinned)) == "[_extractable=false for entry e3]"
    assert text_of(desk.entry(answer)) == first, "the other one waits"


def test_an_answer_that_stays_is_not_waited_for(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    asked: dict[str, Any] = {"session": "main/s1", "entry_id": old}
    answer = call(desk, "read_extracted", **asked)
    agent.user("what was it?")
    agent.calls(("c1", "mcp__bsd__read_extracted", asked))
    agent.result("c1", "mcp__bsd__read_extracted", json.dumps(answer))
    agent.says("ok")
    warm(desk)
    calls = InBand(desk.caller(actor="agent"), NAME)
    with desk.caller().reader(NAME) as opened:
        watched = calls.watch(opened)
        deque(watched.lines(), maxlen=0)
    assert [call.is_done for call in watched.calls] == [True]
    assert watched.waits_until() is None
