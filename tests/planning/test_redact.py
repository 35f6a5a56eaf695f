"""Redaction: calls of our tools leave, whatever stands around them, and can be undone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Conflict
from bsd.planning.redact import CallToRedact, Redaction, RedactionKind, plan_redact
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.soundness import faults, shown
from tests.planning.test_undo import Patient
from tests.session_files import Talk, call, jsonl, text, thought

LONG = "long " * 200


def redact(session: Patient, *calls: CallToRedact) -> Redaction:
    plan, answer = plan_redact(session.source, session.fmt, calls, session.shelf)
    session.carry_out(plan)
    return answer


def consume(session: Patient, *call_ids: str) -> Redaction:
    return redact(
        session, *(CallToRedact("restore_remote", RedactionKind.CONSUMED, one) for one in call_ids)
    )


def how(answer: Redaction) -> list[str]:
    return [str(one.how) for one in answer.redacted]


def check_undo(session: Patient, before: bytes) -> None:
    """Undo, redo and undo again."""
    after = session.raw
    assert after != before
    number = session.memory.operations()[-1].number
    session.undo(number)
    assert session.raw == before
    session.undo(number + 1)
    assert session.raw == after
    session.undo(number + 2)
    assert session.raw == before


def simple() -> Talk:
    talk = Talk()
    talk.user()
    talk.says(call("c1", session="s", entry="e0"))
    talk.answers("c1", LONG)
    talk.says(text("done"))
    return talk


def test_a_consumed_call_and_its_result_are_gone_as_if_they_had_never_been() -> None:
    session = Patient(simple().raw, OPENCLAW)
    before = session.raw
    answer = consume(session, "c1")
    assert as_json(answer) == {
        "redacted": [{"call": "c1", "tool": "restore_remote", "entry_id": "e2", "how": "consumed"}],
        "left": [],
        "entries_removed": ["e2", "e3"],
        "operation": None,
    }
    assert [entry["id"] for entry in shown(session.raw)] == ["e1", "e4"]
    assert shown(session.raw)[1]["parentId"] == "e1"
    lines = before.splitlines(keepends=True)
    assert session.raw == lines[0] + lines[1] + lines[4].replace(b'"e3"', b'"e1"')
    assert faults(session.raw) == []
    check_undo(session, before)


def test_other_calls_and_texts_of_the_message_stay() -> None:
    talk = Talk()
    talk.user()
    talk.says(thought("hm"), text("I look"), call("c1"), call("c2", "read", path="a"))
    talk.answers("c1")
    talk.answers("c2", "file", "read")
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    assert how(consume(session, "c1")) == ["consumed"]
    entries = shown(session.raw)
    assert [entry["id"] for entry in entries] == ["e1", "e2", "e4", "e5"]
    blocks = entries[1]["message"]["content"]
    assert blocks == [thought("hm"), text("I look"), call("c2", "read", path="a")]
    assert entries[2]["parentId"] == "e2"
    assert faults(session.raw) == []
    check_undo(session, before)


def test_what_else_it_said_goes_into_the_answer_that_would_follow_it_at_once() -> None:
    talk = Talk()
    talk.user()
    talk.says(text("I bring it back"), call("c1"))
    talk.answers("c1")
    talk.note(customType="x", data={})
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    answer = consume(session, "c1")
    assert how(answer) == ["consumed"]
    assert answer.entries_removed == ("e2", "e3")
    entries = shown(session.raw)
    assert [entry["id"] for entry in entries] == ["e1", "e4", "e5"]
    assert entries[2]["message"]["content"] == [text("I bring it back"), text("done")]
    assert faults(session.raw) == []
    check_undo(session, before)


def test_one_after_the_other_each_with_words_of_its_own() -> None:
    talk = Talk()
    talk.user()
    for number in (1, 2, 3):
        talk.says(text(f"word {number}"), call(f"c{number}"))
        talk.answers(f"c{number}")
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    assert how(consume(session, "c2", "c1", "c3")) == ["consumed"] * 3
    entries = shown(session.raw)
    assert [entry["id"] for entry in entries] == ["e1", "e8"]
    said = [block["text"] for block in entries[1]["message"]["content"]]
    assert said == ["word 1", "word 2", "word 3", "done"]
    check_undo(session, before)


def test_a_thought_that_led_to_nothing_but_the_call_goes_with_it() -> None:
    talk = Talk()
    talk.user()
    talk.says(thought("I need e0 again"), call("c1"))
    talk.answers("c1")
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    consume(session, "c1")
    assert [entry["id"] for entry in shown(session.raw)] == ["e1", "e4"]
    assert faults(session.raw) == []


def with_other_author() -> Talk:
    talk = Talk()
    talk.user()
    talk.says(text("I bring it back"), call("c1"))
    talk.answers("c1")
    talk.says(text("done"), model="another")
    return talk


def crashed() -> Talk:
    talk = Talk()
    talk.user()
    talk.says(call("c1"))
    talk.answers("c1")
    talk.user("again")
    talk.says(text("done"))
    return talk


def pointed_at() -> Talk:
    talk = simple()
    talk.note(targetId="e2", label="here")
    return talk


def branched() -> Talk:
    talk = Talk()
    talk.user()
    talk.says(text("I bring it back"), call("c1"))
    result = talk.answers("c1")
    talk.says(text("one"))
    talk.back_to(result)
    talk.says(text("two"))
    return talk


@pytest.mark.parametrize("talk", [with_other_author, crashed, pointed_at, branched])
def test_what_cannot_be_taken_out_without_harm_is_marked_instead(talk: Any) -> None:
    session = Patient(talk().raw, OPENCLAW)
    before = session.raw
    ids = [entry["id"] for entry in shown(before)]
    assert how(consume(session, "c1")) == ["marked"]
    assert [entry["id"] for entry in shown(session.raw)] == ids
    assert faults(session.raw) == faults(before) == []
    assert session.entry(2)["_redacted"] is True
    assert session.entry(3)["message"]["content"] == [text("[done: restore_remote]")]
    check_undo(session, before)


@pytest.mark.parametrize("parents", [None, "nobody"])
def test_without_parents_the_order_of_the_file_counts(parents: str | None) -> None:
    talk = Talk()
    talk.user()
    talk.says(text("I bring it back"), call("c1"))
    talk.answers("c1")
    talk.says(text("done"))
    talk.user("again")
    talk.says(call("c2"))
    talk.answers("c2")
    talk.user("once more")
    talk.says(text("done"))
    for entry in talk.entries[1:]:
        entry["parentId"] = parents
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    assert how(consume(session, "c1", "c2")) == ["consumed", "marked"]
    entries = shown(session.raw)
    assert entries[1]["message"]["content"] == [text("I bring it back"), text("done")]
    roles = [entry["message"]["role"] for entry in entries]
    assert roles == ["user", "assistant", "user", "assistant", "toolResult", "user", "assistant"]
    check_undo(session, before)


def marked_call() -> Talk:
    talk = Talk()
    talk.user()
    arguments = {"action": "restore", "entry": "e0", "keys": ["a"], "session": "main/s"}
    talk.says(text("I look"), call("c1", "purge_control", **arguments))
    talk.answers("c1", LONG, "purge_control")
    talk.says(text("done"))
    return talk


def test_a_marked_call_keeps_action_and_entry_and_its_result_a_note() -> None:
    session = Patient(marked_call().raw, OPENCLAW)
    before = session.raw
    answer = redact(
        session, CallToRedact("purge_control", RedactionKind.MARKED, "c1", note="[restored e0]")
    )
    assert how(answer) == ["marked"]
    assert session.entry(2)["_redacted"] is True
    block = session.entry(2)["message"]["content"][1]
    assert block["arguments"] == {"action": "restore", "entry": "e0"}
    assert session.entry(3)["message"]["content"] == [text("[restored e0]")]
    assert session.entry(3)["message"]["toolCallId"] == "c1"
    assert faults(session.raw) == []
    again = redact(
        session, CallToRedact("purge_control", RedactionKind.MARKED, "c1", note="[restored e0]")
    )
    assert [one.why for one in again.left] == ["already redacted"]
    assert len(session.memory.operations()) == 1
    check_undo(session, before)


def test_arguments_that_are_a_text_are_cut_inside() -> None:
    talk = marked_call()
    block = talk.entries[2]["message"]["content"][1]
    block["arguments"] = json.dumps({"action": "restore", "entry": "e0", "keys": "x"})
    session = Patient(talk.raw, OPENCLAW)
    redact(session, CallToRedact("purge_control", RedactionKind.MARKED, "c1"))
    kept = session.entry(2)["message"]["content"][1]["arguments"]
    assert json.loads(kept) == {"action": "restore", "entry": "e0"}


def test_the_command_line_of_an_exec_call_stays() -> None:
    talk = Talk()
    talk.user()
    talk.says(call("c1", "exec", command="bsd restore_remote --session s --entry e0"))
    talk.answers("c1", LONG, "exec")
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    redact(session, CallToRedact("exec", RedactionKind.MARKED, "c1"))
    assert "restore_remote" in session.entry(2)["message"]["content"][0]["arguments"]["command"]
    assert session.entry(3)["message"]["content"] == [text("[done: exec]")]
    session.undo()
    redact(session, CallToRedact("exec", RedactionKind.CONSUMED, "c1"))
    assert [entry["id"] for entry in shown(session.raw)] == ["e1", "e4"]
    session.undo()
    assert session.raw == before


@pytest.mark.parametrize(
    ("change", "wanted", "why"),
    [
        (
            lambda talk: None,
            CallToRedact("restore_remote", RedactionKind.CONSUMED, "nobody"),
            "not found",
        ),
        (lambda talk: None, CallToRedact("restore_remote", RedactionKind.CONSUMED), "not found"),
        (
            lambda talk: talk.entries.pop(),
            CallToRedact("restore_remote", RedactionKind.CONSUMED, "c1"),
            "its turn is not over",
        ),
        (
            lambda talk: talk.entries.pop() and talk.entries.pop(),
            CallToRedact("restore_remote", RedactionKind.MARKED, "c1"),
            "its turn is not over",
        ),
        (
            lambda talk: talk.entries.append(talk.entries[2] | {"id": "e9"}),
            CallToRedact("restore_remote", RedactionKind.CONSUMED, "c1"),
            "2 calls match",
        ),
    ],
)
def test_calls_that_are_left_say_why(change: Any, wanted: CallToRedact, why: str) -> None:
    talk = simple()
    change(talk)
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    answer = redact(session, wanted)
    assert [one.why for one in answer.left] == [why]
    assert session.raw == before


def test_a_line_that_cannot_be_edited_is_left_and_the_others_are_not() -> None:
    talk = marked_call()
    talk.user()
    talk.says(call("c2", "restore", entry_id="e0", keys=["a"]))
    talk.answers("c2", LONG, "restore")
    talk.says(text("done"))
    lines = talk.raw.splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"keys": ["a"]', b'"keys": 1, "keys": 2')
    session = Patient(b"".join(lines), OPENCLAW)
    answer = redact(
        session,
        CallToRedact("purge_control", RedactionKind.MARKED, "c1"),
        CallToRedact("restore", RedactionKind.MARKED, "c2"),
    )
    assert how(answer) == ["marked"]
    [left] = answer.left
    assert left.call == "c1"
    assert "entry e2 cannot be changed" in (left.why or "")


def test_blocks_that_move_are_inline_first_and_leave_again_later() -> None:
    talk = Talk()
    talk.user()
    talk.says(call("c1"), text(LONG), call("c2", "read"))
    talk.answers("c1")
    talk.answers("c2", LONG, "read")
    talk.says(text("one"))
    talk.user()
    talk.says(text("two"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    session.extract(keep_recent=0, trigger_types=["assistant"])
    assert Marker.of(session.entry(2))
    consume(session, "c1")
    assert session.entry(2)["message"]["content"] == [text(LONG), call("c2", "read")]
    assert Marker.of(session.entry(2)) is None
    session.undo()
    session.undo()
    assert session.raw == before


def test_without_its_content_such_a_call_is_marked() -> None:
    talk = Talk()
    talk.user()
    talk.says(call("c1"), text(LONG), call("c2", "read"))
    talk.answers("c1")
    talk.answers("c2", LONG, "read")
    talk.says(text("one"))
    session = Patient(talk.raw, OPENCLAW)
    session.extract(keep_recent=0, trigger_types=["assistant"])
    session.shelf.files.clear()
    assert how(consume(session, "c1")) == ["marked"]
    assert Marker.of(session.entry(2))


def flat() -> list[dict[str, Any]]:
    return [
        {"__id": "m1", "type": "tool_result", "output": LONG},
        {
            "__id": "m2",
            "type": "tool_call",
            "name": "purge_control",
            "arguments": {"action": "restore", "entry": "msg-456", "keys": ["output"]},
        },
        {"__id": "m3", "type": "tool_result", "output": LONG},
    ]


def test_flat_entries_read_as_the_seed_shows() -> None:
    session = Patient(jsonl(*flat()), FLAT)
    before = session.raw
    redact(
        session,
        CallToRedact("purge_control", RedactionKind.MARKED, entry_id="m2", note="[restored]"),
    )
    assert session.entry(1) == {
        "__id": "m2",
        "type": "tool_call",
        "name": "purge_control",
        "arguments": {"action": "restore", "entry": "msg-456"},
        "_redacted": True,
    }
    assert session.entry(2)["output"] == "[restored]"
    check_undo(session, before)


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("more", [b"", b'{"__id":"m4","type":"user","text":"x"}\n'])
def test_flat_lines_are_consumed_and_come_back(end: bytes, more: bytes) -> None:
    raw = jsonl(*flat())[:-1] + end
    session = Patient(raw, FLAT)
    answer = redact(session, CallToRedact("purge_control", RedactionKind.CONSUMED, entry_id="m2"))
    assert answer.entries_removed == ("m2", "m3")
    assert session.raw == jsonl(*flat()[:1])
    session.raw += more
    session.undo()
    assert session.raw == (raw if not more else jsonl(*flat()) + more)


def test_lines_go_back_between_their_neighbours_whatever_became_of_these() -> None:
    talk = simple()
    talk.user()
    talk.says(call("c2"))
    talk.answers("c2", LONG)
    talk.says(text("done"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    consume(session, "c1")
    consume(session, "c2")
    session.pin("e1", False)
    session.pin("e5", False)
    session.undo(1)
    session.undo(2)
    session.undo_all()
    assert session.raw == before


def test_a_line_whose_neighbour_went_later_waits_for_it() -> None:
    more = [one | {"__id": f"n{number}"} for number, one in enumerate(flat()[1:])]
    session = Patient(jsonl(*flat(), *more), FLAT)
    before = session.raw
    redact(session, CallToRedact("purge_control", RedactionKind.CONSUMED, entry_id="m2"))
    redact(session, CallToRedact("purge_control", RedactionKind.CONSUMED, entry_id="n0"))
    assert len(shown(session.raw)) == 0  # one line is left
    with pytest.raises(Conflict, match=r"operation 2 .* changed n0"):
        session.undo(1)
    session.undo(2)
    session.undo(1)
    assert session.raw == before


def test_neighbours_that_another_program_took_away_are_missed() -> None:
    session = Patient(simple().raw, OPENCLAW)
    consume(session, "c1")
    head = session.raw.splitlines(keepends=True)[0]
    session.raw = head + jsonl({"type": "message", "id": "z", "message": {"role": "user"}})
    with pytest.raises(Conflict, match="another program has changed the session"):
        session.undo()


def test_a_result_in_an_unfinished_turn_keeps_its_call() -> None:
    """Somebody spoke while a tool was at work: its turn is over, its answer's turn is not."""
    talk = Talk()
    talk.user()
    talk.says(call("c1", session="s", entry="e0"))
    talk.user()
    talk.answers("c1", LONG)
    talk.says(call("c2", "exec"))
    session = Patient(talk.raw, OPENCLAW)
    before = session.raw
    answer = consume(session, "c1")
    assert [one.why for one in answer.left] == ["its turn is not over"]
    assert session.raw == before
