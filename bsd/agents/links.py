"""What ties an entry to others, and a call to its arguments, in words that all dialects share."""

from __future__ import annotations

from bsd.agents.base import Entry, ToolCall
from bsd.agents.reading import message_of, text_of
from bsd.foundation.value_path import ValuePath

PARENT = "parentId"
PARENTS = (PARENT, "parentUuid")
REDACTED = "_redacted"

# Members whose names end like those of links, and that link something else.
_OTHER_IDS = frozenset((PARENT, "toolCallId", "toolUseId", "callId"))
_AUTHOR = ("role", "api", "provider", "model")
_ARGUMENTS = ("arguments", "input")
_THINKING = frozenset(("thinking", "redacted_thinking"))


def names_parent(entry: Entry) -> bool:
    """Whether an entry says which one it follows, or that it is a first one."""
    return PARENTS[0] in entry or PARENTS[1] in entry


def parent_of(entry: Entry) -> str | None:
    """The id of the entry that this one follows; None for a first one."""
    return text_of(entry.get(PARENTS[0])) or text_of(entry.get(PARENTS[1]))


def mentions(entry: Entry) -> list[str]:
    """Ids of entries that this one names beside its parent: `firstKeptEntryId`, `targetId`, …."""
    return [
        value
        for key, value in entry.items()
        if key.endswith("Id") and key not in _OTHER_IDS and isinstance(value, str)
    ]


def arguments_path(entry: Entry, call: ToolCall) -> ValuePath | None:
    """Where a call's arguments stand; None if it has none."""
    holder = block_at(entry, call.path)
    if isinstance(holder, dict):
        for key in _ARGUMENTS:
            if key in holder:
                return (*call.path, key)
    return None


def block_at(entry: Entry, path: ValuePath) -> object:
    """The object that a call's path leads to: a block, or the entry itself."""
    here: object = entry
    for step in path:
        if isinstance(here, dict) and isinstance(step, str):
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            return None
    return here


def same_author(one: Entry, other: Entry) -> bool:
    """Whether the same model wrote two messages, by the same way: their blocks may stand in one."""
    messages = (message_of(one), message_of(other))
    return len({tuple(str(m.get(key)) for key in _AUTHOR) for m in messages}) == 1


def says_something(block: object) -> bool:
    """Whether a block can stand alone in a message: thinking without an answer is refused."""
    if not isinstance(block, dict):
        return block not in (None, "")
    if block.get("type") == "text":
        return bool(text_of(block.get("text")) and str(block["text"]).strip())
    return block.get("type") not in _THINKING
