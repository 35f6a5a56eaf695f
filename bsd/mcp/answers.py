"""Conversion of tools' answers to MCP results of at most a page, with texts in separate blocks.

An answer is a JSON object. Texts of a session follow it in separate blocks, since inside the object
a model would read them with escapes. No answer is larger than the client's program accepts
(`agents.page_size`): lists and facts come in pages, and members that are still too large are
truncated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import CallToolResult, ImageContent, TextContent

from bsd.transcripts.agents.page_size import PageSize

# With this member of a tool, Claude Code accepts longer answers; without it, Claude Code moves
# answers of more than 50,000 characters to a file.
MAX_RESULT_SIZE = {"anthropic/maxResultSizeChars": 500_000}
MOST_ENTRIES = 50  # a longer listing would fill the context

_RECALL = "memory_recall"
_CUT = "…"
# (characters of a text, members of a list); the first pair that makes an answer fit is used.
_BOUNDS = (
    *((4000, 1000), (4000, 200), (1000, 100), (1000, 50), (400, 50), (400, 20), (200, 20)),
    *((100, 20), (40, 10)),
)


def to_result(
    answer: Mapping[str, Any], size: PageSize, *, failed: bool = False, structured: bool = False
) -> CallToolResult:
    """Convert an answer to an MCP result.

    Args:
        failed: the answer is an error.
        structured: also send it as `structuredContent`.
    """
    pictures: Mapping[str, Mapping[str, str]] = answer.get("pictures", {})
    head = {key: value for key, value in answer.items() if key != "pictures"}
    texts = answer.get("texts")
    blocks: list[str] = []
    if isinstance(texts, Mapping) and not structured:
        blocks = [_without_surrogates(text) for key, text in texts.items() if key not in pictures]
        head["texts"] = _named_blocks(texts, pictures)
    room = size.most - sum(map(size.of, blocks))
    # If the texts fill the page, the object is sent anyway: it is small.
    head = fitted(head, size, max(room, size.most - size.texts))
    text = to_json(head)
    return CallToolResult(
        content=[
            TextContent(text=text),
            *(TextContent(text=block) for block in blocks),
            *(
                ImageContent(data=picture["data"], mime_type=picture["media_type"])
                for picture in pictures.values()
            ),
        ],
        structured_content=json.loads(text) if structured and not failed else None,
        is_error=failed,
    )


def _named_blocks(texts: Mapping[str, str], pictures: Mapping[str, Any]) -> dict[str, str]:
    """Return, by key, a reference to the block of each text, and the kind of each picture."""
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


def to_json(document: Mapping[str, Any]) -> str:
    """Return a document as JSON that can be sent."""
    return _without_surrogates(json.dumps(document, ensure_ascii=False, default=str))


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which transcripts contain and UTF-8 messages cannot."""
    return text.encode("utf-8", "replace").decode()


def fit_answer(
    answer: dict[str, Any], tool: str, arguments: Mapping[str, Any], offset: int, size: PageSize
) -> dict[str, Any]:
    """Return the page of an answer that begins at `offset`, with the call for the next page."""
    if tool.startswith("memory_"):
        answer = _shortened_facts(answer, offset, size)
    if "extracted_ids" in answer:
        return _page_of_listing(answer, tool, arguments, offset, size)
    return _page_of_results(answer, tool, arguments, offset, size)


# Lists.


def _page_of_results(
    answer: dict[str, Any], tool: str, arguments: Mapping[str, Any], offset: int, size: PageSize
) -> dict[str, Any]:
    results: list[Any] = answer.get("results", [])

    def page(most: int) -> dict[str, Any]:
        if most >= len(results):
            return answer
        following = {"tool": tool, **arguments, "offset": offset + most}
        left = len(results) - most
        return {**answer, "results": results[:most], "results_left_out": left, "next": following}

    return _largest_page(page, len(results), size) if results else answer


