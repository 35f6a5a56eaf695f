"""Calls whose results carry text: not removed while the value is not inline."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.actions.search import search_extracted
from bsd.daemon.instance import SingleInstance
from tests import forked
from tests.actions import performed
from tests.mcp.conftest import LONG, NAME, UNKNOWN, Agent, Desk, call, text_of
from tests.mcp.test_inband import call_of
from tests.openclaw_tree import set_status

REMOTE = "restore_remote"


@pytest.fixture
def old(desk: Desk, agent: Agent) -> str:
    """An extracted result, in a turn that has begun."""
    old = agent.past()
    desk.look()
    agent.user("what was in the file?")
    return old


def during_the_turn(desk: Desk, tool: str, **arguments: Any) -> str:
    """Call a tool as the agent of this session does; return the answer as its program writes it."""
    set_status(desk.layout.root, str(NAME), "running")
    with SingleInstance(desk.layout):
        answer = call(desk, tool, session="s1", **arguments)
    set_status(desk.layout.root, str(NAME), "done")
    return json.dumps(answer)


def shell(desk: Desk, *words: str) -> str:
    """The output of `bsd` for an agent's shell during its turn."""
    set_status(desk.layout.root, str(NAME), "running")
    with SingleInstance(desk.layout):
        ended = forked.run("--root", str(desk.layout.root), *words)
    set_status(desk.layout.root, str(NAME), "done")
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("restore_remote", {"entry": "e3"}),
        ("bsd__restore", {"entry_id": "e3"}),
        ("mcp__bsd__purge_control", {"action": "restore", "entry": "e3"}),
    ],
)
def test_a_result_that_carries_the_text_stays(
    desk: Desk, agent: Agent, old: str, tool: str, arguments: dict[str, Any]
) -> None:
    assert old == "e3"
    agent.calls(("c1", tool, arguments))
    answer = during_the_turn(desk, tool.rpartition("__")[2], **arguments)
    result = agent.result("c1", tool, answer)
    agent.says("I have it")
    assert not desk.look()
    assert text_of(desk.entry(result)) == answer
    assert text_of(desk.entry(old)) == f"[[extracted-{old}]]"
    performed.restore(desk.caller(), NAME, old)  # a person puts it back
    desk.ahead += 3600
    assert desk.look()
    assert LONG not in json.dumps([one for one in desk.entries() if one["id"] == result])


def test_what_was_asked_for_after_the_turn_is_done_then(desk: Desk, agent: Agent, old: str) -> None:
    asks = agent.calls(("c1", REMOTE, {"entry": old, "inline": True}))
    answer = during_the_turn(desk, REMOTE, entry=old, inline=True)
    assert json.loads(answer)["inline"] == "after the turn"
    result = agent.result("c1", REMOTE, answer)
    assert not desk.look(), "the turn goes on"
    agent.says("I have it")
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert not {asks, result} & {one["id"] for one in desk.entries()}
    assert [(line["action"], line["failed"]) for line in desk.audit()] == [("restore", False)]
    assert not desk.look()


def test_if_that_fails_the_text_stays(desk: Desk, agent: Agent, old: str) -> None:
    asks = agent.calls(("c1", REMOTE, {"entry": old, "inline": True}))
    answer = during_the_turn(desk, REMOTE, entry=old, inline=True)
    result = agent.result("c1", REMOTE, answer)
    agent.says("I have it")
    for path in desk.layout.store_dir(NAME).glob("*_*.json"):
        path.unlink()
    assert desk.look()
    assert text_of(desk.entry(result)) == answer
    assert call_of(desk.entry(asks))["arguments"] == {"entry": old, "inline": True}
    assert "extracted file missing" in desk.entry(asks)["_answered"]["c1"]
    assert [line["failed"] for line in desk.audit()] == [True]
    assert not desk.look(), "once"


def test_twice_in_one_turn(desk: Desk, agent: Agent, old: str) -> None:
    agent.calls(("c1", REMOTE, {"entry": old}))
    first = agent.result("c1", REMOTE, during_the_turn(desk, REMOTE, entry=old))
    agent.calls(("c2", REMOTE, {"entry": old, "inline": True}))
    answer = during_the_turn(desk, REMOTE, entry=old, inline=True)
    second = agent.result("c2", REMOTE, answer)
    agent.says("I have it")
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert second not in {one["id"] for one in desk.entries()}
    assert text_of(desk.entry(first)).startswith('{"restored": false')
    agent.user("and?")
    agent.says("well")
    assert desk.look()
    assert first not in {one["id"] for one in desk.entries()}, "it is inline now"


def test_text_of_another_session_stays(desk: Desk, agent: Agent, old: str) -> None:
    other = {"session": "other/s9", "entry": old}
    done = {
        "restored": True, "entry_id": old, "keys_restored": ["a"], "sizes_bytes": {"a": 1},
        "inline": "now", "texts": {"message.content[0].text": LONG},
    }  # fmt: skip
    agent.calls(("c1", REMOTE, other))
    result = agent.result("c1", REMOTE, json.dumps(done))
    agent.calls(("c2", REMOTE, {"entry": "x1"}))
    unnamed = agent.result("c2", REMOTE, json.dumps({"session": "other/s9", **done}))
    agent.says("I have it")
    performed.restore(desk.caller(), NAME, old)  # an entry of that name is inline here
    desk.ahead += 3600
    desk.settings(keep_recent=50)
    assert not desk.look()
    for one in (result, unnamed):
        assert LONG in text_of(desk.entry(one))


