"""A session as GitHub Copilot CLI writes it, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.transcripts.agents.sources.tree import LONG, Kind

_DIRECTORY = "3632aadd-f535-4e73-9913-4133c613d534"


def copilot_event(number: int, kind: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An event after the event of the preceding number."""
    return {
        "type": kind,
        "data": data,
        **more,
        "id": _id(number),
        "timestamp": f"2025-12-01T10:{number // 60:02}:{number % 60:02}.000Z",
        "parentId": _id(number - 1) if number else None,
    }


def copilot_header(version: int = 1, **more: Any) -> dict[str, Any]:
    data = {"sessionId": _DIRECTORY, "version": version, "producer": "copilot-agent", **more}
    data |= {"copilotVersion": "1.0.102", "context": {"cwd": "/home/me/project"}}
    return copilot_event(0, "session.start", data)


def copilot_prompt(number: int, text: str, **more: Any) -> dict[str, Any]:
    sent = f"<current_datetime>now</current_datetime>\n\n{text}"
    return copilot_event(
        number, "user.message", {"content": text, "transformedContent": sent, **more}
    )


def copilot_answer(number: int, text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"model": "claude-sonnet-4.5", "content": text, "toolRequests": [*calls], **more}
    return copilot_event(number, "assistant.message", data)


def copilot_call(name: str, call: str, arguments: Any) -> dict[str, Any]:
    return {"toolCallId": call, "name": name, "arguments": arguments, "type": "function"}


def copilot_result(number: int, call: str, **more: Any) -> dict[str, Any]:
    result = {"content": LONG, "detailedContent": f"diff\n{LONG}"}
    telemetry = {"properties": {"command": "view"}, "metrics": {"resultLength": 9}}
    data = {"toolCallId": call, "success": True, "result": result, "toolTelemetry": telemetry}
    return copilot_event(number, "tool.execution_complete", data | more)


def copilot_turn(first: int) -> list[dict[str, Any]]:
    writes = copilot_call("write_file", f"toolu_{first}", {"path": "/p/a.txt", "text": LONG})
    reads = copilot_call("view", f"toolu_{first}r", {"path": "/p/b.txt"})
    thinking = {"type": "thinking", "thinking": LONG, "signature": "c2ln" * 20}
    thought = {"reasoningText": LONG, "reasoningBlocks": {"provider": "p", "blocks": [thinking]}}
    usage = {"model": "claude-sonnet-4.5", "inputTokens": 23, "outputTokens": 2}
    usage |= {"cacheReadTokens": 20, "cacheWriteTokens": 0, "isByok": True}
    started = {"toolCallId": writes["toolCallId"], "toolName": "write_file"}
    started["arguments"] = writes["arguments"]
    return [
        copilot_prompt(first, "do it"),
        copilot_event(first + 1, "session.usage_record", {"usage": usage}),
        copilot_answer(first + 2, "I write.", writes, reads, **thought),
        copilot_event(first + 3, "tool.execution_start", started),
        copilot_result(first + 4, writes["toolCallId"]),
        copilot_result(first + 5, reads["toolCallId"]),
        copilot_answer(first + 6, "It is done."),
    ]


def copilot_lines(turns: int = 3) -> list[dict[str, Any]]:
    system = {"role": "system", "content": LONG}
    end = turns * 7 + 2
    return [
        copilot_header(),
        copilot_event(1, "system.message", system),
        *(line for turn in range(turns) for line in copilot_turn(turn * 7 + 2)),
        copilot_event(end, "session.shutdown", {"shutdownType": "routine"}),
    ]


def copilot_reads(content: bytes) -> list[dict[str, Any]]:
    """Read a session line by line, as the program does, and check it.

    The program itself does so under tests/compat.
    """
    entries = [json.loads(line) for line in content.splitlines()]
    assert entries[0]["type"] == "session.start"
    asked: set[str] = set()
    messages = []
    for entry in entries:
        data = entry["data"]
        match entry["type"]:
            case "user.message":
                assert "[[extracted-" not in data["content"], "summaries repeat it"
                messages.append({"role": "user", "content": data["transformedContent"]})
            case "assistant.message":
                assert "[[extracted-" not in json.dumps(data.get("reasoningBlocks"))
                for call in data["toolRequests"]:
                    assert isinstance(call["arguments"], dict)
                    asked.add(call["toolCallId"])
                message = {key: data[key] for key in ("content", "toolRequests")}
                messages.append({"role": "assistant", **message})
            case "tool.execution_complete":
                assert data["toolCallId"] in asked, "a result without a call"
                assert isinstance(data["toolTelemetry"], dict)
                messages.append({"role": "tool", "content": data["result"]["content"]})
    return messages


def _id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


COPILOT = Kind(
    kind="copilot",
    sessions=".copilot/session-state",
    directory=_DIRECTORY,
    session="events",
    lines=copilot_lines,
    recorded="copilot-*.jsonl",
    reads=copilot_reads,
    is_alone=True,
)
