"""A memory on a real file with a clock of its own, and direct access to its database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.memory import actions
from bsd.memory.facts import Fact
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z
HOUR, DAY = 3600, 86_400


@dataclass
class Clock:
    """Time that passes only when a test advances it."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def store(memory: Memory, text: str, **fields: Any) -> Fact:
    """Keep a fact that was not there."""
    stored = actions.store(memory, NewFact(text, **fields))
    assert stored.created
    return actions.get(memory, stored.id)


def rows(path: Path, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    """Query the database directly, past the library."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql, tuple(parameters)).fetchall()


def change(path: Path, sql: str, parameters: Iterable[Any] = ()) -> None:
    """Change the database directly, past the library."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(sql, tuple(parameters))


def sound(path: Path) -> None:
    """The database and its index of words are whole."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.execute("INSERT INTO facts_fts (facts_fts, rank) VALUES ('integrity-check', 1)")


def texts(path: Path) -> set[str]:
    return {text for (text,) in rows(path, "SELECT text FROM facts")}
