"""search: entries by their words, extracted ones included, and sessions by their titles.

And search_extracted: in what is out of one session, for agents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bsd.care.keeping import is_gone
from bsd.care.search import by_title, search, search_as_it_is
from bsd.foundation.definition import INTERNAL, Answer, contract
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.store.search import SearchHit
from bsd.verbs.list_sessions import LONGEST_WORDS, SearchState, check_agent
from bsd.verbs.verb import Hands, Meanwhile, RootHands, Server, Tool, Verb, argument, route


@dataclass(frozen=True, slots=True)
class SearchWords:
    """Words that must all be there."""

    words: str = field(
        metadata=argument('Words, "several words", begin*', most=LONGEST_WORDS, names={"http": "q"})
    )
    agent: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))
    limit: int = field(default=20, metadata=argument(least=1, most=200))


@dataclass(frozen=True, slots=True)
class FoundEntry(Answer):
    """An entry with all the words; `matches` are [start, end) in the snippet's characters."""

    schema_name: ClassVar[str] = "Hit"

    session: str
    entry_id: str | None
    index: int = field(metadata=contract("Line number; of extracted text: when it was taken out"))
    where: Literal["transcript", "extracted"]
    snippet: str
    matches: tuple[tuple[int, int], ...]
    score: float
    gone: bool | None = field(
        default=None,
        metadata=contract(
            "Its program has deleted the session: the archive brings it back", omit=True
        ),
    )


@dataclass(frozen=True, slots=True)
class TitledSession(Answer):
    """A session whose title holds all the words."""

    schema_name: ClassVar[str] = "Titled"

    session: str
    title: str


@dataclass(frozen=True, slots=True)
class SearchAnswer(Answer):
    """The entries and sessions with all the words."""

    query: str
    sessions: tuple[TitledSession, ...] = field(
        metadata=contract("Other sessions, whose titles hold all the words")
    )
    results: tuple[FoundEntry, ...]


@dataclass(frozen=True, slots=True)
class FoundInIndex(SearchAnswer):
    """What the index knows so far."""

    schema_name: ClassVar[str] = "Found"

    search: SearchState


def _ask(server: Server, asked: SearchWords) -> FoundInIndex:
    layout = server.layout
    if asked.agent is not None:
        check_agent(layout, asked.agent)
    hits = search_as_it_is(layout, asked.words, agent=asked.agent, limit=asked.limit)
    titled = _titled(layout, asked, hits)
    return FoundInIndex(asked.words, titled, found_entries(layout, hits), server.search_state())


def _titled(
    layout: Layout, asked: SearchWords | SearchAll, hits: list[SearchHit]
) -> tuple[TitledSession, ...]:
    """The sessions that are called so, other than those with such entries."""
    but = {hit.session for hit in hits}
    found = by_title(layout, asked.words, agent=asked.agent, limit=asked.limit, but=but)
    return tuple(TitledSession(str(name), title) for name, title in found)


def found_entries(layout: Layout, hits: list[SearchHit]) -> tuple[FoundEntry, ...]:
    """What was found, as answers tell it."""
    gone = {name for name in {hit.session for hit in hits} if is_gone(layout, name)}
    return tuple(
        FoundEntry(
            session=str(hit.session),
            entry_id=hit.entry,
            index=hit.index,
            where=hit.where,
            snippet=hit.snippet.text,
            matches=hit.snippet.matches,
            score=round(hit.score, 4),
            gone=True if hit.session in gone else None,
        )
        for hit in hits
    )


SEARCH = Verb(
    name="search",
    arguments=SearchWords,
    answer=FoundInIndex,
    ask=_ask,
    route=route(
        "GET /api/search",
        "search",
        "Entries that hold all the words, the best first, extracted ones included.",
        tag="sessions",
    ),
)


# --- in all sessions as they are, for who has the time to read what is new ---


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Words that must all be there; the index is brought up to date before."""

    words: str = field(metadata=argument(metavar="WORDS...", positional=True))
    agent: str | None = field(
        default=None, metadata=argument("Only the sessions of this agent.", metavar="AGENT")
    )
    limit: int = field(default=20, metadata=argument("No more than so many entries.", least=1))


@dataclass(frozen=True, slots=True)
class UnreadSession(Answer):
    """One that could not be read, and why."""

    session: str
    error: str
    problem: BsdError = field(metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class FoundInAll(SearchAnswer):
    """What is in all sessions as they are now, but for those that could not be read."""

    unread: tuple[UnreadSession, ...] = field(default=(), metadata=contract(omit=True))


def _ask_all(hands: RootHands, asked: SearchAll) -> FoundInAll:
    layout = hands.layout
    if asked.agent is not None:
        check_agent(layout, asked.agent, "`bsd sessions` lists all of them")
    unread: list[UnreadSession] = []
    hits = search(
        layout,
        asked.words,
        agent=asked.agent,
        limit=asked.limit,
        progress=hands.progressed,
        failed=lambda name, why: unread.append(UnreadSession(str(name), why.message, why)),
    )
    return FoundInAll(
        asked.words, _titled(layout, asked, hits), found_entries(layout, hits), tuple(unread)
    )


SEARCH_ALL = Verb(
    name="search_all",
    arguments=SearchAll,
    answer=FoundInAll,
    ask=_ask_all,
    about="""
    Entries that hold all the words, the best first: in sessions, and in what was taken out of them.
    Before them come other sessions, whose titles hold the words.
    Words in double quotes stand together; `begin*` is any word that begins so. The index is brought
    up to date before, so the first search takes a while.
    """,
    examples=(
        "bsd search retention cron",
        "bsd search '\"connection refused\"' --agent main --limit 5",
        "bsd search 'Migrat*' --json | jq -r '.results[].session'",
    ),
)


# --- search_extracted ---


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
    offset: int = field(default=0, metadata=argument("As `next` says.", least=0, most=1000))


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
    most = asked.offset + asked.limit
    hits = search(hands.layout, asked.query, agent=name.agent, limit=most, extracted_from=name)
    found = tuple(
        ExtractedHit(hit.entry, hit.index, hit.snippet.text) for hit in hits[asked.offset :]
    )
    return ExtractedHits(str(name), asked.query, found)


SEARCH_EXTRACTED = Verb(
    name="search_extracted",
    arguments=SearchExtracted,
    answer=ExtractedHits,
    act=_act,
    reads=True,
    tools=(
        Tool(
            "search_extracted",
            "Search what was extracted",
            "Find words in what was moved out of a session, without putting it back: the entries "
            "that hold them all, best first, each with its id and the text around them. Often that "
            "is all you need; if not, read_extracted gives the whole text.",
            lists=True,
        ),
    ),
)
