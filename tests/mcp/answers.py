"""Answers of tools over MCP, read as a model reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing it takes a second, and each of the workers would import it
    from mcp.client import Client
    from mcp_types import CallToolResult

_GOES_ON = "repeat the very same call later"


def goes_on(text: str) -> bool:
    """Whether an answer says that its call goes on, and is to be repeated."""
    return _GOES_ON in text


async def call_until_answered(
    client: Client, tool: str, arguments: dict[str, Any]
) -> CallToolResult:
    """Call a tool, and repeat the call as its answer says if the answer takes longer."""
    while True:
        result = await client.call_tool(tool, arguments)
        if not (result.is_error and any(map(goes_on, texts_of(result)))):
            return result


def texts_of(result: CallToolResult) -> list[str]:
    """Return the blocks of text of an answer."""
    return [block.text for block in result.content if block.type == "text"]


def document_of(result: CallToolResult) -> Any:
    """Return the JSON of an answer, with each separate block of text at the place that names it."""
    first, *others = texts_of(result)
    document = json.loads(first)
    texts = document.get("texts", {})
    own = [key for key, said in texts.items() if "below" in said]
    assert len(own) == len(others)
    texts.update(zip(own, others, strict=True))
    return document


def size_of(result: CallToolResult) -> int:
    """Return the size of an answer as sent: bytes of UTF-8, escapes included."""
    return sum(len(json.dumps(one, ensure_ascii=False).encode()) for one in texts_of(result))


def characters_of(result: CallToolResult) -> int:
    """Return the number of characters of text that a model reads."""
    return sum(map(len, texts_of(result)))
