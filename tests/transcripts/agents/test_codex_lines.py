"""Codex's lines: their names, their extractable values, and threads that are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.sources import Source
from bsd.transcripts.agents.codex import CODEX, CODEX_PAGINATED, KIND, CodexDay
from bsd.transcripts.agents.entry import is_safe_id, proof_size
from bsd.transcripts.agents.format import NotOurs, Shape, TranscriptFormat, Turn
from bsd.transcripts.spans import format_path

LONG = "x" * 600
PICTURE = "data:image/png;base64," + "QUJD" * 40
TIME = "2025-09-25T01:22:24.764Z"
THREAD = "rollout-2026-05-01T10-11-12-01997e76-d124-7592-9cac-2ec05abbca08"


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": kind, "payload": payload}


def item(what: str, **payload: Any) -> dict[str, Any]:
    return line("response_item", type=what, **payload)


def event(what: str, **payload: Any) -> dict[str, Any]:
    return line("event_msg", type=what, **payload)


def found(entry: dict[str, Any], at_least: int = 500) -> dict[str, tuple[str | None, bool]]:
    values = [value for value in CODEX.values(entry, at_least) if not value.fixed]
    return {format_path(value.path): (value.type, value.display) for value in values}


@pytest.mark.parametrize("what", ["function_call_output", "custom_tool_call_output"])
def test_results_leave(what: str) -> None:
    entry = item(what, call_id="c", output=LONG)
    assert found(entry) == {"payload.output": ("tool_result", False)}
    blocks = [
        {"type": "input_text", "text": LONG},
        {"type": "input_image", "image_url": PICTURE},
        {"type": "input_image", "image_url": "https://example.com/" + LONG},
        {"type": "new", "text": LONG},
        LONG,
    ]
    entry = item(what, call_id="c", output=blocks)
    assert list(found(entry)) == ["payload.output[0].text", "payload.output[1]"]
    assert [value.shape for value in CODEX.values(entry)] == [Shape.TEXT, Shape.INPUT]
    assert found(item(what, call_id="c", output="")) == {}
    assert found(item(what, call_id="c", output={"content": LONG})) == {}


def test_a_picture_leaves_for_a_block_of_its_dialect() -> None:
    [value] = CODEX.values(
        item("message", role="user", content=[{"type": "input_image", "image_url": PICTURE}])
    )
    assert (value.shape, value.type, value.length) == (Shape.INPUT, "user", len(PICTURE))
    assert value.shape.holding(b'"p"') == b'{"type":"input_text","text":"p"}'


@pytest.mark.parametrize(
    ("entry", "paths"),
    [
        (event("agent_reasoning", text=LONG), {"payload.text": ("thinking", True)}),
        (
            event("exec_command_end", call_id=LONG, stdout=LONG, command=[LONG], cwd=LONG),
            {"payload.stdout": ("tool_result", True)},
        ),
        (
            event("patch_apply_end", changes={"/a": {"add": {"content": LONG}}}),
            {"payload.changes./a.add.content": ("tool_result", True)},
        ),
        (
            event("mcp_tool_call_end", result={"Ok": {"content": [{"text": LONG, "data": LONG}]}}),
            {"payload.result.Ok.content[0].text": ("tool_result", True)},
        ),
        (
            event("item_completed", item={"id": LONG, "aggregated_output": LONG, "text": LONG}),
            {"payload.item.aggregated_output": ("tool_result", True)},
        ),
        (
            event("item_completed", item={"type": "Reasoning", "summary_text": ["short", LONG]}),
            {"payload.item.summary_text[1]": ("thinking", True)},
        ),
        (
            event("user_message", message=LONG, images=[PICTURE * 4]),
            {"payload.images[0]": ("tool_result", True)},
        ),
        (
            event("image_generation_end", call_id=LONG, revised_prompt=LONG, result=LONG),
            {"payload.result": ("tool_result", True)},
        ),
    ],
)
def test_what_is_only_shown_leaves(
    entry: dict[str, Any], paths: dict[str, tuple[str, bool]]
) -> None:
    assert found(entry) == paths


@pytest.mark.parametrize(
    "entry",
    [
        line("session_meta", id="t", instructions=LONG),
        line("turn_context", user_instructions=LONG),
        line("compacted", message=LONG, replacement_history=[{"text": LONG}]),
        item("image_generation_call", id="i", result=LONG),
        line("world_state", text=LONG),
        item("reasoning", summary=[{"text": LONG}], encrypted_content=LONG),
        item("message", role="assistant", content=[{"type": "output_text", "text": LONG}]),
        item("message", role="user", content=[{"type": "input_text", "text": LONG}]),
        item("function_call", name="n", arguments=json.dumps({"a": LONG}), call_id="c"),
        item("custom_tool_call", name="n", input=LONG, call_id="c"),
        event("user_message", message=LONG, images=[""]),
        event("agent_message", message=LONG),
        event("task_complete", last_agent_message=LONG),
        event("item_completed", item=LONG),
        event("brand_new", text=LONG),
        {"timestamp": TIME, "type": "event_msg", "payload": LONG},
        {"type": ["event_msg"], "payload": {"type": "agent_reasoning", "text": LONG}},
        {},
    ],
)
def test_what_never_leaves(entry: dict[str, Any]) -> None:
    assert found(entry, 0) == {}


def test_conversations_of_compactions_leave_once_they_are_superseded() -> None:
    blocks = [{"type": "input_text", "text": LONG}, {"type": "input_image", "image_url": PICTURE}]
    call = {"type": "function_call", "name": "n", "arguments": LONG, "call_id": "c"}
    history = [
        {"type": "message", "role": "developer", "content": blocks},
        {"type": "message", "role": "user", "content": blocks},
        call,
        {"type": "function_call_output", "call_id": "c", "output": LONG},
        {"type": "compaction", "encrypted_content": LONG},
    ]
    entry = line("compacted", message=LONG, replacement_history=history)
    values = {format_path(value.path): value for value in CODEX.values(entry, 100)}
    assert {path: value.shape for path, value in values.items()} == {
        "payload.replacement_history[1].content[0].text": Shape.TEXT,
        "payload.replacement_history[1].content[1]": Shape.INPUT,
        "payload.replacement_history[3].output": Shape.TEXT,
    }
    assert all(value.once_superseded and value.display for value in values.values())
    info = CODEX.info(entry)
    assert (info.version_of, info.versions_read) == ("compacted", 2)
    others: list[dict[str, Any]] = [{"replacement_history_entries": []}]
    for unknown in (*others, {"replacement_history": None}):
        other = line("compacted", **entry["payload"] | unknown)
        assert CODEX.info(other).versions_read == 0


def test_what_was_said_can_be_read() -> None:
    entry = item("message", role="assistant", content=[{"type": "output_text", "text": "hello"}])
    assert [value.text for value in CODEX.values(entry)] == ["hello"]
    entry = item("reasoning", summary=[{"type": "summary_text", "text": "thought"}])
    assert [(value.text, value.type) for value in CODEX.values(entry)] == [("thought", "thinking")]


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (item("function_call_output", call_id="call_1"), "function_call_output.call_1"),
        (item("message", id="msg_1"), "message.msg_1"),
        (event("item_completed", item={"id": "i1"}, id="x"), "item_completed.i1"),
        (event("agent_reasoning", text="t"), "agent_reasoning.2025-09-25T012224.764Z"),
        (line("turn_context", cwd="/"), "turn_context.2025-09-25T012224.764Z"),
        (item("function_call", call_id="a/b c"), "function_call.abc"),
        ({"type": "compacted", "payload": {}}, None),
        ({"timestamp": TIME}, None),
    ],
)
def test_names(entry: dict[str, Any], name: str | None) -> None:
    found = CODEX.info(entry).id
    assert found == name
    assert found is None or is_safe_id(found)


@pytest.mark.parametrize(
    ("entry", "turn"),
    [
        (event("user_message"), Turn.STARTS),
        (event("task_started"), Turn.STARTS),
        (event("task_complete"), Turn.CLOSES),
        (event("turn_complete"), Turn.CLOSES),
        (event("turn_aborted"), Turn.BREAKS),
        (event("error", message="e"), Turn.BREAKS),
        (event("error", codex_error_info="context_window_exceeded"), Turn.BREAKS),
        (event("error", codex_error_info={"http_connection_failed": {}}), Turn.BREAKS),
        (event("error", codex_error_info="thread_rollback_failed"), Turn.NONE),
        (event("error", codex_error_info={"active_turn_not_steerable": {}}), Turn.NONE),
        (event("stream_error", message="e"), Turn.NONE),
        (event("token_count"), Turn.NONE),
        (item("function_call", call_id="c"), Turn.OPEN),
        (item("function_call_output", call_id="c"), Turn.OPEN),
        (item("reasoning"), Turn.OPEN),
        (item("message", role="assistant"), Turn.NONE),
        (line("turn_context"), Turn.NONE),
        (line("compacted"), Turn.NONE),
    ],
)
def test_turns(entry: dict[str, Any], turn: Turn) -> None:
    assert CODEX.info(entry).turn is turn


def test_facts() -> None:
    info = CODEX.info(item("function_call", name="shell", call_id="c", arguments="{}"))
    assert [(call.id, call.name, call.path) for call in info.calls] == [
        ("c", "shell", ("payload",))
    ]
    assert (info.kind, info.is_message, info.time_ms) == ("tool_call", True, 1758763344764.0)
    info = CODEX.info(item("function_call_output", call_id="c"))
    assert (info.kind, info.role, info.result_of) == ("tool_result", "toolResult", "c")
    info = CODEX.info(item("message", role="assistant"))
    assert (info.kind, info.is_assistant) == ("assistant", True)
    assert CODEX.info(line("session_meta", id="t")).is_header
    assert CODEX.info(line("compacted", message="m")).is_compaction
    assert not CODEX.info(event("agent_message")).is_message


# --- which files ---

DAY = CodexDay(Path("/none/sessions"), Path("/none/sessions/2025/09/24"))
META = line("session_meta", id="t", cli_version="0.40.0")


def detected(*entries: Any) -> TranscriptFormat | NotOurs:
    return DAY.detect([json.dumps(entry).encode() + b"\n" for entry in entries])


def test_threads_are_told_by_their_header() -> None:
    assert detected(META, event("brand_new")) is CODEX
    assert (
        detected(line("session_meta", id="t", cli_version="0.2.0", history_mode="legacy")) is CODEX
    )
    for paginated in ({"history_mode": "paginated"}, {"history_base": {"end": 1}}):
        header = line("session_meta", id="t", cli_version="0.169.0", **paginated)
        assert detected(header) is detected(META, header) is CODEX_PAGINATED
    shown = event("item_completed", item={"id": "i", "aggregated_output": LONG})
    output = item(
        "custom_tool_call_output", call_id="c", output=[{"type": "input_text", "text": LONG}] * 2
    )
    assert [value.fixed for value in CODEX_PAGINATED.values(shown)] == [True]
    assert [value.fixed for value in CODEX_PAGINATED.values(output)] == [False, False]
    assert detected(META, META) is CODEX  # a fork begins with the header of its origin


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [event("user_message")],
        [event("user_message"), META],
        [{"id": "t", "timestamp": TIME, "instructions": None}],
        [{"type": "session_meta", "payload": {"id": "t", "cli_version": "0.1.0"}}],
        [META, {"type": "message", "id": "m"}],
        [META, {"timestamp": TIME, "type": "event_msg", "payload": "text"}],
        [line("session_meta", id="t")],
        [line("session_meta", cli_version="0.1.0")],
        [line("session_meta", id="t", cli_version="1.0.0")],
        [line("session_meta", id="t", cli_version="0.1.0", history_mode="new")],
        [line("session_meta", id="t", cli_version="0.1.0", history_mode=["paginated"])],
        [{"type": "session", "version": 3}],
    ],
)
def test_what_is_not_known_is_left_alone(entries: list[dict[str, Any]]) -> None:
    assert isinstance(detected(*entries), NotOurs)


@pytest.mark.parametrize(
    ("entries", "is_read"),
    [
        ([event("user_message"), META], True),  # the line before it, of the header, was torn
        ([{"no": "type"}, META], True),
        ([META, {"type": "event_msg", "payload": {}}], True),
        ([line("session_meta", id="t", cli_version="1.2.0")], True),
        ([{"id": "t", "timestamp": TIME}, {"type": "message", "role": "user"}], False),
        ([], False),
    ],
)
def test_lines_that_are_understood_are_read_all_the_same(
    entries: list[dict[str, Any]], *, is_read: bool
) -> None:
    found = detected(*entries)
    assert isinstance(found, NotOurs)
    assert found.reads is (CODEX if is_read else None)


ROLLOUT = "rollout-2025-09-24T18-22-20-01997e76-d124-7592-9cac-2ec05abbca08"


@pytest.mark.parametrize(
    ("name", "is_session"),
    [
        (f"{ROLLOUT}.jsonl", True),
        (f"{ROLLOUT}.jsonl.zst", False),
        (f"{ROLLOUT}.jsonl.tmp", False),
        (ROLLOUT, False),
        ("rollout-x.jsonl", False),
        ("history.jsonl", False),
        (f".{ROLLOUT}.jsonl", False),
    ],
)
def test_file_names(name: str, is_session: bool) -> None:
    assert DAY.is_session_file(name) is is_session


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        (f"{THREAD}.jsonl", "c:2026:05:01"),
        (f"{THREAD}_01a20439-b8a3-7291-bd43-f95da5b14fcc.jsonl", "c:2026:05:01"),
        (f"{THREAD}.jsonl.zst", "c:2026:05:01"),
        (f".{THREAD}.jsonl.paginated.tmp", None),
        (f"{THREAD}_1.jsonl", None),
        ("rollout-compress-sJkSDT.tmp", None),
        ("notes.jsonl", None),
    ],
)
def test_whose_an_archived_file_is(tmp_path: Path, name: str, agent: str | None) -> None:
    source = Source("c", "codex", tmp_path / "sessions", KIND.routes, KIND.program_archive)
    assert source.agent_of(name) == agent
    assert list(source.archived_files()) == []
    (archived := tmp_path / "archived_sessions").mkdir()
    (archived / name).touch()
    found = [(whose, file.name) for whose, file in source.archived_files()]
    assert found == ([(agent, name)] if agent else [])
    program = KIND.program(source.path, source.path / "2026" / "05" / "01")
    is_session = program.is_session_file(name) or program.compressed_session(name) is not None
    assert is_session is (agent is not None)


@pytest.mark.parametrize("odd", [["message"], {"a": 1}, 7, None])
def test_members_that_are_no_names_are_read_as_unknown(odd: object) -> None:
    for entry in (
        line("response_item", type=odd, output=LONG),
        line("event_msg", type=odd),
        item("message", role=odd, content=[{"type": odd, "text": LONG}]),
    ):
        assert CODEX.info(entry).kind
        assert len(CODEX.values(entry, 500)) <= 1
        assert len(list(CODEX.fillings(entry))) <= 1
        assert CODEX.title(entry) is None
    blocks = [{"type": odd, "thinkingSignature": LONG}, {"type": "thinking", "signature": "12345"}]
    assert proof_size({"message": {"content": blocks}}) == 5
