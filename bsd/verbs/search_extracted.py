"""search_extracted: words found in what was taken out of a session, without putting it back."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.care.search import search
from bsd.foundation.answers import Answer, contract
from bsd.foundation.layout import SessionName
from bsd.verbs.verb import Hands, Meanwhile, Tool, Verb, argument


@dataclass(frozen=True, slots=True)
class SearchExtracted:
    """Words, in what is away of one session."""

    query: str = field(
        metadata=argument(
            'Words that must all be there; "some words" stand together, begin* is any word that '
            "begins so.",
            least=1,
            most=1000,
        )
    )
    limit: int = field(
        default=10, metadata=argument("No more than so many entries.", least=1, most=100)
    )


@dataclass(frozen=True, slots=True)
class ExtractedHit(Answer):
    """An entry with all the words."""

    entry_id: str | None
    index: int = field(metadata=contract("Its line number when it was taken out"))
    snippet: str


@dataclass(frozen=True, slots=True)
class ExtractedHits(Answer):
    """The best first."""

    session: str
    query: str
    results: tuple[ExtractedHit, ...]


def _act(hands: Hands, name: SessionName, asked: SearchExtracted, _: Meanwhile) -> ExtractedHits:
    hits = search(
        hands.layout, asked.query, agent=name.agent, limit=asked.limit, extracted_from=name
    )
    found = tuple(ExtractedHit(hit.entry, hit.index, hit.snippet.text) for hit in hits)
    return ExtractedHits(str(name), asked.query, found)


SEARCH_EXTRACTED = Verb(
    name="search_extracted",
    arguments=SearchExtracted,
    answer=ExtractedHits,
    act=_act,
    tools=(
        Tool(
            "search_extracted",
            "Search what was extracted",
            "Find words in what was moved out of a session, without putting it back: the entries "
            "that hold them all, best first, each with its id and the text around them. Often that "
            "is all you need; if not, read_extracted gives the whole text.",
        ),
    ),
)
