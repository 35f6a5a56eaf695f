"""The memory: facts that decay (seed 002). GET only reads: it does not refresh facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ConfigDict, Field, with_config

from bsd.http.dependencies import Actor, Input, JsonRoute
from bsd.memory import actions
from bsd.memory.actions import (
    BackfillAnswer,
    CheckpointAnswer,
    ConfirmedFact,
    ForgottenFact,
    LookupAnswer,
    MemoryStats,
    RecallAnswer,
    SavedCheckpoint,
    StoredFact,
)
from bsd.memory.decay import PrunedFacts
from bsd.memory.facts import FactFilter, Moment
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

router = APIRouter(prefix="/api/memory", tags=["memory"], route_class=JsonRoute)


def _memory(request: Request, actor: Actor) -> Memory:
    """Return a memory, not opened yet; the route opens and closes its database on its thread."""
    memory: Memory = request.app.state.open_memory(actor=actor)
    return memory


MemoryOfRoot = Annotated[Memory, Depends(_memory)]
_Query = Annotated[str, Query(description="Words; finds facts that contain any of them.")]
_Entity = Annotated[str, Query(description="The subject; case does not matter.")]
_Most = Query(ge=1, le=1000, description="At most this number of facts.")
_Limit = Annotated[int, Field(ge=1, le=1000, description="At most this number of facts.")]
_Refresh = Annotated[bool, Field(description="Whether to refresh the facts that are found.")]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class FactBody(NewFact):
    """A fact to store; without `decay_class`, its class is derived from its words."""


@router.post("/store")
def store(memory: MemoryOfRoot, fact: FactBody) -> StoredFact:
    """Store a fact, unless a fact with the same text exists."""
    with memory:
        return actions.store(memory, fact)


class FactId(Input):
    """The id of a fact."""

    id: Annotated[str, Field(description="The id of a fact, as recall shows it.")]


@router.post("/confirm")
def confirm(memory: MemoryOfRoot, body: FactId) -> ConfirmedFact:
    """Confirm that a fact still holds: its decay starts again, at full confidence."""
    with memory:
        return actions.confirm(memory, body.id)


@router.post("/forget")
def forget(memory: MemoryOfRoot, body: FactId) -> ForgottenFact:
    """Delete a fact and its vector permanently."""
    with memory:
        return actions.forget(memory, body.id)


@router.get("/recall")
def search(
    memory: MemoryOfRoot,
    query: _Query,
    limit: Annotated[int, _Most] = 5,
    entity: Annotated[str | None, Query(description="Only facts about this.")] = None,
    tag: Annotated[str | None, Query(description="Only facts with this tag.")] = None,
    *,
    include_expired: bool = False,
    include_superseded: bool = False,
) -> RecallAnswer:
    """Find facts that contain any of the words, best matches first; does not refresh them."""
    only = FactFilter(entity, tag, include_expired, include_superseded)
    with memory:
        return actions.recall(memory, query, limit=limit, only=only, refresh=False)


class RecallBody(Input):
    """A search; refreshes the facts that it finds, unless `refresh` is false."""

    query: Annotated[str, Field(description="Words; finds facts that contain any of them.")]
    limit: _Limit = 5
    entity: Annotated[str | None, Field(description="Only facts about this.")] = None
    tag: Annotated[str | None, Field(description="Only facts with this tag.")] = None
    include_expired: bool = False
    include_superseded: bool = False
    as_of: Annotated[
        Moment | None, Field(description="Facts that were valid at this time (epoch seconds).")
    ] = None
    refresh: _Refresh = True


@router.post("/recall")
def recall(memory: MemoryOfRoot, body: RecallBody) -> RecallAnswer:
    """Find facts that contain any of the words, best matches first; refreshes them."""
    only = FactFilter(
        body.entity, body.tag, body.include_expired, body.include_superseded, body.as_of
    )
    with memory:
        return actions.recall(memory, body.query, limit=body.limit, only=only, refresh=body.refresh)


@router.get("/lookup")
def look(
    memory: MemoryOfRoot,
    entity: _Entity,
    key: Annotated[str | None, Query(description="Only this property.")] = None,
    tag: Annotated[str | None, Query(description="Only facts with this tag.")] = None,
    limit: Annotated[int, _Most] = 100,
) -> LookupAnswer:
    """List facts about an entity, highest confidence first; does not refresh them."""
    with memory:
        return actions.lookup(
            memory, entity, key, limit=limit, only=FactFilter(tag=tag), refresh=False
        )


class LookupBody(Input):
    """A look-up; refreshes the facts that it finds, unless `refresh` is false."""

    entity: Annotated[str, Field(description="The subject; case does not matter.")]
    key: Annotated[str | None, Field(description="Only this property.")] = None
    tag: Annotated[str | None, Field(description="Only facts with this tag.")] = None
    limit: _Limit = 100
    refresh: _Refresh = True


@router.post("/lookup")
def lookup(memory: MemoryOfRoot, body: LookupBody) -> LookupAnswer:
    """List facts about an entity, highest confidence first; refreshes them."""
    only = FactFilter(tag=body.tag)
    with memory:
        return actions.lookup(
            memory, body.entity, body.key, limit=body.limit, only=only, refresh=body.refresh
        )


@router.get("/stats")
def stats(memory: MemoryOfRoot) -> MemoryStats:
    """Count facts, in total and by class, and the facts that a prune would delete."""
    with memory:
        return actions.stats(memory)


class MemoryPruneBody(Input):
    """The steps of a prune; without `hard` and `soft`, both are done."""

    hard: Annotated[bool, Field(description="Only delete expired facts.")] = False
    soft: Annotated[
        bool, Field(description="Only lower the confidence of facts that are not recalled.")
    ] = False
    vectors: Annotated[bool, Field(description="Also find and delete vectors without a fact.")] = (
        False
    )
    dry_run: Annotated[bool, Field(description="Only report what would be done.")] = False


@router.post("/prune")
def prune(memory: MemoryOfRoot, body: MemoryPruneBody | None = None) -> PrunedFacts:
    """Delete expired facts and lower the confidence of others by age; `dry_run` only reports."""
    body = body or MemoryPruneBody()
    both = body.hard == body.soft
    with memory:
        return actions.prune(
            memory,
            hard=both or body.hard,
            soft=both or body.soft,
            vectors=body.vectors,
            dry_run=body.dry_run,
        )


@router.post("/backfill")
def backfill(memory: MemoryOfRoot) -> BackfillAnswer:
    """Classify all facts again, and update the time at which they expire."""
    with memory:
        return actions.backfill(memory)


class CheckpointBody(Input):
    """The next step of an agent, and the state before this step."""

    intent: Annotated[str, Field(description="The next step.")]
    state: Annotated[str, Field(description="The present state.")]
    expected_outcome: Annotated[str | None, Field(description="The expected result.")] = None
    working_files: Annotated[list[str] | None, Field(description="The relevant files.")] = None


@router.post("/checkpoint")
def save(memory: MemoryOfRoot, body: CheckpointBody) -> SavedCheckpoint:
    """Save the next step of an agent for some hours."""
    with memory:
        return actions.save_checkpoint(
            memory,
            body.intent,
            body.state,
            expected_outcome=body.expected_outcome,
            working_files=body.working_files,
        )


@router.get("/checkpoint")
def restore(memory: MemoryOfRoot) -> CheckpointAnswer:
    """Return the last checkpoint that has not expired; null if there is none."""
    with memory:
        return actions.restore_checkpoint(memory)
