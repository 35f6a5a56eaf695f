from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.planning.extract import plan_extraction
from bsd.planning.survey import Judged
from bsd.store.originals import FileSpan
from bsd.transcripts.agents.openclaw.format import FLAT
from bsd.transcripts.splice import edit
from tests.planning.in_memory import NOW, Session, config, data, without_restored
from tests.session_files import HEADER, jsonl

LONG = "long text " * 60
SIGNATURE = "s" * 700
EVERY = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]


def message(entry_id: str, role: str, content: Any = "hi", **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more}
    return {"type": "message", "id": entry_id, "message": message}


def turn(number: int) -> list[dict[str, Any]]:
    """A finished exchange; two of them keep everything before from being recent."""
    return [
        message(f"q{number}", "user"),
        message(f"r{number}", "assistant", "done", stopReason="stop"),
    ]


def session(*entries: dict[str, Any] | bytes) -> Session:
    return Session(jsonl(HEADER, *entries, *turn(1), *turn(2)))


def test_the_shape_of_an_extracted_entry() -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": LONG, "thinkingSignature": SIGNATURE},
        {"type": "toolCall", "id": "c", "name": "write", "arguments": {"path": "p", "text": LONG}},
        {"type": "text", "text": "short"},
    ]
    old = session(message("e1", "assistant", content, api="anthropic-messages"))
    line = old.raw.splitlines(keepends=True)[1]
    plan = old.extract(trigger_types=["thinking", "tool_call"])

    entry = old.entry(1)
    assert entry["message"]["content"] == [
        {"type": "thinking", "thinking": "[[extracted-e1]]"},
        content[1] | {"arguments": {"path": "p", "text": "[[extracted-e1]]"}},
        content[2],
    ]
    [keep] = plan.keeps
    assert entry["_extracted"] == {
        "ref": "0001_thinking",
        "hash": keep.hash,
        "size": len(line),
        "keys": ["message.content[0].thinking", "message.content[1].arguments.text"],
        "at": iso_utc(NOW),
    }
    assert keep.line == FileSpan(plan.edits[0].offset, len(line))
    assert plan.edits[0].was == keep.hash
    assert keep.type == "thinking"
    assert keep.sizes_bytes == {
        "message.content[0].thinking": len(LONG),
        "message.content[1].arguments.text": len(LONG),
    }
    assert old.shelf.files == {"0001_thinking": line}


def test_an_image_becomes_a_text_block() -> None:
    image = {"type": "image", "data": "A" * 4000, "mimeType": "image/png"}
    old = session(message("e1", "toolResult", [image, {"type": "text", "text": "t"}]))
    raw = old.raw
    plan = old.extract()
    assert old.entry(1)["message"]["content"][0] == {"type": "text", "text": "[[extracted-e1]]"}
    assert old.entry(1)["_extracted"]["keys"] == ["message.content[0]"]
    assert plan.report.tokens_saved == 0  # an image is paid by pixels
    assert not old.extract().edits
    assert old.restore("e1").keys_restored == ("message.content[0]",)
    assert without_restored(old.raw) == raw


def test_a_whole_object_becomes_a_string() -> None:
    rows = [{"n": number} for number in range(200)]
    entry = {"type": "tool_result", "__id": "e1", "data": rows}
    flat = Session(jsonl(entry, *({"__id": f"u{n}", "type": "user"} for n in range(3))), FLAT)
    raw = flat.raw
    flat.extract()
    assert flat.entry(0)["data"] == "[[extracted-e1]]"
    flat.restore("e1")
    assert without_restored(flat.raw) == raw


@pytest.mark.parametrize("keep_chars", [1, 5, 400])
def test_keep_chars_keeps_whole_characters(keep_chars: int) -> None:
    text = "a😀é\u2028\\" * 200
    old = session(
        message("e1", "toolResult", text),
        json.dumps(message("e2", "toolResult", text)).encode() + b"\n",
    )
    raw = old.raw
    old.extract(keep_chars=keep_chars)
    for index in (1, 2):
        kept = old.entry(index)["message"]["content"]
        assert kept == text[:keep_chars] + f"[[extracted-e{index}]]"
    old.restore_all()
    assert without_restored(old.raw) == raw


