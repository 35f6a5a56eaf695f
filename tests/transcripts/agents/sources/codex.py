"""A thread as Codex writes it, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.pictures import PNG
from tests.transcripts.agents.sources.tree import LONG, Kind


def codex_line(number: int, kind: str, **payload: Any) -> dict[str, Any]:
    time = f"2025-09-25T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.083Z"
    return {"timestamp": time, "type": kind, "payload": payload}


def codex_meta(**more: Any) -> dict[str, Any]:
    thread = CODEX.session[-36:]
    return codex_line(0, "session_meta", id=thread, cli_version="0.169.0", cwd="/p", **more)


def codex_turn(first: int) -> list[dict[str, Any]]:
    """A prompt with a picture, two calls with results and their displayed forms, the answer."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + PNG}
    text = {"type": "input_text", "text": LONG}
    arguments = json.dumps({"command": ["bash", "-lc", LONG]})
    shell, patch = f"call_{first}", f"call_{first}p"
    item = "response_item"
    made: list[tuple[str, dict[str, Any]]] = [
        ("event_msg", {"type": "task_started", "turn_id": "t"}),
        (item, {"type": "message", "role": "user", "content": [text, picture]}),
        ("event_msg", {"type": "user_message", "message": LONG, "images": ["data:," + LONG]}),
        ("turn_context", {"cwd": "/p", "model": "gpt-5-codex", "user_instructions": LONG}),
        ("event_msg", {"type": "agent_reasoning", "text": LONG}),
        (item, {"type": "reasoning", "summary": [], "encrypted_content": "gAAA" * 200}),
        (
            item,
            {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": shell},
        ),
        (
            "event_msg",
            {"type": "exec_command_end", "call_id": shell, "stdout": LONG, "command": [LONG]},
        ),
        (item, {"type": "function_call_output", "call_id": shell, "output": LONG}),
        (
            item,
            {"type": "custom_tool_call", "name": "apply_patch", "input": LONG, "call_id": patch},
        ),
        (
            item,
            {"type": "custom_tool_call_output", "call_id": patch, "output": [text, picture]},
        ),
        ("event_msg", {"type": "agent_message", "message": "done"}),
        ("event_msg", {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 3}}}),
        (
            item,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "done"}],
            },
        ),
        ("event_msg", {"type": "task_complete", "turn_id": "t"}),
    ]
    return [codex_line(first + number, kind, **made) for number, (kind, made) in enumerate(made)]


def codex_lines(turns: int = 3) -> list[dict[str, Any]]:
    return [codex_meta(), *(line for turn in range(turns) for line in codex_turn(turn * 20 + 1))]


def codex_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a thread as strictly as its program and the provider behind it would.

    Codex skips a line that it cannot read, so every line must be readable.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    assert entries[0]["type"] == "session_meta"
    asked: set[str] = set()
    items = []
    for entry in entries:
        assert entry["timestamp"]
        payload = entry["payload"]
        assert isinstance(payload, dict)
        if entry["type"] != "response_item":
            continue
        match payload["type"]:
            case "function_call":
                assert isinstance(json.loads(payload["arguments"]), dict)
                asked.add(payload["call_id"])
            case "custom_tool_call":
                assert isinstance(payload["input"], str)
                asked.add(payload["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                assert payload["call_id"] in asked, "a result without a call"
                _check_blocks(payload["output"])
            case "message":
                _check_blocks(payload["content"])
            case "reasoning":
                assert "[[extracted-" not in json.dumps(payload)
        items.append(payload)
    return items


def _check_blocks(blocks: Any) -> None:
    if isinstance(blocks, str):
        assert blocks
        return
    for block in blocks:
        assert block["type"] in ("input_text", "output_text", "input_image")
        if block["type"] == "input_image":
            assert block["image_url"].startswith("data:")
        else:
            assert block["text"]


CODEX = Kind(
    kind="codex",
    sessions=".codex/sessions",
    directory="2025/09/24",
    session="rollout-2025-09-24T18-22-20-01997e76-d124-7592-9cac-2ec05abbca08",
    lines=codex_lines,
    recorded="codex-rollout*.jsonl",
    reads=codex_reads,
)
