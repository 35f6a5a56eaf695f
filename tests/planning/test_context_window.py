"""The context: entries that the program would send if it continued from the end of its session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from bsd.planning.context_window import ContextWindow
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE, SUBAGENT
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.test_prefix import entries
from tests.planning.test_properties import EXAMPLES
from tests.transcripts import nasty


def context_of(session: list[Entry], fmt: TranscriptFormat) -> ContextWindow:
    context = ContextWindow()
    for index, entry in enumerate(session):
        context.follow(index, fmt.info(entry))
    return context


def sent(session: list[Entry], fmt: TranscriptFormat) -> list[int]:
    context = context_of(session, fmt)
    return [row for row in range(len(session)) if context.sent(row)]


def compacted(session: list[Entry], fmt: TranscriptFormat) -> list[int]:
    context = context_of(session, fmt)
    return [row for row in range(len(session)) if context.compacted(row)]


# --- pi and OpenClaw ---


def sent_from_the_leaf(session: list[Entry]) -> set[int]:
    """As pi finds it: the path from the last entry, and the entries that its last compaction
    keeps.
    """
    lines = {entry["id"]: index for index, entry in enumerate(session)}
    path: list[int] = []
    at: int | None = len(session) - 1
    while at is not None:
        path.insert(0, at)
        parent = session[at].get("parentId")
        at = lines.get(parent or "") if "parentId" in session[at] else at - 1
        at = None if at is None or at < 0 or at >= path[0] else at
    for place, one in reversed(list(enumerate(path))):
        if session[one]["type"] == "compaction":
            kept = lines.get(session[one]["firstKeptEntryId"] or "")
            before = path[path.index(kept) : place] if kept in path[:place] else []
            return {*before, *path[place:]}
    return {*path}


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries())
def test_in_sight_is_what_is_on_the_way_back(session: list[Entry]) -> None:
    assert set(sent(session, OPENCLAW)) == sent_from_the_leaf(session)


def message(name: str, parent: str | None) -> Entry:
    content = {"role": "user", "content": name}
    return {"type": "message", "id": name, "parentId": parent, "message": content}


def compaction(name: str, parent: str, kept: str | None) -> Entry:
    return {"type": "compaction", "id": name, "parentId": parent, "firstKeptEntryId": kept}


LINE = [message("a", None), message("b", "a"), message("c", "b")]


def test_a_compaction_keeps_what_stands_from_one_entry_on() -> None:
    session = [*LINE, compaction("k", "c", "b"), message("d", "k")]
    assert sent(session, OPENCLAW) == [1, 2, 3, 4]
    assert compacted(session, OPENCLAW) == [0]
    assert sent([*LINE, compaction("k", "c", "nobody")], OPENCLAW) == [3]


def test_who_goes_back_to_before_a_compaction_has_all_in_sight_again() -> None:
    session = [*LINE, compaction("k", "c", None), message("d", "k")]
    assert sent(session, OPENCLAW) == [3, 4]
    session.append(message("e", "b"))
    assert sent(session, OPENCLAW) == [0, 1, 5]
    assert compacted(session, OPENCLAW) == []
    session.append(message("f", "d"))  # and forth again
    assert sent(session, OPENCLAW) == [3, 4, 6]
    assert compacted(session, OPENCLAW) == [0, 1, 2]


def test_a_branch_that_was_left_is_not_sent() -> None:
    session = [*LINE, message("d", "a")]
    assert sent(session, OPENCLAW) == [0, 3]
    assert compacted(session, OPENCLAW) == []


def test_who_goes_far_back_is_followed() -> None:
    session = [message("m0", None)]
    session += [message(f"m{n}", f"m{n - 1}") for n in range(1, 500)]
    session.append(message("x", "m3"))
    assert sent(session, OPENCLAW) == [0, 1, 2, 3, 500]


def test_no_entry_follows_one_that_comes_later() -> None:
    session = [message("a", "b"), message("b", "a")]
    assert sent(session, OPENCLAW) == [0, 1]
    assert sent([message("a", "a")], OPENCLAW) == [0]


def test_without_parents_each_entry_follows_the_one_above() -> None:
    session: list[Entry] = [{"__id": f"e{n}", "type": "user"} for n in range(3)]
    assert sent(session, FLAT) == [0, 1, 2]
    session += [{"__id": "k", "type": "compaction"}, {"__id": "e9", "type": "user"}]
    assert sent(session, FLAT) == [3, 4]
    session[3]["firstKeptEntryId"] = "e2"
    assert sent(session, FLAT) == [2, 3, 4]


# --- Claude Code, as it writes: every block a line ---


def said(name: str, parent: str | None, answer: str, *blocks: dict[str, Any]) -> Entry:
    content = list(blocks) or [{"type": "text", "text": name}]
    message = {"role": "assistant", "id": answer, "content": content}
    return {"type": "assistant", "uuid": name, "parentUuid": parent, "message": message}


def called(name: str, parent: str, answer: str) -> Entry:
    block = {"type": "tool_use", "id": f"call-{name}", "name": "Bash", "input": {}}
    return said(name, parent, answer, block)


def answered(name: str, parent: str) -> Entry:
    block = {"type": "tool_result", "tool_use_id": f"call-{parent}", "content": name}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "uuid": name, "parentUuid": parent, "message": message}


def prompt(name: str, parent: str | None, **more: Any) -> Entry:
    message = {"role": "user", "content": name}
    return {"type": "user", "uuid": name, "parentUuid": parent, "message": message, **more}


def boundary(name: str, **kept: Any) -> Entry:
    metadata = {"trigger": "manual", **kept}
    about = {"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata}
    return {**about, "uuid": name, "parentUuid": None, "logicalParentUuid": "a2"}


NOTE: Entry = {"type": "last-prompt", "leafUuid": "p"}
TURNS = [
    prompt("p1", None),
    said("a1", "p1", "m1"),
    NOTE,
    prompt("p2", "a1"),
    said("a2", "p2", "m2"),
]


def test_calls_made_at_once_lie_side_by_side_and_all_are_sent() -> None:
    session = [prompt("p", None), called("c1", "p", "m"), called("c2", "c1", "m")]
    session += [answered("r1", "c1"), called("c3", "r1", "m"), answered("r3", "c3")]
    session += [answered("r2", "c2"), said("a", "r2", "m2")]
    assert sent(session, CLAUDE_CODE) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_prompt_to_which_somebody_went_back_leaves_its_answers() -> None:
    session = [prompt("p", None), called("c1", "p", "m"), answered("r1", "c1"), prompt("q", None)]
    assert sent(session, CLAUDE_CODE) == [3]


def test_a_compaction_of_claude_code_keeps_nothing_a_segment_or_what_it_lists() -> None:
    after = [prompt("s", "b", isCompactSummary=True), prompt("p3", "s")]
    assert sent([*TURNS, boundary("b"), *after], CLAUDE_CODE) == [5, 6, 7]
    assert compacted([*TURNS, boundary("b"), *after], CLAUDE_CODE) == [0, 1, 2, 3, 4]
    segment = {"headUuid": "p2", "anchorUuid": "s", "tailUuid": "a2"}
    session = [*TURNS, boundary("b", preservedSegment=segment), *after]
    assert sent(session, CLAUDE_CODE) == [3, 4, 5, 6, 7]
    listed = {"anchorUuid": "s", "uuids": ["p2", "a2"], "allUuids": ["p2", "a2"]}
    session = [*TURNS, boundary("b", preservedSegment=segment, preservedMessages=listed), *after]
    assert sent(session, CLAUDE_CODE) == [3, 4, 5, 6, 7]
    assert compacted(session, CLAUDE_CODE) == [0, 1, 2]


def test_summarized_from_a_message_on_what_is_before_it_stays() -> None:
    after = [prompt("s", "b", isCompactSummary=True), prompt("p3", "s")]
    segment = {"headUuid": "p1", "anchorUuid": "b", "tailUuid": "a1"}
    listed = {"anchorUuid": "b", "uuids": ["p1", "a1"]}
    session = [*TURNS, boundary("b", preservedSegment=segment, preservedMessages=listed), *after]
    assert sent(session, CLAUDE_CODE) == [0, 1, 5, 6, 7]
    assert compacted(session, CLAUDE_CODE) == [2, 3, 4]


@pytest.mark.parametrize(
    "kept",
    [
        {"preservedMessages": {"uuids": ["p2", "gone"]}},
        {"preservedSegment": {"headUuid": "gone", "tailUuid": "a2"}},
        {"preservedSegment": {"headUuid": "p2", "tailUuid": "gone"}},
    ],
)
def test_what_keeps_what_is_not_there_takes_nothing_out_of_sight(kept: dict[str, Any]) -> None:
    session = [*TURNS, boundary("b", **kept), prompt("p3", "b")]
    assert sent(session, CLAUDE_CODE) == [0, 1, 2, 3, 4, 5, 6]
    assert compacted(session, CLAUDE_CODE) == []


def test_nothing_counts_as_compacted_by_what_nobody_knows() -> None:
    session = [*TURNS, boundary("b", preservedOtherwise=["p2"]), prompt("p3", "b")]
    assert compacted(session, CLAUDE_CODE) == []


def test_what_a_subagent_did_is_sent_to_it_alone() -> None:
    aside = [entry | {"isSidechain": True} for entry in TURNS]
    session = [prompt("p", None), *aside]
    assert sent(session, CLAUDE_CODE) == [0]
    assert sent(aside, SUBAGENT) == [0, 1, 3, 4]


# --- Codex ---


def item(what: str, **payload: Any) -> Entry:
    return {"type": "response_item", "payload": {"type": what, **payload}}


def event(what: str, **payload: Any) -> Entry:
    return {"type": "event_msg", "payload": {"type": what, **payload}}


def codex_turn() -> list[Entry]:
    call = [item("function_call", call_id="c"), item("function_call_output", call_id="c")]
    said = item("message", role="assistant")
    return [event("task_started"), event("user_message"), *call, said, event("task_complete")]


def test_a_compaction_of_codex_takes_all_before_it() -> None:
    session = [*codex_turn(), {"type": "compacted", "payload": {}}, *codex_turn()]
    assert sent(session, CODEX) == list(range(6, 13))
    assert compacted(session, CODEX) == list(range(6))


@pytest.mark.parametrize(("turns", "left"), [(1, 12), (2, 6), (3, 0), (9, 0)])
def test_turns_of_codex_that_were_taken_back_are_not_sent(turns: int, left: int) -> None:
    session = [entry for _ in range(3) for entry in codex_turn()]
    session.append(event("thread_rolled_back", num_turns=turns))
    assert sent([*session, *codex_turn()], CODEX) == [*range(left), *range(18, 25)]


def test_a_compaction_in_a_turn_that_was_taken_back_hides_nothing() -> None:
    session = [*codex_turn(), *codex_turn(), {"type": "compacted", "payload": {}}]
    assert compacted(session, CODEX) == list(range(12))
    session.append(event("thread_rolled_back", num_turns=1))
    assert sent(session, CODEX) == [*range(6), 13]
    assert compacted(session, CODEX) == []
