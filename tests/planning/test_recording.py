"""A recording has the session's requests, contexts and values, and knows its tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from bsd.planning.context_window import ContextWindow
from bsd.planning.recorded import Beginning, Recording, WantKind
from bsd.planning.recording_reader import (
    ASIDE,
    BACKWARDS,
    BROKEN_OFF,
    DAMAGED,
    MISSING,
    SAME_ID,
    read_recording,
)
from bsd.planning.recording_tokens import NO_TIME, NO_USAGE, ODD_USAGE, SMALLER
from bsd.planning.rules import Policy
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.agents.pi import PI
from bsd.transcripts.reader import BytesTranscript, parse_entry
from tests.planning.in_memory import Session, Shelf, config, data
from tests.planning.skeletons import recording_of_skeleton, skeletons
from tests.session_files import HEADER, call, jsonl, sample, text

BEGAN = datetime(2026, 9, 1, tzinfo=UTC)
POLICY = Policy.of(config(keep_recent=0, min_value_length=500))
LONG = "".join(f"line {number} of the file\n" for number in range(60))


class Program:
    """Writes a session of OpenClaw with usage: 4 characters a token, and 5,000 tokens beside."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = [HEADER]
        self.now = BEGAN
        self.sent = 20_000  # characters
        self.model = "made-up-1"
        self.parent: str | None = None

    def add(self, entry: dict[str, Any], *, after: float = 10) -> str:
        self.now += timedelta(seconds=after)
        name = f"e{len(self.entries)}"
        ties = {"id": name, "parentId": self.parent, "timestamp": self.now.isoformat()}
        self.entries.append({**ties, **entry})
        self.parent = name
        return name

    def message(self, role: str, *blocks: dict[str, Any], after: float = 10, **more: Any) -> str:
        message = {"role": role, "content": list(blocks), **more}
        self.sent += sum(len(block.get("text", "")) for block in blocks)
        return self.add({"type": "message", "message": message}, after=after)

    def user(self, words: str = "please") -> str:
        return self.message("user", text(words))

    def says(self, *blocks: dict[str, Any], **usage: int) -> str:
        waits = any(block["type"] == "toolCall" for block in blocks)
        usage = usage or {"input": 10, "cacheRead": self.sent // 4 - 10, "output": 5}
        return self.message(
            "assistant",
            *blocks,
            stopReason="toolUse" if waits else "stop",
            provider="made",
            model=self.model,
            usage=usage,
        )

    def result(self, words: str = LONG, of: str = "c") -> str:
        return self.message("toolResult", text(words), toolCallId=of)

    def turns(self, count: int = 1) -> None:
        """Add turns with a tool whose results differ."""
        for _ in range(count):
            self.user()
            name = f"c{len(self.entries)}"
            self.says(call(name, "look", place=name))
            self.result(f"{name} {LONG}".replace("line", name), of=name)
            self.says(text("ok"))

    @property
    def raw(self) -> bytes:
        return jsonl(*self.entries)

    def recording(self, *policies: Policy) -> Recording:
        return record(self.raw, *policies)


def record(
    raw: bytes,
    *policies: Policy,
    fmt: TranscriptFormat = OPENCLAW,
    shelf: Shelf | None = None,
) -> Recording:
    return read_recording(BytesTranscript(raw), fmt, policies or (POLICY,), shelf or Shelf())


@pytest.fixture
def program() -> Program:
    return Program()


# --- tokens ---

REAL = {
    "claude-code-long.jsonl": CLAUDE_CODE,
    "claude-code-short.jsonl": CLAUDE_CODE,
    "codex-rollout.jsonl": CODEX,
    "codex-rollout-images.jsonl": CODEX,
    "openclaw-v3-long.jsonl": OPENCLAW,
    "openclaw-v3-medium.jsonl": OPENCLAW,
    "pi-v1-no-ids.jsonl": PI,
}


@pytest.mark.parametrize("name", REAL)
def test_the_second_half_of_a_real_session_costs_what_the_first_half_tells(name: str) -> None:
    fmt = REAL[name]
    raw = data(name)
    found = record(raw, fmt=fmt)
    assert found.deviation is not None
    assert found.deviation.calls > 8
    assert found.deviation.median <= 0.05
    assert found.deviation.p90 <= 0.06
    assert found.measured
    window = ContextWindow()
    for line in BytesTranscript(raw).lines():
        entry = parse_entry(line.raw)
        if entry is not None and not (info := fmt.info(entry)).is_header:
            window.follow(line.index, info)
    last = found.calls[-1]
    sent = {number for number in range(last.entry) if window.sent(number)}
    context = set(found.context(last))
    assert {n for n in context ^ sent if found.entries.tokens[n]} == set()


def test_skeletons_of_other_providers_are_measured_too() -> None:
    by_name = {path.stem: path for path in skeletons()}
    for name in ("00", "05", "15"):
        found = recording_of_skeleton(by_name[name], [POLICY])
        assert found.deviation is not None
        assert found.deviation.median <= 0.1
    # This program leaves out old results by itself, which no line of the session tells.
    found = recording_of_skeleton(by_name["16"], [POLICY])
    assert found.deviation is not None
    assert found.deviation.median > 1
    assert found.notes[SMALLER] > 10


def test_a_request_is_what_was_charged(program: Program) -> None:
    program.turns(8)
    found = program.recording()
    assert found.characters_per_token == pytest.approx(4, abs=0.2)
    assert found.measured
    assert found.deviation is not None
    assert found.deviation.median < 0.01
    assert len(found.calls) == 16
    for made in found.calls:
        assert made.usage is not None
        assert made.prompt == pytest.approx(made.usage.prompt, rel=0.01)
        assert found.prompt_without_bsd(made) == made.usage.prompt
        stretch = found.stretches[made.stretch]
        tokens = sum(found.entries.tokens[number] for number in found.context(made))
        assert stretch.constant + tokens == pytest.approx(made.prompt, abs=2)
    assert not found.notes


def test_without_usage_the_model_tells(program: Program) -> None:
    program.model = "claude-opus-5-5"
    program.turns(3)
    for entry in program.entries[1:]:
        entry["message"].pop("usage", None)
    found = program.recording()
    assert (found.measured, found.deviation) == (False, None)
    assert (len(found.calls), found.notes) == (6, {NO_USAGE: 6})
    assert found.characters_per_token == 3.2


def test_a_text_of_the_program_is_no_request(program: Program) -> None:
    program.turns(3)
    model, program.model = program.model, "gateway"
    program.user("restart")
    program.says(text("the gateway was restarted"), input=0, output=0)
    program.model = model
    program.turns(3)
    found = program.recording()
    assert (len(found.calls), found.notes) == (12, {NO_USAGE: 1})
    assert [stretch.cause for stretch in found.stretches] == [Beginning.START]
    program.user("name it")
    program.says(text("title"), input=40, output=3)
    found = program.recording()
    assert (len(found.calls), found.notes) == (12, {NO_USAGE: 1, ODD_USAGE: 1})


# --- contexts ---


def test_after_a_compaction_the_context_is_what_it_keeps(program: Program) -> None:
    program.turns(3)
    kept = program.user("the last question")
    program.says(text("an answer"))
    program.sent = 20_000 + 4 * len("the last question")
    program.add({"type": "compaction", "summary": "s" * 100, "firstKeptEntryId": kept})
    program.user()
    program.says(text("go on"))
    found = program.recording()
    first, second = found.stretches
    assert (first.cause, second.cause) == (Beginning.START, Beginning.COMPACTION)
    assert (second.shared_until, second.shares_constant) == (0, True)
    assert list(found.context(found.calls[-1])) == list(range(12, 16))


def test_on_a_branch_the_context_goes_on_from_an_earlier_entry(program: Program) -> None:
    program.turns(2)
    program.parent = "e4"  # the end of the first turn
    program.turns()
    found = program.recording()
    assert [stretch.cause for stretch in found.stretches] == [Beginning.START, Beginning.BRANCH]
    assert found.stretches[-1].shared_until == 4
    assert list(found.context(found.calls[-1])) == [0, 1, 2, 3, 8, 9, 10]


def test_parts_of_an_answer_and_results_of_its_calls_are_no_branch() -> None:
    def line(name: str, parent: str | None, role: str, *blocks: Any, **more: Any) -> dict[str, Any]:
        message = {"role": role, "content": list(blocks), **more}
        return {"type": role, "uuid": name, "parentUuid": parent, "message": message}

    usage = {"input_tokens": 9000, "output_tokens": 9}
    use = {"type": "tool_use", "name": "Read", "input": {"file_path": "a"}}
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": LONG} for name in ("c1", "c2")
    ]
    raw = jsonl(
        line("u", None, "user", text("go")),
        line("a1", "u", "assistant", use | {"id": "c1"}, id="m1", usage=usage, model="claude"),
        line("a2", "a1", "assistant", use | {"id": "c2"}, id="m1", usage=usage, model="claude"),
        {**line("s1", "a2", "user", text("a sub-agent's prompt")), "isSidechain": True},
        {**line("s2", "s1", "user", text("another one")), "isSidechain": True},
        line("r1", "a1", "user", results[0]),
        line("r2", "a2", "user", results[1]),
        line("b", "r2", "assistant", text("done"), id="m2", usage=usage, model="claude"),
    )
    found = record(raw, fmt=CLAUDE_CODE)
    assert [(made.entry, made.end) for made in found.calls] == [(1, 3), (7, 8)]
    assert [stretch.cause for stretch in found.stretches] == [Beginning.START]
    assert found.notes == {ASIDE: 2, NO_TIME: 2}
    assert (found.entries.tokens[3], found.entries.tokens[6] > 100) == (0, True)


