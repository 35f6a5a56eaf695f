"""The entries in OpenClaw's directories: its own and the seeds', and the detection of both.

OpenClaw's own entries are messages after a header of version 2 or 3, in the format of pi. The
seeds' entries are flat: one object per line, with an id in `__id` or `id`, without turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from bsd.transcripts.agents.entry import (
    TYPE_OF_NAME,
    Entry,
    arguments_at,
    entry_id,
    entry_role,
    entry_time_ms,
    entry_type,
    first_entries,
    message_of,
    provider_of,
    text_of,
    usage_of,
)
from bsd.transcripts.agents.format import (
    EXTENSION_STATE,
    PROGRAM_NOTES,
    SUMMARIES,
    TOKEN_COUNTS,
    VALUE_TYPES,
    CacheUse,
    EntryInfo,
    Filling,
    NotOurs,
    Rank,
    StartedSubagent,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    asked,
    line_of_type,
    named,
    path_text,
    texts_in,
)
from bsd.transcripts.agents.values import (
    block_values,
    calls_in,
    leaf_values,
    object_values,
    text_value,
)
from bsd.transcripts.spans import ValuePath

# --- message entries (versions 2 and 3), in the format of pi ---

_VERSIONS = (2, 3)  # of the header
_CONTENT = ("message", "content")

# Text that the gateway puts before a message of a channel: sender, time, its own notes.
_BEFORE_A_PROMPT = re.compile(
    r"(?:[A-Z][^\n:]{0,60}\(untrusted[^\n]{0,60}:\n```json\n.*?\n```"
    r"|System: [^\n]*"
    r"|\[(?:[^\]\n]{0,200}\d\d:\d\d[^\]\n]{0,40})\]"
    r"|A new session was started via .*)\s*",
    re.DOTALL,
)

_BROKEN_OFF = frozenset(("error", "aborted"))  # values of `stopReason`
# Tokens written to Anthropic's cache for an hour; other tokens are cached for five minutes.
_FOR_AN_HOUR = "cacheWrite1h"
_LONG_LIFE_SECONDS, _SHORT_LIFE_SECONDS = 3600.0, 300.0

# Roles of summaries, from which the program rebuilds its context.
_RECORDS = frozenset(("branchSummary", "compactionSummary"))
# Kinds of content of lines other than messages, and of messages that count as a whole.
_LINES = {
    "compaction": SUMMARIES,
    "branch_summary": SUMMARIES,
    "custom": EXTENSION_STATE,
    "custom_message": "messages of extensions",
    **dict.fromkeys(
        ("session", "model_change", "thinking_level_change", "label", "session_info", "usage"),
        PROGRAM_NOTES,
    ),
    "context_edit": "edits of the context",
}
_MESSAGES_AS_A_WHOLE = {
    **dict.fromkeys(_RECORDS, SUMMARIES),
    "bashExecution": "commands you ran",
}
_DETAILS = "never sent: details of results"
_SPAWNED = "childSessionKey"  # in the result of a call that started a sub-agent


class OpenClaw(TranscriptFormat):
    """Entries after a header of version 2 or 3."""

    name = "openclaw"

    def why_unknown_form(self, entry: Entry) -> str | None:
        kind, version = entry.get("type"), entry.get("version")
        if kind == "session" and (version not in _VERSIONS or isinstance(version, bool)):
            return f"session header of unknown version {version!r:.40}"
        if kind == "message" and text_of(message_of(entry).get("role")) is None:
            return "a message of unknown form: it has no role"
        return super().why_unknown_form(entry)

    def info(self, entry: Entry) -> EntryInfo:
        kind = text_of(entry.get("type")) or "unknown"
        if kind == "message":
            return _message_facts(entry, message_of(entry))
        is_compaction = kind == "compaction"
        return EntryInfo(
            id=entry_id(entry),
            kind=kind,
            is_message=kind == "custom_message",
            parent=text_of(entry.get("parentId")),
            names_parent="parentId" in entry,
            is_header=kind == "session",
            role=entry_role(entry),
            time_ms=entry_time_ms(entry),
            is_compaction=is_compaction,
            kept_from=text_of(entry.get("firstKeptEntryId")) if is_compaction else None,
        )

    def origins(self, entry: Entry) -> tuple[str, ...]:
        own = text_of(entry.get("id")) if entry.get("type") == "session" else None
        if own is None:
            return ()
        parent = text_of(entry.get("parentSession"))  # the path of a transcript
        return (own, PurePath(parent).stem) if parent else (own,)

    def directory(self, entry: Entry) -> str | None:
        return path_text(entry.get("cwd")) if entry.get("type") == "session" else None

    def title(self, entry: Entry) -> Title | None:
        if entry.get("type") == "session_info":
            return named(entry.get("name"), Rank.GIVEN)
        message = message_of(entry) if entry.get("type") == "message" else {}
        if message.get("role") != "user":
            return None
        return asked(texts_in(message.get("content")), _BEFORE_A_PROMPT)

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        kind = entry.get("type")
        if kind == "message":
            return _message_values(message_of(entry), entry_type(entry), at_least)
        if kind == "custom_message":
            return _conversation(entry, (), entry_type(entry), at_least)
        if kind == "custom":
            return _state(entry, at_least)
        return []

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        kind = text_of(entry.get("type")) or "unknown"
        if kind != "message":
            yield Filling((), _LINES.get(kind) or line_of_type(kind))
            return
        message = message_of(entry)
        if whole := _MESSAGES_AS_A_WHOLE.get(text_of(message.get("role")) or ""):
            yield Filling((), whole)
            return
        for key, what in (("details", _DETAILS), ("usage", TOKEN_COUNTS)):
            if key in message:
                yield Filling(("message", key), what)

    def tokens_before(self, entry: Entry) -> int | None:
        tokens = entry.get("tokensBefore")
        return tokens if type(tokens) is int else None

    def subagent(self, entry: Entry) -> StartedSubagent | None:
        message = message_of(entry)
        details = message.get("details")
        key = text_of(details.get(_SPAWNED)) if isinstance(details, dict) else None
        call = text_of(message.get("toolCallId"))
        return StartedSubagent(call, key) if call and key else None


def _message_facts(entry: Entry, message: Entry) -> EntryInfo:
    role = text_of(message.get("role"))
    is_assistant, is_result = role == "assistant", role == "toolResult"
    calls = calls_in(message.get("content"), _CONTENT) if is_assistant else ()
    return EntryInfo(
        id=entry_id(entry),
        kind=TYPE_OF_NAME.get(role, role) if role else "message",
        is_message=True,
        parent=text_of(entry.get("parentId")),
        names_parent="parentId" in entry,
        is_assistant=is_assistant,
        turn=_turn(role, message, has_calls=bool(calls)),
        role=role or entry_role(entry),
        time_ms=entry_time_ms(entry),
        signed_by=_signed_by(message) if is_assistant else None,
        calls=calls,
        result_of=text_of(message.get("toolCallId")) if is_result else None,
        result_tool=text_of(message.get("toolName")) if is_result else None,
        cache=_cache_use(entry, message) if is_assistant else None,
    )


def _cache_use(entry: Entry, message: Entry) -> CacheUse | None:
    """Return the request of an answer, with its use of the cache; None without token counts.

    Newer versions count tokens cached for an hour.
    """
    request, usage = usage_of(entry), message.get("usage")
    if request is None or not isinstance(usage, dict):
        return None
    life = None
    if request.written and _FOR_AN_HOUR in usage:
        life = _LONG_LIFE_SECONDS if usage[_FOR_AN_HOUR] else _SHORT_LIFE_SECONDS
    return CacheUse(
        text_of(message.get("model")),
        in_use=bool(request.read or request.written),
        life_seconds=life,
        provider=provider_of(entry),
        usage=request,
    )


def _turn(role: str | None, message: Entry, *, has_calls: bool) -> Turn:
    """Return the effect of a message on its turn.

    Commands that a user runs (`bashExecution`) and messages of extensions stand between turns. An
    assistant message without `stopReason` waits for results if it calls a tool. A message that
    ended in an error or was aborted is not sent again.
    """
    if role == "user":
        return Turn.STARTS
    if role == "toolResult":
        return Turn.OPEN
    if role == "assistant":
        reason = message.get("stopReason")
        if isinstance(reason, str) and reason in _BROKEN_OFF:
            return Turn.BREAKS
        waits = reason == "toolUse" if isinstance(reason, str) else has_calls
        return Turn.OPEN if waits else Turn.CLOSES
    return Turn.NONE


def _signed_by(message: Entry) -> str | None:
    """Return the model of the thinking signature in this message, or None."""
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict) or block.get("type") != "thinking":
            continue
        if text_of(block.get("thinkingSignature")):
            return text_of(message.get("model")) or ""
    return None


def _message_values(message: Entry, type_: str | None, at_least: int) -> list[Value]:
    role = message.get("role")
    if isinstance(role, str) and role in _RECORDS:
        return []
    values = _conversation(message, ("message",), type_, at_least)
    if role == "bashExecution" and (output := text_of(message.get("output"))):
        values.append(text_value(("message", "output"), output, type_))
    return values


def _conversation(holder: Entry, path: ValuePath, type_: str | None, at_least: int) -> list[Value]:
    """List the values of an object with `content` and `details`, in its own order."""
    values: list[Value] = []
    content = holder.get("content")
    if isinstance(content, list):
        api = text_of(holder.get("api")) or ""
        values = block_values(content, (*path, "content"), type_, at_least, api=api)
    elif text := text_of(content):
        values = [text_value((*path, "content"), text, type_)]
    if "details" in holder:
        where = (*path, "details")
        details = leaf_values(holder["details"], where, type_, at_least, display=True)
        first = next(key for key in holder if key in {"content", "details"})
        values = details + values if first == "details" else values + details
    return values


def _state(entry: Entry, at_least: int) -> list[Value]:
    """List an extension's state, which is never sent to the model."""
    data, type_ = entry.get("data"), entry_type(entry)
    if isinstance(data, str):
        if len(data) < max(at_least, 1):
            return []
        return [text_value(("data",), data, type_, display=True, leaf=True, custom=True)]
    return leaf_values(data, ("data",), type_, at_least, display=True, custom=True)


