"""The tools for the memory: those of OpenClaw's plugin hybrid-memory (seed 002), and two more.

Names, parameters and messages are the plugin's. Each method of `MemoryTools` is a tool, as in
`tools`, and calls a function of `bsd.memory.actions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from bsd.core.answers import as_json
from bsd.core.errors import Invalid
from bsd.mcp.arguments import MustBe, read_moment, read_number, refused, split_list
from bsd.memory import actions
from bsd.memory.facts import Fact, FactFilter
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.memory.schema import MILLISECONDS

Json = dict[str, Any]

_READ, _WRITE = False, True
_SHOWN = 100  # characters of a fact in a sentence about it

TextArg = str | None
FactTextArg = Annotated[str, Field(min_length=1, description="The fact, as one sentence.")]
ShareArg = Annotated[float, Field(ge=0, le=1, description="0 to 1.")]
CategoryArg = Annotated[str, Field(description="preference, fact, decision, entity, …")]
EntityArg = Annotated[str | None, Field(description="Who or what it is about.")]
EntityFilterArg = Annotated[str | None, Field(description="Only facts about this; needs no query.")]
EntityNameArg = Annotated[str, Field(min_length=1, description="Who or what it is about.")]
KeyArg = Annotated[str | None, Field(description="Which property of the entity.")]
DecayClassArg = Annotated[
    str | None, Field(description="How long it lives; default: by its words.")
]
TagsArg = Annotated[
    list[str] | None, BeforeValidator(split_list), Field(description="Words to find it by later.")
]
IdArg = Annotated[str | None, Field(min_length=1)]
ConfirmedIdArg = Annotated[str, Field(min_length=1)]
SupersededArg = Annotated[
    str | None, Field(min_length=1, description="Id of the fact whose place this one takes.")
]
QueryArg = Annotated[
    str | None,
    MustBe("a text of up to 1000 characters"),
    Field(max_length=1000, description="Words; finds facts that contain any of them."),
]
ForgetQueryArg = Annotated[
    str | None,
    MustBe("a text of up to 10000 characters"),
    Field(max_length=10_000, description="The whole text of the fact."),
]
LimitArg = Annotated[int, BeforeValidator(read_number), Field(ge=1, le=100)]
OffsetArg = Annotated[
    int, BeforeValidator(read_number), Field(ge=0, le=10**9, description="From `next`.")
]
IncludeSupersededArg = Annotated[bool, Field(description="Also what was true before.")]
AsOfArg = Annotated[
    Annotated[int, Field(ge=0, le=MILLISECONDS)] | None,
    BeforeValidator(read_moment),
    MustBe("a date as 2026-11-22, a time as 2026-11-22T08:30:00Z, or epoch seconds"),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "description": "What held then: a date, or epoch seconds.",
        }
    ),
]
CheckpointActionArg = Annotated[Literal["save", "restore"], MustBe("'save' or 'restore'")]
FilesArg = Annotated[
    list[str] | None,
    BeforeValidator(split_list),
    Field(description="For save: the files that matter."),
]
ModeArg = Annotated[
    Literal["hard", "soft", "both"],
    MustBe("'hard', 'soft' or 'both'"),
    Field(description="hard deletes expired facts, soft fades facts that are not recalled."),
]


class MemoryTools:
    """The tools for the memory.

    Args:
        open_memory: returns the memory; its argument is True if the tool changes facts. Raises
            Forbidden if facts must not be changed.
        refresh: refresh the facts that are found.
    """

    def __init__(self, open_memory: Callable[[bool], Memory], *, refresh: bool = True) -> None:
        self._open = open_memory
        self._refresh = refresh

    def memory_store(
        self,
        text: FactTextArg,
        importance: ShareArg = 0.7,
        category: CategoryArg = "other",
        entity: EntityArg = None,
        key: KeyArg = None,
        value: TextArg = None,
        decayClass: DecayClassArg = None,
        tags: TagsArg = None,
        supersedes: SupersededArg = None,
    ) -> Json:
        """Keep a fact beyond this session: a preference, a decision, a procedure.

        How long it lives follows from its words, or from `decayClass`; facts that are recalled live
        on, others fade and are deleted. A fact that has changed `supersedes` the earlier fact.
        """
        _require("text", text)
        new = NewFact(
            text,
            entity=entity,
            key=key,
            value=value,
            category=category,
            tags=tuple(tags) if tags is not None else None,
            decay_class=decayClass,
            importance=importance,
            supersedes=supersedes,
        )
        with self._open(_WRITE) as memory:
            fact = actions.store(memory, new)
        message = "Similar memory already exists."
        if fact.created:
            about = f" [entity: {fact.entity}]" if fact.entity else ""
            message = f'Stored: "{_in_short(fact)}"{about} [decay: {fact.decay_class}]'
        return {"message": message, "fact": _shown(fact), "created": fact.created}

    def memory_recall(
        self,
        query: QueryArg = None,
        id: IdArg = None,
        limit: LimitArg = 5,
        entity: EntityFilterArg = None,
        offset: OffsetArg = 0,  # of facts; with `id`, of characters of the text
        tag: TextArg = None,
        includeSuperseded: IncludeSupersededArg = False,
        asOf: AsOfArg = None,
    ) -> Json:
        """Find facts of earlier sessions, best matches first.

        By any of the words of `query`, by `id`, or all about an `entity`. Recall before you ask the
        user.
        """
        if not any(map(_is_text, (query, id, entity))):
            raise refused("query", "query parameter is required, or id, or entity")
        only = FactFilter(entity=entity, tag=tag, include_superseded=includeSuperseded, as_of=asOf)
        refresh = self._refresh
        with self._open(refresh) as memory:
            if not memory.exists():
                return {"results": []}
            if id is not None:
                return {"results": [_from_offset(actions.get(memory, id, refresh=refresh), offset)]}
            if query is not None and _is_text(query):
                found: Any = actions.recall(
                    memory, query, limit=limit, offset=offset, only=only, refresh=refresh
                )
            else:
                found = actions.lookup(
                    memory, entity or "", limit=limit, offset=offset, only=only, refresh=refresh
                )
        return {"results": [_shown(fact) for fact in found.results]}

    def memory_lookup(
        self,
        entity: EntityNameArg,
        key: KeyArg = None,
        limit: LimitArg = 20,
        offset: OffsetArg = 0,
        tag: TextArg = None,
        includeSuperseded: IncludeSupersededArg = False,
        asOf: AsOfArg = None,
    ) -> Json:
        """List the facts about an `entity`, or about one property of it, `key`.

        The surest and newest facts come first. To search by words, use memory_recall.
        """
        _require("entity", entity)
        only = FactFilter(tag=tag, include_superseded=includeSuperseded, as_of=asOf)
        with self._open(self._refresh) as memory:
            if not memory.exists():
                return {"results": []}
            found = actions.lookup(
                memory, entity, key, limit=limit, offset=offset, only=only, refresh=self._refresh
            )
        return {"results": [_shown(fact) for fact in found.results]}

    def memory_confirm(self, memoryId: ConfirmedIdArg) -> Json:
        """Confirm that a fact still holds, when the user or the work has shown it.

        Its lifetime starts again, with full confidence.
        """
        with self._open(_WRITE) as memory:
            fact = actions.confirm(memory, memoryId)
        return {"message": f'Confirmed: "{_in_short(fact)}"', "fact": _shown(fact)}

    def memory_forget(self, query: ForgetQueryArg = None, memoryId: IdArg = None) -> Json:
        """Delete a fact permanently, by `memoryId`, or by `query` if this is its whole text.

        Other words only list candidates. To correct a fact, store the new one with `supersedes`.
        """
        if memoryId is None and not _is_text(query):
            raise refused("memoryId", "memoryId parameter is required, or query")
        with self._open(_WRITE) as memory:
            if memoryId is not None:
                answer: Any = actions.forget(memory, memoryId)
            else:
                answer = actions.forget_text(memory, query or "")
        if isinstance(answer, actions.ForgottenFact):
            message = f'Forgotten: "{_in_short(answer)}"'
            return {"message": message, "forgotten": True, "fact": _shown(answer)}
        candidates = [_shown(fact) for fact in answer.results]
        message = "Nothing was forgotten: no memory holds any of these words."
        if candidates:
            found = f"Found {len(candidates)} candidates: specify memoryId."
            message = f"Nothing was forgotten. {found}"
        return {"message": message, "forgotten": False, "candidates": candidates}

    def memory_checkpoint(
        self,
        action: CheckpointActionArg,
        intent: TextArg = None,
        state: TextArg = None,
        expectedOutcome: TextArg = None,
        workingFiles: FilesArg = None,
    ) -> Json:
        """Before a risky or long step: save your intent and the present state, for some hours.

        After an interruption: restore shows the last checkpoint.
        """
        if action == "restore":
            with self._open(_READ) as memory:
                found = actions.restore_checkpoint(memory).checkpoint
            message = "No active checkpoint." if found is None else "The last checkpoint."
            return {"message": message, "checkpoint": found}
        _require("intent", intent, " for save action")
        _require("state", state, " for save action")
        with self._open(_WRITE) as memory:
            fact = actions.save_checkpoint(
                memory,
                intent or "",
                state or "",
                expected_outcome=expectedOutcome,
                working_files=workingFiles,
            )
        return {"message": f"Checkpoint saved: {fact.id}", "fact": _shown(fact)}

    def memory_prune(self, mode: ModeArg = "both") -> Json:
        """Delete expired facts, and fade facts that are not recalled.

        bsd does this every hour while it runs; call it only if you are asked to.
        """
        with self._open(_WRITE) as memory:
            done = actions.prune(memory, hard=mode != "soft", soft=mode != "hard")
            by_class = actions.count_by_class(memory)
            pending = actions.count_expired(memory)
        message = (
            f"Pruned: {done.expired} expired + {done.deleted} low-confidence.\n"
            f"Remaining by class: {json.dumps(by_class, separators=(',', ':'))}\n"
            f"Pending expired: {pending}"
        )
        return {"message": message, **as_json(done), "by_class": by_class, "pending": pending}


def _is_text(text: str | None) -> bool:
    return bool((text or "").strip())


def _require(name: str, text: str | None, when: str = "") -> None:
    if not _is_text(text):
        raise refused(name, f"{name} parameter is required{when}")


def _shown(fact: Fact) -> Json:
    """Return a fact as JSON without null members, which would only fill the context."""
    document = as_json(fact)
    marks = ("created", "confirmed", "forgotten", "saved")
    return {key: value for key, value in document.items() if value is not None and key not in marks}


def _in_short(fact: Fact) -> str:
    text = " ".join(fact.text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _from_offset(fact: Fact, offset: int) -> Json:
    """Return a fact with its text from `offset` on; raises Invalid beyond the end of the text."""
    if offset and offset >= len(fact.text):
        raise Invalid(
            f"the text has {len(fact.text)} characters, so there is no text from {offset} on",
            hint="omit `offset` to read from the beginning",
        )
    return {**_shown(fact), "text": fact.text[offset:]}
