"""How an answer of ours is known again in a transcript, and what is told of an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bsd.doors.agent.tools import TOOLS
from bsd.foundation.answers import told_fields
from bsd.foundation.errors import BsdError, Busy
from bsd.surgery.targets import Refused

# What answers hold at least, those of earlier versions included: transcripts are older than bsd.
# Of other tools it is what their answers hold always.
_RESTORED = {"restored", "entry_id", "keys_restored", "sizes_bytes"}
_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "restore": (_RESTORED,),
    "restore_remote": (_RESTORED,),
    "purge_control": (
        {"session", "total_entries", "extracted_entries", "extracted_ids", "entries"},
        _RESTORED,
        {"updated", "entry_id", "extractable"},
    ),
    "context": ({"success", "replacements", "errors"},),
    "search_extracted": ({"session", "query", "results"},),
    "read_extracted": ({"entry_id", "texts"},),
}
# These words of an answer say that the call is still to be carried out.
_LATER = "after the turn"


# What our commands print, and what the original tool answered in sessions that are older than bsd.
_PLAIN = re.compile(
    r"Restored \d+ keys? for entry |Set _extractable=|Session: .*\nTotal entries: |Restore failed: "
    r"|Error: (session|entry|value) parameter is required|Error: Unknown action '"
)


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
    return any(names <= set(answer) for names in _needed(tool))


def _needed(tool: str) -> tuple[set[str], ...]:
    answer: Any = TOOLS[tool].answer
    always = {said.name or one.name for one, said in told_fields(answer) if not said.omit}
    return _NEEDED.get(tool, (always,))
