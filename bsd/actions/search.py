"""search: entries by their words, and sessions by their titles; in the index, or in everything.

And search_extracted: in what is out of one session, for agents.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bsd.actions.list_sessions import LONGEST_WORDS, SearchState, check_agent
from bsd.actions.verb import (
    Hands,
    Meanwhile,
    RootHands,
    Server,
    Tool,
    Verb,
    argument,
    perform,
    route,
)
from bsd.core.definition import INTERNAL, Answer, contract
from bsd.core.errors import BsdError, Busy
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.keeping import is_gone
from bsd.maintenance.scan import FullScan, ScanPosition
from bsd.maintenance.search import NO_INDEX, by_title, search, search_as_it_is
from bsd.store.search import SearchHit

# A page of a search through everything ends after so long, and so many are made at once.
_PAGE_SECONDS = 0.5
_AT_ONCE = threading.BoundedSemaphore(2)
_LONGEST_CURSOR = 2000  # characters


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
class UnreadSession(Answer):
    """One that could not be read, and why."""

    session: str
    error: str
    problem: BsdError = field(metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class SearchPage(SearchWords):
    """Words that must all be there; in the index, or in everything, page by page."""

    all: bool = field(
        default=False,
        metadata=argument(
            "Without the index, through all text of sessions, stores and archives: for a moment, "
            "and on from `cursor` with the next call"
        ),
    )
    cursor: str | None = field(default=None, metadata=argument(most=_LONGEST_CURSOR))


@dataclass(frozen=True, slots=True)
class FoundInIndex(SearchAnswer):
    """What the index knows so far; or, with `all`, what this page of everything holds."""

    schema_name: ClassVar[str] = "Found"

    search: SearchState
    cursor: str | None = field(
        default=None, metadata=contract("With `all`: of the next page, if there is one", omit=True)
    )
    scanned: int | None = field(
        default=None, metadata=contract("With `all`: bytes that were searched so far", omit=True)
    )
    total: int | None = field(default=None, metadata=contract("Of so many", omit=True))
    unread: tuple[UnreadSession, ...] = field(default=(), metadata=contract(omit=True))


def _ask(server: Server, asked: SearchPage) -> FoundInIndex:
    layout = server.layout
    if asked.agent is not None:
        check_agent(layout, asked.agent)
    if asked.all or asked.cursor:
        return _ask_page(server, asked)
    hits = search_as_it_is(layout, asked.words, agent=asked.agent, limit=asked.limit)
    titled = _titled(layout, asked, hits)
    return FoundInIndex(asked.words, titled, found_entries(layout, hits), server.search_state())


def _ask_page(server: Server, asked: SearchPage) -> FoundInIndex:
    if not _AT_ONCE.acquire(timeout=_PAGE_SECONDS):
        raise Busy("others search everything just now", hint="the same call again in a moment")
    try:
        page = perform(SEARCH_PAGE, server, None, asked)
    finally:
        _AT_ONCE.release()
    return FoundInIndex(
        asked.words,
        () if asked.cursor else _titled(server.layout, asked, []),
        page.results,
        server.search_state(),
        page.cursor,
        page.scanned,
        page.total,
        page.unread,
    )


def _titled(
    layout: Layout, asked: SearchPage | SearchAll, hits: list[SearchHit]
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
    arguments=SearchPage,
    answer=FoundInIndex,
    ask=_ask,
    route=route(
        "GET /api/search",
        "search",
        "Entries that hold all the words, the best first: those of users and assistants, or all.",
        tag="sessions",
    ),
)


@dataclass(frozen=True, slots=True)
class FoundOnPage(Answer):
    """What a page of a search through everything holds, and how far it came. Bytes."""

    results: tuple[FoundEntry, ...]
    cursor: str | None
    scanned: int
    total: int
    unread: tuple[UnreadSession, ...]


def _scan_page(hands: Hands, asked: SearchPage) -> FoundOnPage:
    """Search everything for a moment, in a process of its own where hands have one."""
    until = time.monotonic() + _PAGE_SECONDS
    unread: list[UnreadSession] = []
    scan = FullScan(
        hands.layout,
        asked.words,
        asked.agent,
        limit=asked.limit,
        stopping=lambda: time.monotonic() >= until,
        failed=lambda name, why: unread.append(UnreadSession(str(name), why.message, why)),
    )
    done = scan.run(ScanPosition.loads(asked.cursor) if asked.cursor else None)
    cursor = done.place and done.place.dumps()
    results = found_entries(hands.layout, done.hits)
    return FoundOnPage(results, cursor, done.scanned, done.total, tuple(unread))


SEARCH_PAGE = Verb(
    name="search_page", arguments=SearchPage, answer=FoundOnPage, ask=_scan_page, reads=True
)


# --- in all sessions as they are, for who has the time to read what is new ---


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Words that must all be there; the index is brought up to date before."""

    words: str = field(metadata=argument(metavar="WORDS...", positional=True))
    all: bool = field(
        default=False,
        metadata=argument(
            "Search all text of sessions, stores and archives, tools' results included. "
            "It uses no index; Ctrl-C ends it with what was found so far."
        ),
    )
    agent: str | None = field(
        default=None, metadata=argument("Only the sessions of this agent.", metavar="AGENT")
    )
    limit: int = field(default=20, metadata=argument("No more than so many entries.", least=1))


