"""`trigger_rules`: the first rule that matches a value decides about it."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.planning.rules import Policy, Standing
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.in_memory import config
from tests.planning.test_rules import LONG, at, judge, leaving, result


def by(
    entry: dict[str, Any], *rules: dict[str, Any], standing: Standing | None = None, **fields: Any
) -> str:
    return judge(entry, standing or at(), trigger_rules=list(rules), **fields).reason


def test_type_or_wildcard() -> None:
    assert by(result(), {"type": "tool_result"}) == "extract"
    assert by(result(), {"type": "thinking"}) == "type_not_matched"
    assert by(result(), {"type": "*"}) == "extract"


def test_only_a_wildcard_fits_a_value_of_no_type() -> None:
    entry = {"__id": "a", "type": "note", "text": LONG}
    assert by(entry, {"type": "*"}) == "extract"
    every = [{"type": type_} for type_ in ("thinking", "tool_result", "assistant", "user")]
    assert by(entry, *every) == "type_not_matched"


def test_what_a_rule_does_not_say_the_settings_say() -> None:
    rule = {"type": "*"}
    assert by(result("12345"), rule, min_value_length=5) == "extract"
    assert by(result("12345"), rule, min_value_length=6) == "values_too_small"
    assert by(result(), rule, standing=at(2), keep_recent=2) == "extract"
    assert by(result(), rule, standing=at(8), keep_recent=9) == "too_recent"
    decision = judge(result(), at(9), trigger_rules=[rule], keep_chars=7)
    assert decision.chosen[0].keep_chars == 7
    zero = {"type": "*", "min_length": 0, "keep_recent": 0, "keep_chars": 0}
    decision = judge(result("1"), at(0), trigger_rules=[zero], min_value_length=9, keep_chars=7)
    assert (decision.reason, decision.chosen[0].keep_chars) == ("extract", 0), "0 is said, too"


def test_own_fields_replace_the_plain_ones() -> None:
    rule = {"type": "*", "min_length": 5, "keep_recent": 0, "keep_chars": 4}
    decision = judge(result("12345"), at(0), trigger_rules=[rule])
    assert (decision.reason, decision.chosen[0].keep_chars) == ("extract", 4)
    assert by(result("1234"), rule, standing=at(0)) == "values_too_small"


def test_a_list_replaces_trigger_types() -> None:
    assert by(result(), {"type": "user"}, trigger_types=["tool_result"]) == "type_not_matched"
    assert by(result(), trigger_types=["tool_result"]) == "disabled"


def test_the_first_rule_that_fits_decides() -> None:
    late = {"type": "tool_result", "keep_recent": 10}
    soon = {"type": "*", "keep_recent": 0}
    assert by(result(), late, soon, standing=at(5)) == "too_recent"
    assert by(result(), soon, late, standing=at(5)) == "extract"
    large = {"type": "tool_result", "min_length": 5000}
    assert by(result(), large, soon) == "values_too_small"


def test_each_value_has_its_own_first_rule() -> None:
    blocks = [{"type": "thinking", "thinking": LONG}, {"type": "text", "text": LONG}]
    message = {"role": "assistant", "content": blocks}
    entry = {"type": "message", "id": "a", "message": message}
    rules: list[dict[str, Any]] = [
        {"type": "thinking", "keep_recent": 9},
        {"type": "assistant", "keep_recent": 2},
    ]
    decision = judge(entry, at(5), fmt=OPENCLAW, trigger_rules=rules)
    assert leaving(decision) == ["message.content[1].text"]
    assert len(judge(entry, at(9), fmt=OPENCLAW, trigger_rules=rules).chosen) == 2


@pytest.mark.parametrize(
    ("role", "entry", "fits"),
    [
        ("tool", result(role="tool"), True),
        ("user|TOOL", result(role="tool"), True),
        ("user | tool", result(role="tool"), True),
        ("user", result(role="tool"), False),
        ("user", result(), False),
        ("*", result(), True),
        ("toolresult", result(role="x", message={"role": "toolResult"}), True),
        ("agent", result(customType="thinking"), True),
    ],
)
def test_roles(role: str, entry: dict[str, Any], fits: bool) -> None:
    assert (by(entry, {"type": "*", "role": role}) == "extract") is fits


@pytest.mark.parametrize(
    ("matcher", "entry", "fits"),
    [
        ({"name": "exec"}, result(name="Exec"), True),
        ({"name": "read|exec"}, result(name="exec"), True),
        ({"name": "exe"}, result(name="exec"), False),
        ({"name": "exec"}, result(), False),
        ({"code": "5"}, result(code=5), True),
        ({"code": "5"}, result(code=5.0), True),
        ({"flag": "true"}, result(flag=True), True),
        ({"gone": "null"}, result(gone=None), True),
        ({"list": "a"}, result(list=["a"]), False),
        ({"code": 5}, result(code=5), True),
        ({"code": 5}, result(code="5"), False),
        ({"code": 1}, result(code=True), False),
        ({"flag": True}, result(flag=True), True),
        ({"flag": True}, result(flag=1), False),
        ({"a": "x", "b": "y"}, result(a="x", b="y"), True),
        ({"a": "x", "b": "y"}, result(a="x", b="z"), False),
        ({"toolName": "exec"}, result(message={"toolName": "exec"}), True),
        ({"toolName": "exec"}, result(toolName="read", message={"toolName": "exec"}), False),
    ],
)
def test_matchers(matcher: dict[str, Any], entry: dict[str, Any], fits: bool) -> None:
    assert (by(entry, {"type": "*", **matcher}) == "extract") is fits


def test_assistants_unless_very_large_as_seed_000_has_it() -> None:
    rules: list[dict[str, Any]] = [
        {"type": "thinking"},
        {"type": "tool_result"},
        {"type": "assistant", "min_length": 5000},
    ]
    entry = {"__id": "a", "type": "assistant", "content": "x" * 4999}
    assert by(entry, *rules) == "values_too_small"
    entry["content"] += "x"
    assert by(entry, *rules) == "extract"


def test_the_shortest_length_of_interest() -> None:
    assert Policy.of(config()).shortest == 500
    rules: list[dict[str, Any]] = [
        {"type": "*", "min_length": 7},
        {"type": "user", "min_length": 900},
    ]
    assert Policy.of(config(trigger_rules=rules)).shortest == 7
    assert FLAT.values(result({"a": "1234567"}), 7)
