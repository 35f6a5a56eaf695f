"""Sessions to be searched, and the index of words, brought up to date as by whoever searches."""

from __future__ import annotations

from typing import Any

from bsd.care.search import search
from bsd.foundation.layout import Layout


def read_all(layout: Layout) -> None:
    """Read what is new in all sessions, statistics included."""
    search(layout, "anything")


def entry(number: int, role: str, text: str, day: int = 1, **more: Any) -> dict[str, Any]:
    """A message of a minute of this day in February; `more` is the message's."""
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}], **more}
    if role == "toolResult":
        message |= {"toolCallId": f"call{number}", "toolName": "read"}
    return {
        "type": "message",
        "id": f"e{number}",
        "timestamp": f"2026-02-{day:02}T00:{number % 60:02}:00Z",
        "message": message,
    }
