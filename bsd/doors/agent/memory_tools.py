"""The agent's tools for the memory, over MCP: those of the plugin hybrid-memory, and two more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from bsd.doors.agent.arguments import read_arguments, schema_of
from bsd.doors.agent.memory_arguments import (
    CheckpointArguments,
    ConfirmArguments,
    DeedArguments,
    FindingArguments,
    ForgetArguments,
    LookupArguments,
    PruneArguments,
    RecallArguments,
    StoreArguments,
)

if TYPE_CHECKING:
    from bsd.memory.facts import Memory


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Kept(_Answer):
    """Times are epoch seconds; what is not known of a fact is left out."""

    message: str
    fact: dict[str, Any]
    created: bool = Field(default=True, description="False: the same was known already.")


class _Found(_Answer):
    """The best first. Times are epoch seconds."""

    results: list[dict[str, Any]]


class _Forgotten(_Answer):
    """Either the fact that is gone, or `candidates`, of which one has to be named."""

    message: str
    forgotten: bool
    fact: dict[str, Any] = Field(default_factory=dict)
    candidates: list[dict[str, Any]] = Field(default_factory=list)


class _Checkpoint(_Answer):
    """`fact` of save, `checkpoint` of restore: null if there is none."""

    message: str
    fact: dict[str, Any] = Field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None


class _Pruned(_Answer):
    message: str
    expired: int = Field(description="Deleted: their time was over.")
    decayed: int = Field(description="Still there, with less confidence.")
    deleted: int = Field(description="Their confidence was too low.")
    by_class: dict[str, int]
    pending: int = Field(description="Expired, and still there.")


@dataclass(frozen=True, slots=True)
class MemoryTool:
    """One tool as a model is told of it."""

    name: str
    title: str
    description: str
    arguments: type[DeedArguments | FindingArguments]
    answer: type[_Answer]
    deletes: bool = False

    def schema(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The JSON schema of its arguments, where these are the classes that there are."""
        schema = schema_of(self.arguments)
        if (decay_class := schema["properties"].get("decayClass")) is not None:
            described = decay_class["description"]
            named = {"type": "string", "enum": list(classes), "description": described}
            schema["properties"]["decayClass"] = named
        return schema

    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of its answers."""
        return schema_of(self.answer)


MEMORY_TOOLS = {
    tool.name: tool
    for tool in (
        MemoryTool(
            "memory_store",
            "Remember a fact",
            "Keep a fact beyond this session: a preference, a decision, how something is done. How "
            "long it lives follows from its words, or from `decayClass`; what is recalled lives "
            "on, what nobody asks for fades and is deleted. What changed `supersedes` what held "
            "before.",
            StoreArguments,
            _Kept,
        ),
        MemoryTool(
            "memory_recall",
            "Recall facts",
            "Find facts of earlier sessions by any of the words of `query`, by `id`, or all about "
            "an `entity`; the best first. Ask before you ask the user for what you may have known.",
            RecallArguments,
            _Found,
        ),
        MemoryTool(
            "memory_lookup",
            "Look up an entity",
            "Tell what is known about an `entity`, or about one property of it, `key`: the surest "
            "and newest facts first. Words need not match; to search by words there is "
            "memory_recall.",
            LookupArguments,
            _Found,
        ),
        MemoryTool(
            "memory_confirm",
            "Confirm a fact",
            "Say that a fact still holds, when the user or the work has shown it: it begins anew, "
            "with full confidence and the whole lifetime of its class.",
            ConfirmArguments,
            _Kept,
        ),
        MemoryTool(
            "memory_forget",
            "Forget a fact",
            "Delete a fact for good, by `memoryId`, or by `query` if that is its whole text; other "
            "words only name candidates. To correct a fact, store the new one with `supersedes`.",
            ForgetArguments,
            _Forgotten,
            deletes=True,
        ),
        MemoryTool(
            "memory_checkpoint",
            "Keep what you are about to do",
            "Before something risky or long: save your intent and how things stand, for some "
            "hours. After an interruption: restore shows the last one that was saved.",
            CheckpointArguments,
            _Checkpoint,
        ),
        MemoryTool(
            "memory_prune",
            "Delete what expired, let fade what nobody recalls",
            "Delete facts whose time is over, and let fade those that nobody recalls. It is done "
            "by itself every hour while bsd runs; call it only if you are asked to.",
            PruneArguments,
            _Pruned,
            deletes=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class MemoryHands:
    """Who does it: opens a memory, True if it is to be written; raises Forbidden."""

    open: Callable[[bool], Memory]
    classes: tuple[str, ...]  # by their names
    refresh: bool  # what is found lives on


def carry_out(tool: MemoryTool, arguments: object, hands: MemoryHands) -> dict[str, Any]:
    """Do what a call asks for; raises Invalid that names every bad field, or what memory raises."""
    asked = read_arguments(tool.arguments, arguments)
    asked.check()
    if isinstance(asked, FindingArguments):
        with hands.open(hands.refresh) as memory:
            return asked.answer(memory, refresh=hands.refresh)
    with hands.open(asked.writes) as memory:
        return asked.done(memory)