def test_lone_surrogates_are_kept_as_they_are() -> None:
    line = jsonl(message("e1", "toolResult", "\ud83d" * 600))
    old = session(line)
    raw = old.raw
    old.extract(keep_chars=3)
    assert old.entry(1)["message"]["content"] == "\ud83d" * 3 + "[[extracted-e1]]"
    old.restore("e1")
    assert without_restored(old.raw) == raw


def test_the_header_and_versions_of_lines_are_untouched() -> None:
    odd = [
        *(b"\n", b"{torn\n", b'{"a":1}{"b":2}\n', b"\xff\xfe\n", b"\0\0\n"),
        b'{"type":"message","id":"x","message":{"role":"toolResult","content":NaN}}\n',
    ]
    old = session(
        *odd, message("e1", "toolResult", LONG), jsonl(message("e2", "user"))[:-1] + b"\r\n"
    )
    before = old.raw.splitlines(keepends=True)
    plan = old.extract()
    after = old.raw.splitlines(keepends=True)
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [7]
    assert plan.report.unreadable == 5


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"message","id":"e","message":{"role":"toolResult","content":"x","content":"%b"}}\n',
        b'{"type":"message","id":"e","message":{"role":"toolResult","content":"%b"},"_extracted":1}\n',
    ],
)
def test_lines_that_cannot_be_edited_safely(line: bytes) -> None:
    old = session(line % LONG.encode())
    plan = old.extract()
    assert not plan.edits
    assert plan.report.reasons["not_editable"] == 1
    assert not plan.report.reasons["extract"]


