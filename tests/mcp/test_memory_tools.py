"""The agent's tools for the memory, with the names, parameters and texts of the original plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import Forbidden, Invalid, NotFound
from bsd.mcp.arguments import read_arguments
from bsd.mcp.memory_tools import MemoryTools
from bsd.mcp.server import add_memory_tools
from bsd.mcp.tool_server import ToolServer
from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

NOW = 1_790_000_000
DAY = 86_400


@dataclass
class Desk:
    """Calls the tools."""

    path: Path
    now: int = NOW
    refresh: bool = True
    opened_to_write: list[bool] = field(default_factory=list)

    def memory(self) -> Memory:
        return Memory(self.path, clock=lambda: self.now)

    def open(self, writes: bool) -> Memory:
        if writes and not self.refresh:
            raise Forbidden("this bsd is read-only")
        self.opened_to_write.append(writes)
        return self.memory()

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        tool = getattr(MemoryTools(self.open, refresh=self.refresh), name)
        answer: dict[str, Any] = tool(**read_arguments(tool, arguments))
        return answer

    def store(self, text: str, **more: Any) -> str:
        return str(self.call("memory_store", text=text, **more)["fact"]["id"])

    def texts(self, name: str, **arguments: Any) -> list[str]:
        return [one["text"] for one in self.call(name, **arguments)["results"]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "memory" / "facts.db")


def test_a_fact_is_stored_with_all_that_is_said_of_it(desk: Desk) -> None:
    answer = desk.call(
        "memory_store",
        text="Ada likes\n tea",
        importance=0.9,
        category="preference",
        entity="Ada",
        key="drink",
        value="tea",
        decayClass="active",
        tags=["Kitchen", "taste"],
    )
    assert answer["message"] == 'Stored: "Ada likes tea" [entity: Ada] [decay: active]'
    assert answer["created"] is True
    with desk.memory() as memory:
        fact = actions.get(memory, answer["fact"]["id"])
    assert (fact.text, fact.importance, fact.category) == ("Ada likes\n tea", 0.9, "preference")
    assert (fact.entity, fact.key, fact.value, fact.tags) == (
        "Ada",
        "drink",
        "tea",
        "kitchen,taste",
    )
    assert fact.expires_at == NOW + 14 * DAY


def test_without_a_class_the_words_tell_it(desk: Desk) -> None:
    answer = desk.call("memory_store", text="We decided to use tabs")
    assert answer["message"] == 'Stored: "We decided to use tabs" [decay: permanent]'
    assert "entity" not in answer["fact"], "what is not known would only fill the context"


def test_the_same_again_is_not_stored(desk: Desk) -> None:
    id_ = desk.store("Ada likes tea")
    answer = desk.call("memory_store", text="ada  likes TEA ")
    assert answer["message"] == "Similar memory already exists."
    assert (answer["created"], answer["fact"]["id"]) == (False, id_)


def test_the_schema_names_the_classes_that_there_are(desk: Desk) -> None:
    server = ToolServer(choices={"decayClass": ["permanent", "ephemeral"]})
    add_memory_tools(server, MemoryTools(desk.open))
    (store, *_) = asyncio.run(server.list_tools())
    assert store.input_schema["properties"]["decayClass"]["enum"] == ["permanent", "ephemeral"]


def test_recall_by_words_id_entity_tag_and_moment(desk: Desk) -> None:
    old = desk.store("Ada drinks tea", entity="Ada", tags=["kitchen"])
    desk.store("Bob drinks tea", entity="Bob")
    desk.now += DAY
    desk.store("Ada drinks coffee", entity="Ada", supersedes=old)
    assert sorted(desk.texts("memory_recall", query="drinks")) == [
        "Ada drinks coffee",
        "Bob drinks tea",
    ]
    assert desk.texts("memory_recall", query="drinks", entity="ada") == ["Ada drinks coffee"]
    assert desk.texts("memory_recall", entity="ada") == ["Ada drinks coffee"]
    assert desk.texts("memory_recall", id=old) == ["Ada drinks tea"]
    assert len(desk.texts("memory_recall", query="drinks", limit=1)) == 1
    assert len(desk.texts("memory_recall", query="drinks", includeSuperseded=True)) == 3
    assert desk.texts("memory_recall", query="tea", tag="kitchen", includeSuperseded=True) == [
        "Ada drinks tea"
    ]
    then: tuple[int | str, ...] = (NOW + 60, str(NOW + 60), "2026-09-21T14:14:20Z", "2026-09-22")
    for moment in then:
        assert desk.texts("memory_recall", query="drinks", entity="Ada", asOf=moment) == [
            "Ada drinks tea"
        ], moment


def test_what_is_recalled_lives_on_but_not_where_bsd_only_reads(desk: Desk) -> None:
    ids = [desk.store(f"{name} likes tea", entity=name) for name in ("Ada", "Bob", "Cleo")]
    calls: tuple[Callable[[], Any], ...] = (
        lambda: desk.call("memory_recall", query="Ada"),
        lambda: desk.call("memory_recall", id=ids[1]),
        lambda: desk.call("memory_lookup", entity="Cleo"),
    )
    for refresh, confirmed_at, count in ((False, NOW, 0), (True, NOW + DAY, 1)):
        desk.now, desk.refresh = NOW + DAY, refresh
        for call, id_ in zip(calls, ids, strict=True):
            call()
            with desk.memory() as memory:
                fact = actions.get(memory, id_)
            assert (fact.last_confirmed_at, fact.recall_count) == (confirmed_at, count)
    desk.refresh = False
    with pytest.raises(Forbidden):
        desk.call("memory_confirm", memoryId=ids[0])


def test_nothing_is_found_where_nobody_has_stored_anything(desk: Desk) -> None:
    assert desk.texts("memory_recall", query="tea") == []
    assert desk.texts("memory_lookup", entity="Ada") == []
    assert desk.call("memory_checkpoint", action="restore")["checkpoint"] is None
    assert not desk.path.exists()


def test_lookup_by_entity_and_key(desk: Desk) -> None:
    desk.store("Ada's mail is a@example.org", entity="Ada", key="email")
    desk.store("Ada likes tea", entity="Ada", key="drink")
    assert len(desk.texts("memory_lookup", entity="ADA")) == 2
    assert desk.texts("memory_lookup", entity="ADA", key="Drink") == ["Ada likes tea"]


def test_confirming_begins_anew(desk: Desk) -> None:
    with desk.memory() as memory:
        id_ = actions.store(memory, NewFact("Ada likes tea", confidence=0.25)).id
    desk.now += DAY
    for argument in ("memoryId", "id"):
        desk.now += DAY
        answer = desk.call("memory_confirm", **{argument: id_})
        assert answer["message"] == 'Confirmed: "Ada likes tea"'
        assert answer["fact"]["confidence"] == 1.0
        assert answer["fact"]["expires_at"] == desk.now + 90 * DAY
    with pytest.raises(NotFound):
        desk.call("memory_confirm", memoryId="nobody")


def test_forgetting_by_id(desk: Desk) -> None:
    id_ = desk.store("Ada likes tea")
    answer = desk.call("memory_forget", memoryId=id_)
    assert (answer["forgotten"], answer["message"]) == (True, 'Forgotten: "Ada likes tea"')
    with pytest.raises(NotFound):
        desk.call("memory_forget", memoryId=id_)


def test_forgetting_by_words_deletes_only_what_is_meant_without_doubt(desk: Desk) -> None:
    old = desk.store("Ada likes tea")
    desk.store("Bob likes tea")
    answer = desk.call("memory_forget", query="tea")
    assert answer["message"] == ("Nothing was forgotten. Found 2 candidates: specify memoryId.")
    assert {one["text"] for one in answer["candidates"]} == {"Ada likes tea", "Bob likes tea"}
    assert desk.call("memory_forget", query="Bob")["forgotten"] is False, "it is not the whole text"
    nothing = desk.call("memory_forget", query="coffee")
    assert (nothing["forgotten"], nothing["candidates"]) == (False, [])
    assert desk.call("memory_forget", query="bob LIKES  tea")["forgotten"] is True
    assert desk.texts("memory_recall", query="tea") == ["Ada likes tea"]
    desk.store("Ada likes tea", supersedes=old)  # the same words, twice
    assert len(desk.call("memory_forget", query="Ada likes tea")["candidates"]) == 2


def test_checkpoints(desk: Desk) -> None:
    saved = desk.call(
        "memory_checkpoint",
        action="save",
        intent="rename it",
        state="half done",
        expectedOutcome="a better name",
        workingFiles=["a.py", "b.py"],
    )
    assert saved["message"] == f"Checkpoint saved: {saved['fact']['id']}"
    found = desk.call("memory_checkpoint", action="restore")
    checkpoint = found["checkpoint"]
    assert (checkpoint["intent"], checkpoint["state"]) == ("rename it", "half done")
    assert checkpoint["expectedOutcome"] == "a better name"
    assert checkpoint["workingFiles"] == ["a.py", "b.py"]
    assert desk.opened_to_write == [True, False]
    desk.now += 4 * 3600
    expired = desk.call("memory_checkpoint", action="restore")
    assert (expired["message"], expired["checkpoint"]) == ("No active checkpoint.", None)


def test_pruning_says_what_the_plugin_says(desk: Desk) -> None:
    desk.store("Ada sits", decayClass="session")
    desk.store("We decided to use tabs")
    with desk.memory() as memory:
        actions.store(memory, NewFact("Ada is perhaps a pilot", confidence=0.05))
    desk.now += 2 * DAY
    soft = desk.call("memory_prune", mode="soft")
    assert soft["message"] == (
        "Pruned: 0 expired + 1 low-confidence.\n"
        'Remaining by class: {"permanent":1,"session":1}\n'
        "Pending expired: 1"
    )
    assert desk.call("memory_prune", mode="hard")["expired"] == 1
    with desk.memory() as memory:
        actions.store(memory, NewFact("Ada stands", decay_class="session"))
        actions.store(memory, NewFact("Ada is perhaps a cook", confidence=0.05))
    desk.now += 2 * DAY
    both = desk.call("memory_prune")
    assert (both["expired"], both["deleted"]) == (1, 1)
    assert (both["by_class"], both["pending"]) == ({"permanent": 1}, 0)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("memory_store", {}, "text parameter is required"),
        ("memory_store", {"text": " "}, "text parameter is required"),
        ("memory_store", {"text": "x", "decayClass": "tea"}, "there is no decay class 'tea'"),
        ("memory_store", {"text": "x", "importance": 2}, "importance must be a number from 0"),
        ("memory_store", {"text": "x", "colour": 1}, "colour is not a parameter of this tool"),
        ("memory_recall", {}, "query parameter is required, or id, or entity"),
        ("memory_recall", {"query": "x", "limit": 0}, "limit must be a whole number from"),
        ("memory_recall", {"query": "x", "asOf": "soon"}, "asOf must be a date as 2026-11-22"),
        ("memory_recall", {"query": "x", "asOf": -1}, "asOf must be a date as"),
        ("memory_lookup", {"entity": ""}, "entity parameter is required"),
        ("memory_confirm", {}, "memoryId parameter is required"),
        ("memory_forget", {}, "memoryId parameter is required, or query"),
        ("memory_forget", {"query": " "}, "memoryId parameter is required, or query"),
        ("memory_checkpoint", {}, "action parameter is required"),
        ("memory_checkpoint", {"action": "keep"}, "action must be 'save' or 'restore', not"),
        ("memory_checkpoint", {"action": "save", "intent": "x"},
         "state parameter is required for save action"),
        ("memory_prune", {"mode": "all"}, "mode must be 'hard', 'soft' or 'both', not"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(desk: Desk, tool: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        desk.call(tool, **arguments)
    assert said in refused.value.message
    assert refused.value.hint
    assert not desk.path.exists()


def test_texts_with_commas_are_lists(desk: Desk) -> None:
    stored = desk.call("memory_store", text="x y", tags="a, b")
    assert stored["fact"]["tags"] == "a,b"
    named = desk.call("memory_store", text="z", decay_class="active")
    assert named["fact"]["decay_class"] == "active"
