"""Values in lines of Codex that need more than a path: pictures, histories of compactions."""

from __future__ import annotations

from dataclasses import replace

from bsd.transcripts.agents.entry import Entry, text_of
from bsd.transcripts.agents.format import Shape, Value
from bsd.transcripts.agents.values import result_values
from bsd.transcripts.spans import ValuePath

RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))

_HISTORY = ("payload", "replacement_history")
_REFERENCES = "replacement_history_entries"  # refer to a history in other lines
_ROLES = frozenset(("user", "assistant"))  # instructions stay in any case


def picture_values(block: Entry, path: ValuePath, type_: str | None) -> list[Value]:
    """List the picture of a content block, if it stands in the block itself."""
    url = text_of(block.get("image_url"))
    if block.get("type") != "input_image" or url is None or not url.startswith("data:"):
        return []
    return [Value(path, Shape.INPUT, type_, display=False, length=len(url))]


def compactions_read(compaction: Entry) -> int:
    """Return how many of the newest compactions Codex may read once this one follows.

    A resumed thread begins with the newest. A fork that begins shortly before it needs the one
    before. Compactions without the history itself may refer to earlier lines.
    """
    return (
        2 if isinstance(compaction.get(_HISTORY[-1]), list) and _REFERENCES not in compaction else 0
    )


def history_values(compaction: Entry, at_least: int) -> list[Value]:
    """List the texts and pictures of conversations and results in a compaction's history.

    A text or block with a placeholder is valid in a request, if a fork begins so early that it
    needs this compaction.
    """
    values: list[Value] = []
    items = compaction.get(_HISTORY[-1])
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict):
            continue
        path, said = (*_HISTORY, index), []
        if item.get("type") == "message" and item.get("role") in _ROLES:
            said = result_values(
                item.get("content"), (*path, "content"), "input_text", picture_values
            )
        elif item.get("type") in RESULTS:
            said = result_values(
                item.get("output"), (*path, "output"), "input_text", picture_values
            )
        values += (value for value in said if value.length >= max(at_least, 1))
    return [
        replace(value, type="tool_result", display=True, leaf=True, once_superseded=True)
        for value in values
    ]