def test_the_report_adds_up() -> None:
    old = session(
        message("e1", "toolResult", LONG, details={"log": LONG}), message("e2", "toolResult", LONG)
    )
    plan = old.extract()
    report = plan.report
    assert (report.action, report.entries, report.values) == ("extract", 2, 3)
    assert report.bytes_after == len(old.raw)
    gone = len(LONG) + 2 - len('"[[extracted-e1]]"')
    saving = report.savings["tool_result"]
    assert (saving.values, saving.bytes) == (3, 3 * gone)
    assert saving.tokens == report.tokens_saved == 2 * (gone // 4)  # details are never sent
    assert sum(report.reasons.values()) == 6
    assert report.reasons["extract"] == 2


def test_a_budget_ends_a_plan_and_the_next_one_goes_on() -> None:
    old = session(*(message(f"e{number}", "toolResult", LONG) for number in range(5)))
    raw = old.raw
    rounds = 0
    complete = False
    while not complete:
        plan = plan_extraction(old.source, old.fmt, config(), NOW, old.shelf, budget_bytes=2000)
        old.carry_out(plan)
        complete, rounds = plan.complete, rounds + 1
        assert len(plan.edits) <= 2
    assert rounds == 3
    assert len(old.shelf.files) == 5
    dry = plan_extraction(
        Session(raw).source,
        old.fmt,
        config(),
        NOW,
        Session(raw).shelf,
        budget_bytes=1,
        dry_run=True,
    )
    assert (dry.complete, dry.report.entries, dry.report.bytes_after) == (True, 5, len(old.raw))


def test_every_outcome_is_told() -> None:
    old = session(message("e1", "toolResult", LONG))
    told: list[Judged] = []
    plan_extraction(old.source, old.fmt, config(), NOW, old.shelf, tell=told.append)
    assert [(o.index, o.row.entry_id, o.kind, o.decision.reason.value) for o in told] == [
        (1, "e1", "tool_result", "extract"),
        (2, "q1", "user", "type_not_matched"),
        (3, "r1", "assistant", "type_not_matched"),
        (4, "q2", "user", "type_not_matched"),
        (5, "r2", "assistant", "turn_open"),
    ]


def test_the_earliest_due_time_is_reported() -> None:
    first = message("e1", "toolResult", LONG) | {"_restored": iso_utc(NOW - 100)}
    second = message("e2", "toolResult", LONG) | {"_restored": iso_utc(NOW - 400)}
    assert session(first, second).extract().due_at == pytest.approx(NOW + 200)
    assert session(message("e1", "toolResult", LONG)).extract().due_at is None


def test_names_of_files_are_never_used_twice() -> None:
    line = jsonl(message("e1", "toolResult", LONG))
    ref = {"ref": "0001_tool_result-2", "hash": "sha256:0", "size": 1, "keys": ["x"], "at": ""}
    stranger = message("e2", "toolResult") | {"_extracted": ref}
    old = session(line, stranger)
    old.shelf.files["0001_tool_result"] = b"of another line"
    old.extract()
    assert old.entry(1)["_extracted"]["ref"] == "0001_tool_result-3"


def test_the_word_in_a_files_name_is_safe() -> None:
    entry = {"__id": "e1", "type": "../Ünsafe\n", "text": LONG}
    flat = Session(jsonl(entry, *({"__id": f"u{n}"} for n in range(3))), FLAT)
    flat.extract(trigger_rules=[{"type": "*"}])
    assert list(flat.shelf.files) == ["0000__nsafe_"]


def test_a_restored_value_that_is_due_again_uses_its_file_again() -> None:
    old = session(message("e1", "toolResult", LONG))
    old.extract()
    extracted = old.raw
    old.restore("e1")
    plan = old.extract(NOW + 600)
    assert plan.keeps[0].line is None
    assert old.shelf.used_again == ["0001_tool_result"]
    assert len(old.shelf.files) == 1
    assert old.entry(1)["_restored"] == iso_utc(NOW)
    assert len(old.raw) > len(extracted)


def test_a_partly_restored_entry_uses_its_file_again() -> None:
    old = session(message("e1", "toolResult", LONG, details={"a": LONG, "b": LONG}))
    raw = old.raw
    old.extract()
    old.restore("e1", ["a"])
    plan = old.extract(NOW + 600)
    assert plan.keeps[0].line is None
    assert set(plan.keeps[0].keys) == {"message.content", "message.details.a", "message.details.b"}
    old.restore_all()
    assert without_restored(old.raw) == raw


def test_a_value_that_changed_meanwhile_is_kept_whole_under_a_new_name() -> None:
    old = session(message("e1", "toolResult", LONG, details={"a": LONG, "b": LONG}))
    old.extract()
    old.restore("e1", ["a"])
    old.raw = old.raw.replace(b'"a": "long text', b'"a": "LONG text')
    wanted = jsonl(message("e1", "toolResult", LONG, details={"a": LONG, "b": LONG})).replace(
        b'"a": "long text', b'"a": "LONG text'
    )
    plan = old.extract(NOW + 600)
    [keep] = plan.keeps
    assert keep.ref == "0001_tool_result-2"
    assert isinstance(keep.line, bytes)
    assert without_restored(keep.line) == wanted
    old.restore_all()
    assert without_restored(old.raw.splitlines(keepends=True)[1]) == wanted


def test_values_leave_in_two_steps_into_one_file_each_time_complete() -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": LONG, "thinkingSignature": SIGNATURE},
        {"type": "text", "text": LONG},
    ]
    old = session(message("e1", "assistant", content, api="anthropic-messages"))
    raw = old.raw
    old.extract(trigger_types=["thinking"])
    plan = old.extract(trigger_types=["assistant"])
    # The first file already holds the text, byte for byte.
    assert plan.keeps[0].line is None
    assert old.entry(1)["_extracted"]["keys"] == [
        "message.content[0].thinking",
        "message.content[1].text",
    ]
    old.restore_all()
    assert without_restored(old.raw) == raw


def test_a_signature_that_somebody_took_out_does_not_come_back() -> None:
    content = [{"type": "thinking", "thinking": LONG, "thinkingSignature": SIGNATURE}]
    old = session(message("e1", "assistant", content))
    old.extract()
    old.restore("e1")
    old.raw = old.raw.replace(f', "thinkingSignature": "{SIGNATURE}"'.encode(), b"")
    before = old.raw
    assert "thinkingSignature" not in old.entry(1)["message"]["content"][0]
    plan = old.extract(NOW + 600)
    assert plan.keeps[0].line is not None, "the first file holds one that would come back"
    old.restore_all(NOW + 700)
    assert without_restored(old.raw) == without_restored(before)


def test_what_was_kept_before_a_placeholder_does_not_leave_a_copy_of_its_entry() -> None:
    """A program has copied the line under another id: its marker names the stored value."""
    old = session(message("e1", "toolResult", LONG))
    old.extract(keep_chars=200)
    old.raw = old.raw.replace(b'"id": "e1"', b'"id": "e9"')
    before = old.raw
    plan = old.extract(min_value_length=100)
    assert not plan.edits
    assert plan.report.reasons["already_extracted"] == 1
    assert old.raw == before


