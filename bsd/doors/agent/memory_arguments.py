"""What an agent may ask of the memory, by the parameters of OpenClaw's plugin hybrid-memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bsd.doors.agent.arguments import refused, split_list
from bsd.foundation.field_words import Expected
from bsd.memory.new_fact import NewFact
from bsd.memory.recall import WantedFacts
from bsd.memory.schema import MILLISECONDS
from bsd.memory.text import normalized_hash

if TYPE_CHECKING:
    from bsd.memory.fact import Fact, Recalled
    from bsd.memory.facts import Memory

_MOST_FOUND = 100
_MOST_CANDIDATES = 10
_TOLD = 100  # characters of a fact in a sentence about it

_A_MOMENT = "a date as 2026-11-22, a time as 2026-11-22T08:30:00Z, or epoch seconds"

Answer = dict[str, Any]


def _read_moment(moment: Any) -> Any:
    """Read a date or a time, of UTC if it does not say otherwise, as epoch seconds."""
    if not isinstance(moment, str):
        return moment
    text = moment.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        read = datetime.fromisoformat(text)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(f"must be {_A_MOMENT}") from None


_Texts = Annotated[list[str] | None, BeforeValidator(split_list)]
_Moment = Annotated[
    Annotated[int, Field(ge=0, le=MILLISECONDS)] | None,  # beyond, somebody forgot to divide
    BeforeValidator(_read_moment, json_schema_input_type=int | str | None),
    Expected(_A_MOMENT),
]
_Limit = Annotated[int, Field(ge=1, le=_MOST_FOUND, description="No more than so many facts.")]
_Id = Annotated[str, Field(min_length=1, description="The id of a fact, as recall shows it.")]


class MemoryArguments(BaseModel):
    """What all of them have in common; both spellings of a name are taken."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    def check(self) -> None:
        """Raise Invalid for what no single field can tell."""


class DeedArguments(MemoryArguments):
    """What a tool that does something takes."""

    @property
    def writes(self) -> bool:
        """Whether it changes facts."""
        return True

    def done(self, memory: Memory) -> Answer:
        """Do it; raises what the memory raises."""
        raise NotImplementedError


class FindingArguments(MemoryArguments):
    """What a tool that finds facts takes."""

    tag: str | None = Field(None, description="Only facts with this tag.")
    include_superseded: bool = Field(
        default=False, description="Also what was true before something took its place."
    )
    as_of: _Moment = Field(None, description="What held then: a date, or epoch seconds.")

    def found(self, memory: Memory, *, refresh: bool) -> Sequence[Fact | Recalled]:
        """Find them; raises what the memory raises. With `refresh` they live on by that."""
        raise NotImplementedError

    def answer(self, memory: Memory, *, refresh: bool) -> Answer:
        """What was found, nothing where nobody has stored anything yet."""
        found = self.found(memory, refresh=refresh) if memory.exists() else ()
        return {"results": [_shown(one) for one in found]}

    def _wanted(self, entity: str | None = None) -> WantedFacts:
        return WantedFacts(
            entity, self.tag, include_superseded=self.include_superseded, as_of=self.as_of
        )


class StoreArguments(DeedArguments):
    text: str = Field(description="The fact, as one sentence.")
    importance: float = Field(0.7, ge=0, le=1, description="0 to 1.")
    category: str = Field("other", description="For instance preference, fact, decision, entity.")
    entity: str | None = Field(None, description="Who or what it is about.")
    key: str | None = Field(None, description="Which property of the entity.")
    value: str | None = Field(None, description="The value of that property.")
    decay_class: str | None = Field(
        None, description="How long it lives; leave it out, and its words tell it."
    )
    tags: _Texts = Field(None, description="Words to find it by later.")
    supersedes: str | None = Field(
        None, min_length=1, description="Id of the fact whose place this one takes."
    )

    def check(self) -> None:
        _need("text", self.text)

    def done(self, memory: Memory) -> Answer:
        new = NewFact(**{**self.model_dump(), "tags": tuple(self.tags or ())})
        stored = memory.store(new)
        message = "Similar memory already exists."
        if stored.created:
            fact = stored.fact
            about = f" [entity: {fact.entity}]" if fact.entity else ""
            message = f'Stored: "{_in_short(fact)}"{about} [decay: {fact.decay_class}]'
        return {"message": message, "created": stored.created, "fact": _shown(stored.fact)}


