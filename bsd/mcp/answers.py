"""Answers of tools as they are sent over MCP: texts in blocks of their own, and never too much.

An answer is a JSON object. The texts of a session stand behind it, each in a block, as they are:
inside the object a model would read them with escapes. No answer is larger than the program that
asks takes (`agents.page_size`): lists and facts come in pages, and of what is still too large the
ends are cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types

from bsd.transcripts.agents.page_size import PageSize

# By this member of a tool Claude Code lets an answer be so long; else it moves those of more than
# 50,000 characters to a file.
MAX_RESULT_SIZE = {"anthropic/maxResultSizeChars": 500_000}

_RECALL = "memory_recall"
_CUT = "…"
# What is left of texts and of lists, the first that makes an answer small enough.
_BOUNDS = (
    *((4000, 1000), (4000, 200), (1000, 100), (1000, 50), (400, 50), (400, 20), (200, 20)),
    *((100, 20), (40, 10)),
)


def sent_answer(
    answer: Mapping[str, Any], size: PageSize, *, failed: bool = False, structured: bool = False
) -> types.CallToolResult:
    """Return an answer as it is sent; `structured`: its tool has a schema for it."""
    pictures: Mapping[str, Mapping[str, str]] = answer.get("pictures", {})
    head = {key: value for key, value in answer.items() if key != "pictures"}
    texts = answer.get("texts")
    blocks: list[str] = []
    if isinstance(texts, Mapping) and not structured:
        blocks = [_sendable(text) for key, text in texts.items() if key not in pictures]
        head["texts"] = _named(texts, pictures)
    room = size.most - sum(map(size.of, blocks))
    # Texts that fill a page as a whole leave no room: the little that is said of them is sent.
    head = fitted(head, size, max(room, size.most - size.texts))
    said = spelled(head)
    return types.CallToolResult(
        content=[
            types.TextContent(text=said),
            *(types.TextContent(text=text) for text in blocks),
            *(
                types.ImageContent(data=one["data"], mime_type=one["media_type"])
                for one in pictures.values()
            ),
        ],
        structured_content=json.loads(said) if structured and not failed else None,
        is_error=failed,
    )


def _named(texts: Mapping[str, str], pictures: Mapping[str, Any]) -> dict[str, str]:
    """Say of each text in which block below it stands; of a picture what it is."""
    many = sum(key not in pictures for key in texts)
    named: dict[str, str] = {}
    number = 0
    for key, text in texts.items():
        if key in pictures:
            named[key] = text
            continue
        number += 1
        which = f" ({number} of {many})" if many > 1 else ""
        named[key] = f"[{len(text)} characters: below{which}]"
    return named


def spelled(document: Mapping[str, Any]) -> str:
    """Return a document as JSON that can be sent."""
    return _sendable(json.dumps(document, ensure_ascii=False, default=str))


def _sendable(text: str) -> str:
    """Replace lone surrogates: transcripts hold some, and messages are UTF-8."""
    return text.encode("utf-8", "replace").decode()


def fitted(document: Mapping[str, Any], size: PageSize, room: int | None = None) -> dict[str, Any]:
    """Return a document that is no larger than a page (or `room`): ends of long members are cut."""
    most = size.most if room is None else room
    whole = dict(document)
    if size.of(spelled(whole)) <= most:
        return whole
    for characters, members in _BOUNDS:
        cut: dict[str, Any] = _cut(whole, characters, members)
        if size.of(spelled(cut)) <= most:
            return cut
    return cut


def _cut(value: Any, characters: int, members: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else value[:characters] + _CUT
    if isinstance(value, Mapping):
        cut: dict[str, Any] = {}
        for key, one in list(value.items())[:members]:
            name = _cut(str(key), characters, members)
            cut[name] = _cut(one, characters, members)
            if isinstance(one, list | tuple) and (more := len(one) - members) > 0:
                cut[f"{name}_left_out"] = more
        if (more := len(value) - members) > 0:
            cut[_CUT] = f"{more} more"
        return cut
    if isinstance(value, list | tuple):
        return [_cut(one, characters, members) for one in value[:members]]
    return value


# --- lists ---


def first_fitting(
    page: Callable[[int], dict[str, Any]], most: int, size: PageSize
) -> dict[str, Any]:
    """Return the page with the most entries that is small enough; `page` makes one of so many."""
    while most > 1 and size.of(spelled(page(most))) > size.most:
        most //= 2
    return page(most)


def paged_results(
    answer: dict[str, Any], tool: str, arguments: Mapping[str, Any], offset: int, size: PageSize
) -> dict[str, Any]:
    """Return an answer with as many of its `results` as fit, and how to ask for the others."""
    results: list[Any] = answer["results"]

    def page(most: int) -> dict[str, Any]:
        if most >= len(results):
            return answer
        following = {"tool": tool, **arguments, "offset": offset + most}
        left = len(results) - most
        return {**answer, "results": results[:most], "results_left_out": left, "next": following}

    return first_fitting(page, len(results), size) if results else answer


# --- facts ---


def shortened_facts(answer: dict[str, Any], offset: int, size: PageSize) -> dict[str, Any]:
    """Return an answer about facts in which no text is too long: the rest is read by its id.

    `offset`: how many characters of the text of a single fact were passed over.
    """
    several = [name for name in ("results", "candidates") if isinstance(answer.get(name), list)]
    found = dict(answer)
    for name in several:
        facts = answer[name]
        room = size.texts if len(facts) == 1 else size.most // 6
        found[name] = [_shortened(one, room, offset, size) for one in facts]
    if isinstance(fact := answer.get("fact"), dict):
        found["fact"] = _shortened(fact, size.most // 6, 0, size)
    if isinstance(saved := answer.get("checkpoint"), dict) and size.of(spelled(saved)) > size.texts:
        short = fitted(saved, size, size.texts)
        found["checkpoint"] = {**short, "next": {"tool": _RECALL, "id": saved.get("id")}}
    return found


def _shortened(fact: dict[str, Any], room: int, offset: int, size: PageSize) -> dict[str, Any]:
    """Return a fact with the beginning of its text, measured as it stands in the answer."""
    text = str(fact.get("text", ""))
    others = fitted({**fact, "text": ""}, size, size.most - size.texts)
    given = _beginning(text, room, size)
    short = {**others, "text": given}
    if len(given) < len(text):
        short["text_left"] = len(text) - len(given)
        following = {"tool": _RECALL, "id": fact.get("id"), "offset": offset + len(given)}
        short["next"] = following
    return {name: short[name] for name in (*fact, *(set(short) - set(fact)))}


def _beginning(text: str, room: int, size: PageSize) -> str:
    """Return the longest beginning that is no larger than `room` where it stands in an answer."""
    if size.of(json.dumps(text, ensure_ascii=False)) <= room:
        return text
    given = size.cut(text, room)
    while given and size.of(json.dumps(given, ensure_ascii=False)) > room:
        given = given[: len(given) * 4 // 5]
    return given
