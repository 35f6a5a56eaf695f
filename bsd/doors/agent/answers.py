"""What the tools answer: its schema, and how an answer is known again in a transcript."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bsd.doors.agent.arguments import schema_of
from bsd.foundation.errors import BsdError, Busy
from bsd.surgery.targets import Refused


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class Restored(_Answer):
    """Seed 001's answer, with the text; more fields when there is more to say."""

    restored: bool
    entry_id: str
    keys_restored: list[str]
    sizes_bytes: dict[str, int]
    inline: str = ""
    note: str = ""
    texts: dict[str, str] = Field(default_factory=dict)
    unavailable: dict[str, str] = Field(default_factory=dict)
    previous_restored_at: str = ""
    suggestion: str = ""


class ReadOut(_Answer):
    """Texts by key; `next` says how to ask for the rest, if there is any."""

    entry_id: str
    texts: dict[str, str]
    unavailable: dict[str, str] = Field(default_factory=dict)
    characters_left: int = 0
    next: dict[str, Any] = Field(default_factory=dict)


class Set(_Answer):
    updated: bool
    entry_id: str | None
    extractable: bool | int | None


class Listed(_Answer):
    """Sizes are bytes; `entries` are the largest ones, if there are very many."""

    session: str
    total_entries: int
    extracted_entries: int
    extracted_ids: list[str | None]
    entries: list[dict[str, Any]]
    entries_left_out: int = 0


class Changed(_Answer):
    """Seed 003's ReplaceResult."""

    success: bool
    replacements: list[dict[str, Any]]
    errors: list[str]


class Found(_Answer):
    session: str
    query: str
    results: list[dict[str, Any]]


_ANSWERS: Mapping[str, tuple[type[_Answer], ...]] = {
    "restore": (Restored,),
    "restore_remote": (Restored,),
    "purge_control": (Listed, Restored, Set),
    "context": (Changed,),
    "search_extracted": (Found,),
    "read_extracted": (ReadOut,),
}
# What they give may be a picture, and then an answer is more than one JSON object.
_WITH_PICTURES = frozenset(("restore", "restore_remote", "purge_control", "read_extracted"))
# These words of an answer say that the call is still to be carried out.
_LATER = "after the turn"


# What our commands print, and what the original tool answered in sessions that are older than bsd.
_PLAIN = re.compile(
    r"Restored \d+ keys? for entry |Set _extractable=|Session: .*\nTotal entries: |Restore failed: "
    r"|Error: (session|entry|value) parameter is required|Error: Unknown action '"
)


def output_schema(tool: str) -> dict[str, Any] | None:
    """The JSON schema of a tool's answers; None if some are not JSON alone."""
    return None if tool in _WITH_PICTURES else answer_schema(tool)


def answer_schema(tool: str) -> dict[str, Any]:
    """The JSON schema of what a tool says in JSON."""
    schemas = [schema_of(one) for one in _ANSWERS[tool]]
    return schemas[0] if len(schemas) == 1 else {"type": "object", "anyOf": schemas}


def error_answer(error: BsdError) -> dict[str, Any]:
    """What a caller is told of an error; `busy` says that the same call may succeed later."""
    if isinstance(error, Refused):
        return error.as_json()
    answer: dict[str, Any] = {"error": error.message}
    if error.hint is not None:
        answer["hint"] = error.hint
    if [one.message for one in error.errors] not in ([], [error.message]):
        answer["errors"] = [{"field": one.field, "message": one.message} for one in error.errors]
    if isinstance(error, Busy):
        answer["busy"] = True
    return answer


def read_answer(text: str) -> dict[str, Any] | None:
    """Read a result's text as an answer, if it is a JSON object."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def gives_text(answer: dict[str, Any] | None) -> bool:
    """Whether an answer of ours carries text that was taken out of a session."""
    texts = None if answer is None else answer.get("texts")
    return isinstance(texts, dict) and bool(texts)


def is_for_later(answer: dict[str, Any] | None) -> bool:
    """Whether an answer of ours says that the value comes back inline after the turn."""
    return answer is not None and answer.get("inline") == _LATER


def is_answered(tool: str, text: str) -> bool:
    """Whether a result's text is what one of our doors said when it had dealt with a call.

    Not so: that the session was busy, that a value comes back after the turn, and what others say,
    for instance that there is no such tool.
    """
    if _PLAIN.match(text):
        return True
    answer = read_answer(text)
    if answer is None or answer.get("busy") is True or is_for_later(answer):
        return False
    if isinstance(answer.get("error"), str):
        return set(answer) <= {"error", "hint", "errors"}
    needed = [
        {name for name, field in one.model_fields.items() if field.is_required()}
        for one in _ANSWERS[tool]
    ]
    return any(names <= set(answer) for names in needed)
