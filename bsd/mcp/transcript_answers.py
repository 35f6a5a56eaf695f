"""Recognises answers of bsd's tools in a transcript, and words answers for the model. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bsd.actions.read_extracted import ReadOut
from bsd.actions.search import ExtractedHits
from bsd.mcp.restoring import Inline
from bsd.planning.edit import ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.targets import ContextChanged
from bsd.planning.view import Context

# The required members of each tool's answer, in several forms, including those of earlier versions.
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
# The output of bsd's commands, and answers of the original tool in sessions older than bsd.
_PLAIN = re.compile(
    r"Restored \d+ keys? for entry |Set _extractable=|Session: .*\nTotal entries: |Restore failed: "
    r"|Error: (session|entry|value) parameter is required|Error: Unknown action '"
)
_DECODER = json.JSONDecoder()
_MOST_IDS = 50
_MOST_SHOWN = 20
_LONGEST = 4000  # characters


def read_answer(text: str) -> dict[str, Any] | None:
    """Return the JSON object at the beginning of a result's text, or None.

    Only texts that the object names may follow it; over MCP they are separate blocks.
    """
    try:
        answer, end = _DECODER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    return answer if gives_text(answer) or not text.lstrip()[end:].strip() else None


def gives_text(answer: dict[str, Any] | None) -> bool:
    """Return True if an answer contains extracted text of a session."""
    texts = None if answer is None else answer.get("texts")
    return isinstance(texts, dict) and bool(texts)


def is_for_later(answer: dict[str, Any] | None) -> bool:
    """Return True if an answer says that the values will be restored after the turn."""
    return answer is not None and answer.get("inline") == Inline.AFTER_THE_TURN


def is_answered(tool: str, text: str) -> bool:
    """Return True if a result's text is the final answer of a tool of bsd.

    False if the session was busy, if values will be restored after the turn, and for messages of
    other programs (such as an unknown tool).
    """
    if _PLAIN.match(text):
        return True
    answer = read_answer(text)
    if answer is None or answer.get("busy") is True or is_for_later(answer):
        return False
    if isinstance(answer.get("error"), str):
        return set(answer) <= {"error", "hint", "errors"}
    return any(names <= set(answer) for names in NEEDED[tool])


def describe_error(tool: str, answer: Mapping[str, Any]) -> str:
    """Return the note for the model about a failed call; `answer` is from `tools.error_answer`."""
    texts = [answer["error"]] if "error" in answer else list(answer["errors"])
    if hint := answer.get("hint"):
        texts.append(f"Try: {hint}")
    return f"[{tool} failed: {_cut('; '.join(texts))}]"


def describe_restored(answer: Restored) -> str:
    """Return the note for the model about restored values and unavailable values."""
    parts = []
    if answer.keys_restored:
        parts.append(f"restored entry {answer.entry_id}: {', '.join(answer.keys_restored)}")
    parts += [f"{key}: {why}" for key, why in answer.unavailable.items()]
    if answer.suggestion:
        parts.append(answer.suggestion)
    return f"[{_cut('. '.join(part.rstrip('.') for part in parts)) or 'nothing to restore'}]"


def describe_texts(answer: ReadOut) -> str:
    """Return the texts, each below its key if there are several, and how to read the next page."""
    texts = answer.texts
    parts = [text if len(texts) == 1 else f"{key}:\n{text}" for key, text in texts.items()]
    parts += [f"{key}: {what}" for key, what in {**answer.beside, **answer.unavailable}.items()]
    if answer.next:
        more = f"{answer.characters_left} more characters: read_extracted with"
        parts.append(f"[{more} keys {answer.next['keys']} and offset {answer.next['offset']}]")
    return "\n\n".join(parts) or "[nothing to read]"


def describe_context(answer: Context) -> str:
    """Return the note for get_context in seed 001's words, with the largest entries."""
    ids = [f"  - {one}" for one in answer.extracted_ids[:_MOST_IDS]]
    if (more := len(answer.extracted_ids) - _MOST_IDS) > 0:
        ids.append(f"  … and {more} more")
    lines = [
        f"Session: {answer.session}",
        f"Total entries: {answer.total_entries}",
        f"Extracted entries: {answer.extracted_entries}",
        "",
        "Extracted entry IDs:",
        *(ids or ["  (none)"]),
    ]
    largest = sorted(answer.entries, key=lambda entry: -entry.size_bytes)[:_MOST_SHOWN]
    if largest:
        lines += ["", "Largest entries (hash, id, type, bytes):"]
        lines += [f"  {one.hash} {one.id} {one.type} {one.size_bytes}" for one in largest]
    return "\n".join(lines)


def describe_hits(answer: ExtractedHits) -> str:
    """Return the entries that a search found, with the text around the words."""
    if not answer.results:
        return f"[no extracted value contains {answer.query}]"
    return _cut("\n".join(f"{hit.entry_id}: {hit.snippet}" for hit in answer.results))


def describe_extractable(answer: ExtractableSet) -> str:
    """Return the note for the model about the new value of `_extractable`."""
    value = "unset" if answer.extractable is None else str(answer.extractable).lower()
    return f"[_extractable={value} for entry {answer.entry_id}]"


def describe_change(answer: ContextChanged) -> str:
    """Return the note for the model about replaced, discarded or distilled texts."""
    saved = sum(change.tokens_saved for change in answer.changed)
    done = f"{answer.action}: {len(answer.changed)} done, {saved} tokens saved"
    return f"[{_cut('; '.join([done, *answer.warnings]))}]"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
