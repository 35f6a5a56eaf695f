"""Codex's lines as users look at them: contents that fill a thread, times of calls, sub-agents.

No edit depends on these answers; the module `codex` reads the lines for edits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bsd.transcripts.agents.entry import MARKER, Entry, payload_of, text_of
from bsd.transcripts.agents.format import (
    ADDED,
    RESULT_COPIES,
    SETUP,
    SUMMARIES,
    SUPERSEDED_SUMMARIES,
    TOKEN_COUNTS,
    Filling,
    StartedSubagent,
    asked,
    line_of_type,
    texts_in,
    with_tool,
)

# The text that Codex and its editor extension put before a user's prompt.
BEFORE_A_PROMPT = re.compile(
    r"\s*(?:# AGENTS\.md instructions for [^\n]*\n\s*<INSTRUCTIONS>.*?</INSTRUCTIONS>"
    r"|# Context from my IDE setup:.*?\n## My request for Codex:"
    r"|# Context from my IDE setup:.*)\s*",
    re.DOTALL,
)

_PAYLOAD = ("payload",)
# Names for the content of lines, and of the items in them, that count as a whole.
_LINES = {
    "session_meta": SETUP,
    "token_usage_record": TOKEN_COUNTS,
    "turn_context": "never sent: settings of turns",
    "world_state": "state of the program",
}
_COMPACTED = "compacted"
_COMPLETED = "item_completed"
_MESSAGE_COPIES = "never sent: copies of messages"
# Items that repeat messages; the others repeat results of calls.
_MESSAGE_ITEMS = frozenset(("UserMessage", "AgentMessage", "Reasoning", "Plan"))
_EVENTS = {
    "token_count": TOKEN_COUNTS,
    **dict.fromkeys(
        ("exec_command_end", "patch_apply_end", "mcp_tool_call_end", "image_generation_end"),
        RESULT_COPIES,
    ),
    **dict.fromkeys(
        ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
        _MESSAGE_COPIES,
    ),
}
_OTHER_EVENT = "never sent: events"
_ITEMS = {
    "additional_tools": "tools added by the program",
    "image_generation_call": "generated images",
    "ghost_snapshot": "never sent: snapshots of files",
}
_SETUP_ROLES = frozenset(("system", "developer"))
_LOCAL_CALL = "local_shell_call"
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))
# Items whose content is counted by its values and by the arguments of calls.
_BY_VALUES = _RESULTS | {"reasoning", "function_call", "custom_tool_call"}

# How results state the time of a call: before the output, or in JSON after it.
_SECONDS = re.compile(
    r'Wall time:? ([0-9]{1,9}(?:\.[0-9]+)?) sec|"duration_seconds":([0-9]{1,9}(?:\.[0-9]+)?)'
)
_MOST_SECONDS = 365 * 24 * 3600  # a longer time is damage
# The event and the result that name the thread that a call started.
_STARTED = "collab_agent_spawn_end"
_STARTED_ID = re.compile(r'\s*\{"agent_id":\s*"([0-9a-f-]{36})"')


def fillings_of(entry: Entry) -> Iterator[Filling]:
    """Yield the members of a line that fill bytes in addition to its values."""
    kind, payload = text_of(entry.get("type")) or "unknown", payload_of(entry)
    what = text_of(payload.get("type")) or "unknown"
    if kind == "event_msg":
        yield Filling((), _filling_of_event(what, payload))
    elif kind == _COMPACTED:
        yield Filling((), SUMMARIES, superseded=SUPERSEDED_SUMMARIES)
    elif kind != "response_item":
        yield Filling((), _LINES.get(kind) or line_of_type(kind))
    elif what == "message":
        if name := _filling_of_message(payload, is_whole=MARKER not in entry):
            yield Filling((*_PAYLOAD, "content"), name)
    elif what == _LOCAL_CALL:
        yield Filling((*_PAYLOAD, "action"), with_tool("tool calls", _LOCAL_CALL))
    elif what not in _BY_VALUES:
        yield Filling((), _ITEMS.get(what) or line_of_type(what))


def _filling_of_event(what: str, payload: Entry) -> str:
    if what != _COMPLETED:
        return _EVENTS.get(what, _OTHER_EVENT)
    item = payload.get("item")
    kind = text_of(item.get("type")) if isinstance(item, dict) else None
    return _MESSAGE_COPIES if kind in _MESSAGE_ITEMS else RESULT_COPIES


def _filling_of_message(payload: Entry, *, is_whole: bool) -> str | None:
    """Name the content of a message if neither a user nor the model wrote it."""
    if text_of(payload.get("role")) in _SETUP_ROLES:
        return SETUP
    content = payload.get("content")
    texts = texts_in(content)
    is_text = is_whole and isinstance(content, list) and len(texts) == len(content) > 0
    if payload.get("role") == "user" and is_text and asked(texts, BEFORE_A_PROMPT) is None:
        return ADDED
    return None


def call_seconds(payload: Entry) -> tuple[str, float] | None:
    """Return the id and duration of a call, if an event, an item or a result states them."""
    item = payload.get("item") if payload.get("type") == _COMPLETED else None
    if isinstance(item, dict):
        call, seconds = text_of(item.get("id")), _seconds_of(item)
    else:
        call, seconds = text_of(payload.get("call_id")), _seconds_of(payload)
    return None if seconds is None or call is None else (call, seconds)


def _seconds_of(holder: Entry) -> float | None:
    duration, milliseconds = holder.get("duration"), holder.get("duration_ms")
    if isinstance(duration, dict):
        secs, nanos = duration.get("secs"), duration.get("nanos")
        if type(secs) is int and type(nanos) is int and 0 <= secs < _MOST_SECONDS:
            return secs + nanos / 1e9
    if type(milliseconds) is int and 0 <= milliseconds < 1000 * _MOST_SECONDS:
        return milliseconds / 1000
    if text_of(holder.get("type")) not in _RESULTS:
        return None
    output = holder.get("output")
    for text in [output] if isinstance(output, str) else texts_in(output)[:1]:
        if said := _SECONDS.search(text[:300] + text[-150:]):
            return float(said[1] or said[2])
    return None


def started_thread(payload: Entry) -> StartedSubagent | None:
    """Return the thread that a call started, if an event or its result names it."""
    call, thread = text_of(payload.get("call_id")), None
    what = text_of(payload.get("type"))
    if what == _STARTED:
        thread = text_of(payload.get("new_thread_id"))
    elif what in _RESULTS and isinstance(output := payload.get("output"), str):
        thread = said[1] if (said := _STARTED_ID.match(output)) else None
    return StartedSubagent(call, thread) if call and thread else None