OPENCLAW = OpenClaw()


# --- the seeds' entries ---

_VALUE_KEYS = frozenset(("content", "text", "output", "result", "data", "thinking"))

# Kinds of entries outside of the conversation.
_BESIDE = frozenset(
    (
        "session",
        "model_change",
        "thinking_level_change",
        "label",
        "session_info",
        "custom",
        "compaction",
        "branch_summary",
    )
)
_CALLS = {"toolCall": "arguments", "tool_call": "arguments", "tool_use": "input"}
_CALL_IDS = ("toolCallId", "tool_call_id", "toolUseId")
_TOOL_NAMES = ("toolName", "tool_name", "name", "tool")
_BLOCKS = frozenset(("text", "thinking", "image", *_CALLS))


class Flat(TranscriptFormat):
    """The format of the seeds' examples."""

    name = "flat"

    def info(self, entry: Entry) -> EntryInfo:
        kind = entry.get("type")
        type_ = entry_type(entry)
        is_result = type_ == "tool_result"
        return EntryInfo(
            id=entry_id(entry),
            kind=type_ or text_of(kind) or "entry",
            is_message=not _is_beside(entry),
            parent=text_of(entry.get("parentId")),
            names_parent="parentId" in entry,
            is_header=kind == "session",
            role=entry_role(entry),
            time_ms=entry_time_ms(entry),
            is_compaction=kind == "compaction",
            kept_from=text_of(entry.get("firstKeptEntryId")) if kind == "compaction" else None,
            calls=_calls(entry, type_),
            result_of=_first_text(entry, _CALL_IDS) if is_result else None,
            result_tool=_first_text(entry, _TOOL_NAMES) if is_result else None,
        )

    def title(self, entry: Entry) -> Title | None:
        if entry_type(entry) != "user" or _is_beside(entry):
            return None
        message = entry.get("message")
        holder = message if isinstance(message, dict) else entry
        texts = [
            text
            for content in (holder.get("content"), entry.get("text"), message)
            for text in texts_in(content)
        ]
        return asked(texts)

    def fillings(self, entry: Entry) -> Iterator[Filling]:
        if _is_beside(entry):
            yield Filling((), _LINES[entry["type"]])
        elif "details" in message_of(entry):
            yield Filling(("message", "details"), _DETAILS)

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        custom = entry.get("type") == "custom" and _is_beside(entry)
        if _is_beside(entry) and not custom:
            return []
        type_ = entry_type(entry)
        values: list[Value] = []
        for key, value in entry.items():
            if key in _VALUE_KEYS:
                values.extend(_values_of(value, (key,), type_, at_least, custom=custom))
            elif key == "message":
                values.extend(_inside_message(value, type_, at_least, custom=custom))
        return values


