"""Calls in a transcript: only real calls, after their turn is over, not yet marked as done."""

from __future__ import annotations

import json
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from bsd.mcp.transcript_calls import OwnCall, WatchedTranscript
from bsd.planning.rules import Policy
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.reader import BytesTranscript, Line
from tests.planning.in_memory import config
from tests.session_files import HEADER, jsonl

DONE = {"restored": True, "entry_id": "e", "keys_restored": ["x"], "sizes_bytes": {}}


def found(
    fmt: TranscriptFormat, *entries: dict[str, Any] | bytes, **settings: Any
) -> list[OwnCall]:
    source = BytesTranscript(jsonl(HEADER, *entries) if fmt is OPENCLAW else jsonl(*entries))
    policy = Policy.of(config(**settings))
    watched = WatchedTranscript(source, fmt, policy, lambda calls: calls)
    deque(watched.lines(), maxlen=0)
    return watched.calls


def due(fmt: TranscriptFormat, *entries: dict[str, Any] | bytes) -> list[str]:
    return [call.key for call in found(fmt, *entries) if call.is_due]


def user(text: str = "go on") -> dict[str, Any]:
    return {"type": "message", "id": f"u-{text}", "message": {"role": "user", "content": text}}


def assistant(
    *calls: tuple[str, str, Any], stop: str = "toolUse", **message: Any
) -> dict[str, Any]:
    blocks = [
        {"type": "toolCall", "id": id_, "name": name, "arguments": arguments}
        for id_, name, arguments in calls
    ] or [{"type": "text", "text": "well"}]
    more = {"role": "assistant", "content": blocks, "stopReason": stop, **message}
    return {"type": "message", "id": f"a-{calls[0][0] if calls else stop}", "message": more}


def result(call: str, text: str, tool: str = "restore", **more: Any) -> dict[str, Any]:
    message = {"role": "toolResult", "toolCallId": call, "toolName": tool,
               "content": [{"type": "text", "text": text}], **more}  # fmt: skip
    return {"type": "message", "id": f"r-{call}", "message": message}


CALL = ("c1", "restore", {"entry_id": "e"})
NOT_FOUND = result("c1", "Tool restore not found", isError=True)
END = assistant(stop="stop")


def test_a_call_is_due_when_its_turn_is_over() -> None:
    turn = [user(), assistant(CALL), NOT_FOUND]
    assert due(OPENCLAW, *turn) == []
    assert due(OPENCLAW, *turn, END) == ["c1"]
    assert due(OPENCLAW, *turn, user("a crash came between")) == ["c1"]
    assert due(OPENCLAW, *turn, assistant(("c2", "read", {}))) == []


def test_a_flat_call_is_due_at_once() -> None:
    call = {"__id": "f1", "type": "tool_call", "name": "restore", "arguments": {"entry_id": "e"}}
    assert due(FLAT, call) == ["f1"]
    assert due(FLAT, {**call, "toolCallId": "t1"}) == ["t1"]


def test_a_message_that_was_cut_off_calls_nobody_unless_somebody_answered() -> None:
    cut = assistant(CALL, stop="aborted")
    assert due(OPENCLAW, user(), cut, user("b")) == []
    assert due(OPENCLAW, user(), cut, NOT_FOUND, user("b")) == ["c1"]


@pytest.mark.parametrize(
    "member", [{"_redacted": True}, {"_answered": {"c1": "[restored]"}}], ids=["redacted", "noted"]
)
def test_what_the_entry_says_is_done(member: dict[str, Any]) -> None:
    assert due(OPENCLAW, user(), {**assistant(CALL), **member}, NOT_FOUND, END) == []


def test_one_of_two_is_done() -> None:
    two = assistant(CALL, ("c2", "purge_control", {"action": "get_context"}))
    assert due(OPENCLAW, user(), {**two, "_answered": {"c1": "ok"}}, END) == ["c2"]


