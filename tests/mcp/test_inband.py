"""Calls in a transcript: carried out once, in both formats, and then removed from the context."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bsd.core.errors import Busy
from bsd.core.layout import SessionName
from bsd.mcp.inband import InBand
from bsd.store.state import StateDb
from tests.actions import performed
from tests.actions.performed import history_of
from tests.logs import capture_logs
from tests.mcp.conftest import LONG, NAME, UNKNOWN, Agent, Desk, Flat, text_of
from tests.refusing import raising

PIN = {"action": "set_extractable", "value": False}
NOISE = "BEGIN OF LOG " + "noise " * 40 + "END OF LOG"


def call_of(entry: dict[str, Any]) -> dict[str, Any]:
    (call,) = [block for block in entry["message"]["content"] if block["type"] == "toolCall"]
    found: dict[str, Any] = call
    return found


# --- the seeds' examples, exactly ---

RESTORATION = {
    "log_level": "debug",
    "module": "extraction",
    "entry_id": "ent_123",
    "keys_restored": ["data.thinking"],
    "sizes_bytes": {"data.thinking": len(LONG)},
    "redacted": True,
    "session": "main/s1",
}


def long_ago(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [*entries, *({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4))]


def test_seed_000_example_flow(desk: Desk, flat: Flat) -> None:
    flat(*long_ago({"__id": "ent_123", "type": "thinking", "data": {"thinking": LONG}}))
    desk.look()
    before = desk.lines()
    assert desk.entry("ent_123")["data"] == {"thinking": "[[extracted-ent_123]]"}
    flat({"__id": "call_9", "type": "tool_call", "name": "restore_remote",
          "arguments": {"session": "s1", "entry": "ent_123"}})  # fmt: skip
    with capture_logs() as logged:
        assert desk.look()
    (restored,) = [line for line in logged if line["event"] == "Restored"]
    assert {key: restored[key] for key in RESTORATION} == RESTORATION
    assert desk.lines()[1:] == before[1:], "the call is gone, the rest is what it was"
    entry = desk.entry("ent_123")
    assert entry["data"] == {"thinking": LONG}
    assert not desk.look()


def test_seed_001_restore_and_its_call(desk: Desk, flat: Flat) -> None:
    flat(*long_ago({"__id": "msg-456", "type": "tool_result", "content": LONG, "output": LONG}))
    desk.look()
    assert desk.entry("msg-456")["output"] == "[[extracted-msg-456]]"
    restore = {"entry_id": "msg-456", "keys": ["content", "output"]}
    flat({"__id": "c1", "type": "tool_call", "name": "restore", "arguments": restore})
    again = {"action": "restore", "entry": "msg-456"}
    flat({"__id": "c2", "type": "tool_call", "name": "purge_control", "arguments": again})
    assert desk.look()
    entry = desk.entry("msg-456")
    assert (entry["content"], entry["output"]) == (LONG, LONG)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z", entry["_restored"])
    assert desk.entry("c2") | {"_answered": None} == {
        "__id": "c2",
        "type": "tool_call",
        "name": "purge_control",
        "arguments": {"action": "restore", "entry": "msg-456"},
        "_redacted": True,
        "_answered": None,  # the second call found no value to restore
    }
    assert desk.entry("c1")["_redacted"] is True
    assert "_answered" not in desk.entry("c1")


# --- an agent at work: restore, continue, pin, replace ---


def test_an_agent_at_work_in_openclaw(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("what was in the file?")
    asks = agent.calls(("c1", "restore_remote", {"session": "s1", "entry": old}))
    answer = agent.result("c1", "restore_remote", UNKNOWN, error=True)
    assert not desk.look(), "its turn is not over"
    last = agent.says("I look at it again")
    assert desk.look()
    ids = [entry["id"] for entry in desk.entries()]
    assert last in ids
    assert text_of(desk.entry(old)) == LONG
    assert not {answer} & set(ids)
    assert call_free(desk.entry(asks)) if asks in ids else True

    agent.user("keep it, and forget the log")
    pins = agent.calls(("c2", "purge_control", {**PIN, "entry": old}))
    pinned = agent.result("c2", "purge_control", UNKNOWN, error=True)
    logs = agent.calls(("c3", "read", {"path": "log"}))
    log = agent.result("c3", "read", f"top\n{NOISE}\nbottom")
    target = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": "[a log]"}
    agent.calls(("c4", "context", {"action": "replace", "targets": [target]}))
    replaced = agent.result("c4", "context", UNKNOWN, error=True)
    agent.says("done")
    assert desk.look()
    assert desk.entry(old)["_extractable"] is False
    assert text_of(desk.entry(log)) == "top\n[a log]\nbottom"
    assert call_of(desk.entry(logs))["arguments"] == {"path": "log"}
    assert call_of(desk.entry(pins))["arguments"] == {"action": "set_extractable", "entry": old}
    assert text_of(desk.entry(pinned)) == f"[_extractable=false for entry {old}]"
    assert text_of(desk.entry(replaced)).startswith("[replace: 1 done, ")
    assert desk.entry(replaced)["message"]["isError"] is False
    assert not desk.look()
    assert [(line["action"], line["failed"]) for line in desk.audit()] == [
        ("restore", False),
        ("set_extractable", False),
        ("replace", False),
    ]


def test_a_change_below_a_signature_is_answered_with_the_warning_of_every_door(
    desk: Desk, agent: Agent
) -> None:
    agent.user("read the log")
    agent.calls(("c1", "read", {"path": "log"}))
    log = agent.result("c1", "read", NOISE)
    agent.says("read", model="claude-opus-6", signature="s" * 60)
    agent.user("forget it")
    target = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": "[a log]"}
    agent.calls(("c2", "context", {"action": "replace", "targets": [target]}))
    replaced = agent.result("c2", "context", UNKNOWN, error=True)
    agent.says("done")
    assert desk.look()
    assert text_of(desk.entry(log)) == "[a log]"
    answer = text_of(desk.entry(replaced))
    assert answer.startswith("[replace: 1 done, ")
    assert f"; entry {log}: a later answer carries a signature that covers it" in answer


def call_free(entry: dict[str, Any]) -> bool:
    return all(block["type"] != "toolCall" for block in entry["message"]["content"])


def test_an_agent_at_work_in_flat(desk: Desk, flat: Flat) -> None:
    flat(*long_ago({"__id": "t1", "type": "tool_result", "output": LONG}))
    desk.look()

    def call(number: int, name: str, **arguments: Any) -> None:
        flat({"__id": f"c{number}", "type": "tool_call", "name": name, "arguments": arguments})
        flat({"__id": f"r{number}", "type": "tool_result", "toolCallId": f"c{number}",
              "name": name, "output": UNKNOWN})  # fmt: skip

    call(1, "restore", entry_id="t1")
    assert desk.look()
    assert desk.entry("t1")["output"] == LONG
    flat({"__id": "a1", "type": "assistant", "content": "on with it"})
    call(2, "purge_control", action="set_extractable", entry="t1", value="false")
    assert desk.look()
    assert desk.entry("t1")["_extractable"] is False
    flat({"__id": "t2", "type": "tool_result", "output": f"top {NOISE} bottom"})
    target = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": "[a log]"}
    call(3, "context", action="replace", targets=[target])
    flat({"__id": "a2", "type": "assistant", "content": "done"})
    assert desk.look()
    assert desk.entry("t2")["output"] == "top [a log] bottom"
    assert [desk.entry(f"r{n}")["output"][:9] for n in (1, 2, 3)] == [
        "[restored", "[_extract", "[replace:"
    ]  # fmt: skip
    assert not desk.look()


# --- once ---


@pytest.mark.parametrize("kept", [False, True])
def test_neither_a_lost_state_nor_an_undo_makes_it_twice(
    desk: Desk, agent: Agent, kept: bool
) -> None:
    desk.settings(keep_restore_remote_calls=kept, keep_purge_control_calls=kept)
    agent.user("a log")
    agent.calls(("c1", "read", {"path": "log"}))
    log = agent.result("c1", "read", NOISE)
    nested = {"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": f"<{NOISE}>"}
    agent.calls(("c2", "context", {"action": "replace", "targets": [nested]}))
    answer = agent.result("c2", "context", UNKNOWN, error=True)
    agent.says("done")
    assert desk.look()
    assert text_of(desk.entry(log)) == f"<{NOISE}>"
    assert (text_of(desk.entry(answer)) == UNKNOWN) is kept
    StateDb(desk.layout.state_db).forget(NAME)
    assert not desk.look()
    desk.rest()
    performed.undo(desk.caller(), NAME)
    desk.rest()
    assert text_of(desk.entry(log)) == NOISE
    assert not desk.look(), "a person has taken it back"
    agent.user("and now?")
    agent.says("nothing")
    assert not desk.look()
    assert text_of(desk.entry(log)) == NOISE
    assert len(desk.audit()) == 1


def test_a_kept_call_stays_as_it_is_but_for_a_note(desk: Desk, agent: Agent) -> None:
    desk.settings(keep_restore_remote_calls=True)
    old = agent.past()
    desk.look()
    agent.user("again")
    asks = agent.calls(("c1", "restore_remote", {"entry": old}))
    answer = agent.result("c1", "restore_remote", UNKNOWN, error=True)
    agent.says("ok")
    before = {one: desk.entry(one) for one in (asks, answer)}
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert desk.entry(answer) == before[answer]
    note = {"c1": f"[restored entry {old}: message.content[0].text]"}
    assert desk.entry(asks) == before[asks] | {"_answered": note}
    assert not desk.look()


def test_what_a_later_signature_covers_is_not_changed(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    asks = agent.calls(("c1", "restore_remote", {"entry": old}))
    answer = agent.result("c1", "restore_remote", UNKNOWN, error=True)
    agent.says("ok", model="claude-opus-5-5", signature="s" * 60)
    before = [desk.entry(answer), desk.entry(asks)["message"]]
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert [desk.entry(answer), desk.entry(asks)["message"]] == before
    assert not desk.look()


def test_a_busy_session_is_left_alone(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    agent.calls(("c1", "restore", {"entry_id": old}))
    agent.says("ok")
    registry = desk.path.with_name("sessions.json")
    registry.write_text(json.dumps({"agent:main": {"sessionId": "s1", "status": "running"}}))
    before = desk.path.read_bytes()
    assert not desk.look()
    with pytest.raises(Busy):
        InBand(desk.caller(actor="agent"), NAME).carry_out()
    assert desk.path.read_bytes() == before
    registry.write_text("{}")
    assert desk.look()


# --- failures ---


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("restore", "oops", "the arguments are not a JSON object"),
        ("restore", {}, "entry_id parameter is required"),
        ("restore", {"entry_id": "nowhere"}, "Entry not found in session"),
        ("restore", {"entry_id": "e1"}, "Entry exists but has no extracted content"),
        ("restore", {"entry_id": "e3", "keys": ["nothing"]}, "has no extracted key nothing"),
        ("restore", {"session": "other/s1", "entry_id": "e3"}, "is out of reach"),
        ("restore_remote", {"session": "s2", "entry": "e3"}, "is out of reach"),
        ("purge_control", {"action": "destroy"}, "Unknown action 'destroy'"),
        ("purge_control", {**PIN, "entry": "e3", "value": "maybe"}, "value must be true, false"),
        ("context", {"action": "replace", "targets": []}, "targets"),
        ("context", {"action": "discard", "targets": [["ffffff"]]}, "ffffff"),
        ("search_extracted", {"query": "!!"}, "no word"),
    ],
)
def test_a_call_that_fails_has_its_error_as_result_once(
    desk: Desk, agent: Agent, name: str, arguments: Any, message: str
) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    asks = agent.calls(("c1", name, arguments))
    answer = agent.result("c1", name, UNKNOWN, error=False)
    agent.says("ok")
    assert desk.look()
    shown = desk.entry(answer)
    assert text_of(shown).startswith(f"[{name} failed: ")
    assert message in text_of(shown)
    assert shown["message"]["isError"] is True
    assert call_of(desk.entry(asks))["name"] == name, "the agent shall see that it failed"
    assert text_of(desk.entry(old)) == f"[[extracted-{old}]]"
    assert not desk.look()
    (line,) = desk.audit()
    assert line["failed"] is True
    assert (message if name != "context" else "targets") in line["outcome"]


def test_one_that_fails_stops_no_other(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    agent.calls(("c1", "restore", {"entry_id": "nowhere"}), ("c2", "restore", {"entry_id": old}))
    first = agent.result("c1", "restore", UNKNOWN)
    second = agent.result("c2", "restore", UNKNOWN)
    agent.says("ok")
    assert desk.look()
    assert "failed" in text_of(desk.entry(first))
    assert text_of(desk.entry(second)).startswith(f"[restored entry {old}")
    assert text_of(desk.entry(old)) == LONG


def test_a_stored_file_that_is_gone(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    for file in desk.layout.store_dir(NAME).glob("0*.json"):
        file.unlink()
    agent.user("again")
    asks = agent.calls(("c1", "restore_remote", {"entry": old}))
    answer = agent.result("c1", "restore_remote", UNKNOWN)
    agent.says("ok")
    assert desk.look()
    assert "[Content unavailable - extracted file missing]" in text_of(desk.entry(answer))
    assert desk.entry(asks)["_redacted"] is True, "consumed, it would be called again and again"
    assert not desk.look()


def test_a_call_without_any_result_notes_its_error(desk: Desk, flat: Flat) -> None:
    flat({"__id": "c1", "type": "tool_call", "name": "restore", "arguments": "oops"})
    assert desk.look()
    assert "not a JSON object" in desk.entry("c1")["_answered"]["c1"]
    assert not desk.look()


def test_a_line_that_cannot_be_edited_stops_nothing(desk: Desk, flat: Flat) -> None:
    flat({"__id": "c1", "type": "tool_call", "name": "restore", "arguments": {"entry_id": "x"}})
    twice = desk.path.read_bytes().replace(b"{", b'{"_answered": 1, "_answered": 2, ', 1)
    twice = twice.replace(b"{", b'{"_redacted": 1, "_redacted": 2, ', 1)
    desk.path.write_bytes(twice)
    flat({"__id": "c2", "type": "tool_call", "name": "restore", "arguments": {"entry_id": "y"}})
    assert desk.look()
    assert desk.lines()[0] == twice
    assert desk.entry("c2")["_redacted"] is True
    assert not desk.look(), "the audit knows both"


def test_a_redaction_that_breaks_does_not_undo_the_rest(
    desk: Desk, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.mcp.inband.plan_redact", raising(ZeroDivisionError))
    old = agent.past()
    desk.look()
    agent.user("again")
    asks = agent.calls(("c1", "restore", {"entry_id": old}))
    agent.says("ok")
    with capture_logs() as logged:
        assert desk.look()
    assert any("cannot be redacted" in line["event"] for line in logged)
    assert text_of(desk.entry(old)) == LONG
    assert list(desk.entry(asks)["_answered"]) == ["c1"]
    assert not desk.look()


def test_foreign_tools_of_the_same_name_are_left_alone(desk: Desk, agent: Agent) -> None:
    agent.user("restore the database")
    agent.calls(("c1", "restore", {"snapshot": "monday"}), ("c2", "context", {"file": "a.py"}))
    agent.result("c1", "restore", "restored 3 tables")
    agent.result("c2", "context", "def f(): …")
    agent.says("ok")
    before = desk.path.read_bytes()
    assert not desk.look()
    assert desk.path.read_bytes() == before


# --- calls that the MCP server or the command line has carried out ---


def test_a_call_that_mcp_answered_is_only_redacted(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    desk.rest()
    done = performed.restore(desk.caller(), NAME, old)
    agent.user("again")
    asks = agent.calls(("c1", "mcp__bsd__restore", {"session": "s1", "entry_id": old}))
    answer = agent.result("c1", "mcp__bsd__restore", json.dumps(done))
    agent.says("ok")
    assert desk.look()
    assert call_of(desk.entry(asks))["arguments"] == {"entry_id": old}
    assert text_of(desk.entry(answer)) == "[done: mcp__bsd__restore]"
    assert not desk.look()
    assert len([one for one in history_of(desk.layout, NAME) if one.action == "restore"]) == 1


def test_calls_that_the_original_tool_answered(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    restore = {"action": "restore", "session": "s1", "entry": old}
    agent.user("again")
    agent.calls(("c1", "purge_control", restore))
    done = agent.result("c1", "purge_control", f"Restored 1 keys for entry {old}\nKeys: text")
    agent.calls(("c2", "purge_control", restore))
    failed = agent.result("c2", "purge_control", "Restore failed: Entry not found in session")
    agent.says("ok")
    assert desk.look()
    assert text_of(desk.entry(done)) == "[done: purge_control]"
    assert text_of(desk.entry(failed)) == "Restore failed: Entry not found in session"
    assert text_of(desk.entry(old)) == f"[[extracted-{old}]]", "nothing was carried out"
    assert not desk.look()


def test_a_call_that_found_the_session_busy_is_carried_out(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    agent.calls(("c1", "bsd__restore", {"session": "main/s1", "entry_id": old}))
    busy = json.dumps({"error": "session main/s1 is in use", "hint": "again later", "busy": True})
    agent.result("c1", "bsd__restore", busy, error=True)
    agent.says("ok")
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG


def test_a_call_that_found_another_session_busy_stays(desk: Desk, agent: Agent) -> None:
    agent.user("and the other one?")
    agent.calls(("c1", "bsd__restore", {"session": "main/s2", "entry_id": "e3"}))
    agent.result("c1", "bsd__restore", json.dumps({"error": "in use", "busy": True}), error=True)
    agent.says("ok")
    before = desk.path.read_bytes()
    assert not desk.look()
    assert desk.path.read_bytes() == before


def test_a_shell_that_ran_our_command(desk: Desk, agent: Agent) -> None:
    agent.past()
    desk.look()
    command = "bsd restore_remote --session s1 --entry e3"
    agent.user("again")
    asks = agent.calls(("c1", "exec", {"command": command}))
    agent.result("c1", "exec", "Restored 1 keys for entry e3\nKeys: text")
    fails = agent.calls(("c2", "exec", {"command": command}))
    failed = agent.result("c2", "exec", "Error: Entry not found in session")
    other = agent.calls(("c3", "exec", {"command": f"date; {command}; ls"}))
    more = agent.result("c3", "exec", "Restored 1 keys for entry e3\na b c")
    agent.says("ok")
    assert desk.look()
    entries = {entry["id"]: entry for entry in desk.entries()}
    assert asks not in entries or call_free(entries[asks])
    assert text_of(entries[failed]) == "Error: Entry not found in session"
    assert call_of(entries[fails])["arguments"] == {"command": command}
    assert call_of(entries[other])["arguments"]["command"].endswith("; ls")
    assert text_of(entries[more]).endswith("a b c"), "it did more than that"
    assert not desk.look()
    assert performed.context(desk.caller(), NAME)["extracted_entries"] == 1, (
        "nothing was carried out"
    )


@pytest.mark.parametrize("session", ["s1", "main/s1"])
def test_a_shell_whose_command_found_the_session_busy(
    desk: Desk, agent: Agent, session: str
) -> None:
    old = agent.past()
    desk.look()
    agent.user("again")
    busy = "Error: session main/s1 is in use: sessions.json says so\nTry: later\n"
    remote = f"bsd restore_remote --session {session} --entry {old}"
    pin = f"bsd purge_control set_extractable {old} false --session {session}"
    asks = agent.calls(("c1", "exec", {"command": remote}))
    agent.result("c1", "exec", busy, error=True)
    agent.calls(("c2", "exec", {"command": pin}))
    pinned = agent.result("c2", "exec", busy, error=True)
    agent.calls(("c3", "exec", {"command": remote.replace(session, "main/other")}))
    other = agent.result("c3", "exec", busy.replace("s1", "other"), error=True)
    agent.says("ok")
    assert desk.look()
    assert text_of(desk.entry(old)) == LONG
    assert desk.entry(old)["_extractable"] is False
    assert asks not in {entry["id"] for entry in desk.entries()}
    assert text_of(desk.entry(pinned)) == f"[_extractable=false for entry {old}]"
    assert desk.entry(pinned)["message"]["isError"] is False
    assert "is in use" in text_of(desk.entry(other))
    assert not desk.look()


# --- calls that only read ---


def test_what_only_reads_gets_its_answer_as_result(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    agent.user("what is away?")
    agent.calls(("c1", "purge_control", {"action": "get_context"}))
    listing = agent.result("c1", "purge_control", UNKNOWN, error=True)
    agent.calls(("c2", "search_extracted", {"query": "dolor"}))
    found = agent.result("c2", "search_extracted", UNKNOWN, error=True)
    agent.says("ok")
    assert desk.look()
    assert f"Extracted entry IDs:\n  - {old}\n" in text_of(desk.entry(listing))
    assert text_of(desk.entry(found)).startswith(f"{old}: lorem ipsum")
    assert text_of(desk.entry(old)) == f"[[extracted-{old}]]"
    for _ in range(2):
        agent.user("and?")
        agent.says("I see")
        desk.look()
    assert text_of(desk.entry(listing)).startswith("Session: main/s1"), "it stays for a while"


def test_log_and_audit_quote_nothing_of_what_is_said(desk: Desk, agent: Agent) -> None:
    secret = "hunter2hunter2"
    agent.past()
    desk.look()
    agent.user("again")
    agent.says(f"the password is {secret}, and the password is {secret}")
    agent.user("again")
    operation = {"start": "the password is", "end": secret, "replacement": "…"}
    agent.calls(("c1", "context", {"action": "replace", "targets": [operation]}))
    refused = agent.result("c1", "context", UNKNOWN)
    agent.calls(("c2", "search_extracted", {"query": "dolor"}))
    agent.result("c2", "search_extracted", UNKNOWN)
    agent.says("ok")
    with capture_logs() as logged:
        assert desk.look()
    assert secret in text_of(desk.entry(refused)), "the agent sees why"
    kept = json.dumps([logged, desk.audit()])
    assert "targets[0] refused" in kept
    assert "1 places found" in kept
    assert secret not in kept
    assert "ipsum" not in kept


def test_patterns_go_with_what_they_took_away(desk: Desk, agent: Agent) -> None:
    agent.past()
    desk.look()
    agent.user("again")
    said = agent.says("the password is hunter2, and that is all there is to say")
    agent.user("forget it")
    operation = {"start": "the password is hunter2", "end": "that is all", "replacement": "…"}
    asks = agent.calls(("c1", "context", {"action": "replace", "targets": [operation]}))
    agent.result("c1", "context", UNKNOWN)
    agent.says("ok")
    assert desk.look()
    assert text_of(desk.entry(said)) == "… there is to say"
    assert call_of(desk.entry(asks))["arguments"] == {"action": "replace"}
    assert b"hunter2" not in desk.path.read_bytes()


def test_other_sessions_are_not_touched(desk: Desk, agent: Agent) -> None:
    old = agent.past()
    desk.look()
    other = SessionName("main", "s2")
    path = desk.path.with_name("s2.jsonl")
    path.write_bytes(desk.path.read_bytes())
    agent.user("again")
    agent.calls(("c1", "restore", {"entry_id": old}))
    agent.says("ok")
    before = path.read_bytes()
    assert desk.look()
    assert path.read_bytes() == before
    assert history_of(desk.layout, other) == []


def test_what_an_agent_restored_leaves_no_trace_when_bsd_is_left(desk: Desk, agent: Agent) -> None:
    result = agent.past()
    before = desk.lines()
    desk.look()
    agent.user("and now?")
    agent.calls(("c1", "restore_remote", {"session": "s1", "entry": result}))
    agent.result("c1", "restore_remote", UNKNOWN, error=True)
    agent.says("thanks")
    assert desk.look()
    assert "_restored" in desk.entry(result)
    desk.ahead += 5
    assert performed.restore_all(desk.caller(), NAME, leaving=True).values == 0
    assert desk.lines()[: len(before)] == before


def test_an_agents_word_on_an_entry_frees_it_too(desk: Desk, agent: Agent) -> None:
    result = agent.past()
    desk.look()
    desk.ahead += 5
    performed.undo(desk.caller(), NAME)
    agent.user("and now?")
    agent.says("hm")
    assert not desk.look()
    assert text_of(desk.entry(result)) == LONG
    agent.user("let it go")
    agent.calls(("c1", "purge_control", {"action": "set_extractable", "entry": result, "value": 2}))
    agent.result("c1", "purge_control", UNKNOWN, error=True)
    agent.says("done")
    assert desk.look()
    desk.ahead += 5
    desk.look()
    assert text_of(desk.entry(result)) == f"[[extracted-{result}]]"
