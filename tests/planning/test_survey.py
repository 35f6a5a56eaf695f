"""Surroundings that decide about an entry: positions, turns, duplicates, signatures."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.planning.context_window import id_hash
from bsd.planning.rules import Policy
from bsd.planning.survey import Survey
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from tests.planning.in_memory import NOW, config
from tests.planning.test_extract import LONG, message, turn
from tests.session_files import HEADER, jsonl

BOUND = "claude-opus-6"
SIGNED = [{"type": "thinking", "thinking": "t", "thinkingSignature": "s"}]


def reasons(
    *entries: dict[str, Any] | bytes, fmt: TranscriptFormat = OPENCLAW, **fields: Any
) -> dict[str | None, str]:
    source = BytesTranscript(jsonl(*entries))
    survey = Survey.of(source, fmt, Policy.of(config(**fields)), NOW, keep_names=True)
    return {one.row.entry_id: one.decision.reason.value for one in survey.outcomes()}


def result(entry_id: str, **more: Any) -> dict[str, Any]:
    return message(entry_id, "toolResult", LONG, **more)


def assistant(entry_id: str, stop: str | None = "stop", content: Any = "x", **more: Any) -> Any:
    return message(entry_id, "assistant", content, stopReason=stop, **more)


def test_position_counts_message_entries_only() -> None:
    beside: list[Any] = [
        {"type": "label", "id": "l"},
        {"type": "custom", "id": "c", "data": 5},
        {"type": "model_change", "id": "m"},
        {"type": "compaction", "id": "k"},
        {"type": "brand_new", "id": "n"},
        b"{torn\n",
    ]
    found = reasons(HEADER, result("e1"), result("e2"), *turn(1), *beside, assistant("a"))
    assert (found["e1"], found["e2"]) == ("extract", "extract")
    found = reasons(
        HEADER, result("e1"), result("e2"), assistant("a"), *beside, message("u", "user")
    )
    assert (found["e1"], found["e2"]) == ("extract", "too_recent")


def test_the_header_is_not_judged_and_broken_lines_are_no_entries() -> None:
    assert set(reasons(HEADER, b"\n", b"{torn\n", message("u", "user"))) == {"u"}


@pytest.mark.parametrize(
    ("tail", "open_ones"),
    [
        ([], {"a1", "r", "u"}),  # a call without its answer
        ([assistant("a2")], {"a2"}),  # finished: the latest assistant message only
        ([assistant("a2"), message("u2", "user")], {"a2", "u2"}),
        ([message("u2", "user")], {"a1", "u2"}),  # a new prompt does not wait
        # An aborted answer is not sent again: the latest answer that is sent is the answer before
        # it.
        ([assistant("a2", "aborted")], {"a1"}),
        ([assistant("a2", "error", [{"type": "toolCall", "id": "d"}])], {"a1"}),
        ([assistant("a2", "aborted"), result("r2")], {"a1", "r2"}),  # its program continues
        ([assistant("a2"), message("b", "bashExecution", output=LONG)], {"a2"}),
        ([assistant("a2"), {"type": "custom_message", "id": "cm", "content": LONG}], {"a2"}),
        ([{"type": "compaction", "id": "k"}], {"a1", "r", "u", "k"}),
        ([assistant("a2", None)], {"a2"}),
        ([assistant("a2", None, [{"type": "toolCall", "id": "c"}])], {"a1", "r", "u", "a2"}),
    ],
)
def test_turns(tail: list[Any], open_ones: set[str]) -> None:
    call = [{"type": "toolCall", "id": "c", "name": "t", "arguments": {}}]
    answered = result("r", toolCallId="c")
    run = [message("u", "user"), assistant("a1", "toolUse", call), answered]
    found = reasons(HEADER, *turn(1), *run, *tail, keep_recent=0)
    assert {entry_id for entry_id, reason in found.items() if reason == "turn_open"} == open_ones


CALLS = [{"type": "toolCall", "id": name, "name": "t", "arguments": {}} for name in "cd"]


def test_a_turn_with_a_call_that_has_no_result_is_not_finished() -> None:
    run = [message("u", "user"), assistant("a1", "toolUse", CALLS)]
    run.append(result("r", toolCallId="c"))
    end = [assistant("a2"), message("b", "bashExecution", output=LONG)]
    found = reasons(HEADER, *run, *end, keep_recent=0)
    assert (found["r"], found["b"]) == ("turn_open", "turn_open")
    found = reasons(HEADER, *run, result("s", toolCallId="d"), *end, keep_recent=0)
    assert (found["r"], found["s"], found["b"]) == ("extract", "extract", "extract")


def thinking(entry_id: str, stop: str, *blocks: Any, api: str = "openai-responses") -> Any:
    content = [{"type": "thinking", "thinking": LONG}, *blocks]
    return assistant(entry_id, stop, content, api=api)


@pytest.mark.parametrize("api", ["openai-responses", "anthropic-messages", "google"])
def test_of_a_finished_last_turn_what_was_thought_stays(api: str) -> None:
    run = [message("u", "user"), thinking("a1", "toolUse", CALLS[0], api=api)]
    run += [result("r", toolCallId="c"), thinking("a2", "stop", api=api)]
    found = reasons(HEADER, *run, keep_recent=0)
    assert (found["a1"], found["r"], found["a2"]) == ("turn_open", "extract", "turn_open")
    found = reasons(HEADER, *run, *turn(1), keep_recent=0)
    assert (found["a1"], found["r"], found["a2"]) == ("extract", "extract", "extract")


@pytest.mark.parametrize("forced", [False, True])
def test_of_an_entry_of_the_last_turn_what_was_not_thought_leaves(*, forced: bool) -> None:
    block = {**CALLS[0], "arguments": {"text": LONG}}
    entry = thinking("a1", "toolUse", block) | ({"_extractable": True} if forced else {})
    run = [message("u", "user"), entry, result("r", toolCallId="c"), assistant("a2")]
    policy = Policy.of(config(keep_recent=0, trigger_types=["thinking", "tool_call"]))
    survey = Survey.of(BytesTranscript(jsonl(HEADER, *run)), OPENCLAW, policy, NOW, keep_names=True)
    [found] = [one.decision for one in survey.outcomes() if one.row.entry_id == "a1"]
    assert [chosen.value.type for chosen in found.chosen] == ["tool_call"]


def claude_line(name: str, role: str, block: Any, answer: str | None = None) -> dict[str, Any]:
    said = {"role": role, "content": [block]} | ({"id": answer} if answer else {})
    tied = {"uuid": name, "parentUuid": None, "sessionId": "s", "version": "2.1.332"}
    return {"type": role, **tied, "message": said | {"stop_reason": "end_turn"}}


def test_all_lines_of_the_latest_answer_stay() -> None:
    text = {"type": "text", "text": LONG}
    call = {"type": "tool_use", "id": "c", "name": "t", "input": {"text": LONG}}
    output = {"type": "tool_result", "tool_use_id": "c", "content": LONG}
    session = [
        claude_line("u", "user", {"type": "text", "text": "go"}),
        claude_line("a1", "assistant", call, "m1"),
        claude_line("r", "user", output),
        claude_line("a2", "assistant", text, "m2"),
        claude_line("a3", "assistant", text, "m2"),
    ]
    fields: dict[str, Any] = {"keep_recent": 0, "trigger_types": ["tool_result", "assistant"]}
    found = reasons(*session, fmt=CLAUDE_CODE, **fields)
    assert (found["r"], found["a2"], found["a3"]) == ("extract", "turn_open", "turn_open")
    session[3]["message"]["id"] = "m1"
    found = reasons(*session, fmt=CLAUDE_CODE, **fields)
    assert (found["a2"], found["a3"]) == ("extract", "turn_open")


def test_a_crashed_turn_blocks_nobody_else() -> None:
    found = reasons(
        HEADER, result("old"), *turn(1), message("u", "user"), result("r"), keep_recent=0
    )
    assert (found["old"], found["r"]) == ("extract", "turn_open")


def test_flat_entries_have_no_turns() -> None:
    entry = {"__id": "a", "type": "tool_result", "output": LONG}
    assert reasons(entry, {"__id": "b", "type": "user"}, fmt=FLAT, keep_recent=0)["a"] == "extract"
    assert reasons(entry, fmt=FLAT, keep_recent=0) == {"a": "extract"}


def test_an_id_used_twice_anywhere_is_a_duplicate() -> None:
    twin = {"type": "label", "id": "e1"}
    found = reasons(HEADER, result("e1"), result("e2"), *turn(1), *turn(2), twin)
    assert (found["e1"], found["e2"]) == ("duplicate_entry_id", "extract")


def test_missing_ids_are_no_duplicates_of_each_other() -> None:
    nameless = {"type": "message", "message": {"role": "toolResult", "content": LONG}}
    assert reasons(HEADER, nameless, nameless, *turn(1), *turn(2))[None] == "no_entry_id"


@pytest.mark.parametrize(
    ("between", "fields", "reason"),
    [
        ([assistant("s", content=SIGNED, model=BOUND)], {}, "prefix_bound"),
        ([assistant("s", content=SIGNED, model="CLAUDE-OPUS-6")], {}, "prefix_bound"),
        ([assistant("s", content=SIGNED, model=BOUND)], {"prefix_bound": "extract"}, "extract"),
        ([assistant("s", content=SIGNED, model="claude-opus-4-5")], {}, "extract"),
        ([assistant("s", content=SIGNED)], {}, "extract"),
        ([assistant("s", content="x", model=BOUND)], {}, "extract"),
        (
            [assistant("s", content=SIGNED, model="m")],
            {"prefix_bound_models": ["^M$"]},
            "prefix_bound",
        ),
        (
            [{"type": "compaction", "id": "k"}, assistant("s", content=SIGNED, model=BOUND)],
            {},
            "extract",
        ),
        (
            [assistant("s", content=SIGNED, model=BOUND), {"type": "compaction", "id": "k"}],
            {},
            "extract",  # neither is sent any more
        ),
        (
            [
                assistant("s", content=SIGNED, model=BOUND),
                {"type": "compaction", "id": "k", "firstKeptEntryId": "e1"},
            ],
            {},
            "prefix_bound",
        ),
        (
            [
                assistant("s", content=SIGNED, model=BOUND),
                {"type": "compaction", "id": "k", "firstKeptEntryId": "nobody"},
            ],
            {},
            "extract",
        ),
        (
            [
                {"type": "compaction", "id": "k", "firstKeptEntryId": "e2"},
                assistant("s", content=SIGNED, model=BOUND),
            ],
            {},
            "extract",
        ),
    ],
)
def test_prefixes_that_a_later_signature_covers(
    between: list[Any], fields: dict[str, Any], reason: str
) -> None:
    found = reasons(HEADER, result("e1"), result("e2"), *between, *turn(1), *turn(2), **fields)
    assert found["e1"] == reason


def test_what_a_compaction_keeps_is_still_covered() -> None:
    compaction = {"type": "compaction", "id": "k", "firstKeptEntryId": "e2"}
    signed = assistant("s", content=SIGNED, model=BOUND)
    found = reasons(
        *(HEADER, result("e1"), result("e2"), result("e3"), compaction, signed),
        *(result("e4"), *turn(1), *turn(2)),
    )
    assert [found[f"e{number}"] for number in (1, 2, 3, 4)] == [
        *("extract", "prefix_bound", "prefix_bound"),
        "extract",
    ]


def test_the_values_of_a_bound_entry_that_are_never_sent_go_on() -> None:
    entry = result("e1", details={"log": LONG})
    signed = assistant("s", content=SIGNED, model=BOUND)
    assert reasons(HEADER, entry, signed, *turn(1), *turn(2))["e1"] == "extract"


def test_entries_that_cannot_leave_share_their_outlines() -> None:
    entries = [message(f"u{number}", "user", f"text {number}") for number in range(500)]
    source = BytesTranscript(jsonl(HEADER, *entries))
    survey = Survey.of(source, OPENCLAW, Policy.of(config()), NOW)
    assert len(list(survey.outcomes())) == 500
    assert len({id(row.subject) for row in survey.rows}) == 1
    assert {row.entry_id for row in survey.rows} == {None}


def test_outlines_tell_true_from_one_and_false_from_zero() -> None:
    entries = [
        message(entry_id, "toolResult", "small") | {"_extractable": value}
        for entry_id, value in (("a", False), ("b", 0), ("c", 1), ("d", False))
    ]
    found = reasons(HEADER, *entries, *turn(1), *turn(2))
    assert found["a"] == found["d"] == "pinned"
    assert found["b"] == found["c"] == "values_too_small"


def test_lengths_that_are_held_together_keep_their_side_of_every_limit() -> None:
    lengths = {"e499": 499, "e500": 500, "e600": 600, "e601": 601}
    entries = [message(name, "toolResult", "x" * length) for name, length in lengths.items()]
    found = reasons(HEADER, *entries, *turn(1), *turn(2), min_value_length=500)
    assert [found[name] for name in lengths] == ["values_too_small", *(["extract"] * 3)]
    found = reasons(HEADER, *entries, *turn(1), *turn(2), min_value_length=500, keep_chars=600)
    assert [found[name] for name in lengths] == [*(["values_too_small"] * 3), "extract"]


def test_age_counts_for_entries_alike_however_deep_they_stand() -> None:
    times = {"old": "2026-01-01T00:00:00Z", "new": iso_utc(NOW - 3600)}
    entries = [result(name) | {"timestamp": times[name]} for name in times]
    later = [message(f"u{number}", "user") for number in range(150)]
    found = reasons(HEADER, *entries, *later, *turn(1), age_threshold_hours=2)
    assert (found["old"], found["new"]) == ("extract", "too_young")
    found = reasons(HEADER, *entries[::-1], *later, *turn(1), age_threshold_hours=2)
    assert (found["old"], found["new"]) == ("extract", "too_young")


def test_progress_is_told_by_the_megabyte() -> None:
    source = BytesTranscript(jsonl(HEADER, *(result(f"e{n}", pad="x" * 300_000) for n in range(8))))
    told: list[int] = []
    Survey.of(source, OPENCLAW, Policy.of(config()), NOW, progress=told.append)
    assert told == sorted(set(told))
    assert len(told) == 2
    assert told[-1] <= source.identity.size


def test_ids_are_hashed_alike_in_every_process() -> None:
    assert id_hash("76d592b8") == 18290188101288254944
    assert id_hash("\ud83d") != id_hash("a")
