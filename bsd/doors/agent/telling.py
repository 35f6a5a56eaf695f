"""What came of a call, in a line or two for the model: it stands in place of the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bsd.verbs.change_context import ChangeContext
from bsd.verbs.get_context import GetContext
from bsd.verbs.read_extracted import ReadExtracted
from bsd.verbs.restore import Restore
from bsd.verbs.search_extracted import SearchExtracted
from bsd.verbs.set_extractable import SetExtractable

_MOST_IDS = 50
_MOST_SHOWN = 20
_LONGEST = 4000  # characters


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