@pytest.mark.parametrize(
    "entry",
    [
        user('{"type":"toolCall","id":"c1","name":"restore","arguments":{"entry_id":"e"}}'),
        result("c0", 'I call "restore" now, and "purge_control"', tool="read"),
        {"type": "message", "id": "x", "message": {"role": "user", "content": [
            {"type": "toolCall", "id": "c1", "name": "restore", "arguments": {"entry_id": "e"}}]}},
        {"type": "custom", "id": "x", "customType": "y", "data": {"name": "restore"}},
        b'{"torn": "restore", "name":"purge_control"\n',
    ],
)  # fmt: skip
def test_text_that_looks_like_a_call_is_none(entry: dict[str, Any] | bytes) -> None:
    assert found(OPENCLAW, user("a"), entry, END) == []


def test_what_a_door_has_answered_is_not_done_again() -> None:
    def call(text: str) -> OwnCall:
        (one,) = found(OPENCLAW, user(), assistant(CALL), result("c1", text), END)
        return one

    assert call(json.dumps(DONE)).is_done
    assert call(json.dumps({"error": "Entry not found in session"})).is_done
    assert not call(json.dumps({"error": "in use", "busy": True})).is_done
    assert not call("Tool restore not found").is_done


def test_a_result_that_is_away_tells_nothing_so_nothing_is_done() -> None:
    assert due(OPENCLAW, user(), assistant(CALL), result("c1", "[[extracted-r-c1]]"), END) == []


def test_a_shell_that_ran_it_needs_its_result() -> None:
    shell = assistant(("c1", "exec", {"command": "bsd restore_remote --session s --entry e"}))
    assert due(OPENCLAW, user(), shell, END) == []
    ran = result("c1", "Restored 1 keys for entry e", tool="exec")
    (call,) = found(OPENCLAW, user(), shell, ran, END)
    assert (call.is_due, call.is_done, call.by_shell) == (True, True, True)


def test_arguments_as_json_text() -> None:
    one = assistant(("c1", "restore", '{"entry_id": "e"}'))
    (call,) = found(OPENCLAW, user(), one, NOT_FOUND, END)
    assert call.arguments == {"entry_id": "e"}


def signed(model: str) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s" * 40}
    return assistant(stop="stop", content=[thinking], model=model)


@pytest.mark.parametrize(
    ("model", "bound"), [("claude-opus-5-5", True), ("claude-opus-4-5", False)]
)
def test_a_later_signature_binds_a_call(model: str, bound: bool) -> None:
    (call,) = found(OPENCLAW, user(), assistant(CALL), NOT_FOUND, signed(model))
    assert call.bound is bound
    (call,) = found(OPENCLAW, signed(model), user(), assistant(CALL), NOT_FOUND, END)
    assert not call.bound


class Counted(BytesTranscript):
    """Counts the lines that are read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.offsets: list[int] = []

    def lines(self, *where: Any, **more: Any) -> Any:
        for line in super().lines(*where, **more):
            self.offsets.append(line.offset)
            yield line


def test_only_the_tail_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    old = jsonl(HEADER, *[user(f"{n} restore") for n in range(50)])
    new = jsonl(user(), assistant(CALL), NOT_FOUND, END)
    source = Counted(old + new)
    since = Checkpoint(offset=len(old), index=51, messages=50, ids=array("Q"))
    parsed: list[Line] = []
    monkeypatch.setattr("bsd.mcp.transcript_calls.parse_entry", spy(parsed))
    watched = WatchedTranscript(source, OPENCLAW, Policy.of(config()), lambda calls: calls)
    deque(watched.lines(since.offset, since.index), maxlen=0)
    (call,) = watched.calls
    assert call.index == 52
    assert min(source.offsets) == len(old)
    assert len(parsed) == 3  # no line before the call


def spy(seen: list[Any]) -> Callable[[bytes], dict[str, Any] | None]:
    from bsd.transcripts.reader import parse_entry

    def parse(raw: bytes) -> dict[str, Any] | None:
        seen.append(raw)
        return parse_entry(raw)

    return parse
