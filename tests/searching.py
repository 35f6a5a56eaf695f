"""Sessions for searches, and the index of words, brought up to date as a search does it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from bsd.core.layout import Layout
from bsd.maintenance.scan import FullScan
from bsd.maintenance.search import search
from bsd.store.search import SearchHit


def read_all(layout: Layout) -> None:
    """Read all new lines of all sessions, statistics included."""
    search(layout, "anything")


def everything(layout: Layout, words: str, **more: Any) -> list[SearchHit]:
    """The hits of a search through everything; `only`: through the lines that left one session."""
    failed: list[object] = []
    found = FullScan(layout, words, failed=lambda *what: failed.append(what), **more).run().hits
    assert not failed
    return found


def index_holds(layout: Layout, word: str) -> bool:
    """Whether the index has a word, whether or not a search finds a text for it."""
    with closing(sqlite3.connect(layout.search_db)) as database:
        query = "SELECT 1 FROM terms WHERE term = ? LIMIT 1"
        return database.execute(query, (word,)).fetchone() is not None


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