def _is_beside(entry: Entry) -> bool:
    """Return whether an entry is state, outside of the conversation."""
    kind, custom = entry.get("type"), entry.get("customType")
    if kind == "custom" and isinstance(custom, str) and custom in TYPE_OF_NAME:
        return False
    return isinstance(kind, str) and kind in _BESIDE


def _values_of(
    value: Any, path: ValuePath, type_: str | None, at_least: int, *, custom: bool
) -> list[Value]:
    if isinstance(value, str):
        return [text_value(path, value, type_, custom=custom)] if value else []
    if isinstance(value, list) and any(_is_block(item) for item in value):
        return block_values(value, path, type_, at_least, calls=_CALLS)
    return object_values(value, path, type_, at_least, custom=custom)


def _is_block(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(k := item.get("type"), str) and k in _BLOCKS


def _inside_message(message: Any, type_: str | None, at_least: int, *, custom: bool) -> list[Value]:
    if isinstance(message, str):
        return _values_of(message, ("message",), type_, at_least, custom=custom)
    if not isinstance(message, dict) or not message.get("content"):
        return []
    values: list[Value] = []
    for key, value in message.items():
        if key == "content":
            values.extend(_values_of(value, ("message", key), type_, at_least, custom=custom))
        elif key == "details":
            values.extend(
                leaf_values(value, ("message", key), type_, at_least, display=True, custom=custom)
            )
    return values


def _calls(entry: Entry, type_: str | None) -> tuple[ToolCall, ...]:
    """Return the calls in an entry: the entry itself, or blocks of its content."""
    if type_ == "tool_call":
        call_id = _first_text(entry, _CALL_IDS)
        name = _first_text(entry, ("name", "toolName", "tool"))
        given = arguments_at(entry, ())
        return (ToolCall(call_id or entry_id(entry) or "", name or "", (), given),)
    return calls_in(entry.get("content"), ("content",), _CALLS) + calls_in(
        message_of(entry).get("content"), ("message", "content"), _CALLS
    )


def _first_text(entry: Entry, keys: tuple[str, ...]) -> str | None:
    """Return the first of these members that is a string, in the entry or in its message."""
    for holder in (entry, message_of(entry)):
        for key in keys:
            if text := text_of(holder.get(key)):
                return text
    return None


FLAT = Flat()


# --- detection ---

_MIGRATES = "open it once with its program, which adds ids; until then bsd does not change it"


def header_ids(entry: Entry) -> set[str]:
    """Return the id of the conversation that a header names; empty for any other entry."""
    found = text_of(entry.get("id")) if entry.get("type") == "session" else None
    return {found} if found else set()


def detect(first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
    """Return the format of a file with these lines; reads at most `LINES_LOOKED_AT`.

    Messages without a header before them are only read, since the gateway makes a new file of
    these.
    """
    entries = first_entries(first_lines)
    first = next(entries, None)
    if first is None:
        return NotOurs("no entries")
    if first.get("type") == "session":
        return _by_header(first)
    others = list(entries)
    if any(map(_is_flat, (first, *others))):
        return FLAT
    if any(entry.get("type") == "session" for entry in others):
        return NotOurs("its first entry is not the session header", OPENCLAW)
    if any(map(_is_message, (first, *others))):
        return NotOurs("the session header is missing or damaged", OPENCLAW)
    return NotOurs("foreign format")


def _by_header(header: Entry) -> TranscriptFormat | NotOurs:
    version = header.get("version")
    if version is None:
        return NotOurs("version 1 session: its entries have no ids", hint=_MIGRATES)
    if isinstance(version, (int, float)) and not isinstance(version, bool) and version < 2:
        return NotOurs(f"version {version} session: its entries have no ids", hint=_MIGRATES)
    if why := OPENCLAW.why_unknown_form(header):
        return NotOurs(why, OPENCLAW, is_unknown_form=True)
    return OPENCLAW


def _is_message(entry: Entry) -> bool:
    """Return whether pi or the gateway wrote this message."""
    known = entry.get("type") == "message" and "parentId" in entry
    return known and text_of(message_of(entry).get("role")) is not None


def _is_flat(entry: Entry) -> bool:
    if text_of(entry.get("__id")):
        return True
    kinds = (entry.get("type"), entry.get("customType"))
    return text_of(entry.get("id")) is not None and any(kind in VALUE_TYPES for kind in kinds)
