"""The lines that Claude Code writes beside a conversation and never sends to its model.

Values of three kinds of lines are extracted. For these, it was verified (with 2.1.332, in print
mode and in a terminal) that the program resumes with the same request without their content:

- `progress`: the state of a running tool; for a sub-agent, its messages again and again. Old
  versions write and show it (tried with 2.1.19, in which `data` must stay an object). New versions
  read only `uuid` and `parentUuid` of such a line.
- `attachment`: the output of hooks. The text that a hook tells the model is a separate member, and
  stays.
- `api-request`, `api-request-shape`, `api-request-blob`: requests as they were sent, in parts. On
  resume, the program reads their hashes, to recognise the parts that it has written. These lines
  have no `uuid`: bsd derives their id from the members that stay in them.

All other attachments stay: most are sent again, and a placeholder in `prompt_snapshot` would become
the next system prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from bsd.transcripts.agents.entry import Entry, is_structural, text_of
from bsd.transcripts.agents.format import (
    ADDED,
    ATTACHMENTS,
    PROGRAM_NOTES,
    SETUP,
    Value,
    line_of_type,
)
from bsd.transcripts.agents.values import unit_values
from bsd.transcripts.spans import ValuePath, value_at

# Values that are extracted, by the type of the line. A message stays an object, since other
# programs that read sessions expect an object in `message`.
_RECORDS: dict[str, tuple[ValuePath, ...]] = {
    "api-request": (("params",), ("tail",)),
    "api-request-shape": (("shape",),),
    "api-request-blob": (("message", "content"),),
}
# Members of such a line that stay, and that are equal in a copy of it in a fork.
_TELLING = ("type", "agentId", "id", "shapeHash", "hash", "timestamp")
# Types of lines about the session itself, to which some versions give an id.
_NOTES = frozenset(("summary", "queue-operation"))
_DIGITS = 24  # hex digits of the hash in an id

# Hooks whose `content` is sent, and the hook whose output is compared with that of its next run.
_SENT_EVENTS = frozenset(("SessionStart", "UserPromptSubmit", "UserPromptExpansion"))
_COMPARED_EVENT = "SessionStart"
_OUTPUT = ("stdout", "stderr")
# Attachments of hooks, with the members that only users see.
_HOOK_OUTPUT = {
    "hook_success": (*_OUTPUT, "content"),
    "hook_non_blocking_error": _OUTPUT,
    "hook_error_during_execution": ("content",),
    "hook_system_message": ("content",),
    "async_hook_response": _OUTPUT,
}
_HOOKS = ("hook_", "async_hook_")


def is_record(kind: Any) -> TypeGuard[str]:
    """Return whether lines of this type are the program's records of its requests."""
    return isinstance(kind, str) and kind in _RECORDS


def record_id(entry: Entry) -> str | None:
    """Return the id of a record of a request; None if no member identifies it."""
    told = {key: text for key in _TELLING if (text := text_of(entry.get(key)))}
    if told.keys().isdisjoint(("id", "shapeHash", "hash")):
        return None
    text = json.dumps(told, sort_keys=True)
    return f"{told['type']}.{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def made_of(entry_id: str) -> re.Pattern[bytes] | None:
    """Return a pattern for records that may have this id; None if it is not a record's id."""
    kind = entry_id.rpartition(".")[0]
    return re.compile(rb'"%b"' % re.escape(kind.encode())) if kind in _RECORDS else None


def unsent_values(entry: Entry, at_least: int) -> list[Value]:
    """List the values in a line that the program never sends."""
    values: list[Value] = []
    for path, value in _unsent(entry):
        values += unit_values(value, path, "tool_result", at_least, display=True)
    return values


def filling_of_line(entry: Entry) -> str:
    """Return the kind of content of a line other than a message."""
    kind = text_of(entry.get("type")) or "unknown"
    if is_record(kind):
        return "never sent: records of requests"
    if kind == "attachment":
        return _filling_of_attachment(entry.get("attachment"))
    if kind == "progress":
        return "never sent: progress"
    if kind.startswith("file-history-"):
        return "never sent: snapshots of files"
    if kind == "system" or kind in _NOTES or text_of(entry.get("uuid")) is None:
        return PROGRAM_NOTES
    return line_of_type(kind)


def _filling_of_attachment(attachment: Any) -> str:
    kind = text_of(attachment.get("type")) if isinstance(attachment, dict) else None
    if kind == "prompt_snapshot":
        return SETUP
    if kind in _HOOK_OUTPUT and attachment.get("hookEvent") not in _SENT_EVENTS:
        return "never sent: output of hooks"
    return ADDED if kind is not None and kind.startswith(_HOOKS) else ATTACHMENTS


def _unsent(entry: Entry) -> Iterator[tuple[ValuePath, Any]]:
    kind = entry.get("type")
    if is_record(kind):
        yield from ((path, value_at(entry, path)) for path in _RECORDS[kind])
    elif text_of(entry.get("uuid")) is None:
        return
    elif kind == "progress":
        data = entry.get("data")
        for key, value in data.items() if isinstance(data, dict) else ():
            if not is_structural(key):  # `type` names the kind of the record
                yield ("data", key), value
    elif kind == "attachment":
        attachment = entry.get("attachment")
        if isinstance(attachment, dict):
            keys = _hook_output(attachment)
            yield from ((("attachment", key), attachment[key]) for key in attachment if key in keys)


def _hook_output(attachment: Entry) -> tuple[str, ...]:
    kind, event = attachment.get("type"), attachment.get("hookEvent")
    keys = _HOOK_OUTPUT.get(kind, ()) if isinstance(kind, str) else ()
    if event == _COMPARED_EVENT and kind != "hook_success":
        return ()
    return _OUTPUT if keys and event in _SENT_EVENTS else keys
