"""read_extracted: the text of an entry's values, a page at a time; nothing is put back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.foundation.answers import Answer, contract
from bsd.surgery.plan import Means
from bsd.text.reader import Transcript
from bsd.verbs.reading import held_by
from bsd.verbs.restore import ENTRY, KEYS
from bsd.verbs.verb import Tool, Verb, argument

OFFSET = argument(
    "Where a long text goes on, as `next` says.", metavar="N", least=0, most=10**12 - 1
)


@dataclass(frozen=True, slots=True)
class ReadExtracted:
    """Without `keys` all that is away."""

    entry: str = field(metadata=ENTRY)
    keys: tuple[str, ...] | None = field(default=None, metadata=KEYS)
    offset: int = field(default=0, metadata=OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOut(Answer):
    """Texts by key; `next` says how to ask for the rest, if there is any."""

    session: str
    entry_id: str
    texts: dict[str, str]
    pictures: dict[str, dict[str, str]] = field(
        default_factory=dict, metadata=contract("media_type and data, by key", omit=True)
    )
    characters_left: int | None = field(default=None, metadata=contract(omit=True))
    next: dict[str, Any] = field(default_factory=dict, metadata=contract(omit=True))
    unavailable: dict[str, str] = field(default_factory=dict, metadata=contract(omit=True))


def _query(source: Transcript, fmt: Format, asked: ReadExtracted, means: Means) -> ReadOut:
    held = held_by(source, fmt, asked.entry, means.stored)
    page = held.page(asked.keys, asked.offset)
    return ReadOut(session=str(means.name), entry_id=held.entry_id, **page)


READ_EXTRACTED = Verb(
    name="read_extracted",
    arguments=ReadExtracted,
    answer=ReadOut,
    query=_query,
    tools=(
        Tool(
            "read_extracted",
            "Read an extracted entry",
            "Read the text that a placeholder [[extracted-ID]] stands for; nothing is changed. "
            "Long texts come in pages of 40,000 characters: `next` of the answer says with which "
            "arguments to read on. Pictures are shown.",
            pictures=True,
        ),
    ),
)
