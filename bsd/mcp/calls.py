"""What a call of a tool for sessions asks for, once it is understood: one class for each action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bsd.actions.verbs import (
    ChangeContext,
    GetContext,
    ReadExtracted,
    SearchExtracted,
    SetExtractable,
)
from bsd.mcp.restoring import RestoreInline
from bsd.mcp.tools import read_call as read_as_verb


@dataclass(frozen=True, slots=True)
class RestoreCall:
    """Get the text of an entry, and (unless `inline` is False) put it back."""

    entry: str
    keys: Sequence[str] | None = None
    inline: bool | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Read the text of an entry."""

    entry: str
    keys: Sequence[str] | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class SetExtractableCall:
    """Say whether an entry may be extracted; None removes `_extractable`."""

    entry: str
    value: bool | int | None


@dataclass(frozen=True, slots=True)
class GetContextCall:
    """List the entries of the session."""


@dataclass(frozen=True, slots=True)
class ChangeContextCall:
    """Replace ranges, discard entries or put summaries in their place."""

    action: str
    targets: Any  # as JSON
    include_user: bool = False


@dataclass(frozen=True, slots=True)
class SearchCall:
    """Find words in what was extracted."""

    query: str
    limit: int = 10
    offset: int = 0


ParsedCall = (
    RestoreCall | ReadCall | SetExtractableCall | GetContextCall | ChangeContextCall | SearchCall
)


def read_call(tool: str, arguments: object) -> tuple[str | None, ParsedCall]:
    """Return the session that a call names, if it names one, and what the call asks for.

    Raises:
        Invalid: there is no such tool, or arguments are wrong; all of them are named.
    """
    read = read_as_verb(tool, arguments)
    return read.session, _of_verb(read.arguments)


def _of_verb(asked: Any) -> ParsedCall:
    match asked:
        case RestoreInline():
            return RestoreCall(asked.entry, asked.keys, asked.inline, asked.offset)
        case ReadExtracted():
            return ReadCall(asked.entry, asked.keys, asked.offset)
        case SetExtractable():
            return SetExtractableCall(asked.entry, asked.value)
        case ChangeContext():
            targets = [one.as_json() for one in asked.targets]
            return ChangeContextCall(asked.action, targets, asked.include_user)
        case SearchExtracted():
            return SearchCall(asked.query, asked.limit, asked.offset)
        case GetContext():
            return GetContextCall()
    raise TypeError(asked)
