"""What an agent is about to do: saved, and given back as it was."""

from __future__ import annotations

import json

import pytest

from bsd.foundation.errors import Invalid
from bsd.memory.facts import Memory
from tests.memory.memories import HOUR, NOW, Clock, change


def test_a_checkpoint_comes_back_as_it_was_saved(memory: Memory, clock: Clock) -> None:
    assert memory.restore_checkpoint() is None
    clock.now += 0.25
    fact = memory.save_checkpoint(
        "rename " + "x" * 200,
        "half done",
        expected_outcome="all green",
        working_files=["a.py", "b.py"],
    )
    said = {
        "intent": "rename " + "x" * 200,
        "state": "half done",
        "expectedOutcome": "all green",
        "workingFiles": ["a.py", "b.py"],
        "savedAt": "2027-01-15T08:00:00.250Z",
    }
    assert json.loads(fact.text) == said
    assert (fact.entity, fact.key) == ("system", f"checkpoint:{NOW * 1000 + 250}")
    assert fact.value == ("rename " + "x" * 200)[:100]
    assert (fact.decay_class, fact.importance, fact.category) == ("checkpoint", 0.9, "other")
    assert memory.restore_checkpoint() == {
        "id": fact.id,
        **said,
        "expires_at": NOW + 4 * HOUR,
    }
    clock.now = NOW + 4 * HOUR
    assert memory.restore_checkpoint() is None


def test_of_several_checkpoints_in_one_second_the_last_counts(memory: Memory) -> None:
    for number in range(5):  # in the same millisecond, even
        memory.save_checkpoint(f"intent {number}", "same")
    change(memory.path, "DELETE FROM facts WHERE value = 'intent 4'")
    memory.save_checkpoint("the last", "same")
    found = memory.restore_checkpoint()
    assert found is not None
    assert found["intent"] == "the last"


def test_a_checkpoint_needs_something_to_say(memory: Memory) -> None:
    with pytest.raises(Invalid, match="an intent and a state"):
        memory.save_checkpoint("x", " ")


def test_a_checkpoint_by_another_hand_is_shown_as_it_is(memory: Memory) -> None:
    memory.save_checkpoint("x", "y")
    change(memory.path, "UPDATE facts SET text = 'not JSON'")
    found = memory.restore_checkpoint()
    assert found is not None
    assert found["text"] == "not JSON"
