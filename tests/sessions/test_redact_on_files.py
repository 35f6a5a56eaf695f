"""Redaction and the context tool on real files: lines that go, crashes, history, the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.core.audit import AuditLog
from bsd.core.errors import Busy, Conflict
from bsd.core.layout import Layout
from bsd.maintenance.verify import verify
from bsd.planning.redact import CallToRedact, RedactionKind
from bsd.planning.targets import Refused
from bsd.store.history import History
from tests.actions import performed
from tests.actions.performed import Caller, history_of
from tests.openclaw_tree import add_session, set_idle
from tests.planning.soundness import faults, shown
from tests.session_files import NAME, Clock, Talk, call, jsonl, make_caller, text

CONSUME = [CallToRedact("restore_remote", RedactionKind.CONSUMED, "c1")]
LONG = "long " * 200


def conversation() -> bytes:
    talk = Talk()
    talk.user()
    talk.says(text("I bring it back"), call("c1", session="s", entry="e0"))
    talk.answers("c1", LONG)
    talk.says(text("done"))
    talk.user("and now")
    talk.says(text("nothing"))
    return talk.raw


def flat() -> bytes:
    """Lines that are only taken out: nothing is left that tells of it, but what is missing."""
    return jsonl(
        {"__id": "a", "type": "user", "content": "please"},
        {"__id": "b", "type": "tool_call", "toolCallId": "c1", "name": "restore_remote"},
        {"__id": "c", "type": "tool_result", "toolCallId": "c1", "output": LONG},
        {"__id": "d", "type": "assistant", "content": "done"},
    )


def put(layout: Layout, raw: bytes) -> Path:
    return add_session(layout.root, str(NAME), raw)


def states(caller: Caller) -> list[tuple[int, str, str]]:
    return [(one.operation, one.action, one.state) for one in history_of(caller.layout, NAME)]


@pytest.mark.parametrize("raw", [conversation(), flat()])
def test_a_redaction_is_history_and_can_be_undone(
    layout: Layout, caller: Caller, raw: bytes
) -> None:
    path = put(layout, raw)
    answer = performed.redact(caller, NAME, CONSUME)
    assert [one["how"] for one in answer["redacted"]] == ["consumed"]
    assert len(answer["entries_removed"]) == 2
    redacted = path.read_bytes()
    assert LONG.encode() not in redacted
    assert verify(layout).clean
    with path.open("a") as stream:
        stream.write('{"type":"label","id":"x"}\n')
    set_idle(path)
    assert performed.redact(caller, NAME, CONSUME)["left"][0]["why"] == "not found"
    for redo, content in ((None, raw), (2, redacted), (3, raw)):
        performed.undo(caller, NAME, redo)
        set_idle(path)
        assert path.read_bytes() == content + b'{"type":"label","id":"x"}\n'
    assert states(caller)[-1] == (1, "redact", "undone")
    told = [(one["action"], one.get("entryIds")) for one in AuditLog(layout.audit_file).search(b"")]
    assert [action for action, _ in told] == ["redact", "undo", "undo", "undo"]
    assert set(answer["entries_removed"]) <= set(told[0][1] or ())


@pytest.mark.parametrize("raw", [conversation(), flat()])
def test_a_crash_after_the_exchange_is_no_loss(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    path = put(layout, raw)
    caller = make_caller(layout, clock, wait=0.0)
    monkeypatch.setattr(History, "done", lambda _: None)
    performed.redact(caller, NAME, CONSUME)
    monkeypatch.undo()
    assert path.read_bytes() != raw
    assert states(caller) == [(1, "redact", "done")]
    set_idle(path)
    assert performed.undo(caller, NAME)["undone"] == 1
    assert path.read_bytes() == raw

    monkeypatch.setattr(History, "done", lambda _: None)  # the same for lines that come in
    set_idle(path)
    performed.undo(caller, NAME, 2)
    set_idle(path)
    performed.undo(caller, NAME, 3)
    monkeypatch.undo()
    assert path.read_bytes() == raw
    assert states(caller)[0] == (4, "undo", "done")
    set_idle(path)
    performed.undo(caller, NAME, 4)
    assert path.read_bytes() != raw


@pytest.mark.parametrize("raw", [conversation(), flat()])
def test_a_crash_before_the_exchange_leaves_no_history(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    path = put(layout, raw)
    caller = make_caller(layout, clock, wait=0.0)
    monkeypatch.setattr(History, "discard", lambda _: None)
    with path.open("rb"), pytest.raises(Busy):
        performed.redact(caller, NAME, CONSUME)
    monkeypatch.undo()
    assert path.read_bytes() == raw
    assert history_of(caller.layout, NAME) == []
    with pytest.raises(Conflict, match="no operation left to undo"):
        performed.undo(caller, NAME)


def test_a_restored_entry_reads_as_if_it_had_never_been_away(
    layout: Layout, caller: Caller
) -> None:
    """Seed 000's example: the call is gone, the agent goes on with the content."""
    talk = Talk()
    talk.user()
    talk.says(call("c0", "read"))
    talk.answers("c0", LONG, "read")
    for _ in range(4):
        talk.says(text("seen"))
        talk.user("go on")
    talk.says(call("c1", session="s", entry="e3"))
    talk.answers("c1", "…")
    talk.says(text("done"))
    path = put(layout, talk.raw)
    caller.extract(NAME)
    assert LONG.encode() not in path.read_bytes()
    set_idle(path)
    performed.restore(caller, NAME, "e3")
    set_idle(path)
    performed.redact(caller, NAME, CONSUME)
    entries = shown(path.read_bytes())
    assert [entry["id"] for entry in entries] == [
        entry["id"] for entry in talk.entries[1:] if entry["id"] not in {"e12", "e13"}
    ]
    assert entries[2]["message"]["content"] == [text(LONG)]
    assert b"restore_remote" not in path.read_bytes()
    assert faults(path.read_bytes()) == []
    assert verify(layout).clean
    for _ in range(3):
        set_idle(path)
        performed.undo(caller, NAME)
    assert path.read_bytes() == talk.raw


