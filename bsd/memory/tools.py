"""The memory's tools for agents: those of OpenClaw's plugin hybrid-memory, and two more.

Their names, parameters and words are the plugin's. Made for the interface that is still made from
`core.definition`; the functions themselves are `bsd.memory.actions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from bsd.core.definition import UNSAID, Answer, LibraryVerb, Tool, Unsaid, argument, contract
from bsd.core.errors import FieldError, Invalid
from bsd.memory import actions
from bsd.memory.actions import ForgottenFact
from bsd.memory.decay import PrunedFacts
from bsd.memory.facts import FIELDS, Fact, FactFilter, RecalledFact
from bsd.memory.memory import Memory
from bsd.memory.verbs import INCLUDE_SUPERSEDED, MOMENT, TAG, StoreFact

_A = TypeVar("_A")
_R = TypeVar("_R", bound=Answer)

_MOST_FOUND = 100
_MOST_CANDIDATES = 10
_TOLD = 100  # characters of a fact in a sentence about it
A_MOMENT = "a date as 2026-11-22, a time as 2026-11-22T08:30:00Z, or epoch seconds"

_AnyFact = dict[str, Any]
_LIMIT = argument("No more than so many facts.", least=1, most=_MOST_FOUND)
_MOST_OFFSET = 10**9
_OFFSET = argument("As `next` says.", least=0, most=_MOST_OFFSET)
_ID = argument("The id of a fact, as recall shows it.", least=1)


def _refused(name: str, message: str) -> Invalid:
    return Invalid(message, hint=f"say what {name} is", errors=(FieldError(name, message),))


def _need(name: str, text: str | None, when: str = "") -> None:
    if not (text or "").strip():
        raise _refused(name, f"{name} parameter is required{when}")


def _shown(found: Fact) -> _AnyFact:
    """Everything that is known of it; what is not would only fill the context."""
    known = {name: getattr(found, name) for name in FIELDS}
    if isinstance(found, RecalledFact):
        known["score"] = round(found.score, 6)
    return {name: value for name, value in known.items() if value is not None}


def _in_short(fact: Fact) -> str:
    text = " ".join(fact.text.split())
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"


# --- keeping facts ---


@dataclass(frozen=True, slots=True)
class MemoryKept(Answer):
    """Times are epoch seconds; what is not known of a fact is left out."""

    message: str
    fact: _AnyFact
    created: bool | Unsaid = field(
        default=UNSAID, metadata=contract("False: the same was known already.")
    )


@dataclass(frozen=True, slots=True)
class ConfirmMemory:
    memory_id: str = field(metadata=_ID)


def _store(memory: Memory, asked: StoreFact) -> MemoryKept:
    _need("text", asked.text)
    fact, message = actions.store(memory, asked.new()), "Similar memory already exists."
    if fact.created:
        about = f" [entity: {fact.entity}]" if fact.entity else ""
        message = f'Stored: "{_in_short(fact)}"{about} [decay: {fact.decay_class}]'
    return MemoryKept(message, _shown(fact), fact.created)


def _confirm(memory: Memory, asked: ConfirmMemory) -> MemoryKept:
    fact = actions.confirm(memory, asked.memory_id)
    return MemoryKept(f'Confirmed: "{_in_short(fact)}"', _shown(fact))


# --- finding facts ---


@dataclass(frozen=True, slots=True)
class _FindMemories:
    """What all that finds facts takes."""

    tag: str | None = field(default=None, metadata=TAG)
    include_superseded: bool = field(default=False, metadata=INCLUDE_SUPERSEDED)
    as_of: int | None = field(
        default=None,
        metadata=argument(
            "What held then: a date, or epoch seconds.",
            expected=A_MOMENT,
            schema={"anyOf": [{"type": kind} for kind in ("integer", "string", "null")]},
            **MOMENT,
        ),
    )

    def facts(self, entity: str | None = None) -> FactFilter:
        return FactFilter(
            entity, self.tag, include_superseded=self.include_superseded, as_of=self.as_of
        )


@dataclass(frozen=True, slots=True)
class RecallMemory(_FindMemories):
    query: str | None = field(
        default=None,
        metadata=argument("Words; facts that hold any of them are found.", most=1000),
    )
    id: str | None = field(default=None, metadata=argument("Only the fact with this id.", least=1))
    limit: int = field(default=5, metadata=_LIMIT)
    entity: str | None = field(
        default=None, metadata=argument("Only facts about this; does without a query.")
    )
    offset: int = field(default=0, metadata=_OFFSET)  # of facts; of one, characters of its text
    refresh: bool = True  # no parameter: see `MemoryHands`

    def __post_init__(self) -> None:
        if not any((one or "").strip() for one in (self.query, self.id, self.entity)):
            raise _refused("query", "query parameter is required, or id, or entity")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupMemory(_FindMemories):
    entity: str = field(metadata=argument("Who or what it is about, in whatever case."))
    key: str | None = field(default=None, metadata=argument("Only this property."))
    limit: int = field(default=20, metadata=_LIMIT)
    offset: int = field(default=0, metadata=_OFFSET)
    refresh: bool = True

    def __post_init__(self) -> None:
        _need("entity", self.entity)


@dataclass(frozen=True, slots=True)
class MemoryFound(Answer):
    """The best first. Times are epoch seconds."""

    results: list[_AnyFact]


def _recall(memory: Memory, asked: RecallMemory) -> MemoryFound:
    if not memory.exists():
        return MemoryFound([])  # nobody has stored anything yet
    if asked.id is not None:
        return MemoryFound(
            [_read_on(actions.get(memory, asked.id, refresh=asked.refresh), asked.offset)]
        )
    if asked.query and asked.query.strip():
        found = actions.recall(
            memory,
            asked.query,
            limit=asked.limit,
            offset=asked.offset,
            only=asked.facts(asked.entity),
            refresh=asked.refresh,
        )
        return MemoryFound([_shown(one) for one in found.results])
    return _look_up(memory, asked.entity or "", None, asked)


def _read_on(fact: Fact, offset: int) -> _AnyFact:
    """A fact with its text from a character on; raises Invalid for an offset behind the end."""
    if offset and offset >= len(fact.text):
        raise Invalid(
            f"the text has {len(fact.text)} characters, so there is nothing from {offset} on",
            hint="leave `offset` out to begin at its beginning",
        )
    return {**_shown(fact), "text": fact.text[offset:]}


def _look_up(
    memory: Memory, entity: str, key: str | None, asked: RecallMemory | LookupMemory
) -> MemoryFound:
    found = actions.lookup(
        memory,
        entity,
        key,
        limit=asked.limit,
        offset=asked.offset,
        only=asked.facts(),
        refresh=asked.refresh,
    )
    return MemoryFound([_shown(one) for one in found.results])


def _lookup(memory: Memory, asked: LookupMemory) -> MemoryFound:
    return _look_up(memory, asked.entity, asked.key, asked) if memory.exists() else MemoryFound([])


# --- forgetting facts ---


@dataclass(frozen=True, slots=True)
class ForgetMemory:
    query: str | None = field(
        default=None,
        metadata=argument("The whole text of the fact; of words, candidates.", most=10_000),
    )
    memory_id: str | None = field(default=None, metadata=_ID)

    def __post_init__(self) -> None:
        if self.memory_id is None and not (self.query or "").strip():
            raise _refused("memoryId", "memoryId parameter is required, or query")


@dataclass(frozen=True, slots=True)
class MemoryForgotten(Answer):
    """Either the fact that is gone, or `candidates`, of which one has to be named."""

    message: str
    forgotten: bool
    fact: _AnyFact | Unsaid = UNSAID
    candidates: list[_AnyFact] | Unsaid = UNSAID


def _forget(memory: Memory, asked: ForgetMemory) -> MemoryForgotten:
    if asked.memory_id is not None:
        done: ForgottenFact | actions.RecallAnswer = actions.forget(memory, asked.memory_id)
    else:
        done = actions.forget_text(memory, asked.query or "")
    if isinstance(done, ForgottenFact):
        return MemoryForgotten(f'Forgotten: "{_in_short(done)}"', forgotten=True, fact=_shown(done))
    found = done.results
    message = "Nothing was forgotten: no memory holds any of these words."
    if found:
        message = f"Nothing was forgotten. Found {len(found)} candidates: specify memoryId."
    return MemoryForgotten(message, forgotten=False, candidates=[_shown(one) for one in found])


@dataclass(frozen=True, slots=True)
class PruneMemory:
    mode: Literal["hard", "soft", "both"] = field(
        default="both",
        metadata=argument("hard deletes what expired, soft lets fade what nobody recalls."),
    )


@dataclass(frozen=True, slots=True)
class MemoryPruned(Answer):
    """What was done, and what is left."""

    message: str
    done: PrunedFacts = field(metadata=contract(inline=True))
    by_class: dict[str, int]
    pending: int = field(metadata=contract("Expired, and still there."))


def _prune(memory: Memory, asked: PruneMemory) -> MemoryPruned:
    done = actions.prune(memory, hard=asked.mode != "soft", soft=asked.mode != "hard")
    by_class, pending = actions.count_by_class(memory), actions.count_expired(memory)
    message = (
        f"Pruned: {done.expired} expired + {done.deleted} low-confidence.\n"
        f"Remaining by class: {json.dumps(by_class, separators=(',', ':'))}\n"
        f"Pending expired: {pending}"
    )
    return MemoryPruned(message, done, by_class, pending)


# --- checkpoints ---


@dataclass(frozen=True, slots=True)
class CheckpointMemory:
    action: Literal["save", "restore"] = field(metadata=argument("What to do."))
    intent: str | None = field(
        default=None, metadata=argument("For save: what is about to be done.")
    )
    state: str | None = field(default=None, metadata=argument("For save: how things stand."))
    expected_outcome: str | None = field(
        default=None, metadata=argument("For save: what should come of it.")
    )
    working_files: tuple[str, ...] | None = field(
        default=None, metadata=argument("For save: the files that matter.")
    )

    def __post_init__(self) -> None:
        if self.action == "save":
            _need("intent", self.intent, " for save action")
            _need("state", self.state, " for save action")


@dataclass(frozen=True, slots=True)
class MemoryCheckpoint(Answer):
    """`fact` of save, `checkpoint` of restore: null if there is none."""

    message: str
    fact: _AnyFact | Unsaid = UNSAID
    checkpoint: dict[str, Any] | Unsaid | None = UNSAID


def _checkpoint(memory: Memory, asked: CheckpointMemory) -> MemoryCheckpoint:
    if asked.action == "restore":
        found = actions.restore_checkpoint(memory).checkpoint
        message = "No active checkpoint." if found is None else "The last checkpoint."
        return MemoryCheckpoint(message, checkpoint=found)
    fact = actions.save_checkpoint(
        memory,
        asked.intent or "",
        asked.state or "",
        expected_outcome=asked.expected_outcome,
        working_files=asked.working_files,
    )
    return MemoryCheckpoint(f"Checkpoint saved: {fact.id}", fact=_shown(fact))


# --- the tools ---


def _verb(
    told: Tool,
    arguments: type[_A],
    answer: type[_R],
    act: Callable[[Memory, _A], _R],
    only_looks: Callable[[_A], bool] = lambda asked: not getattr(asked, "refresh", True),
) -> LibraryVerb[Memory, _A, _R]:
    return LibraryVerb(
        name=told.name,
        arguments=arguments,
        answer=answer,
        act=act,
        changes=True,
        only_looks=only_looks,
        tools=(told,),
    )


VERBS: tuple[LibraryVerb[Memory, Any, Any], ...] = (
    _verb(
        Tool(
            "memory_store",
            "Remember a fact",
            "Keep a fact beyond this session: a preference, a decision, how something is done. "
            "How long it lives follows from its words, or from `decayClass`; what is recalled "
            "lives on, what nobody asks for fades and is deleted. What changed `supersedes` "
            "what held before.",
            takes=(
                *("text", "importance", "category", "entity", "key", "value"),
                *("decay_class", "tags", "supersedes"),
            ),
        ),
        StoreFact,
        MemoryKept,
        _store,
    ),
    _verb(
        Tool(
            "memory_recall",
            "Recall facts",
            "Find facts of earlier sessions by any of the words of `query`, by `id`, or all "
            "about an `entity`; the best first. Ask before you ask the user for what you may "
            "have known.",
            lists=True,
        ),
        RecallMemory,
        MemoryFound,
        _recall,
    ),
    _verb(
        Tool(
            "memory_lookup",
            "Look up an entity",
            "Tell what is known about an `entity`, or about one property of it, `key`: the "
            "surest and newest facts first. Words need not match; to search by words there is "
            "memory_recall.",
            lists=True,
        ),
        LookupMemory,
        MemoryFound,
        _lookup,
    ),
    _verb(
        Tool(
            "memory_confirm",
            "Confirm a fact",
            "Say that a fact still holds, when the user or the work has shown it: it begins "
            "anew, with full confidence and the whole lifetime of its class.",
        ),
        ConfirmMemory,
        MemoryKept,
        _confirm,
    ),
    _verb(
        Tool(
            "memory_forget",
            "Forget a fact",
            "Delete a fact for good, by `memoryId`, or by `query` if that is its whole text; "
            "other words only name candidates. To correct a fact, store the new one with "
            "`supersedes`.",
            destroys=True,
        ),
        ForgetMemory,
        MemoryForgotten,
        _forget,
    ),
    _verb(
        Tool(
            "memory_checkpoint",
            "Keep what you are about to do",
            "Before something risky or long: save your intent and how things stand, for some "
            "hours. After an interruption: restore shows the last one that was saved.",
            lists=True,
        ),
        CheckpointMemory,
        MemoryCheckpoint,
        _checkpoint,
        only_looks=lambda asked: asked.action == "restore",
    ),
    _verb(
        Tool(
            "memory_prune",
            "Delete what expired, let fade what nobody recalls",
            "Delete facts whose time is over, and let fade those that nobody recalls. It is "
            "done by itself every hour while bsd runs; call it only if you are asked to.",
            destroys=True,
        ),
        PruneMemory,
        MemoryPruned,
        _prune,
    ),
)
