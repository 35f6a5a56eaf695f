"""What of its surroundings decides about an entry: positions, turns, duplicates, signatures."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.formats.base import Format
from bsd.formats.flat import FLAT
from bsd.formats.openclaw import OPENCLAW
from bsd.surgery.policy import Policy
from bsd.surgery.prefix import id_hash
from bsd.surgery.survey import Survey
from bsd.transcript.reader import BytesTranscript
from tests.unit.surgery.test_extract import LONG, message, turn
from tests.unit.surgery.theatre import HEADER, NOW, config, jsonl

BOUND = "claude-opus-6"
SIGNED = [{"type": "thinking", "thinking": "t", "thinkingSignature": "s"}]


def reasons(
    *entries: dict[str, Any] | bytes, fmt: Format = OPENCLAW, **fields: Any
) -> dict[str | None, str]:
    source = BytesTranscript(jsonl(*entries))
    survey = Survey.of(source, fmt, Policy.of(config(**fields)), NOW, keep_names=True)
    return {outcome.entry_id: outcome.decision.reason.value for outcome in survey.outcomes()}


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
        ([message("u2", "user")], {"a1", "u2"}),  # who speaks again does not wait
        ([assistant("a2", "aborted")], {"a2"}),
        ([assistant("a2"), message("b", "bashExecution", output=LONG)], {"a2"}),
        ([assistant("a2"), {"type": "custom_message", "id": "cm", "content": LONG}], {"a2"}),
        ([{"type": "compaction", "id": "k"}], {"a1", "r", "u", "k"}),
        ([assistant("a2", None)], {"a2"}),
        ([assistant("a2", None, [{"type": "toolCall", "id": "c"}])], {"a1", "r", "u", "a2"}),
    ],
)
def test_turns(tail: list[Any], open_ones: set[str]) -> None:
    call = [{"type": "toolCall", "id": "c", "name": "t", "arguments": {}}]
    run = [message("u", "user"), assistant("a1", "toolUse", call), result("r")]
    found = reasons(HEADER, *turn(1), *run, *tail, keep_recent=0)
    assert {entry_id for entry_id, reason in found.items() if reason == "turn_open"} == open_ones


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
            "prefix_bound",
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
    assert len(survey._subjects) == 1
    assert set(survey._names) == {None}


def test_outlines_tell_true_from_one_and_false_from_zero() -> None:
    entries = [
        message(entry_id, "toolResult", "small") | {"_extractable": value}
        for entry_id, value in (("a", False), ("b", 0), ("c", 1), ("d", False))
    ]
    found = reasons(HEADER, *entries, *turn(1), *turn(2))
    assert found["a"] == found["d"] == "pinned"
    assert found["b"] == found["c"] == "values_too_small"


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
