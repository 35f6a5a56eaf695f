"""Sessions to search, and an index of words that is up to date as at a search."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from bsd.core.layout import Layout
from bsd.maintenance.scan import FullScan
from bsd.maintenance.search import search
from bsd.store.search import SearchHit


def read_all(layout: Layout) -> None:
    """Index the new content of all sessions, statistics included."""
    search(layout, "anything")


def everything(layout: Layout, words: str, **more: Any) -> list[SearchHit]:
    """Search everything and return the results; `only`: search the values that left one session."""
    failed: list[object] = []
    found = FullScan(layout, words, failed=lambda *what: failed.append(what), **more).run().hits
    assert not failed
    return found


def index_holds(layout: Layout, word: str) -> bool:
    """Return whether the index has a word, whether or not a search finds a text for it."""
    with closing(sqlite3.connect(layout.search_db)) as database:
        query = "SELECT 1 FROM terms WHERE term = ? LIMIT 1"
        return database.execute(query, (word,)).fetchone() is not None


def entry(number: int, role: str, text: str, day: int = 1, **more: Any) -> dict[str, Any]:
    """Return a message of a minute of this day in February; `more` are members of the message."""
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}], **more}
    if role == "toolResult":
        message |= {"toolCallId": f"call{number}", "toolName": "read"}
    return {
        "type": "message",
        "id": f"e{number}",
        "timestamp": f"2026-02-{day:02}T00:{number % 60:02}:00Z",
        "message": message,
    }
