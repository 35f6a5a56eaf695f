"""A session as Claude Code writes it, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.pictures import PNG
from tests.transcripts.agents.sources.tree import LONG, Kind


def claude_code_line(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {
            "model": "claude-opus-4-6",
            "id": f"msg_{number // 7}",
            "usage": {"input_tokens": 3},
        }
        message["stop_reason"] = more.pop("stop_reason", None)
    return {
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "isSidechain": False,
        "sessionId": CLAUDE_CODE.session,
        "version": "2.1.330",
        "type": kind,
        "message": message,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "timestamp": f"2026-02-11T21:{number // 60 % 60:02}:{number % 60:02}.049Z",
        **more,
    }


def claude_code_turn(first: int) -> list[dict[str, Any]]:
    """A prompt, a call, its result with a copy, a picture, and the answer that ends the turn."""
    thinking = {"type": "thinking", "thinking": LONG, "signature": "c2ln" * 200}
    call = {"type": "tool_use", "id": f"toolu_{first}", "name": "Write", "input": {"text": LONG}}
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture = {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{first}", "content": LONG}
    more = {"type": "tool_use", "id": f"toolu_{first}p", "name": "Read", "input": {"path": "p.png"}}
    shown = {"type": "tool_result", "tool_use_id": f"toolu_{first}p", "content": [picture]}
    line = claude_code_line
    return [
        line(first, "user", "do it"),
        line(first + 1, "assistant", [thinking]),
        line(first + 2, "assistant", [call], stop_reason="tool_use"),
        line(first + 3, "user", [result], toolUseResult={"stdout": LONG, "stderr": ""}),
        line(first + 4, "assistant", [more], stop_reason="tool_use"),
        line(first + 5, "user", [shown], toolUseResult={"file": {"base64": PNG}}),
        line(first + 6, "assistant", [{"type": "text", "text": "done"}], stop_reason="end_turn"),
    ]


def claude_code_lines(turns: int = 3) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"text": LONG}},
    ]
    return notes + [line for turn in range(turns) for line in claude_code_turn(turn * 7)]


def subagent_lines(calls: int = 5, agent: str = "a7be2f0c41d9") -> list[dict[str, Any]]:
    """A subagent's own file: a task, calls, results without copies, an answer."""
    line = claude_code_line
    lines = [line(0, "user", "Find out who calls it.")]
    for first in range(1, 2 * calls, 2):
        call = {"type": "tool_use", "id": f"toolu_{first}", "name": "Grep", "input": {"p": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{first}", "content": LONG * 2}
        lines.append(line(first, "assistant", [call], stop_reason="tool_use"))
        lines.append(line(first + 1, "user", [result]))
    answer = [{"type": "text", "text": LONG}]
    lines.append(line(2 * calls + 1, "assistant", answer, stop_reason="end_turn"))
    return [each | {"isSidechain": True, "agentId": agent} for each in lines]


def claude_code_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session as strictly as its program and the provider behind it would.

    A model of both, from known facts: the program itself is closed source.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    chain = [entry for entry in entries if entry.get("uuid")]
    known: set[str | None] = {None}
    asked: set[str] = set()
    messages = []
    for entry in chain:
        assert entry["parentUuid"] in known, "an orphan"
        known.add(entry["uuid"])
        if entry["type"] not in ("user", "assistant"):
            continue
        message = entry["message"]
        assert message["role"] == entry["type"]
        blocks = message["content"]
        if isinstance(blocks, str):
            assert blocks.strip()
            blocks = []
        else:
            assert blocks
        for block in blocks:
            _check_block(block, asked)
        copy = entry.get("toolUseResult")
        assert copy is None or isinstance(copy, (dict, list, str))
        assert not (isinstance(copy, str) and copy.startswith("[[extracted-"))
        messages.append(message)
    return messages


def _check_block(block: dict[str, Any], asked: set[str]) -> None:
    match block["type"]:
        case "text":
            assert block["text"]
        case "thinking":
            assert block["signature"]
            assert "[[extracted-" not in block["thinking"]
        case "tool_use":
            assert isinstance(block["input"], dict)
            asked.add(block["id"])
        case "tool_result":
            assert block["tool_use_id"] in asked, "a result without a call"
            inner = block["content"]
            for part in inner if isinstance(inner, list) else ():
                assert part["type"] in ("text", "image", "tool_reference")
                assert part["type"] != "text" or part["text"]
                assert part["type"] != "image" or "[[" not in part["source"]["data"]
        case other:
            raise AssertionError(other)


CLAUDE_CODE = Kind(
    kind="claude-code",
    sessions=".claude/projects",
    directory="-home-me-project",
    session="8463c716-a2ea-4c14-9efa-87158ebd9f20",
    lines=claude_code_lines,
    recorded="claude-code-*.jsonl",
    reads=claude_code_reads,
)
