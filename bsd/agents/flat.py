"""The seeds' entries: one flat object a line, named by `__id` or `id`, without turns."""

from __future__ import annotations

from typing import Any

from bsd.agents.dialect import Facts, Format, ToolCall, Value
from bsd.agents.entry import (
    TYPE_OF_NAME,
    Entry,
    Title,
    arguments_at,
    asked,
    entry_id,
    entry_role,
    entry_time_ms,
    entry_type,
    message_of,
    text_of,
    texts_in,
)
from bsd.agents.values import block_values, calls_in, leaf_values, object_values, text_value
from bsd.foundation.value_path import ValuePath

_VALUE_KEYS = frozenset(("content", "text", "output", "result", "data", "thinking"))

# Kinds that are no part of the conversation.
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
_BLOCKS = frozenset(("text", "thinking", "image", *_CALLS))


class Flat(Format):
    """The dialect of the seeds' examples."""

    name = "flat"

    def facts(self, entry: Entry) -> Facts:
        kind = entry.get("type")
        type_ = entry_type(entry)
        is_result = type_ == "tool_result"
        return Facts(
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
            result_of=_first_text(entry, ("toolCallId", "tool_call_id", "toolUseId"))
            if is_result
            else None,
            result_tool=_first_text(entry, ("toolName", "tool_name", "name", "tool"))
            if is_result
            else None,
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
                values.extend(_message_values(value, type_, at_least, custom=custom))
        return values


def _is_beside(entry: Entry) -> bool:
    """Whether an entry is state, and no part of the conversation."""
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


def _message_values(message: Any, type_: str | None, at_least: int, *, custom: bool) -> list[Value]:
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
    """Find calls: the entry itself, or blocks of its content."""
    if type_ == "tool_call":
        call_id = _first_text(entry, ("toolCallId", "tool_call_id", "toolUseId"))
        name = _first_text(entry, ("name", "toolName", "tool"))
        given = arguments_at(entry, ())
        return (ToolCall(call_id or entry_id(entry) or "", name or "", (), given),)
    return calls_in(entry.get("content"), ("content",), _CALLS) + calls_in(
        message_of(entry).get("content"), ("message", "content"), _CALLS
    )


def _first_text(entry: Entry, keys: tuple[str, ...]) -> str | None:
    """Return the first of these members that is a text, in the entry or in its message."""
    for holder in (entry, message_of(entry)):
        for key in keys:
            if text := text_of(holder.get(key)):
                return text
    return None


FLAT = Flat()
