"""A survey from a checkpoint finds the same as a survey from the first line."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.context_window import id_hash
from bsd.planning.extract import plan_extraction
from bsd.planning.rules import Policy, Reason
from bsd.planning.survey import Survey, fingerprint
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from tests.planning.in_memory import NOW, Session, config
from tests.planning.sessions import sessions
from tests.planning.test_extract import message, turn
from tests.planning.test_prefix import entries
from tests.planning.test_properties import EXAMPLES, policies
from tests.session_files import HEADER, jsonl
from tests.transcripts import nasty
from tests.transcripts.agents.sources.codex import codex_line, codex_lines, codex_turn
from tests.transcripts.agents.sources.tree import raw as raw_lines

RULES: list[dict[str, Any]] = [
    {"type": "tool_result", "min_length": 10, "keep_recent": 0},
    {"type": "assistant", "min_length": 10, "keep_recent": 3},
    {"type": "*", "min_length": 30, "keep_recent": 1},
]


def extract(
    session: Session, since: Checkpoint | None, now: float, fields: dict[str, Any]
) -> Checkpoint | None:
    plan = plan_extraction(
        session.source, session.fmt, config(**fields), now, session.shelf, since=since
    )
    session.carry_out(plan)
    return plan.checkpoint


bound_sessions = entries().map(lambda some: (jsonl(HEADER, *some), OPENCLAW))
several_policies = policies | st.just({"trigger_rules": RULES}) | st.just({"min_value_length": 20})


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(
    sessions() | bound_sessions,
    several_policies,
    st.data(),
)
def test_a_checkpoint_hides_nothing(
    given: tuple[bytes, TranscriptFormat], fields: dict[str, Any], data: st.DataObject
) -> None:
    raw, fmt = given
    whole, by_parts = Session(b"", fmt), Session(b"", fmt)
    since: Checkpoint | None = None
    now, start = NOW, 0
    while start < len(raw):
        end = data.draw(st.integers(start + 1, len(raw)))
        for session in (whole, by_parts):
            session.raw += raw[start:end]
        start = end
        now += data.draw(st.sampled_from([1, 5000]))
        extract(whole, None, now, fields)
        since = extract(by_parts, since, now, fields)
        assert by_parts.raw == whole.raw
        if since:
            assert by_parts.raw[: since.offset].count(b"\n") == since.index
    assert by_parts.shelf.files == whole.shelf.files


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(bound_sessions, several_policies, st.data())
def test_from_a_checkpoint_on_every_entry_is_judged_as_from_the_first_line(
    given: tuple[bytes, TranscriptFormat], fields: dict[str, Any], data: st.DataObject
) -> None:
    raw, fmt = given
    lines = raw.splitlines(keepends=True)
    then = data.draw(st.integers(1, len(lines)))
    session = Session(b"".join(lines[:then]), fmt)
    since = extract(session, None, NOW, fields)
    session.raw += b"".join(lines[then:])

    policy = Policy.of(config(**fields))

    def looked(since: Checkpoint | None) -> Survey:
        return Survey.of(session.source, fmt, policy, NOW, keep_names=True, since=since)

    first = since.index if since else 0
    whole = list(looked(None).outcomes())
    survey = looked(since)
    if survey.reaches_back:
        return  # then all lines are read again
    # For a path that continues before the checkpoint, the survey knows only the deciding facts.
    found = [replace(one, sent=True) for one in survey.outcomes()]
    assert found == [replace(one, sent=True) for one in whole if one.index >= first]
    assert not [one for one in whole if one.index < first and one.decision.reason is Reason.EXTRACT]


def test_what_is_settled_is_not_read_again() -> None:
    entries = [
        {"type": "message", "id": f"e{n}", "message": {"role": "user", "content": "hi"}}
        for n in range(50)
    ]
    session = Session("".join(json.dumps(one) + "\n" for one in [HEADER, *entries]).encode())
    since = extract(session, None, NOW, {})
    assert since is not None
    assert since.index == 50  # the turn of the last entry is open

    read: list[int] = []

    class Reader(BytesTranscript):
        def lines(self, start: int = 0, first_index: int = 0) -> Any:
            for line in super().lines(start, first_index):
                read.append(line.index)
                yield line

    plan_extraction(Reader(session.raw), OPENCLAW, config(), NOW, session.shelf, since=since)
    assert read == [50]


def test_what_another_rule_may_still_take_is_not_settled() -> None:
    blocks = [{"type": "thinking", "thinking": "t" * 600}, {"type": "text", "text": "x" * 600}]
    first = message("e1", "assistant", blocks, stopReason="stop")
    rules = [
        {"type": "thinking", "keep_recent": 0},
        {"type": "assistant", "keep_recent": 5},
    ]
    session = Session(jsonl(HEADER, first, *turn(1)))
    since = extract(session, None, NOW, {"trigger_rules": rules})
    assert session.entry(1)["_extracted"]["keys"] == ["message.content[0].thinking"]
    session.raw += jsonl(*turn(2), *turn(3))
    extract(session, since, NOW, {"trigger_rules": rules})
    assert len(session.entry(1)["_extracted"]["keys"]) == 2


def test_a_line_that_is_still_being_written_is_not_settled() -> None:
    fields = {"keep_recent": 0, "trigger_types": ["tool_result"]}
    said, small = ({"__id": f"e{n}", "type": "user", "text": "hi"} for n in (0, 1))
    session = Session(jsonl(said, small).removesuffix(b"\n"), FLAT)
    since = extract(session, None, NOW, fields)
    assert since is not None
    assert (since.index, since.messages, list(since.ids)) == (1, 1, [id_hash("e0")])
    session.raw += b"\n" + jsonl({"__id": "e2", "type": "tool_result", "output": "x" * 600})
    plan = plan_extraction(session.source, FLAT, config(**fields), NOW, session.shelf, since=since)
    assert plan.report.reasons == {"type_not_matched": 1, "extract": 1}


def signed_session(kept: str | None) -> tuple[Session, bytes]:
    """A result that a signature binds, and lines that come later: a compaction and a prompt."""
    names = iter(range(100))

    def entry(kind: str, **more: Any) -> dict[str, Any]:
        number = next(names)
        parent = f"n{number - 1}" if number else None
        return {"type": kind, "id": f"n{number}", "parentId": parent, **more}

    def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
        return entry("message", message={"role": role, "content": content, **more})

    text = [{"type": "text", "text": "x" * 600}]
    thought = [{"type": "thinking", "thinking": "t", "thinkingSignature": "s"}]
    first = [message("user", "go"), message("toolResult", text, details={"log": "y" * 600})]
    first.append(message("assistant", thought, model="claude-opus-6", stopReason="stop"))
    first += [message("user", "go on"), message("user", "and on")]
    later = [entry("compaction", firstKeptEntryId=kept), message("user", "now")]
    return Session(jsonl(HEADER, *first)), jsonl(*later)


@pytest.mark.parametrize(("kept", "expected"), [("n3", "[[extracted-n1]]"), ("n1", "x" * 600)])
def test_what_a_signature_bound_is_looked_at_again_after_a_compaction(
    kept: str, expected: str
) -> None:
    session, later = signed_session(kept)
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert since is not None
    assert (since.index, since.bound) == (3, True)
    result = session.entry(2)["message"]
    assert result["content"][0]["text"] == "x" * 600
    assert result["details"]["log"] == "[[extracted-n1]]"  # it is never sent
    session.raw += later
    extract(session, since, NOW, {"keep_recent": 0})
    assert session.entry(2)["message"]["content"][0]["text"] == expected


def test_no_checkpoint_stands_behind_what_was_thought_in_the_last_turn() -> None:
    """The thoughts in it may leave when it is no longer the last."""
    thought = [{"type": "thinking", "thinking": "x" * 600}]
    call = {"type": "toolCall", "id": "c", "name": "t", "arguments": {}}
    said = {"role": "assistant", "api": "openai-responses"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {**said, "content": [*thought, call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "y" * 600}]},
        {**said, "content": "done", "stopReason": "stop"},
    ]
    entries = [{"type": "message", "id": f"e{n}", "message": m} for n, m in enumerate(messages)]
    session = Session(jsonl(HEADER, *entries))
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert session.entry(3)["message"]["content"][0]["text"] == "[[extracted-e2]]"
    assert session.entry(2)["message"]["content"][0]["thinking"] == "x" * 600
    assert since is not None
    assert (since.index, since.in_turn) == (2, True)
    again = extract(session, since, NOW, {"keep_recent": 0})
    assert session.entry(2)["message"]["content"][0]["thinking"] == "x" * 600
    assert again is not None
    assert (again.index, again.in_turn) == (2, True)
    more = {"type": "message", "id": "e4", "message": {"role": "user", "content": "go on"}}
    session.raw += jsonl(more)
    extract(session, since, NOW, {"keep_recent": 0})
    assert session.entry(2)["message"]["content"][0]["thinking"] == "[[extracted-e1]]"


def test_an_id_used_again_after_the_checkpoint_is_seen() -> None:
    def result(number: int, text: str = "x" * 600) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {
            "type": "message",
            "id": f"e{number}",
            "message": {"role": "toolResult", "content": content},
        }

    end = {
        "type": "message",
        "id": "a",
        "message": {"role": "assistant", "content": "", "stopReason": "stop"},
    }
    asked = {"type": "message", "id": "u", "message": {"role": "user", "content": "hi"}}
    # A part of the entry stays, and differs in the second line.
    more_of_it = {**result(1)["message"], "isError": False}
    first = [HEADER, {**result(1), "message": more_of_it}, end, asked]
    session = Session("".join(json.dumps(one) + "\n" for one in first).encode())
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert since is not None
    assert since.index == 2
    more = [result(1, "y" * 600), {**end, "id": "b"}]
    session.raw += "".join(json.dumps(one) + "\n" for one in more).encode()
    plan = plan_extraction(
        session.source, OPENCLAW, config(keep_recent=0), NOW, session.shelf, since=since
    )
    assert plan.report.reasons["duplicate_entry_id"] == 2
    assert not plan.edits


def test_a_result_of_our_own_tool_is_known_whose_call_is_before_the_checkpoint() -> None:
    call = {"__id": "c", "type": "tool_call", "name": "restore", "toolCallId": "t1"}
    session = Session(jsonl(call), FLAT)
    since = extract(session, None, NOW, {"keep_recent": 0})
    assert since is not None
    assert (since.index, since.own_calls) == (1, ("t1",))
    stamp = {"timestamp": int((NOW - 10) * 1000), "output": "x" * 600}
    for number in (1, 2):  # the second answers a call of another program
        session.raw += jsonl(
            {"__id": f"e{number}", "type": "tool_result", "toolCallId": f"t{number}", **stamp}
        )
    extract(session, since, NOW, {"keep_recent": 0})
    assert [session.entry(line)["output"] for line in (1, 2)] == ["x" * 600, "[[extracted-e2]]"]


def test_a_checkpoint_knows_its_ids_and_the_earlier_ones() -> None:
    earlier = Checkpoint(0, 0, 0, array("Q", [1, 2]))
    checkpoint = Checkpoint(0, 0, 0, array("Q", [3, 2**64 - 1]), earlier=earlier)
    assert checkpoint.among([1, 3, 4, 2**64 - 1]) == {1, 3, 2**64 - 1}


def test_settings_that_judge_entries_differently_have_their_own_fingerprint() -> None:
    assert fingerprint(config()) == fingerprint(config(retention="7d", auto_cron="@hourly"))
    assert fingerprint(config()) != fingerprint(config(keep_recent=4))
    assert fingerprint(config()) != fingerprint(config(trigger_rules=[]))


def compaction(number: int) -> dict[str, Any]:
    said = {"type": "input_text", "text": f"compacted {number} " * 80}
    history = [{"type": "message", "role": "user", "content": [said]}]
    return codex_line(number, "compacted", message="", replacement_history=history)


def test_a_compaction_before_the_checkpoint_leaves_when_it_is_superseded() -> None:
    """A compaction that the thread no longer needs is found, although its outcome was final."""
    kept = [compaction(100), compaction(101), *codex_turn(110), *codex_turn(130)]
    session = Session(raw_lines([*codex_lines(), *kept]), CODEX)
    since = extract(session, None, NOW, {})
    assert session.raw.count(b"compacted 100 ") > 1
    assert since is not None
    assert since.index > len(codex_lines()) + 2
    session.raw += raw_lines([compaction(150), *codex_turn(160)])
    extract(session, since, NOW, {})
    numbers = (100, 101, 150)
    assert [session.raw.count(b"compacted %d " % number) for number in numbers] == [0, 80, 80]
