"""Parsed calls of tools for sessions: a class per action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bsd.core.errors import Invalid
from bsd.mcp.arguments import read_arguments
from bsd.mcp.tools import TOOLS, check_purge_control


@dataclass(frozen=True, slots=True)
class RestoreCall:
    """Get the text of an entry, and restore it unless `inline` is False."""

    entry: str
    keys: Sequence[str] | None = None
    inline: bool | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class SetExtractableCall:
    """Set whether an entry may be extracted; None removes `_extractable`."""

    entry: str
    value: bool | int | None


@dataclass(frozen=True, slots=True)
class GetContextCall:
    """List the entries of the session."""


@dataclass(frozen=True, slots=True)
class ChangeContextCall:
    """Replace ranges, discard entries, or replace them by summaries."""

    action: str
    targets: Any  # as JSON
    include_user: bool = False


@dataclass(frozen=True, slots=True)
class SearchCall:
    """Find words in extracted values."""

    query: str
    limit: int = 10
    offset: int = 0


ParsedCall = RestoreCall | SetExtractableCall | GetContextCall | ChangeContextCall | SearchCall


def read_call(tool: str, arguments: object) -> tuple[str | None, ParsedCall]:
    """Parse a call; return the session that it names, or None, and the request.

    Raises:
        Invalid: the tool does not exist, or arguments are bad; the error lists all of them.
    """
    if tool not in TOOLS:
        raise Invalid(f"there is no tool {tool}", hint=f"one of {', '.join(TOOLS)}")
    given = read_arguments(TOOLS[tool], arguments)
    return given.pop("session", None), _parsed(tool, given)


def _parsed(tool: str, given: dict[str, Any]) -> ParsedCall:
    match tool:
        case "restore":
            return RestoreCall(given.pop("entry_id"), **given)
        case "restore_remote":
            return RestoreCall(**given)
        case "read_extracted":
            return RestoreCall(**given, inline=False)
        case "context":
            return ChangeContextCall(**given)
        case "search_extracted":
            return SearchCall(**given)
        case "purge_control":
            return _parsed_purge_control(**given)
    raise Invalid(f"a call of {tool} in a transcript is not carried out", hint="call it over MCP")


def _parsed_purge_control(
    action: str, entry: Any = None, value: Any = None, **given: Any
) -> ParsedCall:
    check_purge_control(action, entry, value)
    if action == "get_context":
        return GetContextCall()
    if action == "restore":
        return RestoreCall(entry, **given)
    return SetExtractableCall(entry, None if value == "unset" else value)
