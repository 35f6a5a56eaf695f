"""The agent's tool for the memory: one for all that a model does with facts, over MCP only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from bsd.agent.arguments import read_arguments, refused
from bsd.memory.new_fact import NewFact

if TYPE_CHECKING:
    from bsd.memory.facts import Memory

NAME = "memory"
TITLE = "Remember, recall and forget facts"
DESCRIPTION = (
    "Keep facts beyond this session. store keeps `text`, about `entity` and `key` if you name "
    "them; how long it lives follows from its words, or from `decay_class`. recall finds facts "
    "by any of the words of `query`, lookup by `entity` and perhaps `key`; what you find lives on, "
    "what nobody asks for fades and is deleted. confirm `id` says that a fact still holds, "
    "forget `id` deletes it for good."
)
# What an action cannot do without, if anything but itself.
_NEEDS = {"store": "text", "recall": "query", "lookup": "entity", "confirm": "id", "forget": "id"}
ACTIONS = tuple(_NEEDS)
_READS = ("recall", "lookup")
_MOST_FOUND = 100

# Whoever opens one; True if it is to be written. Raises Forbidden.
OpenMemory = Callable[[bool], "Memory"]


class MemoryArguments(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    action: str = Field(description="What to do.", json_schema_extra={"enum": list(ACTIONS)})
    text: str | None = Field(None, description="For store: the fact, as one sentence.")
    query: str | None = Field(None, max_length=1000, description="For recall: words.")
    entity: str | None = Field(None, description="Who or what it is about.")
    key: str | None = Field(None, description="Which property of the entity.")
    value: str | None = Field(None, description="For store: the value of that property.")
    decay_class: str | None = Field(
        None, description="For store: permanent, stable, active, session or checkpoint."
    )
    supersedes: str | None = Field(
        None, min_length=1, description="For store: id of the fact whose place this one takes."
    )
    id: str | None = Field(None, description="For confirm and forget: the id of a fact.")
    limit: int = Field(5, ge=1, le=_MOST_FOUND, description="No more than so many facts.")


class MemoryAnswer(BaseModel):
    """`results` of recall and lookup, `fact` of the others; times are epoch seconds."""

    action: str
    results: list[dict[str, Any]] = Field(default_factory=list)
    fact: dict[str, Any] = Field(default_factory=dict)
    created: bool = Field(default=True, description="False: the same was known already.")


def schema() -> dict[str, Any]:
    """The JSON schema of the arguments."""
    return MemoryArguments.model_json_schema()


def answer_schema() -> dict[str, Any]:
    """The JSON schema of the answers."""
    return MemoryAnswer.model_json_schema()


def carry_out(arguments: object, open_memory: OpenMemory, *, refresh: bool) -> dict[str, Any]:
    """Do what a call asks for; raises Invalid that names every bad field, or what memory raises.

    Without `refresh` reading keeps no fact alive, and changes nothing.
    """
    asked = read_arguments(MemoryArguments, arguments)
    _check(asked)
    with open_memory(asked.action not in _READS or refresh) as memory:
        return {"action": asked.action, **_done(asked, memory, refresh=refresh)}


def _check(asked: MemoryArguments) -> None:
    if asked.action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise refused("action", f"Unknown action '{asked.action}'. Valid actions: {known}")
    needed = _NEEDS[asked.action]
    if not (getattr(asked, needed) or "").strip():
        raise refused(needed, f"{needed} parameter is required for {asked.action} action")


def _done(asked: MemoryArguments, memory: Memory, *, refresh: bool) -> dict[str, Any]:
    match asked.action:
        case "recall":
            found = memory.recall(asked.query or "", limit=asked.limit, refresh=refresh)
            return {"results": [one.as_json() for one in found]}
        case "lookup":
            facts = memory.lookup(asked.entity or "", asked.key, limit=asked.limit, refresh=refresh)
            return {"results": [fact.as_json() for fact in facts]}
        case "confirm":
            return {"fact": memory.confirm(asked.id or "").as_json()}
        case "forget":
            return {"fact": memory.forget(asked.id or "").as_json()}
        case _:
            stored = memory.store(
                NewFact(
                    asked.text or "",
                    entity=asked.entity,
                    key=asked.key,
                    value=asked.value,
                    decay_class=asked.decay_class,
                    supersedes=asked.supersedes,
                )
            )
            return {"created": stored.created, "fact": stored.fact.as_json()}