def test_what_an_earlier_version_answered_is_tidied_away(
    desk: Desk, agent: Agent, old: str
) -> None:
    done = {"restored": True, "entry_id": old, "keys_restored": ["a"], "sizes_bytes": {"a": 1}}
    agent.calls(("c1", REMOTE, {"entry": old}))
    result = agent.result("c1", REMOTE, json.dumps(done))
    agent.says("well")
    assert desk.look()
    assert result not in {one["id"] for one in desk.entries()}


# --- by a shell ---


@pytest.mark.parametrize("json_", [False, True])
def test_what_a_shell_printed_stays(desk: Desk, agent: Agent, old: str, json_: bool) -> None:
    words = [REMOTE, "--session", "s1", "--entry", old, *(["--json"] if json_ else [])]
    printed = shell(desk, *words)
    assert LONG in printed
    agent.calls(("c1", "exec", {"command": "bsd " + " ".join(words)}))
    result = agent.result("c1", "exec", printed)
    agent.says("I have it")
    assert not desk.look()
    assert text_of(desk.entry(result)) == printed
    performed.restore(desk.caller(), NAME, old)
    desk.ahead += 3600
    assert desk.look()
    assert result not in {one["id"] for one in desk.entries()}


@pytest.mark.parametrize("json_", [False, True])
def test_what_a_shell_asked_for_after_the_turn(
    desk: Desk, agent: Agent, old: str, json_: bool
) -> None:
    words = [REMOTE, "--session", "s1", "--entry", old, "--inline", *(["--json"] if json_ else [])]
    printed = shell(desk, *words)
    assert LONG in printed
    assert "after the turn" in printed
    agent.calls(("c1", "exec", {"command": "bsd " + " ".join(words)}))
    result = agent.result("c1", "exec", printed, error=True)  # its exit code was 4
    agent.says("I have it")
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert result not in {one["id"] for one in desk.entries()}


# --- reading, in band ---


def test_reading_is_answered_with_the_text(desk: Desk, agent: Agent, old: str) -> None:
    agent.calls(("c1", "read_extracted", {"entry": old}))
    read = agent.result("c1", "read_extracted", UNKNOWN, error=True)
    agent.calls(("c2", "restore", {"entry_id": old, "inline": False}))
    given = agent.result("c2", "restore", UNKNOWN, error=True)
    agent.calls(("c3", "read_extracted", {"entry": "nowhere"}))
    nowhere = agent.result("c3", "read_extracted", UNKNOWN, error=True)
    agent.says("I have it")
    assert desk.look()
    for one in (read, given):
        assert text_of(desk.entry(one)) == LONG
        assert desk.entry(one)["message"]["isError"] is False
    assert text_of(desk.entry(nowhere)).startswith("[read_extracted failed: Entry not found")
    assert text_of(desk.entry(old)) == f"[[extracted-{old}]]"
    assert not desk.look()
    agent.user("and?")
    agent.says("well")
    desk.look()
    assert text_of(desk.entry(read)) == LONG, "it stays for a while"


def test_reading_by_a_door_is_left_as_it_is(desk: Desk, agent: Agent, old: str) -> None:
    agent.calls(("c1", "mcp__bsd__read_extracted", {"entry": old}))
    answer = during_the_turn(desk, "read_extracted", entry=old)
    read = agent.result("c1", "mcp__bsd__read_extracted", answer)
    agent.says("I have it")
    assert not desk.look()
    assert text_of(desk.entry(read)) == answer


def test_a_tool_that_only_reads_keeps_its_answers(desk: Desk, agent: Agent, old: str) -> None:
    by_mcp = "mcp__bsd__read_extracted"
    agent.calls(("c1", "read_extracted", {"entry": old}), ("c2", by_mcp, {"entry": old}))
    here = agent.result("c1", "read_extracted", UNKNOWN, error=True)
    answer = json.dumps({"session": "s1", "entry_id": old, "texts": {}})
    there = agent.result("c2", by_mcp, answer)
    agent.says("I have it")
    assert desk.look()
    assert text_of(desk.entry(here)) == LONG
    assert desk.entry(here)["_extractable"] == 10, "it is there when somebody reads it"
    assert text_of(desk.entry(there)) == answer


def test_a_call_that_is_written_while_others_are_carried_out_is_carried_out_too(
    desk: Desk, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = agent.past()
    desk.look()
    agent.user("where was it?")
    agent.calls(("c1", "search_extracted", {"query": "lorem"}))
    first = agent.result("c1", "search_extracted", UNKNOWN, error=True)
    agent.says("ok")
    search, late = search_extracted, list[str]()

    def slow(*what: Any, **how: Any) -> Any:
        found = search(*what, **how)
        if not late:
            agent.user("and this?")
            agent.calls(("c2", "search_extracted", {"query": "dolor"}))
            late.append(agent.result("c2", "search_extracted", UNKNOWN, error=True))
            agent.says("ok")
        return found

    monkeypatch.setattr("bsd.mcp.inband.search_extracted", slow)
    assert desk.look()
    for result in (first, late[0]):
        assert text_of(desk.entry(result)).startswith(f"{old}: lorem ipsum")
