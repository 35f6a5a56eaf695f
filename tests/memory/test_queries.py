"""No query that runs by the clock, or for each call, reads the whole table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from bsd.memory.database import Database
from bsd.memory.facts import Memory
from tests.memory.memories import DAY, Clock, store

# Those that look at everything, and are meant to.
_ALL = ("GROUP BY", "rowid > ?")


@pytest.fixture
def plans(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What SQLite plans for every statement about facts from now on."""
    store(memory, "harbour", entity="x")
    found: list[tuple[str, str]] = []

    def explaining(name: str) -> None:
        original = getattr(Database, name)

        def explained(self: Database, sql: str, parameters: Sequence[Any] = ()) -> Any:
            if re.match(r"\s*(SELECT|UPDATE|DELETE)\b.*\bfacts\b", sql, re.DOTALL):
                plan = self._db.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
                found.extend((sql, row["detail"]) for row in plan)
            return original(self, sql, parameters)

        monkeypatch.setattr(Database, name, explained)

    for name in ("all", "one", "value", "run"):
        explaining(name)
    return found


def test_each_query_has_its_index(
    memory: Memory, plans: list[tuple[str, str]], clock: Clock
) -> None:
    fact = store(memory, "right now", entity="x", key="y")
    memory.recall("harbour now")
    memory.lookup("x")
    memory.lookup("x", "y")
    memory.confirm(fact.id)
    memory.forget(fact.id)
    memory.save_checkpoint("a", "b")
    memory.restore_checkpoint()
    clock.now += 80 * DAY
    memory.prune(dry_run=True)
    memory.prune()
    memory.backfill()
    memory.stats()
    assert len(plans) > 40
    whole = {
        sql
        for sql, detail in plans
        # an index of words, and lists that were passed, are scanned as they should be
        if re.match(r"SCAN facts(?! VIRTUAL)\b(?!_fts)", detail)
        and "COVERING INDEX" not in detail
        and not any(word in sql for word in _ALL)
    }
    assert whole == set()
    # what is faint is fewer still, so its own index is as good
    by_age = [(sql, detail) for sql, detail in plans if ":until" in sql]
    assert by_age
    for sql, detail in by_age:
        faint = "WHERE confidence < 0.1" in sql and "bsd_facts_faint" in detail
        assert faint or "USING INDEX bsd_facts_fading" in detail, sql
    classes = {sql for sql, detail in plans if "idx_facts_decay" in detail}
    assert all("GROUP BY" in sql for sql in classes), "each class is large"
