"""What every dialect reads from an entry in the same way: id, type, role and time."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from bsd.agents.base import Entry

# Names that say of which type a value is (SPEC §3). A name that is not here falls through.
TYPE_OF_NAME = {
    "thinking": "thinking",
    "tool_call": "tool_call",
    "toolCall": "tool_call",
    "tool_result": "tool_result",
    "toolResult": "tool_result",
    "tool": "tool_result",
    "bashExecution": "tool_result",
    "assistant": "assistant",
    "ai": "assistant",
    "user": "user",
    "human": "user",
    "system": "system",
}

# Members that hold a conversation together. They are never extracted, at whatever depth: none
# holds anything long in a sound file, and one that does is somebody's key to something.
_STRUCTURAL = frozenset(
    (
        "id",
        "type",
        "customType",
        "timestamp",
        "role",
        "parentId",
        "toolCallId",
        "toolUseId",
        "tool_call_id",
        "tool_use_id",
        "version",
        "cwd",
        "modelId",
        "provider",
        "thinkingLevel",
        "firstKeptEntryId",
        "fromHook",
        "tokensBefore",
        "_extractable",
        "_restored",
        "_extracted",
        "_redacted",
        "_pruned",
        "_pruned_type",
        "_has_tool_calls",
    )
)


def is_structural(key: str) -> bool:
    """Whether a member of this name is never extracted."""
    return key in _STRUCTURAL or key.startswith("__")


def text_of(value: Any) -> str | None:
    """Return a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def message_of(entry: Entry) -> Entry:
    """Return the entry's message, an empty one if there is none."""
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def entry_id(entry: Entry) -> str | None:
    """Return the name of an entry: `__id`, else `id`."""
    return text_of(entry.get("__id")) or text_of(entry.get("id"))


def entry_type(entry: Entry) -> str | None:
    """Return the type of values that stand in no block of their own (SPEC §3)."""
    names = (
        entry.get("customType"),
        entry.get("type"),
        message_of(entry).get("role"),
        entry.get("role"),
    )
    for name in names:
        if isinstance(name, str) and name in TYPE_OF_NAME:
            return TYPE_OF_NAME[name]
    return _inferred_type(entry)


def _inferred_type(entry: Entry) -> str | None:
    data = entry.get("data")
    inside: Entry = data if isinstance(data, dict) else {}
    if "thinking" in entry or "thinking" in inside:
        return "thinking"
    if "tool_result" in entry or "result" in entry or "output" in entry or "result" in inside:
        return "tool_result"
    return None


def entry_role(entry: Entry) -> str | None:
    """Return the role that rules compare."""
    role = text_of(message_of(entry).get("role")) or text_of(entry.get("role"))
    return role or ("agent" if entry.get("customType") == "thinking" else None)


def entry_time_ms(entry: Entry) -> float | None:
    """Return when an entry was written, by seed 000's sources; None if none can be read."""
    for key in ("timestamp", "__ts"):
        if key in entry and (time := time_ms(entry[key])) is not None:
            return time
    time = time_ms(message_of(entry).get("created_at"))
    return time_ms(entry.get("time")) if time is None else time


def time_ms(value: Any) -> float | None:
    """Read a time, ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970."""
    if not isinstance(value, str):
        return _milliseconds(value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
