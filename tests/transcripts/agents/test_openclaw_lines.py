from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.transcripts.agents.format import Shape, TranscriptFormat, Turn
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.spans import format_path

LONG = "x" * 600
SIGNATURE = "s" * 100


def message(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": "a", "message": {"role": role, "content": content, **more}}


def paths(entry: dict[str, Any], at_least: int = 500) -> dict[str, str | None]:
    return {format_path(value.path): value.type for value in OPENCLAW.values(entry, at_least)}


def test_values_of_messages() -> None:
    blocks = [
        {"type": "text", "text": "t"},
        {"type": "thinking", "thinking": "th"},
        {"type": "toolCall", "id": "c", "name": "n", "arguments": {"a": {"b": [LONG]}, "id": LONG}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "tool_use", "input": {"patch": LONG}},
        {"type": "text", "text": ""},
    ]
    assert paths(message("assistant", blocks)) == {
        "message.content[0].text": "assistant",
        "message.content[1].thinking": "thinking",
        "message.content[2].arguments.a.b[0]": "tool_call",
        "message.content[3]": "assistant",
    }
    result = message("toolResult", [{"type": "text", "text": "t"}], details={"diff": LONG})
    assert paths(result) == {
        "message.content[0].text": "tool_result",
        "message.details.diff": "tool_result",
    }
    assert [value.display for value in OPENCLAW.values(result, 500)] == [False, True]
    assert paths(message("user", "hello")) == {"message.content": "user"}
    bash = message("bashExecution", command="ls", output="o")
    assert paths(bash) == {"message.output": "tool_result"}


def test_an_image_leaves_as_a_block() -> None:
    [value] = OPENCLAW.values(message("toolResult", [{"type": "image", "data": "A" * 40}]))
    assert (value.shape, value.length, value.type) == (Shape.BLOCK, 40, "tool_result")
    assert paths(message("user", [{"type": "image", "data": 5}, {"type": "image"}])) == {}


@pytest.mark.parametrize("arguments", [LONG, [LONG], None, 5])
def test_arguments_that_are_no_object_are_left_alone(arguments: Any) -> None:
    assert paths(message("assistant", [{"type": "toolCall", "arguments": arguments}])) == {}


@pytest.mark.parametrize(
    ("api", "removed"),
    [
        ("anthropic-messages", True),
        ("bedrock-converse-stream", True),
        ("google-generative-ai", True),
        ("google-vertex", True),
        ("openai-responses", False),
        ("openai-codex-responses", False),
        ("azure-openai-responses", False),
        ("openai-completions", False),
        ("brand-new-api", True),
        (None, True),
    ],
)
def test_thinking_and_its_signature(api: str | None, removed: bool) -> None:
    block = {"type": "thinking", "thinking": "abcde", "thinkingSignature": SIGNATURE}
    [value] = OPENCLAW.values(message("assistant", [block], api=api))
    where = ("message", "content", 0)
    assert value.path == (*where, "thinking")
    assert value.removes == (((*where, "thinkingSignature"),) if removed else ())
    assert value.length == (105 if removed else 5)


@pytest.mark.parametrize(
    "block",
    [
        {"thinking": LONG, "redacted": True, "thinkingSignature": SIGNATURE},
        {"thinking": "", "thinkingSignature": SIGNATURE},
        {"thinkingSignature": SIGNATURE},
        {"thinking": LONG, "thinkingSignature": {"odd": 1}},
    ],
)
def test_thinking_that_is_no_value(block: dict[str, Any]) -> None:
    entry = message("assistant", [{"type": "thinking"} | block], api="anthropic-messages")
    assert OPENCLAW.values(entry) == []


@pytest.mark.parametrize("signature", [None, ""])
def test_thinking_without_a_signature_is_plain(signature: str | None) -> None:
    block = {"type": "thinking", "thinking": "abc", "thinkingSignature": signature}
    [value] = OPENCLAW.values(message("assistant", [block], api="anthropic-messages"))
    assert (value.removes, value.length) == ((), 3)


def test_a_thought_signature_of_a_call_stays() -> None:
    call = {"type": "toolCall", "arguments": {"a": LONG}, "thoughtSignature": LONG}
    entry = message("assistant", [call], api="google-generative-ai")
    assert [(value.path[-1], value.removes) for value in OPENCLAW.values(entry, 500)] == [("a", ())]


def test_records_state_and_custom_messages() -> None:
    assert paths(message("compactionSummary", [{"type": "text", "text": LONG}])) == {}
    assert paths({"type": "compaction", "summary": LONG}) == {}
    assert paths({"type": "brand_new", "content": LONG}) == {}
    state = {"type": "custom", "customType": "ui", "data": {"a": LONG, "b": "s"}}
    [value] = OPENCLAW.values(state, 500)
    assert (value.path, value.custom, value.display, value.leaf) == (("data", "a"), *[True] * 3)
    assert OPENCLAW.values({"type": "custom", "data": LONG}, 500)[0].path == ("data",)
    assert OPENCLAW.values({"type": "custom", "data": "short"}, 500) == []
    custom = {"type": "custom_message", "customType": "x", "content": "c", "details": {"d": LONG}}
    assert paths(custom) == {"content": None, "details.d": None}
    assert paths(custom | {"customType": "thinking"})["content"] == "thinking"


@pytest.mark.parametrize(
    ("entry", "turn"),
    [
        (message("user", "x"), Turn.STARTS),
        (message("toolResult"), Turn.OPEN),
        (message("assistant", stopReason="toolUse"), Turn.OPEN),
        (message("assistant", stopReason="stop"), Turn.CLOSES),
        (message("assistant", stopReason="length"), Turn.CLOSES),
        (message("assistant", stopReason="error"), Turn.BREAKS),
        (message("assistant", [{"type": "toolCall"}], stopReason="aborted"), Turn.BREAKS),
        (message("assistant", [{"type": "toolCall"}]), Turn.OPEN),
        (message("assistant", "done"), Turn.CLOSES),
        (message("bashExecution"), Turn.NONE),
        ({"type": "custom_message"}, Turn.NONE),
        ({"type": "compaction"}, Turn.NONE),
    ],
)
def test_turns(entry: dict[str, Any], turn: Turn) -> None:
    assert OPENCLAW.info(entry).turn is turn


@pytest.mark.parametrize(
    ("kind", "is_message"),
    [
        ("message", True),
        ("custom_message", True),
        ("session", False),
        ("model_change", False),
        ("thinking_level_change", False),
        ("label", False),
        ("session_info", False),
        ("custom", False),
        ("compaction", False),
        ("branch_summary", False),
        ("brand_new", False),
        (None, False),
    ],
)
def test_what_counts_as_a_message(kind: str | None, is_message: bool) -> None:
    info = OPENCLAW.info({"type": kind, "id": "a"})
    assert info.is_message is is_message
    assert info.is_header is (kind == "session")


def test_signatures_calls_results_and_compactions() -> None:
    blocks = [
        {"type": "thinking", "thinking": "", "thinkingSignature": "s"},
        {"type": "toolCall", "id": "c1", "name": "read"},
    ]
    info = OPENCLAW.info(message("assistant", blocks, model="m"))
    assert info.signed_by == "m"
    assert [(c.id, c.name, c.path) for c in info.calls] == [
        ("c1", "read", ("message", "content", 1))
    ]
    assert OPENCLAW.info(message("assistant", blocks)).signed_by == ""
    assert OPENCLAW.info(message("assistant", blocks[1:], model="m")).signed_by is None
    result = OPENCLAW.info(message("toolResult", toolCallId="c1", toolName="read"))
    assert (result.kind, result.result_of, result.result_tool) == ("tool_result", "c1", "read")
    compaction = OPENCLAW.info({"type": "compaction", "firstKeptEntryId": "k"})
    assert (compaction.is_compaction, compaction.kept_from) == (True, "k")


@pytest.mark.parametrize(
    ("sources", "time_ms"),
    [
        ({"timestamp": "1970-01-01T00:00:01Z", "__ts": 5}, 1000),
        ({"timestamp": "1970-01-01T00:00:01.500+00:00"}, 1500),
        ({"timestamp": "1970-01-01T00:00:01"}, 1000),
        ({"timestamp": 1758763344764}, 1758763344764),
        ({"timestamp": 1758763344}, 1758763344000),
        ({"timestamp": "yesterday", "__ts": 1758763344.5}, 1758763344500),
        ({"timestamp": True, "message": {"created_at": 4}, "time": 5}, 4000),
        ({"time": 5.5}, 5500),
        ({"time": 1e11}, 1e11),
        ({"time": float("inf")}, None),
        ({"time": 10**400}, None),
        ({"timestamp": "0001-01-01T00:00:00+23:59"}, None),
        ({}, None),
    ],
)
def test_time_by_seed_000s_sources(sources: dict[str, Any], time_ms: float | None) -> None:
    found = OPENCLAW.info({"type": "message", **sources}).time_ms
    assert found == time_ms or (time_ms is None and found is not None and found < 0)


_names = st.sampled_from(
    [
        *("id", "__id", "type", "role", "message", "content", "text", "thinking", "data"),
        *("thinkingSignature", "arguments", "details", "output", "customType", "timestamp"),
        *("stopReason", "toolCallId", "firstKeptEntryId", "api", "model", "redacted"),
    ]
)
_words = st.sampled_from(
    [
        *("message", "user", "assistant", "toolResult", "text", "thinking", "toolCall", "image"),
        *("custom", "custom_message", "compaction", "tool_call", "tool_result", "x" * 40, ""),
    ]
)
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=5),
    max_leaves=25,
)


@settings(deadline=None)
@given(st.dictionaries(_names, _anything, max_size=8), st.sampled_from([FLAT, OPENCLAW]))
def test_no_shape_raises_and_every_value_is_where_it_says(
    entry: dict[str, Any], fmt: TranscriptFormat
) -> None:
    fmt.info(entry)
    for value in fmt.values(entry, 3):
        found: Any = entry
        for step in value.path:
            found = found[step]
        assert value.length > 0
        assert (value.shape is Shape.TEXT) == isinstance(found, str)
        if value.shape is Shape.TEXT:
            assert value.text == found
        else:
            assert value.text is None


def test_deep_nesting_does_not_raise() -> None:
    deep: Any = LONG
    for _ in range(5000):
        deep = [deep]
    for fmt in (FLAT, OPENCLAW):
        for entry in ({"data": deep}, message("toolResult", details=deep), {"message": deep}):
            fmt.info(entry)
            assert all(value.path for value in fmt.values(entry, 500))
