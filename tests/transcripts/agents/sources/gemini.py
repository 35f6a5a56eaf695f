"""A session as Gemini CLI writes it, and a model of how it is read."""

from __future__ import annotations

import json
from typing import Any

from tests.transcripts.agents.sources.tree import LONG, Kind

Line = dict[str, Any]

SESSION_ID = "4b1f0c37-5d0a-4f5e-9a53-0c6a8f2d9e11"
_CONTEXT = (
    "<session_context>\n- **Workspace Directories:**\n  - /home/me/project\n</session_context>"
)


def gemini_time(number: int) -> str:
    return f"2025-12-01T10:{number // 60:02}:{number % 60:02}.000Z"


def gemini_line(
    number: int, kind: str, content: Any, message: int | None = None, **more: Any
) -> Line:
    """A message; `message`: the number of the line that it replaces."""
    first = number if message is None else message
    own = f"00000000-0000-4000-8000-{first:012}"
    return {"id": own, "timestamp": gemini_time(first), "type": kind, "content": content, **more}


def gemini_header(number: int = 0) -> Line:
    times = {"startTime": gemini_time(number), "lastUpdated": gemini_time(number)}
    return {"sessionId": SESSION_ID, "projectHash": "0" * 64, **times, "kind": "main"}


def gemini_copy(number: int, messages: list[Line]) -> Line:
    """The line that replaces all messages before it."""
    return {"$set": {"messages": messages, "lastUpdated": gemini_time(number)}}


def gemini_result(call: Line, output: str) -> list[Line]:
    return [{"functionResponse": {**call, "response": {"output": output}}}]


def gemini_call(number: int, name: str, args: Line) -> list[Line]:
    """Return a message that makes a call, the same with the result, and the user's message."""
    call = {"id": f"call_{number}", "name": name}
    result, usage = gemini_result(call, LONG), {"input": 3, "output": 2, "cached": 0, "total": 5}
    by = {"model": "gemini-3-pro", "tokens": usage if name == "write_file" else None}
    thought = {"subject": "Doing", "description": LONG, "timestamp": gemini_time(number)}
    display = {"fileName": "a.txt", "fileDiff": LONG} if name == "write_file" else LONG
    done = {**call, "args": args, "result": result, "status": "success", "resultDisplay": display}
    shown: Line = {"thoughts": [thought], **by}
    return [
        gemini_line(number, "gemini", "", **shown),
        gemini_line(number + 1, "gemini", "", number, **shown, toolCalls=[done]),
        gemini_line(number + 2, "user", result),
    ]


def gemini_turn(first: int) -> list[Line]:
    return [
        gemini_line(first, "user", [{"text": "do it"}]),
        {"$set": {"lastUpdated": gemini_time(first)}},
        *gemini_call(first + 2, "write_file", {"file_path": "/p/a.txt", "content": LONG}),
        *gemini_call(first + 5, "read_file", {"file_path": "/p/b.txt"}),
        gemini_line(first + 8, "gemini", "It is done.", model="gemini-3-pro", tokens=None),
    ]


def gemini_lines(turns: int = 3) -> list[Line]:
    context = gemini_line(0, "user", [{"text": _CONTEXT}])
    return [
        gemini_header(),
        gemini_copy(0, [context]),
        *(line for turn in range(turns) for line in gemini_turn(turn * 9 + 1)),
    ]


def gemini_reads(content: bytes) -> list[Line]:
    """Read a session as Gemini CLI does, and check it.

    The program itself does so under tests/compat.
    """
    messages: dict[str, Line] = {}
    for line in map(json.loads, content.splitlines()):
        if "$rewindTo" in line:
            ids = list(messages)
            from_ = ids.index(line["$rewindTo"]) if line["$rewindTo"] in ids else 0
            for one in ids[from_:]:
                del messages[one]
        elif "id" in line:
            messages[line["id"]] = line
        elif isinstance(line.get("$set", {}).get("messages"), list):
            messages = {one["id"]: one for one in line["$set"]["messages"]}
    for message in messages.values():
        assert "[[extracted-" not in json.dumps(message.get("thoughts", []))
        for call in message.get("toolCalls", ()):
            assert isinstance(call["args"], dict)
            assert isinstance(call["result"][0]["functionResponse"]["response"], dict)
    return list(messages.values())


GEMINI = Kind(
    kind="gemini",
    sessions=".gemini/tmp",
    directory="project/chats",
    session=f"session-2025-12-01T10-00-{SESSION_ID[:8]}",
    lines=gemini_lines,
    recorded="gemini-*.jsonl",
    reads=gemini_reads,
    below="chats",
)
