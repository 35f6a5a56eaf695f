"""Claude Code's records beside a conversation: their extractable values, and their names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.claude_code.records import made_of, record_id
from bsd.transcripts.agents.format import Shape, Value
from bsd.transcripts.spans import format_path
from tests.transcripts.agents.test_claude_code_lines import LONG, SESSION, line

SHORT = [{"type": "text", "text": f"a short message {n}"} for n in range(40)]


def attachment(kind: str, event: str = "PostToolUse", **more: Any) -> dict[str, Any]:
    return line("attachment", attachment={"type": kind, "hookEvent": event, **more})


def record(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "sessionId": SESSION, **more}


SHAPE = record(
    "api-request-shape",
    shapeHash="5f" * 32,
    timestamp="2026-11-20T08:00:00.000Z",
    version="2.1.330",
    shape={"system": [{"type": "text", "text": LONG}], "tools": SHORT},
)
BLOB = record("api-request-blob", hash="a0" * 32, message={"role": "user", "content": SHORT})
REQUEST = record(
    "api-request",
    id="0f8f3a52-9a3f-4be0-8a5c-111111111111",
    timestamp="2026-11-20T08:00:01.000Z",
    shapeHash="5f" * 32,
    params={"model": "m", "max_tokens": 32000},
    tail=["a0" * 32] * 20,
    requestDigest="77" * 32,
)


def values(entry: dict[str, Any], at_least: int = 500) -> list[Value]:
    return [value for value in CLAUDE_CODE.values(entry, at_least) if not value.fixed]


def leaving(entry: dict[str, Any]) -> dict[str, Shape]:
    assert all(value.display and value.type == "tool_result" for value in values(entry))
    return {format_path(value.path): value.shape for value in values(entry)}


def test_the_course_of_a_tool_leaves_as_one_value_for_each_member() -> None:
    data = {
        "type": "agent_progress",
        "agentId": "a9b4d10",
        "prompt": LONG,
        "message": {"type": "user", "message": {"role": "user", "content": "short"}},
        "normalizedMessages": SHORT,
    }
    assert leaving(line("progress", data=data)) == {
        "data.prompt": Shape.TEXT,
        "data.normalizedMessages": Shape.WHOLE,
    }
    output = {"type": "bash_progress", "output": LONG, "fullOutput": LONG, "totalLines": 3}
    assert set(leaving(line("progress", data=output))) == {"data.output", "data.fullOutput"}


def test_callers_that_read_get_the_strings_and_so_do_lines_that_were_edited_before() -> None:
    entry = line("progress", data={"normalizedMessages": [{"text": "a"}, {"text": LONG}]})
    found = {format_path(value.path): value.text for value in values(entry, 1)}
    assert found == {
        "data.normalizedMessages[0].text": "a",
        "data.normalizedMessages[1].text": LONG,
    }
    entry["data"]["normalizedMessages"][0]["text"] = "[[extracted-u1]]"
    assert set(leaving(entry)) == {"data.normalizedMessages[1].text"}
    entry["data"]["normalizedMessages"] = "[[extracted-u1]]"
    assert [value.text for value in values(entry, 1)] == ["[[extracted-u1]]"]


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        (
            attachment("hook_success", stdout=LONG, stderr=LONG, content=LONG),
            "stdout stderr content",
        ),
        (attachment("hook_success", "UserPromptSubmit", stdout=LONG, content=LONG), "stdout"),
        (attachment("hook_success", "SessionStart", stdout=LONG, content=LONG), "stdout"),
        (attachment("hook_non_blocking_error", stdout="", stderr=LONG), "stderr"),
        (attachment("hook_error_during_execution", "Stop", content=LONG), "content"),
        (attachment("hook_system_message", content=LONG), "content"),
        (
            attachment("async_hook_response", stdout=LONG, response={"systemMessage": LONG}),
            "stdout",
        ),
        # Claude Code compares it with that of the next run of the hook.
        (attachment("hook_non_blocking_error", "SessionStart", stderr=LONG), ""),
        (attachment("hook_additional_context", content=[LONG]), ""),
        (attachment("hook_blocking_error", blockingError={"blockingError": LONG}), ""),
        (attachment("hook_stopped_continuation", message=LONG), ""),
        (attachment("file", filename="a.md", content={"file": {"content": LONG}}), ""),
        (attachment("prompt_snapshot", systemPrompt=[LONG]), ""),
        (attachment("skill_listing", content=LONG), ""),
        (attachment("a new one", stdout=LONG), ""),
        (line("attachment", attachment=LONG), ""),
        (line("attachment", attachment={"type": ["hook_success"], "stdout": LONG}), ""),
    ],
)
def test_of_attachments_only_the_output_of_hooks_leaves(entry: dict[str, Any], keys: str) -> None:
    assert leaving(entry) == {f"attachment.{key}": Shape.TEXT for key in keys.split()}


def test_of_records_of_requests_the_content_leaves_as_one_value() -> None:
    assert leaving(SHAPE) == {"shape": Shape.WHOLE}
    assert leaving(BLOB) == {"message.content": Shape.WHOLE}
    text = {"role": "user", "content": LONG}
    assert leaving(BLOB | {"message": text}) == {"message.content": Shape.TEXT}
    assert leaving(BLOB | {"message": LONG}) == {}
    assert leaving(REQUEST) == {"tail": Shape.WHOLE}
    assert leaving(record("api-request-resumed", message=SHORT)) == {}
    assert leaving(record("cost-state", shape=SHORT)) == {}


@pytest.mark.parametrize("entry", [SHAPE, BLOB, REQUEST], ids=lambda entry: entry["type"])
def test_a_record_has_one_id_before_and_after_its_content_left(entry: dict[str, Any]) -> None:
    info = CLAUDE_CODE.info(entry)
    assert info.id is not None
    assert (info.kind, info.is_note, info.is_message) == (entry["type"], True, False)
    lean: dict[str, Any] = {**json.loads(json.dumps(entry)), "_extracted": {}, "_restored": "now"}
    [[*above, last]] = [value.path for value in values(entry)]
    holder = lean
    for step in above:
        holder = holder[str(step)]
    holder[str(last)] = f"[[extracted-{info.id}]]"
    assert CLAUDE_CODE.info(lean).id == info.id
    assert CLAUDE_CODE.info(entry | {"sessionId": "another"}).id == info.id, "as in a fork"
    for key in {"shapeHash", "hash", "id"} & entry.keys():
        assert CLAUDE_CODE.info(entry | {key: "another"}).id != info.id
    found = made_of(info.id)
    assert found is not None
    assert found.search(json.dumps(lean).encode())
    others = [one for one in (SHAPE, BLOB, REQUEST) if one is not entry]
    assert not any(found.search(json.dumps(one).encode()) for one in others)


def test_a_record_without_a_hash_has_no_id_and_other_lines_keep_theirs() -> None:
    assert record_id(record("api-request-blob", message=SHORT)) is None
    assert CLAUDE_CODE.info(record("cost-state", hash="a0")).id is None
    assert CLAUDE_CODE.info(record("api-request-blob", hash="a0", uuid="u1")).id == "u1"
    assert made_of("0f8f3a52-9a3f-4be0-8a5c-111111111111") is None
    assert CLAUDE_CODE.made_of("cost-state.a0") is None
