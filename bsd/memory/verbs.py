"""What can be done with the memory, as data: doors are made from it (see `foundation.definition`).

Agents have the tools of the plugin, with its names and words: `tools`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bsd.core.definition import Answer, Library, argument, contract
from bsd.memory.decay import PrunedFacts
from bsd.memory.fact import Fact, RecalledFact, StoredFact, WantedFacts
from bsd.memory.facts import Memory, MemoryStats
from bsd.memory.new_fact import MOMENT, NewFact

_WING = Library(Memory, "memory")
_MOST = 1000
TAG = argument("Only facts with this tag.", metavar="TAG")
AS_OF = "What held then (epoch seconds)."
INCLUDE_SUPERSEDED = argument("Also what was true before something took its place.")
_LIMIT = argument("No more than so many facts.", least=1, most=_MOST)
_REFRESH = argument("Whether this keeps the facts alive; without, nothing is changed.")


# --- keeping facts ---


@dataclass(frozen=True, slots=True)
class WhichFact:
    """One fact."""

    id: str = field(
        metadata=argument("The id of a fact, as recall shows it.", metavar="ID", positional=True)
    )


@dataclass(frozen=True, slots=True)
class ConfirmedFact(Answer):
    """A fact that begins anew."""

    confirmed: bool
    fact: Fact = field(metadata=contract(inline=True))


@dataclass(frozen=True, slots=True)
class ForgottenFact(Answer):
    """A fact as it was."""

    forgotten: bool
    fact: Fact = field(metadata=contract(inline=True))


STORE = _WING.verb(
    "store",
    NewFact,
    StoredFact,
    Memory.store,
    "POST /store",
    "Keep a fact, unless one of the same text is there already.",
)
CONFIRM = _WING.verb(
    "confirm",
    WhichFact,
    ConfirmedFact,
    lambda memory, asked: ConfirmedFact(confirmed=True, fact=memory.confirm(asked.id)),
    "POST /confirm",
    "Say that a fact still holds: it begins anew, with full confidence.",
)
FORGET = _WING.verb(
    "forget",
    WhichFact,
    ForgottenFact,
    lambda memory, asked: ForgottenFact(forgotten=True, fact=memory.forget(asked.id)),
    "POST /forget",
    "Delete a fact for good, and its vector.",
)


# --- finding facts: GET changes nothing, what is found so does not live on ---


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """None of what is found lives on by that."""

    query: str = field(metadata=argument("Words; facts that hold any of them are found."))
    limit: int = field(default=5, metadata=_LIMIT)
    entity: str | None = field(
        default=None, metadata=argument("Only facts about this.", metavar="NAME")
    )
    tag: str | None = field(default=None, metadata=TAG)
    include_expired: bool = field(
        default=False, metadata=argument("Also those that are to be pruned.")
    )
    include_superseded: bool = field(default=False, metadata=INCLUDE_SUPERSEDED)


@dataclass(frozen=True, slots=True)
class RecallFacts(SearchFacts):
    """What is recalled lives on, unless `refresh` is false."""

    as_of: int | None = field(default=None, metadata=argument(AS_OF, metavar="SECONDS", **MOMENT))
    refresh: bool = field(default=True, metadata=_REFRESH)


@dataclass(frozen=True, slots=True)
class RecallAnswer(Answer):
    """The best first."""

    query: str
    results: list[RecalledFact]


def _recall(
    memory: Memory, asked: SearchFacts, *, as_of: int | None = None, refresh: bool = False
) -> RecallAnswer:
    wanted = WantedFacts(
        asked.entity, asked.tag, asked.include_expired, asked.include_superseded, as_of
    )
    found = memory.recall(asked.query, limit=asked.limit, wanted=wanted, refresh=refresh)
    return RecallAnswer(asked.query, found)


SEARCH = _WING.verb(
    "search",
    SearchFacts,
    RecallAnswer,
    _recall,
    "GET /recall",
    "The facts that hold any of the words, the best first; none lives on by that.",
)
RECALL = _WING.verb(
    "recall",
    RecallFacts,
    RecallAnswer,
    lambda memory, asked: _recall(memory, asked, as_of=asked.as_of, refresh=asked.refresh),
    "POST /recall",
    "The facts that hold any of the words, the best first; they live on.",
    about="Find the facts that hold any of the words, the best first.",
)


@dataclass(frozen=True, slots=True)
class LookFacts:
    """None of what is found lives on by that."""

    entity: str = field(
        metadata=argument(
            "Who or what it is about, in whatever case.", metavar="ENTITY", positional=True
        )
    )
    key: str | None = field(
        default=None, metadata=argument("Only this property.", metavar="[KEY]", positional=True)
    )
    tag: str | None = field(default=None, metadata=TAG)
    limit: int = field(default=100, metadata=_LIMIT)


@dataclass(frozen=True, slots=True)
class LookupFacts(LookFacts):
    """What is found lives on, unless `refresh` is false."""

    refresh: bool = field(default=True, metadata=_REFRESH)


@dataclass(frozen=True, slots=True)
class LookupAnswer(Answer):
    """The surest and newest first."""

    entity: str
    key: str | None
    results: list[Fact]


def _look_up(memory: Memory, asked: LookFacts, *, refresh: bool = False) -> LookupAnswer:
    found = memory.lookup(
        asked.entity,
        asked.key,
        limit=asked.limit,
        wanted=WantedFacts(tag=asked.tag),
        refresh=refresh,
    )
    return LookupAnswer(asked.entity, asked.key, found)


LOOK = _WING.verb(
    "look",
    LookFacts,
    LookupAnswer,
    _look_up,
    "GET /lookup",
    "What is known about one entity, the surest first; none of it lives on by that.",
)
LOOKUP = _WING.verb(
    "lookup",
    LookupFacts,
    LookupAnswer,
    lambda memory, asked: _look_up(memory, asked, refresh=asked.refresh),
    "POST /lookup",
    "What is known about one entity, the surest first; it lives on.",
    about="Show what is known about one entity, the surest first.",
)


# --- what goes, and what there is ---


@dataclass(frozen=True, slots=True)
class PruneFacts:
    """Neither `hard` nor `soft` means both."""

    hard: bool = field(default=False, metadata=argument("Only delete what has expired."))
    soft: bool = field(default=False, metadata=argument("Only let fade what nobody recalls."))
    vectors: bool = field(
        default=False, metadata=argument("Also find and delete vectors without a fact.")
    )
    dry_run: bool = field(default=False, metadata=argument("Only say what would be done."))


@dataclass(frozen=True, slots=True)
class NoArguments:
    """There is nothing to say."""


@dataclass(frozen=True, slots=True)
class BackfillAnswer(Answer):
    """How many facts of each class have another class or expiry than before."""

    reclassified: dict[str, int]


def _prune(memory: Memory, asked: PruneFacts) -> PrunedFacts:
    both = asked.hard == asked.soft
    return memory.prune(
        hard=both or asked.hard,
        soft=both or asked.soft,
        dry_run=asked.dry_run,
        orphans=asked.vectors,
    )


PRUNE = _WING.verb(
    "prune",
    PruneFacts,
    PrunedFacts,
    _prune,
    "POST /prune",
    "Delete what has expired, and let fade what nobody recalls; or say what would be done.",
    about="Delete what has expired, and let fade what nobody recalls.",
)
BACKFILL = _WING.verb(
    "backfill",
    NoArguments,
    BackfillAnswer,
    lambda memory, _: BackfillAnswer(memory.backfill()),
    "POST /backfill",
    "Find the class of all facts anew, and when they expire by it.",
)
STATS = _WING.verb(
    "stats",
    NoArguments,
    MemoryStats,
    lambda memory, _: memory.stats(),
    "GET /stats",
    "Counts of facts, by class too, and of those that are to be pruned.",
    about="Count facts, by class, and those that are to be pruned.",
)


# --- checkpoints ---


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """What is about to be done."""

    intent: str = field(metadata=argument("What is about to be done.", metavar="TEXT"))
    state: str = field(metadata=argument("How things stand.", metavar="TEXT"))
    expected_outcome: str | None = field(
        default=None, metadata=argument("What should come of it.", metavar="TEXT")
    )
    working_files: tuple[str, ...] | None = field(
        default=None, metadata=argument("The files that matter.", metavar="A,B")
    )


@dataclass(frozen=True, slots=True)
class SavedCheckpoint(Answer):
    """The fact that a checkpoint became."""

    saved: bool
    fact: Fact = field(metadata=contract(inline=True))


@dataclass(frozen=True, slots=True)
class CheckpointAnswer(Answer):
    """The checkpoint as it was saved; null if there is none."""

    checkpoint: dict[str, Any] | None


def _save(memory: Memory, asked: SaveCheckpoint) -> SavedCheckpoint:
    fact = memory.save_checkpoint(
        asked.intent,
        asked.state,
        expected_outcome=asked.expected_outcome,
        working_files=asked.working_files,
    )
    return SavedCheckpoint(saved=True, fact=fact)


SAVE_CHECKPOINT = _WING.verb(
    "save",
    SaveCheckpoint,
    SavedCheckpoint,
    _save,
    "POST /checkpoint",
    "Keep what an agent is about to do, for some hours.",
)
RESTORE_CHECKPOINT = _WING.verb(
    "restore",
    NoArguments,
    CheckpointAnswer,
    lambda memory, _: CheckpointAnswer(memory.restore_checkpoint()),
    "GET /checkpoint",
    "The last checkpoint that has not expired; null if there is none.",
)

VERBS = (
    *(STORE, CONFIRM, FORGET, SEARCH, RECALL, LOOK, LOOKUP),
    *(STATS, PRUNE, BACKFILL, SAVE_CHECKPOINT, RESTORE_CHECKPOINT),
)