def test_the_context_tool_leaves_no_trace_when_it_refuses(layout: Layout, caller: Caller) -> None:
    path = put(layout, conversation())
    listed = performed.context(caller, NAME)["entries"]
    hash_ = next(one["hash"] for one in listed if one["id"] == "e3")
    assert performed.change_context(caller, NAME, "discard", [[hash_]])["operation"] == 1
    set_idle(path)
    discarded = path.read_bytes()
    with pytest.raises(Refused) as short:
        performed.change_context(caller, NAME, "replace", [["noth", "ing", "x"]])
    with pytest.raises(Refused) as gone:
        performed.change_context(caller, NAME, "distill", [[hash_, "again"]])
    for refused in (short.value, gone.value):
        problem = refused.errors[0]
        assert refused.as_json()["errors"][0] == f"targets[0]: {problem.message}"
    assert path.read_bytes() == discarded
    assert states(caller) == [(1, "discard", "done")]
    last = json.loads(layout.audit_file.read_bytes().splitlines()[-1])
    assert (last["action"], last["entryIds"], last["entries"]) == ("discard", ["e3"], 1)
    assert last["bytesSaved"] > 0
    assert last["tokensSaved"] > 0
    performed.undo(caller, NAME)
    assert path.read_bytes() == conversation()


def test_entries_that_were_extracted_may_go_and_come_back(layout: Layout, caller: Caller) -> None:
    path = put(layout, conversation())
    overrides = {"keep_recent": 0, "keep_after_restore_seconds": 0}
    assert caller.extract(NAME, overrides=overrides).values > 0
    extracted = path.read_bytes()
    set_idle(path)
    performed.redact(caller, NAME, CONSUME)
    assert verify(layout).clean
    set_idle(path)
    performed.undo(caller, NAME)
    assert path.read_bytes() == extracted
    set_idle(path)
    performed.undo(caller, NAME)
    assert path.read_bytes() == conversation()
    set_idle(path)
    with pytest.raises(Conflict, match="operation 4"):
        performed.undo(caller, NAME, 3)
    for again in (4, 3):
        performed.undo(caller, NAME, again)
        set_idle(path)
    assert LONG.encode() not in path.read_bytes()
    assert len(path.read_bytes().splitlines()) == len(conversation().splitlines()) - 2
    assert verify(layout).clean
    for again in (6, 5):
        performed.undo(caller, NAME, again)
        set_idle(path)
    assert path.read_bytes() == conversation()
