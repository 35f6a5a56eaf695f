"""Answers of bsd's tools in a transcript: recognised, and written for the model. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bsd.mcp.calls import (
    ChangeContextCall,
    GetContextCall,
    ParsedCall,
    ReadCall,
    RestoreCall,
    SearchCall,
    SetExtractableCall,
)
from bsd.mcp.restoring import Inline

# Members that an answer of a tool has at least, in one of these forms; earlier versions included.
_RESTORED = {"restored", "entry_id", "keys_restored", "sizes_bytes"}
NEEDED: Mapping[str, tuple[set[str], ...]] = {
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
# What our commands print, and what the original tool answered in sessions older than bsd.
_PLAIN = re.compile(
    r"Restored \d+ keys? for entry |Set _extractable=|Session: .*\nTotal entries: |Restore failed: "
    r"|Error: (session|entry|value) parameter is required|Error: Unknown action '"
)
_DECODER = json.JSONDecoder()
_MOST_IDS = 50
_MOST_SHOWN = 20
_LONGEST = 4000  # characters


def read_answer(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a result's text begins with, or None.

    Only texts that the object names may follow it: over MCP they are blocks of their own.
    """
    try:
        answer, end = _DECODER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    return answer if gives_text(answer) or not text.lstrip()[end:].strip() else None


def gives_text(answer: dict[str, Any] | None) -> bool:
    """Return True if an answer has text that was extracted from a session."""
    texts = None if answer is None else answer.get("texts")
    return isinstance(texts, dict) and bool(texts)


def is_for_later(answer: dict[str, Any] | None) -> bool:
    """Return True if an answer says that the values come back inline after the turn."""
    return answer is not None and answer.get("inline") == Inline.AFTER_THE_TURN


def is_answered(tool: str, text: str) -> bool:
    """Return True if a result's text is the final answer of a tool of bsd.

    False if the session was busy, if values come back after the turn, and for the words of other
    programs, for instance that there is no such tool.
    """
    if _PLAIN.match(text):
        return True
    answer = read_answer(text)
    if answer is None or answer.get("busy") is True or is_for_later(answer):
        return False
    if isinstance(answer.get("error"), str):
        return set(answer) <= {"error", "hint", "errors"}
    return any(names <= set(answer) for names in NEEDED[tool])


def told(asked: ParsedCall, answer: Mapping[str, Any]) -> str:
    """Return the words for the model in place of a call's result, by its answer as JSON."""
    match asked:
        case RestoreCall():
            return _restored(answer)
        case ReadCall():
            return _read(answer)
        case SetExtractableCall(_, value):
            shown = "unset" if value is None else str(value).lower()
            return f"[_extractable={shown} for entry {answer['entry_id']}]"
        case ChangeContextCall(action):
            done = f"{len(answer['replacements'])} done, {_saved(answer)} tokens saved"
            return f"[{_cut('; '.join([f'{action}: {done}', *answer['warnings']]))}]"
        case GetContextCall():
            return _context(answer)
        case SearchCall(query):
            return _found(query, answer["results"])


def told_error(tool: str, answer: Mapping[str, Any]) -> str:
    """Return the words for the model of a call that failed; `answer`: `tools.error_answer`."""
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
    return f"[{_cut('. '.join(part.rstrip('.') for part in parts)) or 'nothing to restore'}]"


def _read(answer: Mapping[str, Any]) -> str:
    """Return the texts, each below its key if there are several, and how to read on."""
    texts = answer["texts"]
    parts = [text if len(texts) == 1 else f"{key}:\n{text}" for key, text in texts.items()]
    for name in ("beside", "unavailable"):
        parts += [f"{key}: {what}" for key, what in answer.get(name, {}).items()]
    if following := answer.get("next"):
        more = f"{answer['characters_left']} more characters: read_extracted with"
        parts.append(f"[{more} keys {following['keys']} and offset {following['offset']}]")
    return "\n\n".join(parts) or "[nothing to read]"


def _saved(answer: Mapping[str, Any]) -> int:
    return sum(int(one["tokensSaved"]) for one in answer["replacements"])


def _context(answer: Mapping[str, Any]) -> str:
    """Return seed 001's words for get_context."""
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
