"""The memory: facts that fade (seed 002). GET changes nothing, and keeps no fact alive."""

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
    """Return a memory; the route that uses it opens and closes its database, on one thread."""
    memory: Memory = request.app.state.open_memory(actor=actor)
    return memory


MemoryOfRoot = Annotated[Memory, Depends(_memory)]
_Query = Annotated[str, Query(description="Words; facts that hold any of them are found.")]
_Entity = Annotated[str, Query(description="The subject, in upper or lower case.")]
_Most = Query(ge=1, le=1000, description="No more than so many facts.")
_Limit = Annotated[int, Field(ge=1, le=1000, description="No more than so many facts.")]
_Refresh = Annotated[bool, Field(description="Whether this keeps the facts alive.")]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class FactBody(NewFact):
    """A fact to be stored; without `decay_class` its words tell the class."""


@router.post("/store")
def store(memory: MemoryOfRoot, fact: FactBody) -> StoredFact:
    """Keep a fact, unless one of the same text is there already."""
    with memory:
        return actions.store(memory, fact)


class FactId(Input):
    """One fact."""

    id: Annotated[str, Field(description="The id of a fact, as recall shows it.")]


@router.post("/confirm")
def confirm(memory: MemoryOfRoot, body: FactId) -> ConfirmedFact:
    """Say that a fact still holds: it begins anew, with full confidence."""
    with memory:
        return actions.confirm(memory, body.id)


@router.post("/forget")
def forget(memory: MemoryOfRoot, body: FactId) -> ForgottenFact:
    """Delete a fact for good, and its vector."""
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
    """Facts that hold any of the words, the best first; this keeps none of them alive."""
    only = FactFilter(entity, tag, include_expired, include_superseded)
    with memory:
        return actions.recall(memory, query, limit=limit, only=only, refresh=False)


class RecallBody(Input):
    """A search; found facts live on, unless `refresh` is false."""

    query: Annotated[str, Field(description="Words; facts that hold any of them are found.")]
    limit: _Limit = 5
    entity: Annotated[str | None, Field(description="Only facts about this.")] = None
    tag: Annotated[str | None, Field(description="Only facts with this tag.")] = None
    include_expired: bool = False
    include_superseded: bool = False
    as_of: Annotated[Moment | None, Field(description="What held then (epoch seconds).")] = None
    refresh: _Refresh = True


@router.post("/recall")
def recall(memory: MemoryOfRoot, body: RecallBody) -> RecallAnswer:
    """Facts that hold any of the words, the best first; this keeps them alive."""
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
    """Facts about one entity, the surest first; this keeps none of them alive."""
    with memory:
        return actions.lookup(
            memory, entity, key, limit=limit, only=FactFilter(tag=tag), refresh=False
        )


class LookupBody(Input):
    """A look-up; found facts live on, unless `refresh` is false."""

    entity: Annotated[str, Field(description="The subject, in upper or lower case.")]
    key: Annotated[str | None, Field(description="Only this property.")] = None
    tag: Annotated[str | None, Field(description="Only facts with this tag.")] = None
    limit: _Limit = 100
    refresh: _Refresh = True


@router.post("/lookup")
def lookup(memory: MemoryOfRoot, body: LookupBody) -> LookupAnswer:
    """Facts about one entity, the surest first; this keeps them alive."""
    only = FactFilter(tag=body.tag)
    with memory:
        return actions.lookup(
            memory, body.entity, body.key, limit=body.limit, only=only, refresh=body.refresh
        )


@router.get("/stats")
def stats(memory: MemoryOfRoot) -> MemoryStats:
    """Counts of facts, by class too, and of those that are to be pruned."""
    with memory:
        return actions.stats(memory)


class MemoryPruneBody(Input):
    """Which facts; neither `hard` nor `soft` means both."""

    hard: Annotated[bool, Field(description="Only delete expired facts.")] = False
    soft: Annotated[bool, Field(description="Only let facts fade that are not recalled.")] = False
    vectors: Annotated[bool, Field(description="Also find and delete vectors without a fact.")] = (
        False
    )
    dry_run: Annotated[bool, Field(description="Only say what would be done.")] = False


@router.post("/prune")
def prune(memory: MemoryOfRoot, body: MemoryPruneBody | None = None) -> PrunedFacts:
    """Delete expired facts, and let facts fade that are not recalled; or say what would be done."""
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
    """Find the class of all facts anew, and when they expire by it."""
    with memory:
        return actions.backfill(memory)


class CheckpointBody(Input):
    """The next step of an agent, and the state before it."""

    intent: Annotated[str, Field(description="What is about to be done.")]
    state: Annotated[str, Field(description="How things stand.")]
    expected_outcome: Annotated[str | None, Field(description="What should come of it.")] = None
    working_files: Annotated[list[str] | None, Field(description="The files that matter.")] = None


@router.post("/checkpoint")
def save(memory: MemoryOfRoot, body: CheckpointBody) -> SavedCheckpoint:
    """Keep what an agent is about to do, for some hours."""
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
    """The last checkpoint that has not expired; null if there is none."""
    with memory:
        return actions.restore_checkpoint(memory)
