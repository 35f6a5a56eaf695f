"""Facts that agents keep: `/api/memory/…`. GET changes nothing: facts found so do not live on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from bsd.doors.http.answer import JsonAnswer, changing, reading
from bsd.doors.http.description import answers
from bsd.doors.http.requests import Wish, actor_of, described, wish
from bsd.memory.facts import Memory
from bsd.memory.new_fact import NewFact
from bsd.memory.recall import WantedFacts
from bsd.memory.schema import MILLISECONDS

_MOST = 1000

_T = TypeVar("_T")
_Seconds = Annotated[int, Field(ge=0, le=MILLISECONDS)]  # beyond, somebody forgot to divide
_Limit = Annotated[int, Query(ge=1, le=_MOST)]


class OpenMemory(Protocol):
    """Opens the memory for somebody."""

    def __call__(self, *, actor: str) -> Memory: ...


class StoreWish(Wish):
    """A fact; without a class its words tell it."""

    text: str
    entity: str | None = None
    key: str | None = None
    value: str | None = None
    category: str = "other"
    source: str = "conversation"
    summary: str | None = None
    tags: list[str] = Field(default_factory=list)
    decay_class: str | None = None
    confidence: float = Field(1.0, ge=0, le=1)
    importance: float = Field(0.7, ge=0, le=1)
    source_date: _Seconds | None = None
    expires_at: _Seconds | None = None
    supersedes: str | None = None


class RecallWish(Wish):
    """What is recalled lives on, unless `refresh` is false."""

    query: str
    limit: int = Field(5, ge=1, le=_MOST)
    entity: str | None = None
    tag: str | None = None
    include_expired: bool = False
    include_superseded: bool = False
    as_of: _Seconds | None = None
    refresh: bool = True


class LookupWish(Wish):
    """What is found lives on, unless `refresh` is false."""

    entity: str
    key: str | None = None
    tag: str | None = None
    limit: int = Field(100, ge=1, le=_MOST)
    refresh: bool = True


class FactWish(Wish):
    """One fact."""

    id: str


class MemoryPruneWish(Wish):
    """Neither `hard` nor `soft` means both; `vectors`: those without a fact go, too."""

    hard: bool = False
    soft: bool = False
    vectors: bool = False
    dry_run: bool = False


class CheckpointWish(Wish):
    """What is about to be done."""

    intent: str
    state: str
    expected_outcome: str | None = None
    working_files: list[str] | None = None


def routes(opening: OpenMemory) -> APIRouter:
    router = APIRouter(tags=["memory"])
    _keeping(router, opening)
    _recalling(router, opening)
    _looking_up(router, opening)
    _forgetting(router, opening)
    _checkpoints(router, opening)
    return router


def _keeping(router: APIRouter, opening: OpenMemory) -> None:
    @router.post(
        "/api/memory/store",
        responses=answers("StoredFact"),
        openapi_extra=described(StoreWish),
    )
    async def store(request: Request) -> Response:
        """Keep a fact, unless one of the same text is there already."""
        wanted = await wish(request, StoreWish)
        new = NewFact(**{**wanted.model_dump(), "tags": tuple(wanted.tags)})
        stored = await changing(_with, opening, request, lambda memory: memory.store(new))
        return JsonAnswer(stored.as_json())

    @router.post(
        "/api/memory/confirm",
        responses=answers("ConfirmedFact"),
        openapi_extra=described(FactWish),
    )
    async def confirm(request: Request) -> Response:
        """Say that a fact still holds: it begins anew, with full confidence."""
        wanted = await wish(request, FactWish)
        fact = await changing(_with, opening, request, lambda memory: memory.confirm(wanted.id))
        return JsonAnswer({"confirmed": True, **fact.as_json()})

    @router.post(
        "/api/memory/forget",
        responses=answers("ForgottenFact"),
        openapi_extra=described(FactWish),
    )
    async def forget(request: Request) -> Response:
        """Delete a fact for good, and its vector."""
        wanted = await wish(request, FactWish)
        fact = await changing(_with, opening, request, lambda memory: memory.forget(wanted.id))
        return JsonAnswer({"forgotten": True, **fact.as_json()})


def _recalling(router: APIRouter, opening: OpenMemory) -> None:
    @router.get(
        "/api/memory/recall",
        responses=answers("RecallAnswer"),
    )
    async def search(
        request: Request,
        query: str,
        *,
        limit: _Limit = 5,
        entity: str | None = None,
        tag: str | None = None,
        include_expired: bool = False,
        include_superseded: bool = False,
    ) -> Response:
        """The facts that hold any of the words, the best first; none lives on by that."""
        wanted = WantedFacts(entity, tag, include_expired, include_superseded)
        return await _recall(opening, request, query, limit=limit, wanted=wanted, refresh=False)

    @router.post(
        "/api/memory/recall",
        responses=answers("RecallAnswer"),
        openapi_extra=described(RecallWish),
    )
    async def recall(request: Request) -> Response:
        """The facts that hold any of the words, the best first; they live on."""
        asked = await wish(request, RecallWish)
        chosen = WantedFacts(**asked.model_dump(exclude={"query", "limit", "refresh"}))
        return await _recall(
            opening,
            request,
            asked.query,
            limit=asked.limit,
            wanted=chosen,
            refresh=asked.refresh,
        )


async def _recall(
    opening: OpenMemory,
    request: Request,
    query: str,
    *,
    limit: int,
    wanted: WantedFacts,
    refresh: bool,
) -> Response:
    found = await (changing if refresh else reading)(
        _with,
        opening,
        request,
        lambda memory: memory.recall(query, limit=limit, wanted=wanted, refresh=refresh),
    )
    return JsonAnswer({"query": query, "results": [one.as_json() for one in found]})


def _looking_up(router: APIRouter, opening: OpenMemory) -> None:
    @router.get(
        "/api/memory/lookup",
        responses=answers("LookupAnswer"),
    )
    async def look(
        request: Request,
        entity: str,
        key: str | None = None,
        tag: str | None = None,
        limit: _Limit = 100,
    ) -> Response:
        """What is known about one entity, the surest first; none of it lives on by that."""
        return await _look_up(
            opening,
            request,
            LookupWish(entity=entity, key=key, tag=tag, limit=limit, refresh=False),
        )

    @router.post(
        "/api/memory/lookup",
        responses=answers("LookupAnswer"),
        openapi_extra=described(LookupWish),
    )
    async def lookup(request: Request) -> Response:
        """What is known about one entity, the surest first; it lives on."""
        return await _look_up(opening, request, await wish(request, LookupWish))


async def _look_up(opening: OpenMemory, request: Request, asked: LookupWish) -> Response:
    found = await (changing if asked.refresh else reading)(
        _with,
        opening,
        request,
        lambda memory: memory.lookup(
            asked.entity,
            asked.key,
            limit=asked.limit,
            wanted=WantedFacts(tag=asked.tag),
            refresh=asked.refresh,
        ),
    )
    results = [one.as_json() for one in found]
    return JsonAnswer({"entity": asked.entity, "key": asked.key, "results": results})


def _forgetting(router: APIRouter, opening: OpenMemory) -> None:
    @router.get("/api/memory/stats", responses=answers("MemoryStats"))
    async def stats(request: Request) -> Response:
        """Counts of facts, by class too, and of those that are to be pruned."""
        return JsonAnswer(await reading(_with, opening, request, lambda memory: memory.stats()))

    @router.post(
        "/api/memory/prune",
        responses=answers("PruneAnswer"),
        openapi_extra=described(MemoryPruneWish, required=False),
    )
    async def prune(request: Request) -> Response:
        """Delete what has expired, and let fade what nobody recalls; or say what would be done."""
        asked = await wish(request, MemoryPruneWish, optional=True)
        both = asked.hard == asked.soft
        done = await changing(
            _with,
            opening,
            request,
            lambda memory: memory.prune(
                hard=both or asked.hard,
                soft=both or asked.soft,
                dry_run=asked.dry_run,
                orphans=asked.vectors,
            ),
        )
        return JsonAnswer(done.as_json())

    @router.post(
        "/api/memory/backfill",
        responses=answers("BackfillAnswer"),
    )
    async def backfill(request: Request) -> Response:
        """Find the class of all facts anew, and when they expire by it."""
        changed = await changing(_with, opening, request, lambda memory: memory.backfill())
        return JsonAnswer({"reclassified": changed})


def _checkpoints(router: APIRouter, opening: OpenMemory) -> None:
    @router.post(
        "/api/memory/checkpoint",
        responses=answers("SavedCheckpoint"),
        openapi_extra=described(CheckpointWish),
    )
    async def save(request: Request) -> Response:
        """Keep what an agent is about to do, for some hours."""
        asked = await wish(request, CheckpointWish)
        fact = await changing(
            _with,
            opening,
            request,
            lambda memory: memory.save_checkpoint(
                asked.intent,
                asked.state,
                expected_outcome=asked.expected_outcome,
                working_files=asked.working_files,
            ),
        )
        return JsonAnswer({"saved": True, **fact.as_json()})

    @router.get(
        "/api/memory/checkpoint",
        responses=answers("CheckpointAnswer"),
    )
    async def restore(request: Request) -> Response:
        """The last checkpoint that has not expired; null if there is none."""
        found: dict[str, Any] | None = await reading(
            _with, opening, request, lambda memory: memory.restore_checkpoint()
        )
        return JsonAnswer({"checkpoint": found})


def _with(opening: OpenMemory, request: Request, work: Callable[[Memory], _T]) -> _T:
    """Do something with the memory, on the thread that opened it."""
    with opening(actor=actor_of(request)) as memory:
        return work(memory)