def _page_of_listing(
    answer: dict[str, Any], tool: str, arguments: Mapping[str, Any], offset: int, size: PageSize
) -> dict[str, Any]:
    """Return a page of `get_context`: largest entries on the first page, each page by index."""
    entries: list[dict[str, Any]] = answer["entries"]
    ids: list[Any] = answer["extracted_ids"]
    by_size = sorted(entries, key=lambda entry: -int(entry["size_bytes"]))
    longest = max(len(entries), len(ids))

    def page(most: int) -> dict[str, Any]:
        if longest <= most and not offset:
            return answer
        end = offset + most
        shown = sorted(by_size[offset:end], key=lambda entry: int(entry["index"]))
        left = {"entries_left_out": max(len(entries) - end, 0)}
        found = {**answer, "extracted_ids": ids[offset:end], "entries": shown, **left}
        if longest > end:
            found["extracted_ids_left_out"] = max(len(ids) - end, 0)
            following = {"tool": tool, "action": "get_context", "offset": end}
            if arguments.get("session"):
                following["session"] = arguments["session"]
            found["next"] = following
        return found

    return _largest_page(page, MOST_ENTRIES, size)


def _largest_page(
    page: Callable[[int], dict[str, Any]], most: int, size: PageSize
) -> dict[str, Any]:
    """Return the largest page that fits; `page` makes a page with a given number of members."""
    while most > 1 and size.of(to_json(page(most))) > size.most:
        most //= 2
    return page(most)


# Facts.


def _shortened_facts(answer: dict[str, Any], offset: int, size: PageSize) -> dict[str, Any]:
    """Shorten long texts in an answer about facts; the rest can be read by the fact's id.

    Args:
        offset: for a single fact, the characters of its text on earlier pages.
    """
    found = dict(answer)
    for name in ("results", "candidates"):
        if isinstance(facts := answer.get(name), list):
            room = size.texts if len(facts) == 1 else size.most // 6
            found[name] = [_shortened_fact(fact, room, offset, size) for fact in facts]
    if isinstance(fact := answer.get("fact"), dict):
        found["fact"] = _shortened_fact(fact, size.most // 6, 0, size)
    if isinstance(saved := answer.get("checkpoint"), dict) and size.of(to_json(saved)) > size.texts:
        short = fitted(saved, size, size.texts)
        found["checkpoint"] = {**short, "next": {"tool": _RECALL, "id": saved.get("id")}}
    return found


def _shortened_fact(fact: dict[str, Any], room: int, offset: int, size: PageSize) -> dict[str, Any]:
    """Return a fact with the beginning of its text, measured as JSON in the answer."""
    text = str(fact.get("text", ""))
    others = fitted({**fact, "text": ""}, size, size.most - size.texts)
    beginning = _beginning(text, room, size)
    short = {**others, "text": beginning}
    if len(beginning) < len(text):
        short["text_left"] = len(text) - len(beginning)
        following = {"tool": _RECALL, "id": fact.get("id"), "offset": offset + len(beginning)}
        short["next"] = following
    return {name: short[name] for name in (*fact, *(set(short) - set(fact)))}


def _beginning(text: str, room: int, size: PageSize) -> str:
    """Return a long beginning of a text that is at most `room` large as JSON in an answer."""
    if size.of(json.dumps(text, ensure_ascii=False)) <= room:
        return text
    beginning = size.cut(text, room)
    while beginning and size.of(json.dumps(beginning, ensure_ascii=False)) > room:
        beginning = beginning[: len(beginning) * 4 // 5]
    return beginning


# Truncation of members that are still too large.


def fitted(document: Mapping[str, Any], size: PageSize, room: int | None = None) -> dict[str, Any]:
    """Return a document that fits into a page (or `room`); long members are truncated."""
    most = size.most if room is None else room
    whole = dict(document)
    if size.of(to_json(whole)) <= most:
        return whole
    for characters, members in _BOUNDS:
        cut: dict[str, Any] = _cut(whole, characters, members)
        if size.of(to_json(cut)) <= most:
            return cut
    return cut


def _cut(value: Any, characters: int, members: int) -> Any:
    """Limit texts in a value to `characters`, and lists and objects to `members`."""
    if isinstance(value, str):
        return value if len(value) <= characters else value[:characters] + _CUT
    if isinstance(value, Mapping):
        cut: dict[str, Any] = {}
        for key, member in list(value.items())[:members]:
            name = _cut(str(key), characters, members)
            cut[name] = _cut(member, characters, members)
            if isinstance(member, list | tuple) and (more := len(member) - members) > 0:
                cut[f"{name}_left_out"] = more
        if (more := len(value) - members) > 0:
            cut[_CUT] = f"{more} more"
        return cut
    if isinstance(value, list | tuple):
        return [_cut(member, characters, members) for member in value[:members]]
    return value
