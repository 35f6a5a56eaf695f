"""Sessions as people have them: long, with children, old, hostile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bsd.sample import session_lines
from tests.openclaw_tree import add_session, set_idle

NEEDLE = "xylophonic"  # occurs only deep in a value that gets extracted
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
_DAYS = 3 * 24 * 3600.0
_STAMP = re.compile(rb'"timestamp": ?"([^"]+)"')


def fill_root(root: Path) -> None:
    """Make all of them."""
    add_session(root, "main/harbour", recent(_with_needle(session_lines(turns=30, seed=1))))
    add_session(root, "main/tides", recent(session_lines(turns=6, seed=2)))
    add_session(root, "main/hostile", recent([hostile_session()]))
    add_session(root, "research/berths", recent(session_lines(turns=10, seed=3)))
    add_session(root, "research/live", recent(session_lines(turns=2, seed=4)))
    old = add_session(root, "research/last-week", short_session())
    set_idle(old, _DAYS)
    listed: dict[str, Any] = {
        "agent:main:harbour-master": {
            "sessionId": "harbour",
            "status": "done",
            "displayName": "The harbour master",
        },
        "agent:main:subagent:tides": {"sessionId": "tides", "parentSessionId": "harbour"},
        f"agent:main:{HOSTILE}": {"sessionId": "hostile", "status": HOSTILE},
    }
    (root / "agents" / "main" / "sessions" / "sessions.json").write_text(json.dumps(listed))


def recent(lines: Iterable[bytes], ago: timedelta = timedelta(hours=1)) -> bytes:
    """The lines, dated so that the last was written this long ago."""
    raw = b"".join(lines)
    times = [datetime.fromisoformat(found[1].decode()) for found in _STAMP.finditer(raw)]
    later = datetime.now(UTC) - ago - max(times)

    def shifted(found: re.Match[bytes]) -> bytes:
        time = datetime.fromisoformat(found[1].decode()) + later
        return b'"timestamp":"%b"' % time.isoformat(timespec="milliseconds").encode()

    return _STAMP.sub(shifted, raw)


def message(id: str, role: str, *content: dict[str, Any], **more: Any) -> bytes:
    """A line of a session."""
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
    """A session from which no value was extracted."""
    header = b'{"type":"session","version":3,"id":"short"}\n'
    return header + message("s1", "user", text("Good morning."))


def append_turn(path: Path, word: str) -> None:
    """Append an agent's turn to its session; the session is idle at once."""
    with path.open("ab") as file:
        asked = message(f"{word}-ask", "user", text(f"Please look after {word}."))
        answer = text(f"I have looked after {word}.")
        done = message(f"{word}-done", "assistant", answer, stopReason="stop")
        file.write(recent([asked, done], timedelta()))
    set_idle(path)


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
