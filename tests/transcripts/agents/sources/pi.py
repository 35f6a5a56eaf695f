"""A session as pi writes it for itself, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.pictures import PNG
from tests.transcripts.agents.sources.tree import LONG, Kind


def pi_turn(first: int) -> list[dict[str, Any]]:
    call, read = f"toolu_{first}", f"toolu_{first}p"
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    thinking = {"type": "thinking", "thinking": LONG, "thinkingSignature": "cGlz" * 50}
    calls = [
        {"type": "toolCall", "id": call, "name": "write", "arguments": {"text": LONG}},
        {"type": "toolCall", "id": read, "name": "read", "arguments": {"path": "p.png"}},
    ]
    result = {"role": "toolResult", "toolName": "write", "isError": False}
    text = {"type": "text", "text": LONG}
    by = {"model": "claude-opus-4-6", "usage": {"input": 3}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "do it"}]},
        {"role": "assistant", "content": [thinking, *calls], "stopReason": "toolUse", **by},
        {**result, "toolCallId": call, "content": [text], "details": {"diff": LONG}},
        {**result, "toolCallId": read, "content": [picture]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "stopReason": "stop"},
    ]
    return [pi_entry(first + number, "message", message=one) for number, one in enumerate(messages)]


def pi_entry(number: int, kind: str, **more: Any) -> dict[str, Any]:
    time = f"2025-12-01T10:{number // 60:02}:{number % 60:02}.000Z"
    parent = f"{number - 1:08x}" if number else None
    return {"type": kind, "id": f"{number:08x}", "parentId": parent, "timestamp": time, **more}


def pi_lines(turns: int = 3) -> list[dict[str, Any]]:
    header = {"type": "session", "version": 3, "id": PI.session[-36:], "cwd": "/p"}
    system = {"role": "system", "content": [{"type": "text", "text": LONG}]}
    edit = {"targetId": "00000003", "replacement": {"content": LONG}}
    end = turns * 5 + 1
    return [
        {**header, "timestamp": "2025-12-01T10:00:00.000Z"},
        pi_entry(0, "message", message=system),
        *(line for turn in range(turns) for line in pi_turn(turn * 5 + 1)),
        pi_entry(end, "context_edit", **edit),
        pi_entry(end + 1, "usage", usage={"note": LONG}),
    ]


def pi_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session by its tree, as pi does, and check what a provider would refuse.

    pi itself does so under tests/compat.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    assert entries[0]["type"] == "session"
    known: set[str | None] = {None}
    asked: set[str] = set()
    messages = []
    for entry in entries[1:]:
        assert entry["parentId"] in known, "an orphan"
        known.add(entry["id"])
        if entry["type"] != "message":
            continue
        message = entry["message"]
        messages.append(message)
        assert message["role"] != "system" or "[[extracted-" not in json.dumps(message)
        if message["role"] == "toolResult":
            assert message["toolCallId"] in asked, "a result without a call"
        for block in message["content"]:
            match block["type"]:
                case "text":
                    assert block["text"]
                case "image":
                    assert "[[" not in block["data"]
                case "toolCall":
                    assert isinstance(block["arguments"], dict)
                    asked.add(block["id"])
                case "thinking":
                    away = "[[extracted-" in block["thinking"]
                    assert away is not ("thinkingSignature" in block)
    return messages


PI = Kind(
    kind="pi",
    sessions=".pi/agent/sessions",
    directory="--home-me-my project--",
    session="2025-12-01T10-00-00-000Z_01997e76-d124-7592-9cac-2ec05abbca08",
    lines=pi_lines,
    recorded="openclaw-v3-medium.jsonl",
    reads=pi_reads,
)