def test_turns_that_are_rolled_back_leave_the_context() -> None:
    def line(kind: str, what: str, second: int, **payload: Any) -> dict[str, Any]:
        at = (BEGAN + timedelta(seconds=second)).isoformat()
        return {"timestamp": at, "type": kind, "payload": {"type": what, **payload}}

    def said(role: str, second: int) -> dict[str, Any]:
        return line("response_item", "message", second, role=role, content=[text("words")])

    def count(second: int) -> dict[str, Any]:
        usage = {"input_tokens": 3000 + second, "output_tokens": 9}
        return line("event_msg", "token_count", second, info={"last_token_usage": usage})

    turns = [
        (line("event_msg", "user_message", at), said("user", at), said("assistant", at), count(at))
        for at in range(3)
    ]
    back = line("event_msg", "thread_rolled_back", 2, num_turns=1)
    found = record(jsonl(*turns[0], *turns[1], back, *turns[2]), fmt=CODEX)
    assert [stretch.cause for stretch in found.stretches] == [Beginning.START, Beginning.ROLL_BACK]
    context = [n for n in found.context(found.calls[-1]) if found.entries.tokens[n]]
    assert context == [1, 2, 10]
    assert [made.usage is not None for made in found.calls] == [True] * 3


def test_another_model_has_another_cache(program: Program) -> None:
    program.turns(3)
    program.model = "made-up-2"
    program.turns(3)
    found = program.recording()
    second = found.stretches[1]
    assert (second.cause, second.shares_constant) == (Beginning.MODEL, False)
    assert {made.model for made in found.calls} == {"made-up-1", "made-up-2"}
    assert list(found.context(found.calls[-1])) == list(range(23))


