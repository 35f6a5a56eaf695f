"""SPEC §3's decision table, row by row, with both sides of every boundary."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.formatting import iso_utc
from bsd.planning.rules import Decision, Policy, Reason, Standing, decide, subject_of
from bsd.transcripts.agents.entry import placeholder
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.spans import format_path
from tests.planning.in_memory import NOW, config

OLD = Standing(position=50, time_ms=(NOW - 1e6) * 1000)
LONG = "x" * 500


def result(text: Any = LONG, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "__id": "e1", "output": text, **more}


def judge(
    entry: dict[str, Any], standing: Standing = OLD, *, fmt: TranscriptFormat = FLAT, **fields: Any
) -> Decision:
    undone = fields.pop("undone", False)
    policy = Policy.of(config(**fields))
    values = fmt.values(entry, policy.shortest)
    limits = policy.limits()
    subject = subject_of(entry, fmt.info(entry), values, policy, limits, undone=undone)
    return decide(subject, standing, policy, NOW)


def leaving(decision: Decision) -> list[str]:
    return [format_path(chosen.value.path) for chosen in decision.chosen]


def marker(*keys: str) -> dict[str, Any]:
    return {"ref": "0001_x", "hash": "sha256:0", "size": 1, "keys": list(keys), "at": "t"}


def restored(seconds_ago: float) -> str:
    return iso_utc(NOW - seconds_ago)


def at(position: int = 50, *, seconds_ago: float | None = 1e6, **more: Any) -> Standing:
    time_ms = None if seconds_ago is None else (NOW - seconds_ago) * 1000
    return Standing(position, time_ms, **more)


OWN = placeholder("e1")
HOUR = 3600

# reason, entry, where it stands, settings
TABLE: list[tuple[str, dict[str, Any], Standing, dict[str, Any]]] = [
    # 1
    ("disabled", result(), OLD, {"enabled": False}),
    ("disabled", result(), OLD, {"trigger_types": []}),
    ("disabled", result(), OLD, {"trigger_rules": []}),
    ("disabled", {}, at(duplicate=True), {"enabled": False}),
    # 2
    ("no_entry_id", result(__id=None), OLD, {}),
    ("no_entry_id", result(__id=None, id=""), OLD, {}),
    ("no_entry_id", result(__id=7, id=7), OLD, {}),
    ("extract", result(__id=None, id="e1"), OLD, {}),
    ("unsafe_entry_id", result(__id="a/b"), OLD, {}),
    ("unsafe_entry_id", result(__id=".."), OLD, {}),
    ("unsafe_entry_id", result(__id="é"), OLD, {}),
    ("unsafe_entry_id", result(__id="a b", id="fine"), OLD, {}),
    ("unsafe_entry_id", result(__id="i" * 201), OLD, {}),
    ("extract", result(__id="i" * 200), OLD, {}),
    ("extract", result(__id="A-Z.a_z~0"), OLD, {}),
    ("duplicate_entry_id", result(), at(duplicate=True), {}),
    ("unsafe_entry_id", result(__id="."), at(duplicate=True), {}),
    ("duplicate_entry_id", result(OWN, _extracted=marker("output")), at(duplicate=True), {}),
    # 3
    ("already_extracted", result(OWN, _extracted=marker("output")), OLD, {}),
    ("already_extracted", result(LONG + OWN, _extracted=marker("output")), OLD, {}),
    ("already_extracted", result(OWN), OLD, {}),
    ("already_extracted", result(placeholder("other")), OLD, {}),
    ("already_extracted", result(OWN, _extractable=True), OLD, {}),
    ("already_extracted", result(OWN), at(turn_open=True), {}),
    ("extract", result(f"see {OWN} {LONG}"), OLD, {}),
    ("extract", result(LONG + OWN), OLD, {}),  # no marker names it
    ("extract", result(LONG + OWN, _extracted=marker("content")), OLD, {}),
    ("extract", result(LONG, _extracted=marker("output")), OLD, {}),  # inline again
    ("extract", result(LONG + placeholder("b"), _extracted=marker("output")), OLD, {}),
    # 4
    ("turn_open", result(), at(turn_open=True), {}),
    ("turn_open", result(_extractable=True), at(turn_open=True), {}),
    ("turn_open", result(_extractable=False), at(turn_open=True), {}),
    # 5
    ("pinned", result(_extractable=False), OLD, {}),
    ("pinned", result("small", _extractable=False, _restored=restored(1)), OLD, {}),
    # 6
    ("extract", result(_extractable=True), at(0), {}),
    ("extract", result("small", type="user", _extractable=True), at(0), {}),
    ("extract", result(_extractable=True, _restored=restored(0)), OLD, {}),
    ("extract", result(_extractable=True), at(0, prefix_bound=True), {"scope": "display"}),
    ("extract", result(_extractable=True), at(0), {"keep_chars": 10_000}),
    ("values_too_small", result("", _extractable=True), OLD, {}),
    ("extract", result({"a": LONG}, _extractable=True), OLD, {}),
    ("values_too_small", result({"a": LONG[9:]}, _extractable=True), OLD, {}),
    (
        "values_too_small",  # even if a rule asks for a shorter length
        result({"a": LONG[9:]}, _extractable=True),
        OLD,
        {"trigger_rules": [{"type": "tool_result", "min_length": 10}]},
    ),
    # 6a
    ("undone", result(), OLD, {"undone": True}),
    ("undone", result(_restored=restored(1)), OLD, {"undone": True}),
    ("undone", result("small", type="user"), at(0), {"undone": True}),
    ("undone", result(_extractable=2), OLD, {"undone": True}),
    ("extract", result(_extractable=True), at(0), {"undone": True}),
    ("pinned", result(_extractable=False), OLD, {"undone": True}),
    ("already_extracted", result(OWN, _extracted=marker("output")), OLD, {"undone": True}),
    ("turn_open", result(), at(turn_open=True), {"undone": True}),
    ("disabled", result(), OLD, {"undone": True, "enabled": False}),
    # 7
    ("recently_restored", result(_restored=restored(0)), OLD, {}),
    ("recently_restored", result(_restored=restored(599.999)), OLD, {}),
    ("extract", result(_restored=restored(600)), OLD, {}),
    ("extract", result(_restored=restored(0)), OLD, {"keep_after_restore_seconds": 0}),
    ("recently_restored", result("s", type="user", _restored=restored(1)), OLD, {}),
    ("recently_restored", result(_restored=restored(-60)), OLD, {}),
    ("recently_restored", result(_restored=NOW * 1000), OLD, {}),
    ("extract", result(_restored="last week"), OLD, {}),
    ("recently_restored", result(toolName="restore"), at(seconds_ago=599), {}),
    ("extract", result(toolName="restore"), at(seconds_ago=600), {}),
    ("recently_restored", result(toolName="mcp__bsd__purge_control"), at(seconds_ago=1), {}),
    ("recently_restored", result(name="search_extracted"), at(9, seconds_ago=None), {}),
    ("extract", result(name="restore_remote"), at(10, seconds_ago=None), {}),
    ("extract", result(toolName="exec"), at(seconds_ago=1), {}),
    ("extract", result(toolName="restore", _extractable=True), at(seconds_ago=1), {}),
    # 8
    ("type_not_matched", result(type="user"), OLD, {}),
    ("type_not_matched", result("small", type="user"), at(0), {}),
    ("type_not_matched", result(), OLD, {"trigger_types": ["thinking"]}),
    ("type_not_matched", result(""), OLD, {}),
    ("type_not_matched", result(), OLD, {"scope": "display"}),
    ("extract", result(type="user"), OLD, {"trigger_types": ["user"]}),
    # 9
    ("too_recent", result(), at(2), {}),
    ("extract", result(), at(3), {}),
    ("extract", result(), at(0), {"keep_recent": 0}),
    ("too_recent", result("small"), at(2), {"age_threshold_hours": 1}),
    ("too_recent", result(_extractable=10), at(9), {}),
    ("extract", result(_extractable=10), at(10), {}),
    ("extract", result(_extractable=1), at(1), {}),
    ("extract", result(_extractable=0), at(0), {}),
    ("too_recent", result(_extractable=1), at(0), {"keep_recent": 0}),
    ("too_recent", result(_extractable=5.0), at(4), {}),
    ("extract", result(_extractable="7"), at(3), {}),
    # 10
    ("too_young", result(), at(seconds_ago=2 * HOUR - 1), {"age_threshold_hours": 2}),
    ("extract", result(), at(seconds_ago=2 * HOUR), {"age_threshold_hours": 2}),
    ("too_young", result(), at(seconds_ago=HOUR // 2 - 1), {"age_threshold_hours": 0.5}),
    ("extract", result(), at(seconds_ago=HOUR // 2), {"age_threshold_hours": 0.5}),
    ("extract", result(), at(seconds_ago=0), {"age_threshold_hours": 0}),
    ("too_young", result("small"), at(seconds_ago=0), {"age_threshold_hours": 1}),
    ("too_young", result(), at(seconds_ago=-HOUR), {"age_threshold_hours": 1}),
    ("too_young", result(), at(59, seconds_ago=None), {"age_threshold_hours": 1}),
    ("extract", result(), at(60, seconds_ago=None), {"age_threshold_hours": 1}),
    # 11
    ("values_too_small", result(LONG[1:]), OLD, {}),
    ("extract", result(LONG), OLD, {}),
    ("extract", result("x"), OLD, {"min_value_length": 0}),
    ("values_too_small", result("é" * 499), OLD, {}),
    ("values_too_small", result(LONG), OLD, {"keep_chars": 500}),
    ("extract", result(LONG), OLD, {"keep_chars": 499}),
    ("values_too_small", result(LONG[1:]), at(prefix_bound=True), {}),
    # 12
    ("prefix_bound", result(), at(prefix_bound=True), {}),
    ("extract", result(), at(prefix_bound=False), {}),
    # 13
    ("cache_warm", result(), at(warm_until=NOW + 60), {}),
    ("prefix_bound", result(), at(warm_until=NOW + 60, prefix_bound=True), {}),
    ("values_too_small", result(LONG[1:]), at(warm_until=NOW + 60), {}),
    ("extract", result(_extractable=True), at(0, warm_until=NOW + 60), {}),
]


@pytest.mark.parametrize(
    ("reason", "entry", "standing", "fields"), TABLE, ids=[row[0] for row in TABLE]
)
def test_row(
    reason: str, entry: dict[str, Any], standing: Standing, fields: dict[str, Any]
) -> None:
    decision = judge(entry, standing, **fields)
    assert decision.reason == reason
    assert bool(decision.chosen) is (reason == "extract")


def test_every_reason_has_a_row() -> None:
    # An unreadable value gets no verdict.
    judged = set(Reason) - {Reason.TOO_LARGE_IN_MEMORY}
    assert {row[0] for row in TABLE} == {str(reason) for reason in judged}


def test_values_are_judged_one_by_one() -> None:
    entry = {"type": "tool_result", "__id": "e1", "output": LONG, "text": "small", "result": OWN}
    assert leaving(judge(entry)) == ["output"]
    forced = judge({**entry, "_extractable": True})
    assert leaving(forced) == ["output", "text"]


def test_a_block_that_is_away_is_not_extracted_again() -> None:
    text = {"type": "text", "text": placeholder("a") + "!"}
    blocks = [{"type": "text", "text": f"kept {placeholder('a')}"}, text]
    message = {"role": "toolResult", "content": blocks}
    entry = {"type": "message", "id": "a", "message": message}
    fields: dict[str, Any] = {"min_value_length": 1, "trigger_types": ["tool_result"]}
    away = entry | {"_extracted": marker("message.content[0]")}
    assert leaving(judge(away, fmt=OPENCLAW, **fields)) == ["message.content[1].text"]
    assert leaving(judge(entry, fmt=OPENCLAW, **fields)) == [
        "message.content[0].text",
        "message.content[1].text",
    ]


def test_thinking_counts_with_its_signature() -> None:
    block = {"type": "thinking", "thinking": "t" * 100, "thinkingSignature": "s" * 400}
    message = {"role": "assistant", "content": [block], "api": "anthropic-messages"}
    entry = {"type": "message", "id": "a", "message": message}
    assert judge(entry, fmt=OPENCLAW).reason == "extract"
    assert judge(entry, fmt=OPENCLAW, min_value_length=501).reason == "values_too_small"
    message["api"] = "openai-responses"
    assert judge(entry, fmt=OPENCLAW).reason == "values_too_small"


def test_what_is_never_sent_leaves_in_spite_of_a_bound_prefix() -> None:
    message = {"role": "toolResult", "content": LONG, "details": {"diff": LONG}}
    entry = {"type": "message", "id": "a", "message": message}
    assert leaving(judge(entry, at(prefix_bound=True), fmt=OPENCLAW)) == ["message.details.diff"]
    assert leaving(judge(entry, fmt=OPENCLAW, scope="display")) == ["message.details.diff"]
    assert len(judge(entry, fmt=OPENCLAW).chosen) == 2


def test_state_leaves_only_by_a_rule_that_names_it() -> None:
    entry = {"type": "custom", "customType": "ui", "id": "a", "data": {"log": LONG}}

    def by(*rules: dict[str, Any], **more: Any) -> str:
        return judge(entry | more, fmt=OPENCLAW, trigger_rules=list(rules)).reason

    assert by({"type": "*"}) == "type_not_matched"
    assert by({"type": "*", "customType": "other"}) == "type_not_matched"
    assert by({"type": "*", "customType": "ui"}) == "extract"
    assert by({"type": "*"}, {"type": "*", "customType": "ui"}) == "extract"
    assert by({"type": "*"}, _extractable=True) == "values_too_small"


def test_due_times() -> None:
    assert judge(result(_restored=restored(100))).due_at == pytest.approx(NOW + 500)
    own = judge(result(toolName="restore"), at(seconds_ago=100))
    assert own.due_at == pytest.approx(NOW + 500)
    young = judge(result(), at(seconds_ago=HOUR), age_threshold_hours=3)
    assert young.due_at == pytest.approx(NOW + 2 * HOUR)
    assert judge(result(), at(9, seconds_ago=None), age_threshold_hours=3).due_at is None
    assert judge(result(), at(0)).due_at is None


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5.1", True),
        ("anthropic/Claude-Opus-5-5", True),
        ("claude-sonnet-6", True),
        ("claude-opus-4-5", False),
        ("gpt-5.5", False),
        ("", False),
    ],
)
def test_models_that_bind_their_prefix(model: str, binds: bool) -> None:
    assert Policy.of(config()).binds(model) is binds
    assert not Policy.of(config(prefix_bound="extract")).binds(model)
