"""What counts as the same fact again, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bsd.memory.facts import Memory
from bsd.memory.new_fact import NewFact
from tests.memory.memories import Clock, rows, store

FACT: dict[str, Any] = {"entity": "Ada", "key": "drink", "value": "tea"}


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "facts.db", clock=Clock())


@pytest.mark.parametrize("name", list(FACT))
@pytest.mark.parametrize("other", ["other", "", None])
def test_another_entity_key_or_value_is_another_fact(
    name: str, other: str | None, memory: Memory
) -> None:
    with memory:
        first = store(memory, "Ada likes tea", **FACT)
        second = store(memory, "Ada likes tea", **{**FACT, name: other})
        assert first.id != second.id
        assert not memory.store(NewFact("ada  likes TEA", **FACT)).created
        assert memory.store(NewFact("Ada likes coffee", **FACT)).created


def test_nothing_and_an_empty_text_say_the_same(memory: Memory) -> None:
    with memory:
        store(memory, "Ada likes tea", entity="")
        assert not memory.store(NewFact("Ada likes tea", key="")).created


def test_a_class_that_is_named_is_the_facts_from_then_on(memory: Memory) -> None:
    with memory:
        first = store(memory, "Ada likes tea", decay_class="session", **FACT)
        again = memory.store(NewFact("Ada likes tea", decay_class="permanent", **FACT))
        assert (again.created, again.fact.id) == (False, first.id)
        assert (again.fact.decay_class, again.fact.expires_at) == ("permanent", None)
        unnamed = memory.store(NewFact("Ada likes tea", **FACT))
        assert unnamed.fact == again.fact
    kept = rows(memory.path, "SELECT decay_class, expires_at FROM facts")
    assert kept == [("permanent", None)]