# --- values ---


def test_the_values_that_leave_are_those_that_extraction_takes() -> None:
    raw = sample(16)
    policies: list[dict[str, Any]] = [
        dict(zip(("keep_recent", "min_value_length", "trigger_types"), each, strict=True))
        for each in product((0, 3, 20), (500, 2000), (["tool_result"], ["thinking", "tool_call"]))
    ]
    found = record(raw, *(Policy.of(config(**each)) for each in policies))
    entries, values = found.entries, found.values
    for policy, leaves in zip(policies, found.leaves, strict=True):
        plan = Session(raw).extract(when="now", prefix_bound="extract", **policy)
        expected = {keep.index: len(keep.keys) for keep in plan.keeps}
        leaving: dict[int, int] = {}
        for value, position in zip(leaves.values, leaves.positions, strict=True):
            entry = values.entries[value]
            if entries.positions(entry, len(entries)) >= position:
                line = entries.lines[entry]
                leaving[line] = leaving.get(line, 0) + 1
        last = found.calls[-1]
        for line in range(entries.lines[last.turn_from], entries.lines[-1] + 1):
            leaving.pop(line, None)
            expected.pop(line, None)
        assert leaving == expected
        assert list(leaves.values) == sorted(leaves.values)


def test_a_session_that_bsd_has_changed_is_read_as_it_was(program: Program) -> None:
    program.turns(6)
    session = Session(program.raw)
    at = program.now.timestamp()
    before = record(session.raw)
    session.extract(at, keep_recent=0)
    removed = len(program.raw) - len(session.raw)
    assert removed > 3000
    lines = session.raw
    program.turns(2)
    later = jsonl(*program.entries[25:])
    found = record(lines + later, shelf=session.shelf)
    whole = record(program.raw)
    for column in ("entries", "types", "characters"):
        assert getattr(found.values, column) == getattr(whole.values, column)
    assert list(found.leaves[0].values) == list(whole.leaves[0].values)
    assert [made.lean > 0 for made in found.calls] == [False] * 12 + [True] * 4
    assert before.calls[3].prompt == pytest.approx(found.calls[3].prompt, rel=0.05)
    lost = record(lines, shelf=Shelf())
    assert lost.notes[MISSING] == len(session.shelf.files)
    assert len(lost.values) < len(found.values)


