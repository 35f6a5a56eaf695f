"""A session as Qwen Code writes it, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.transcripts.agents.sources.tree import LONG, Kind


def qwen_line(number: int, kind: str, **more: Any) -> dict[str, Any]:
    """A line after the line of the preceding number."""
    time = f"2025-12-01T10:{number // 60:02}:{number % 60:02}.000Z"
    parent = f"00000000-0000-4000-8000-{number - 1:012}" if number else None
    return {
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": parent,
        "sessionId": QWEN.session,
        "timestamp": time,
        "type": kind,
        "cwd": "/home/me/project",
        "version": "0.24.4",
        **more,
    }


def qwen_note(number: int, subtype: str, payload: dict[str, Any]) -> dict[str, Any]:
    return qwen_line(number, "system", subtype=subtype, systemPayload=payload)


def qwen_turn(first: int) -> list[dict[str, Any]]:
    writes = {"id": f"toolu_{first}", "name": "write_file"}
    reads = {"id": f"toolu_{first}p", "name": "read_file"}
    args = {"file_path": "/p/a.txt", "content": LONG}
    asks: list[dict[str, Any]] = [
        {"text": LONG, "thought": True, "thoughtSignature": "c2ln" * 20},
        {"functionCall": {**writes, "args": args}},
        {"functionCall": {**reads, "args": {"file_path": "/p/b.txt"}}},
    ]
    event = {"event.name": "qwen-code.tool_call", "call_id": writes["id"], "duration_ms": 19}
    event |= {"function_name": "write_file", "function_args": args, "prompt_id": "s########0"}
    shown = {"fileName": "a.txt", "originalContent": "", "newContent": LONG, "fileDiff": LONG}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    by = {"model": "qwen3-coder-plus", "usageMetadata": usage}
    return [
        qwen_line(first, "user", message=_message("user", {"text": "do it"})),
        qwen_note(first + 1, "attribution_snapshot", {"snapshot": {"promptCount": 1}}),
        qwen_line(first + 2, "assistant", message=_message("model", *asks), **by),
        qwen_note(first + 3, "ui_telemetry", {"uiEvent": event}),
        _result(first + 4, writes, shown),
        _result(first + 5, reads, LONG),
        qwen_line(first + 6, "assistant", message=_message("model", {"text": "It is done."})),
    ]


def _result(number: int, call: dict[str, Any], shown: Any) -> dict[str, Any]:
    answer = {"functionResponse": {**call, "response": {"output": LONG}}}
    result = {"callId": call["id"], "status": "success", "resultDisplay": shown}
    message = _message("user", answer)
    return qwen_line(number, "tool_result", message=message, toolCallResult=result)


def _message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [*parts]}


def qwen_lines(turns: int = 3) -> list[dict[str, Any]]:
    snapshot = {"snapshots": [{"promptId": "s########0", "note": LONG}]}
    end = turns * 7
    return [
        *(line for turn in range(turns) for line in qwen_turn(turn * 7)),
        qwen_note(end, "file_history_snapshot", snapshot),
    ]


def qwen_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session by its chain of parents, as Qwen Code does, and check it.

    The program itself does so under tests/compat.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    known: set[str | None] = {None}
    asked: set[str] = set()
    messages = []
    for entry in entries:
        assert entry["parentUuid"] in known, "an orphan"
        known.add(entry["uuid"])
        if entry["type"] == "system":
            assert isinstance(entry["systemPayload"], dict)
            continue
        messages.append(entry["message"])
        for part in entry["message"]["parts"]:
            if part.get("thought"):
                assert "[[extracted-" not in json.dumps(part)
            if call := part.get("functionCall"):
                assert isinstance(call["args"], dict)
                asked.add(call["id"])
            if result := part.get("functionResponse"):
                assert result["id"] in asked, "a result without a call"
                assert isinstance(result["response"], dict)
    return messages


QWEN = Kind(
    kind="qwen",
    sessions=".qwen/projects",
    directory="-home-me-project/chats",
    session="67ee9eff-d33d-4d31-a59c-310edf398dbd",
    lines=qwen_lines,
    recorded="qwen-*.jsonl",
    reads=qwen_reads,
    below="chats",
)
