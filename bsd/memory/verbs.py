"""The actions of a memory for the interfaces that are still made from `core.definition`.

New code calls `bsd.memory.actions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from bsd.core.definition import Library, argument
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
from bsd.memory.facts import FactFilter
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.memory.schema import MILLISECONDS

MOMENT = {"least": 0, "most": MILLISECONDS}

_WING = Library(Memory, "memory")
_MOST = 1000
TAG = argument("Only facts with this tag.", metavar="TAG")
AS_OF = "What held then (epoch seconds)."
INCLUDE_SUPERSEDED = argument("Also what was true before something took its place.")
_LIMIT = argument("No more than so many facts.", least=1, most=_MOST)
_REFRESH = argument("Whether this keeps the facts alive; without, nothing is changed.")


# --- keeping facts ---


@dataclass(frozen=True, slots=True)
class StoreFact:
    """What somebody wants to be remembered; without a class its words tell it."""

    text: str = field(
        metadata=argument("The fact, as one sentence.", metavar="TEXT", positional=True)
    )
    entity: str | None = field(
        default=None, metadata=argument("Who or what it is about.", metavar="NAME")
    )
    key: str | None = field(
        default=None, metadata=argument("Which property of the entity.", metavar="KEY")
    )
    value: str | None = field(
        default=None, metadata=argument("The value of that property.", metavar="VALUE")
    )
    category: str = field(
        default="other",
        metadata=argument("For instance preference, fact, decision, entity.", metavar="NAME"),
    )
    source: str = field(
        default="conversation", metadata=argument("Where it comes from.", metavar="NAME")
    )
    summary: str | None = field(
        default=None, metadata=argument("The same in short.", metavar="TEXT")
    )
    tags: tuple[str, ...] | None = field(
        default=None, metadata=argument("Words to find it by later.", metavar="A,B")
    )
    decay_class: str | None = field(
        default=None,
        metadata=argument(
            "How long it lives; leave it out, and its words tell it.",
            metavar="CLASS",
            names={"cli": "class"},
        ),
    )
    confidence: float = field(default=1.0, metadata=argument("0 to 1.", least=0, most=1))
    importance: float = field(default=0.7, metadata=argument("0 to 1.", least=0, most=1))
    source_date: int | None = field(
        default=None,
        metadata=argument(
            "When it was said, if not now (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    expires_at: int | None = field(
        default=None,
        metadata=argument(
            "When it expires, whatever its class (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    supersedes: str | None = field(
        default=None,
        metadata=argument("Id of the fact whose place this one takes.", metavar="ID", least=1),
    )

    def new(self) -> NewFact:
        return NewFact(*(getattr(self, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class WhichFact:
    """One fact."""

    id: str = field(
        metadata=argument("The id of a fact, as recall shows it.", metavar="ID", positional=True)
    )


STORE = _WING.verb(
    "store",
    StoreFact,
    StoredFact,
    lambda memory, asked: actions.store(memory, asked.new()),
    "POST /store",
    "Keep a fact, unless one of the same text is there already.",
)
CONFIRM = _WING.verb(
    "confirm",
    WhichFact,
    ConfirmedFact,
    lambda memory, asked: actions.confirm(memory, asked.id),
    "POST /confirm",
    "Say that a fact still holds: it begins anew, with full confidence.",
)
FORGET = _WING.verb(
    "forget",
    WhichFact,
    ForgottenFact,
    lambda memory, asked: actions.forget(memory, asked.id),
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


def _recall(
    memory: Memory, asked: SearchFacts, *, as_of: int | None = None, refresh: bool = False
) -> RecallAnswer:
    only = FactFilter(
        asked.entity, asked.tag, asked.include_expired, asked.include_superseded, as_of
    )
    return actions.recall(memory, asked.query, limit=asked.limit, only=only, refresh=refresh)


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


def _look_up(memory: Memory, asked: LookFacts, *, refresh: bool = False) -> LookupAnswer:
    only = FactFilter(tag=asked.tag)
    return actions.lookup(
        memory, asked.entity, asked.key, limit=asked.limit, only=only, refresh=refresh
    )


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


def _prune(memory: Memory, asked: PruneFacts) -> PrunedFacts:
    both = asked.hard == asked.soft
    return actions.prune(
        memory,
        hard=both or asked.hard,
        soft=both or asked.soft,
        dry_run=asked.dry_run,
        vectors=asked.vectors,
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
    lambda memory, _: actions.backfill(memory),
    "POST /backfill",
    "Find the class of all facts anew, and when they expire by it.",
)
STATS = _WING.verb(
    "stats",
    NoArguments,
    MemoryStats,
    lambda memory, _: actions.stats(memory),
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


def _save(memory: Memory, asked: SaveCheckpoint) -> SavedCheckpoint:
    return actions.save_checkpoint(
        memory,
        asked.intent,
        asked.state,
        expected_outcome=asked.expected_outcome,
        working_files=asked.working_files,
    )


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
    lambda memory, _: actions.restore_checkpoint(memory),
    "GET /checkpoint",
    "The last checkpoint that has not expired; null if there is none.",
)

VERBS = (
    *(STORE, CONFIRM, FORGET, SEARCH, RECALL, LOOK, LOOKUP),
    *(STATS, PRUNE, BACKFILL, SAVE_CHECKPOINT, RESTORE_CHECKPOINT),
)
