"""Targets and answers of the context tool (seed 003): replace, discard, distill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from bsd.core.errors import FieldError, Invalid
from bsd.planning.plan import Plan, Rate
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript

Action = Literal["replace", "discard", "distill"]
REPLACE: Final = "replace"
DISCARD: Final = "discard"
DISTILL: Final = "distill"
ACTIONS = (REPLACE, DISCARD, DISTILL)

# Replaces a text without a summary.
DISCARDED = "[content discarded]"
SHORTEST_MATCH = 30  # characters, both markers included
EMPTY_MARKER = "start and end are required: neither may be empty"

_HASH = re.compile(r"[0-9a-f]{6,64}")
_HASH_HINT = "`bsd context AGENT/SESSION` lists the hashes: 6 hex digits (0-9, a-f) or more"
_FORMS = {
    REPLACE: '{"start": …, "end": …, "replacement": …}',
    DISCARD: "[hash]",
    DISTILL: "[hash, summary]",
}
_FIELDS = {
    REPLACE: ("start", "end", "replacement"),
    DISCARD: ("hash",),
    DISTILL: ("hash", "summary"),
}


@dataclass(frozen=True, slots=True)
class Replacement:
    """Seed 003's ReplaceOperation: replaces the text from `start` to the first `end` after it.

    Both markers are literal text.
    """

    start: str
    end: str
    replacement: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Discard:
    """Replaces a whole entry's text, by the summary if there is one."""

    hash: str  # hex digits of the entry's line, in lower case
    summary: str | None = None

    def as_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value is not None}


Target = Replacement | Discard


class Refused(Invalid):
    """At least one target cannot be changed, so none was; `errors` has the reason for each."""

    exit_code: ClassVar[int] = 1

    def __init__(self, action: str, errors: Sequence[FieldError], *, hint: str | None = None):
        message = errors[0].message
        if len(errors) > 1:
            texts = [f"{one.field}: {one.message}" for one in errors]
            message = "\n".join([f"{len(texts)} problems, nothing was changed:", *texts])
        super().__init__(message, hint=hint, errors=tuple(errors))
        self.action = action

    def as_json(self) -> dict[str, Any]:
        """Return seed 003's ReplaceResult for a failed call."""
        return {
            "success": False,
            "action": self.action,
            "replacements": [],
            "errors": [f"{one.field}: {one.message}" for one in self.errors],
            "warnings": [],
            "tokensSaved": 0,
            "operation": None,
        }


def read_targets(action: str, targets: object) -> tuple[Replacement, ...] | tuple[Discard, ...]:
    """Parse the targets of an action from JSON, in any form of the seed.

    Raises:
        Invalid: the action is unknown.
        Refused: there are no targets, or some are wrong; one error per wrong target.
    """
    if action not in ACTIONS:
        raise Invalid(
            f"Unknown action '{action}'. Valid actions: {', '.join(ACTIONS)}",
            errors=(FieldError("action", f"one of {', '.join(ACTIONS)}"),),
        )
    if not isinstance(targets, Sequence) or isinstance(targets, str | bytes) or not targets:
        message = f"No targets provided. Provide an array of {_FORMS[action]}."
        raise Refused(action, [FieldError("targets", message)])
    problems: list[FieldError] = []
    found: list[Any] = []
    for number, target in enumerate(targets):
        try:
            found.append(_read(action, target))
        except ValueError as problem:
            problems.append(FieldError(f"targets[{number}]", str(problem)))
    if problems:
        hint = _HASH_HINT if action != REPLACE else None
        raise Refused(action, problems, hint=hint)
    return tuple(found)


def read_hash(text: str) -> str:
    """Parse a hash as `bsd context` lists it, or a longer one; raises ValueError."""
    hash_ = text.strip().lower()
    if not _HASH.fullmatch(hash_):
        raise ValueError(
            f'Invalid hash format: "{text[:80]}" ({len(text)} chars). '
            'Expected: 6 or more hex characters (0-9, a-f), e.g., "a1b2c3"'
        )
    return hash_


def _read(action: str, target: object) -> Target:
    """Parse one target; raises ValueError."""
    parts = _parts(action, target)
    if action == REPLACE:
        if not parts[0] or not parts[1]:
            raise ValueError(EMPTY_MARKER)
        return Replacement(*parts)
    if action == DISTILL and len(parts) == 1:
        raise ValueError(f"Summary required for distill action: {parts[0][:80]}")
    hash_ = read_hash(parts[0])
    if action == DISCARD:
        return Discard(hash_)
    if not parts[1].strip():
        raise ValueError(f"Summary required for distill action: {hash_}")
    return Discard(hash_, parts[1])


def _parts(action: str, target: object) -> list[str]:
    """Return the texts of a target: an object, an array, or for a single text the text itself."""
    names = _FIELDS[action]
    if isinstance(target, Mapping):
        said = [f"{name} is missing" for name in names if name not in target]
        said += [f"{name} is not known" for name in target if name not in names]
        if said:
            raise ValueError(f"{', '.join(said)}; expected {_FORMS[action]}")
        parts = [target[name] for name in names]
    elif isinstance(target, str) and action == DISCARD:
        parts = [target]
    elif isinstance(target, Sequence) and not isinstance(target, str | bytes):
        parts = list(target)
    else:
        raise ValueError(f"Invalid target: expected {_FORMS[action]}")
    enough = len(parts) == len(names) or (action == DISTILL and len(parts) == 1)
    if not enough or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"Invalid target: expected {_FORMS[action]}, all of them texts")
    return parts


@dataclass(frozen=True, slots=True)
class ContextChange:
    """One target in effect (seed 003). Lengths are characters; tokens are an estimate."""

    operation: Mapping[str, str]
    message_id: Annotated[str, Field(serialization_alias="messageId")]
    original_length: Annotated[int, Field(serialization_alias="originalLength")]
    new_length: Annotated[int, Field(serialization_alias="newLength")]
    tokens_saved: Annotated[int, Field(serialization_alias="tokensSaved")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChanged:
    """Seed 003's ReplaceResult: all targets of one call, in order."""

    success: bool = True
    action: Action
    changed: Annotated[tuple[ContextChange, ...], Field(serialization_alias="replacements")]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tokens_saved: Annotated[int, Field(serialization_alias="tokensSaved")]
    operation: Annotated[
        int | None, Field(description="Number of the operation in the history; null for a dry run")
    ] = None

    @property
    def entry_ids(self) -> list[str]:
        return list(dict.fromkeys(one.message_id for one in self.changed))


def change_plan(  # noqa: PLR0913, PLR0917 - parts of the plan and of the answer
    source: Transcript,
    fmt: TranscriptFormat,
    action: Action,
    edits: Sequence[Edit],
    touched: Sequence[TouchedLine],
    changed: Sequence[ContextChange],
    warnings: Sequence[str],
    rate: Rate,
) -> tuple[Plan, ContextChanged]:
    """Return the plan of these edits, in the order of the file, and the answer.

    Args:
        changed: one per target, in the order of the call.
        rate: the rate used for their tokens.
    """
    answer = ContextChanged(
        action=action,
        changed=tuple(changed),
        warnings=tuple(warnings),
        tokens_saved=sum(one.tokens_saved for one in changed),
    )
    plan = Plan.of(action, source, fmt, edits, touched, values=len(changed))
    return plan.saving("other", answer.tokens_saved, rate), answer


def text_or_note(text: str) -> str:
    """Return the text, or a note if it is blank: providers refuse a message without text."""
    return text if text.strip() else DISCARDED