def test_entries_that_share_an_id_never_leave(program: Program) -> None:
    program.turns(2)
    program.entries[7]["id"] = program.entries[3]["id"]
    found = program.recording()
    assert (len(found.leaves[0]), found.notes[SAME_ID]) == (0, 2)


# --- text that is wanted again ---


def wants(found: Recording) -> Sequence[tuple[int, WantKind, tuple[int, ...]]]:
    return [
        (want.call, want.kind, tuple(entry for entry, _ in want.holders)) for want in found.wants
    ]


def test_the_same_call_and_a_quotation_show_that_a_result_is_wanted_again(
    program: Program,
) -> None:
    program.user()
    program.says(call("c1", "read", path="a", lines=3))
    program.result(of="c1")  # entry 2
    program.says(call("c2", "read", path="b"))
    program.result(LONG.replace("line", "row"), of="c2")  # entry 4
    program.says(call("c3", "read", path="a", lines=4), call("c4", "read", lines=3, path="a"))
    program.result("short", of="c3")
    program.result(LONG, of="c4")  # entry 7, with the text of entry 2
    quoted = LONG.replace("line", "row")[200:300]
    program.says(call("c5", "edit", old=f"<{quoted}>", new=quoted[:39]))  # call 3
    program.result("edited", of="c5")
    program.says(text(f"It says {LONG[110:160]}"))  # call 4
    program.user()
    program.says(text("-" * 200))
    found = program.recording()
    assert wants(found) == [
        (2, WantKind.CALL, (2,)),
        (3, WantKind.QUOTATION, (4,)),
        (4, WantKind.QUOTATION, (2, 7)),
    ]
    assert found.wants[0].tokens == pytest.approx(len(LONG) / 4, rel=0.1)


def test_a_compaction_takes_text_away_with_and_without_bsd(program: Program) -> None:
    program.user()
    program.says(call("c1", "read", path="a"))
    program.result(of="c1")
    program.says(text("read"))
    kept = program.user()
    program.add({"type": "compaction", "summary": "it was read", "firstKeptEntryId": kept})
    program.says(text(LONG[100:200]), call("c2", "read", path="a"))
    assert wants(program.recording()) == []


# --- odd sessions ---


def test_an_empty_session_has_no_requests() -> None:
    found = record(b"")
    assert (len(found.entries), found.calls, found.deviation) == (0, [], None)
    assert record(jsonl(HEADER)).calls == []


def test_each_odd_thing_has_a_word(program: Program) -> None:
    program.turns(3)
    program.now -= timedelta(hours=2)
    program.turns(3)
    program.message("assistant", text("half"), stopReason="error")
    program.turns()
    program.entries[-1].pop("timestamp")
    raw = program.raw + b'{"torn\n\n[1]\n'
    found = record(raw)
    assert found.notes == {BACKWARDS: 1, BROKEN_OFF: 1, NO_TIME: 1, DAMAGED: 2}
    assert len(found.calls) == 14
    assert found.entries.tokens[24] == 0
    assert found.deviation is not None


@pytest.mark.parametrize("usage", [{"input": 10**30}, {"input": -5}, {"input": "many"}, [], "x"])
def test_usage_that_is_no_usage_is_none(program: Program, usage: Any) -> None:
    program.turns(2)
    lines = [json.loads(line) for line in program.raw.splitlines()]
    for line in lines[1:]:
        if line["message"]["role"] == "assistant":
            line["message"]["usage"] = usage
    found = record(jsonl(*lines))
    assert [made.usage for made in found.calls] == [None] * 4
    assert (found.measured, found.stretches[0].constant) == (False, 0)
