from __future__ import annotations

from typing import Any

import pytest

from bsd.transcripts.agents.format import Shape, Turn
from bsd.transcripts.agents.openclaw.format import FLAT
from bsd.transcripts.spans import format_path

LONG = "x" * 600


def paths(entry: dict[str, Any], at_least: int = 500) -> dict[str, str | None]:
    return {format_path(value.path): value.type for value in FLAT.values(entry, at_least)}


@pytest.mark.parametrize("key", ["content", "text", "output", "result", "data", "thinking"])
def test_the_seeds_keys_hold_values(key: str) -> None:
    [value] = FLAT.values({"__id": "a", "type": "tool_result", key: "short"}, 500)
    assert (value.path, value.shape, value.type) == ((key,), Shape.TEXT, "tool_result")
    assert (value.length, value.text, value.leaf, value.display) == (5, "short", False, False)


def test_empty_strings_numbers_and_other_keys_hold_none() -> None:
    entry = {"__id": "a", "type": "user", "content": "", "data": 5, "output": None, "result": True}
    assert paths(entry | {"name": LONG, "details": LONG, "cwd": LONG}) == {}


def test_message_counts_as_a_string_or_with_content() -> None:
    assert paths({"type": "user", "message": "hello"}) == {"message": "user"}
    assert paths({"type": "user", "message": {"text": LONG}}) == {}
    assert paths({"message": {"role": "tool", "content": "a"}}) == {
        "message.content": "tool_result"
    }
    entry = {"message": {"role": "assistant", "content": "a", "details": {"log": LONG}}}
    assert paths(entry) == {"message.content": "assistant", "message.details.log": "assistant"}
    assert [value.display for value in FLAT.values(entry, 500)] == [False, True]


def test_typed_blocks_are_read_like_message_content() -> None:
    blocks = [
        {"type": "text", "text": "t"},
        "a string",
        {"type": "thinking", "thinking": "th"},
        {"type": "tool_use", "id": LONG, "input": {"patch": LONG, "n": 1}},
        {"type": "tool_call", "arguments": LONG},
        {"type": "image", "source": {"data": "AAAA"}},
        {"type": "other", "text": LONG},
    ]
    assert paths({"type": "assistant", "content": blocks}) == {
        "content[0].text": "assistant",
        "content[2].thinking": "thinking",
        "content[3].input.patch": "tool_call",
        "content[5]": "assistant",
    }


def test_objects_give_their_long_leaves() -> None:
    data = {"a": LONG, "list": [1, {"deep": LONG}], "small": "s", "toolCallId": LONG}
    assert paths({"type": "tool_result", "data": data}) == {
        "data.a": "tool_result",
        "data.list[1].deep": "tool_result",
    }


def test_an_object_long_only_as_a_whole_leaves_as_a_whole() -> None:
    rows = [{"id": number, "name": "n"} for number in range(50)]
    [value] = FLAT.values({"type": "tool_result", "result": rows}, 500)
    assert (value.path, value.shape, value.leaf) == (("result",), Shape.WHOLE, True)
    text = '[{"id":0,"name":"n"}' + "".join(f',{{"id":{n},"name":"n"}}' for n in range(1, 50))
    assert value.length == len(text) + 1
    assert paths({"type": "tool_result", "result": rows}, at_least=value.length + 1) == {}


@pytest.mark.parametrize("inside", ["see [[extracted-b]]", {"toolCallId": "c"}])
def test_an_object_that_holds_a_placeholder_or_a_link_stays(inside: Any) -> None:
    data = [inside, *({"n": number} for number in range(100))]
    assert paths({"type": "tool_result", "data": data}) == {}


@pytest.mark.parametrize(
    "name", ["id", "type", "role", "parentId", "toolCallId", "cwd", "__raw", "_restored"]
)
def test_structural_fields_are_never_values(name: str) -> None:
    assert paths({"type": "user", "data": [{name: LONG}, LONG]}) == {"data[1]": "user"}
    assert FLAT.values({"type": "user", name: LONG}) == []


@pytest.mark.parametrize(
    ("entry", "type_"),
    [
        ({"customType": "thinking", "type": "custom"}, "thinking"),
        ({"customType": "model-snapshot", "type": "tool_call"}, "tool_call"),
        ({"type": "message", "message": {"role": "user", "content": "x"}}, "user"),
        ({"type": "message", "role": "system"}, "system"),
        ({"message": {"role": "bashExecution"}}, "tool_result"),
        ({"type": "tool"}, "tool_result"),
        ({"role": "toolResult"}, "tool_result"),
        ({"role": "human"}, "user"),
        ({"customType": "ai"}, "assistant"),
        ({"thinking": "x"}, "thinking"),
        ({"data": {"thinking": "x"}}, "thinking"),
        ({"result": "x"}, "tool_result"),
        ({"data": {"result": "x"}}, "tool_result"),
        ({"type": 5, "role": ["user"]}, None),
        ({}, None),
    ],
)
def test_type_comes_from_the_first_name_that_maps(entry: dict[str, Any], type_: str | None) -> None:
    [value] = [v for v in FLAT.values(entry | {"text": "v"}) if v.path == ("text",)]
    assert value.type == type_


@pytest.mark.parametrize(
    ("entry", "is_message"),
    [
        ({"type": "user"}, True),
        ({}, True),
        ({"type": "anything"}, True),
        ({"type": "custom", "customType": "thinking"}, True),
        ({"type": "custom", "customType": "state"}, False),
        ({"type": "session"}, False),
        ({"type": "model_change"}, False),
        ({"type": "label"}, False),
        ({"type": "compaction"}, False),
    ],
)
def test_what_counts_as_a_message(entry: dict[str, Any], is_message: bool) -> None:
    assert FLAT.info(entry).is_message is is_message


def test_state_is_custom_and_records_hold_nothing() -> None:
    state = {"type": "custom", "customType": "ui", "data": {"log": LONG}}
    assert [value.custom for value in FLAT.values(state, 500)] == [True]
    assert FLAT.values({"type": "compaction", "text": LONG}) == []


def test_identity_and_turns() -> None:
    info = FLAT.info({"__id": "a", "id": "b", "type": "assistant"})
    assert (info.id, info.turn, info.is_assistant) == ("a", Turn.NONE, False)
    assert FLAT.info({"id": "b"}).id == "b"
    assert FLAT.info({"__id": 5, "id": "b"}).id == "b"
    assert FLAT.info({"__id": "", "id": 5}).id is None


def test_calls_and_results_are_paired() -> None:
    call = FLAT.info({"__id": "e1", "type": "tool_call", "name": "restore", "toolCallId": "c1"})
    assert [(one.id, one.name, one.path) for one in call.calls] == [("c1", "restore", ())]
    result = FLAT.info({"type": "tool_result", "toolCallId": "c1", "toolName": "restore"})
    assert (result.result_of, result.result_tool) == ("c1", "restore")
    assert FLAT.info({"type": "tool_call"}).calls[0].id == ""