@dataclass(frozen=True, slots=True)
class FoundInAll(SearchAnswer):
    """What is in all sessions as they are now, but for those that could not be read."""

    unread: tuple[UnreadSession, ...] = field(default=(), metadata=contract(omit=True))
    problem: str | None = field(
        default=None, metadata=contract("Why no text was searched", omit=True)
    )
    stopped: bool | None = field(
        default=None, metadata=contract("True if it ended before all was searched", omit=True)
    )


def _ask_all(hands: RootHands, asked: SearchAll) -> FoundInAll:
    layout, has_words = hands.layout, hands.config.current.search_index
    if asked.agent is not None:
        check_agent(layout, asked.agent, "`bsd sessions` lists all of them")
    unread: list[UnreadSession] = []

    def failed(name: SessionName, why: BsdError) -> None:
        unread.append(UnreadSession(str(name), why.message, why))

    more: dict[str, Any] = {
        "agent": asked.agent,
        "limit": asked.limit,
        "progress": hands.progressed,
        "failed": failed,
    }
    stopped = None
    if asked.all:
        stopping = hands.stopping
        done = FullScan(layout, asked.words, stopping=stopping, **more).run()
        hits, stopped = done.hits, True if done.place and stopping() else None
    else:
        hits = search(layout, asked.words, has_words=has_words, **more)
    return FoundInAll(
        asked.words,
        _titled(layout, asked, hits),
        found_entries(layout, hits),
        tuple(unread),
        None if has_words or asked.all else NO_INDEX,
        stopped,
    )


SEARCH_ALL = Verb(
    name="search_all",
    arguments=SearchAll,
    answer=FoundInAll,
    ask=_ask_all,
    about="""
    Entries that hold all the words, the best first: what users and assistants say, names of tools
    and paths that they were given, also where that was taken out of its session. Before them come
    other sessions, whose titles hold the words.
    Words in double quotes stand together; `begin*` is any word that begins so. The index is brought
    up to date before, so the first search takes a while. With `--all` all text is searched, the
    newest sessions first, without the index.
    """,
    examples=(
        "bsd search retention cron",
        "bsd search --all ECONNREFUSED",
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
    """In the order in which they were taken out."""

    session: str
    query: str
    results: tuple[ExtractedHit, ...]


def _act(hands: Hands, name: SessionName, asked: SearchExtracted, _: Meanwhile) -> ExtractedHits:
    most = asked.offset + asked.limit
    hits = FullScan(hands.layout, asked.query, only=name, limit=most).run().hits
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
            "that hold them all, each with its id and the text around them. Often that "
            "is all you need; if not, read_extracted gives the whole text.",
            lists=True,
        ),
    ),
)