def test_nothing_more_leaves_an_entry_part_of_whose_values_is_not_stored() -> None:
    """A program has added a value to a marker; the stored line does not hold that value."""
    old = session(message("e1", "toolResult", LONG, details={"a": LONG, "b": "short"}))
    old.extract(scope="display")
    marked = b'"keys":["message.details.a"'
    assert marked in old.raw
    old.raw = old.raw.replace(marked, marked + b',"message.details.c"')
    old.raw = old.raw.replace(b'"b": "short"', b'"b": "short", "c": "[[extracted-e1]]"')
    plan = old.extract()
    assert not plan.edits
    assert plan.report.reasons["stored_missing"] == 1


def test_nothing_more_leaves_an_entry_whose_file_is_gone() -> None:
    old = session(message("e1", "toolResult", LONG, details={"a": LONG}))
    old.extract(scope="display")
    old.shelf.files.clear()
    plan = old.extract()
    assert not plan.edits
    assert plan.report.reasons["stored_missing"] == 1


def test_a_marker_whose_values_were_all_overwritten_holds_nobody_back() -> None:
    old = session(message("e1", "toolResult", LONG))
    old.extract()
    old.shelf.files.clear()
    old.raw = old.raw.replace(b"[[extracted-e1]]", b"new " * 200)
    before = old.raw.splitlines(keepends=True)[1]
    old.extract()
    [kept] = old.shelf.files.values()
    assert b"_extracted" not in kept
    assert edit(kept, put={"_x": b"1"}).startswith(before[:200])
    old.restore("e1")
    assert without_restored(old.raw.splitlines(keepends=True)[1]) == kept


def test_placeholders_in_later_calls_are_warned_about() -> None:
    call = {
        "type": "toolCall",
        "id": "c",
        "name": "write",
        "arguments": {"text": "x [[extracted-e1]]"},
    }
    restore = {
        "type": "toolCall",
        "id": "d",
        "name": "restore",
        "arguments": {"e": "[[extracted-e1]]"},
    }
    mention = {"type": "text", "text": "[[extracted-e1]]"}
    old = session(
        message("e1", "toolResult", LONG),
        message("e2", "assistant", [mention, restore, call], stopReason="stop"),
        message("e3", "assistant", [call | {"arguments": {"text": LONG}}], stopReason="stop"),
    )
    old.extract(trigger_types=EVERY)
    report = old.extract().report
    assert [(leak.index, leak.entry_id, leak.tool, leak.mentions) for leak in report.leaked] == [
        (2, "e2", "write", "e1")
    ]


def test_results_of_our_own_tools_are_known_by_their_call_too() -> None:
    stamp = {"timestamp": iso_utc(NOW - 10)}
    call = {"__id": "c", "type": "tool_call", "name": "restore", "toolCallId": "t1"}
    own = {"__id": "e1", "type": "tool_result", "toolCallId": "t1", "output": LONG, **stamp}
    other = {"__id": "e2", "type": "tool_result", "toolCallId": "t2", "output": LONG, **stamp}
    last = [{"__id": f"u{number}", "type": "user"} for number in range(3)]
    plan = Session(jsonl(call, own, other, *last), FLAT).extract()
    assert [keep.entry_id for keep in plan.keeps] == ["e2"]
    assert plan.due_at == pytest.approx(NOW + 590)


def test_recorded_sessions_shrink_and_come_back() -> None:
    for name in ("long", "medium", "small", "schema-drift"):
        raw = data(f"openclaw-v3-{name}.jsonl")
        old = Session(raw)
        old.extract(trigger_types=EVERY)
        assert len(old.raw) < len(raw) or name in {"small", "schema-drift"}
        assert not old.extract(trigger_types=EVERY).edits
        old.restore_all()
        assert without_restored(old.raw) == raw, name


def test_the_long_recorded_session_shrinks_by_half() -> None:
    raw = data("openclaw-v3-long.jsonl")
    old = Session(raw)
    types = ["thinking", "tool_call", "tool_result"]
    plan = old.extract(keep_recent=3, min_value_length=500, trigger_types=types)
    assert len(old.raw) <= len(raw) / 2
    assert plan.report.bytes_saved == len(raw) - len(old.raw)
