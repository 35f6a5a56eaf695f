"""Finds the values and calls in parts, the content of a message in the form of the Gemini API.

A part is an object with one of these members: `text` (with `thought` if it is thinking),
`inlineData` (`mimeType` and base64 in `data`), `functionCall` (`id`, `name`, `args`), or
`functionResponse` (`id`, `name`, `response`, and perhaps media in `parts`). A string counts as a
part with this text. A part that the model has signed has a `thoughtSignature`, which proves it;
such a part is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bsd.transcripts.agents.entry import Entry, text_of
from bsd.transcripts.agents.format import Shape, ToolCall, Value
from bsd.transcripts.agents.values import leaf_values, text_value
from bsd.transcripts.spans import ValuePath

CALL, RESPONSE, MEDIA, SIGNATURE = (
    "functionCall",
    "functionResponse",
    "inlineData",
    "thoughtSignature",
)


class PartResult(NamedTuple):
    """The result of a call in a part."""

    id: str  # of the call; empty if the part has none
    name: str  # of the tool; empty if the part has none
    path: ValuePath  # of `response`
    failed: bool  # the response has an `error`


def part_values(
    parts: Any, path: ValuePath, type_: str | None, at_least: int = 0, *, display: bool = False
) -> list[Value]:
    """List the values in parts, in their order.

    Texts, results, thinking and media of any length are listed. Values of a signed part, and media
    inside a response (which may hold nothing else), are `fixed`; arguments of a signed call are not
    listed.

    Args:
        parts: a list of parts, one part, or a string.
        path: its path.
        type_: the type of texts and media that are neither thinking nor of a tool.
        at_least: least number of characters of a string in arguments.
        display: the program never sends these parts.
    """
    values: list[Value] = []
    for part, here in _parts(parts, path):
        if isinstance(part, str):
            values.append(text_value(here, part, type_, display=display))
            continue
        signed = bool(part.get(SIGNATURE))
        if text := text_of(part.get("text")):
            what = "thinking" if part.get("thought") else type_
            values.append(text_value((*here, "text"), text, what, display=display, fixed=signed))
        if isinstance(media := part.get(MEDIA), dict):
            values += _media(media, here, type_, display=display, fixed=signed)
        call = part.get(CALL)
        if isinstance(call, dict) and isinstance(args := call.get("args"), dict) and not signed:
            where = (*here, CALL, "args")
            values += leaf_values(args, where, "tool_call", at_least, display=display)
        if isinstance(response := part.get(RESPONSE), dict):
            values += _response_values(response, (*here, RESPONSE), display=display)
    return values


def part_calls(parts: Any, path: ValuePath) -> tuple[ToolCall, ...]:
    """Return the tool calls in parts."""
    found = []
    for part, here in _parts(parts, path):
        call = part.get(CALL) if isinstance(part, dict) else None
        if isinstance(call, dict):
            call_id, name = text_of(call.get("id")) or "", text_of(call.get("name")) or ""
            where = (*here, CALL)
            found.append(
                ToolCall(call_id, name, where, (*where, "args") if "args" in call else None)
            )
    return tuple(found)


def part_results(parts: Any, path: ValuePath) -> Iterator[PartResult]:
    """Yield the results of calls in parts."""
    for part, here in _parts(parts, path):
        response = part.get(RESPONSE) if isinstance(part, dict) else None
        if isinstance(response, dict):
            content = response.get("response")
            failed = isinstance(content, dict) and bool(content.get("error"))
            call_id, name = text_of(response.get("id")), text_of(response.get("name"))
            yield PartResult(call_id or "", name or "", (*here, RESPONSE, "response"), failed)


def part_texts(parts: Any) -> list[str]:
    """Return the texts in parts, without thinking."""
    return [
        text
        for part, _ in _parts(parts, ())
        if (text := part if isinstance(part, str) else _said(part))
    ]


def has_signature(parts: Any) -> bool:
    """Return whether the model has signed one of these parts."""
    return any(
        isinstance(part, dict) and bool(part.get(SIGNATURE)) for part, _ in _parts(parts, ())
    )


def _said(part: Entry) -> str | None:
    return None if part.get("thought") else text_of(part.get("text"))


def _parts(parts: Any, path: ValuePath) -> Iterator[tuple[Entry | str, ValuePath]]:
    """Yield each part that is an object or a text, with its path."""
    several = enumerate(parts) if isinstance(parts, list) else ((None, parts),)
    for index, part in several:
        if isinstance(part, dict) or text_of(part):
            yield part, path if index is None else (*path, index)


def _media(
    media: Entry, path: ValuePath, type_: str | None, *, display: bool, fixed: bool
) -> list[Value]:
    data = text_of(media.get("data"))
    if not data:
        return []
    return [Value(path, Shape.PART, type_, display=display, length=len(data), fixed=fixed)]


def _response_values(response: Entry, path: ValuePath, *, display: bool) -> list[Value]:
    content, where = response.get("response"), (*path, "response")
    values = leaf_values(content, where, "tool_result", 1, display=display)
    for part, here in _parts(response.get("parts"), (*path, "parts")):
        if isinstance(part, dict) and isinstance(media := part.get(MEDIA), dict):
            values += _media(media, here, "tool_result", display=display, fixed=True)
    return values
