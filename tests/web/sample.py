"""Sessions as a person would find them: long ones, children, old ones, hostile ones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsd.sample import session_lines
from tests.openclaw_tree import add_session, set_at_rest

NEEDLE = "xylophonic"  # stands only deep in a value that gets extracted
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
_DAYS = 3 * 24 * 3600.0


def fill_root(root: Path) -> None:
    """Make all of them."""
    add_session(root, "main/harbour", b"".join(_with_needle(session_lines(turns=30, seed=1))))
    add_session(root, "main/tides", b"".join(session_lines(turns=6, seed=2)))
    add_session(root, "main/hostile", hostile_session())
    add_session(root, "research/berths", b"".join(session_lines(turns=10, seed=3)))
    add_session(root, "research/live", b"".join(session_lines(turns=2, seed=4)))
    old = add_session(root, "research/last-week", short_session())
    then = time.time() - _DAYS
    os.utime(old, (then, then))
    listed: dict[str, Any] = {
        "agent:main:harbour-master": {"sessionId": "harbour", "status": "done"},
        "agent:main:subagent:tides": {"sessionId": "tides", "parentSessionId": "harbour"},
        f"agent:main:{HOSTILE}": {"sessionId": "hostile", "status": HOSTILE},
    }
    (root / "agents" / "main" / "sessions" / "sessions.json").write_text(json.dumps(listed))


def message(id: str, role: str, *content: dict[str, Any], **more: Any) -> bytes:
    """One line of a session."""
    entry = {
        "type": "message",
        "id": id,
        "timestamp": "2026-01-05T09:00:00.000Z",
        "message": {"role": role, "content": list(content), **more},
    }
    return json.dumps(entry).encode() + b"\n"


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def hostile_session() -> bytes:
    """Markup wherever a transcript can hold text."""
    call = {"type": "toolCall", "id": "c1", "name": HOSTILE, "arguments": {"a": HOSTILE}}
    lines = [
        b'{"type":"session","version":3,"id":"hostile"}\n',
        message("h1", "user", text(HOSTILE)),
        message("h2", "assistant", call, text(HOSTILE), model=HOSTILE),
        message("h3", "toolResult", text(HOSTILE * 20), toolCallId="c1", toolName=HOSTILE),
        *(message(f"h{4 + at}", "user", text(f"{at}: {HOSTILE}")) for at in range(6)),
        message("h10", "assistant", text("Done."), model="m", stopReason="stop"),
    ]
    return b"".join(lines)


def short_session() -> bytes:
    """One of which nothing is extracted."""
    header = b'{"type":"session","version":3,"id":"short"}\n'
    return header + message("s1", "user", text("Good morning."))


def append_turn(path: Path, word: str) -> None:
    """What an agent adds to its session; it is at rest at once."""
    with path.open("ab") as file:
        file.write(message(f"{word}-ask", "user", text(f"Please look after {word}.")))
        answer = text(f"I have looked after {word}.")
        file.write(message(f"{word}-done", "assistant", answer, stopReason="stop"))
    set_at_rest(path)


def _with_needle(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Put the needle into the middle of the first long result of a tool."""
    placed = False
    for line in lines:
        entry = json.loads(line)
        content = entry.get("message", {}).get("content")
        if not placed and isinstance(content, list) and entry["message"]["role"] == "toolResult":
            block = content[0]
            if block.get("type") == "text" and len(block["text"]) > 2000:
                middle = len(block["text"]) // 2
                block["text"] = f"{block['text'][:middle]} {NEEDLE} {block['text'][middle:]}"
                placed = True
                yield json.dumps(entry).encode() + b"\n"
                continue
        yield line
    assert placed
