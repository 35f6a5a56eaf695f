"""Answers as a transcript has them: in words for the model, and known again where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bsd.doors.agent.tools import TOOLS
from bsd.foundation.definition import told_fields
from bsd.foundation.errors import BsdError, Busy
from bsd.surgery.targets import Refused
from bsd.verbs.edit import ChangeContext, GetContext, SetExtractable
from bsd.verbs.read_extracted import ReadExtracted
from bsd.verbs.restore import Restore
from bsd.verbs.search import SearchExtracted

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
_MOST_IDS = 50
_MOST_SHOWN = 20
_LONGEST = 4000  # characters


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


def told(asked: Any, answer: Mapping[str, Any]) -> str:
    """Say what has come of a call, by its arguments and its answer as JSON."""
    match asked:
        case Restore():
            return _restored(answer)
        case ReadExtracted():
            return _read(answer)
        case SetExtractable(_, value):
            shown = "unset" if value is None else str(value).lower()
            return f"[_extractable={shown} for entry {answer['entry_id']}]"
        case ChangeContext(action):
            done = f"{len(answer['replacements'])} done, {_saved(answer)} tokens saved"
            return f"[{_cut('; '.join([f'{action}: {done}', *answer['warnings']]))}]"
        case GetContext():
            return _context(answer)
        case SearchExtracted(query):
            return _found(query, answer["results"])
        case _:
            return f"[{_cut(json.dumps(answer, ensure_ascii=False))}]"


def told_error(tool: str, answer: Mapping[str, Any]) -> str:
    """Say why a call has failed; `answer` is that of an error."""
    texts = [answer["error"]] if "error" in answer else list(answer["errors"])
    if hint := answer.get("hint"):
        texts.append(f"Try: {hint}")
    return f"[{tool} failed: {_cut('; '.join(texts))}]"


def _restored(answer: Mapping[str, Any]) -> str:
    parts = []
    if answer["keys_restored"]:
        keys = ", ".join(answer["keys_restored"])
        parts.append(f"restored entry {answer['entry_id']}: {keys}")
    parts += [f"{key}: {why}" for key, why in answer.get("unavailable", {}).items()]
    if suggestion := answer.get("suggestion"):
        parts.append(suggestion)
    return f"[{'. '.join(part.rstrip('.') for part in parts) or 'nothing to restore'}]"


def _read(answer: Mapping[str, Any]) -> str:
    """The texts, each below its key if there are several; what follows them is said at the end."""
    texts = answer["texts"]
    parts = [text if len(texts) == 1 else f"{key}:\n{text}" for key, text in texts.items()]
    parts += [f"{key}: {why}" for key, why in answer.get("unavailable", {}).items()]
    if following := answer.get("next"):
        more = f"{answer['characters_left']} more characters: read_extracted with"
        parts.append(f"[{more} keys {following['keys']} and offset {following['offset']}]")
    return "\n\n".join(parts) or "[nothing to read]"


def _saved(answer: Mapping[str, Any]) -> int:
    return sum(int(one["tokensSaved"]) for one in answer["replacements"])


def _context(answer: Mapping[str, Any]) -> str:
    """The originals' words for get_context."""
    ids = [str(one) for one in answer["extracted_ids"]]
    shown = [f"  - {one}" for one in ids[:_MOST_IDS]]
    if len(ids) > _MOST_IDS:
        shown.append(f"  … and {len(ids) - _MOST_IDS} more")
    lines = [
        f"Session: {answer['session']}",
        f"Total entries: {answer['total_entries']}",
        f"Extracted entries: {answer['extracted_entries']}",
        "",
        "Extracted entry IDs:",
        *(shown or ["  (none)"]),
    ]
    largest = sorted(answer["entries"], key=lambda entry: -int(entry["size_bytes"]))[:_MOST_SHOWN]
    if largest:
        lines += ["", "Largest entries (hash, id, type, bytes):"]
        lines += [
            f"  {one['hash']} {one['id']} {one['type']} {one['size_bytes']}" for one in largest
        ]
    return "\n".join(lines)


def _found(query: str, results: list[Mapping[str, Any]]) -> str:
    if not results:
        return f"[nothing that was extracted holds {query}]"
    return _cut("\n".join(f"{one['entry_id']}: {one['snippet']}" for one in results))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