class RecallArguments(FindingArguments):
    query: str | None = Field(
        None, max_length=1000, description="Words; facts that hold any of them are found."
    )
    id: _Id | None = Field(None, description="Only the fact with this id.")
    limit: _Limit = 5
    entity: str | None = Field(None, description="Only facts about this; does without a query.")

    def check(self) -> None:
        if not any((one or "").strip() for one in (self.query, self.id, self.entity)):
            raise refused("query", "query parameter is required, or id, or entity")

    def found(self, memory: Memory, *, refresh: bool) -> Sequence[Fact | Recalled]:
        if self.id is not None:
            return [memory.get(self.id, refresh=refresh)]
        if self.query and self.query.strip():
            wanted = self._wanted(self.entity)
            return memory.recall(self.query, limit=self.limit, wanted=wanted, refresh=refresh)
        return memory.lookup(
            self.entity or "", limit=self.limit, wanted=self._wanted(), refresh=refresh
        )


class LookupArguments(FindingArguments):
    entity: str = Field(description="Who or what it is about, in whatever case.")
    key: str | None = Field(None, description="Only this property.")
    limit: _Limit = 20

    def check(self) -> None:
        _need("entity", self.entity)

    def found(self, memory: Memory, *, refresh: bool) -> Sequence[Fact]:
        return memory.lookup(
            self.entity, self.key, limit=self.limit, wanted=self._wanted(), refresh=refresh
        )


class ConfirmArguments(DeedArguments):
    memory_id: _Id

    def done(self, memory: Memory) -> Answer:
        fact = memory.confirm(self.memory_id)
        return {"message": f'Confirmed: "{_in_short(fact)}"', "fact": _shown(fact)}


class ForgetArguments(DeedArguments):
    query: str | None = Field(
        None, max_length=10_000, description="The whole text of the fact; of words, candidates."
    )
    memory_id: _Id | None = None

    def check(self) -> None:
        if self.memory_id is None and not (self.query or "").strip():
            raise refused("memoryId", "memoryId parameter is required, or query")

    def done(self, memory: Memory) -> Answer:
        if self.memory_id is not None:
            return _forgotten(memory, self.memory_id)
        found = memory.recall(
            self.query or "",
            limit=_MOST_CANDIDATES,
            wanted=WantedFacts(include_expired=True, include_superseded=True),
            refresh=False,
        )
        meant = normalized_hash(self.query)
        same = [one.fact.id for one in found if normalized_hash(one.fact.text) == meant]
        if len(same) == 1:  # words alone could mean another fact, and this one would be gone
            return _forgotten(memory, same[0])
        message = "Nothing was forgotten: no memory holds any of these words."
        if found:
            message = f"Nothing was forgotten. Found {len(found)} candidates: specify memoryId."
        return {
            "message": message,
            "forgotten": False,
            "candidates": [_shown(one) for one in found],
        }


class CheckpointArguments(DeedArguments):
    action: Literal["save", "restore"] = Field(description="What to do.")
    intent: str | None = Field(None, description="For save: what is about to be done.")
    state: str | None = Field(None, description="For save: how things stand.")
    expected_outcome: str | None = Field(None, description="For save: what should come of it.")
    working_files: _Texts = Field(None, description="For save: the files that matter.")

    def check(self) -> None:
        if self.action == "save":
            _need("intent", self.intent, " for save action")
            _need("state", self.state, " for save action")

    @property
    def writes(self) -> bool:
        return self.action == "save"

    def done(self, memory: Memory) -> Answer:
        if self.action == "restore":
            found = memory.restore_checkpoint()
            message = "No active checkpoint." if found is None else "The last checkpoint."
            return {"message": message, "checkpoint": found}
        fact = memory.save_checkpoint(
            self.intent or "",
            self.state or "",
            expected_outcome=self.expected_outcome,
            working_files=self.working_files,
        )
        return {"message": f"Checkpoint saved: {fact.id}", "fact": _shown(fact)}


class PruneArguments(DeedArguments):
    mode: Literal["hard", "soft", "both"] = Field(
        "both", description="hard deletes what expired, soft lets fade what nobody recalls."
    )

    def done(self, memory: Memory) -> Answer:
        done = memory.prune(hard=self.mode != "soft", soft=self.mode != "hard")
        by_class, pending = memory.by_class(), memory.expired()
        message = (
            f"Pruned: {done.expired} expired + {done.deleted} low-confidence.\n"
            f"Remaining by class: {json.dumps(by_class, separators=(',', ':'))}\n"
            f"Pending expired: {pending}"
        )
        told = {**done.as_json(), "by_class": by_class, "pending": pending}
        return {"message": message, **told}


def _need(name: str, text: str | None, when: str = "") -> None:
    if not (text or "").strip():
        raise refused(name, f"{name} parameter is required{when}")


def _forgotten(memory: Memory, id: str) -> Answer:
    fact = memory.forget(id)
    return {"message": f'Forgotten: "{_in_short(fact)}"', "forgotten": True, "fact": _shown(fact)}


def _shown(found: Fact | Recalled) -> Answer:
    """Everything that is known of it; what is not would only fill the context."""
    return {name: value for name, value in found.as_json().items() if value is not None}


def _in_short(fact: Fact) -> str:
    text = " ".join(fact.text.split())
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"
