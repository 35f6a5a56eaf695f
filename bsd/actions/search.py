"""Search for entries by their words, and for sessions by their titles.

`search` uses the search index as it is; `search_all` first brings it up to date. With `all`, both
read the text of all sessions, stores and archives instead. `search_extracted` searches the
extracted values of one session. A search for files that sessions have used is in `files_touched`.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bsd.actions.context import ActionContext, SearchState
from bsd.actions.list_sessions import check_agent
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Busy
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.found_sessions import describe_found
from bsd.maintenance.scan import FullScan, ScanPosition
from bsd.maintenance.search import NO_INDEX, bring_up_to_date, by_title, search_as_it_is
from bsd.maintenance.search import search as search_index
from bsd.store.search import SearchHit
from bsd.store.search_filter import NO_FILTER, SearchFilter
from bsd.transcripts.agents.opening import database_with

_PAGE_SECONDS = 0.5  # time for one page of a search with `all`
_AT_ONCE = threading.BoundedSemaphore(2)  # limits concurrent searches with `all`

Resume = Annotated[
    str | None,
    Field(
        description="The command that continues the session in its program; a deleted session must"
        " be brought back first"
    ),
]
Gone = Annotated[
    bool | None,
    Field(description="True if its program has deleted the session; the archive has a copy"),
    OMIT_EMPTY,
]


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry that contains all the words.

    `matches` are pairs [start, end) of character positions in the snippet.
    """

    schema_name: ClassVar[str] = "Hit"

    session: str
    entry_id: str | None
    index: Annotated[
        int, Field(description="Line number; for extracted text: at the time of the extraction")
    ]
    where: Literal["transcript", "extracted"]
    snippet: str
    matches: tuple[tuple[int, int], ...]
    score: float
    title: Annotated[str | None, Field(description="Title of the session"), OMIT_EMPTY] = None
    resume: Resume = None
    role: Annotated[str | None, OMIT_EMPTY] = None
    time: Annotated[str | None, Field(description="Time of the entry"), OMIT_EMPTY] = None
    gone: Gone = None


@dataclass(frozen=True, slots=True)
class TitledSession:
    """A session whose title contains all the words."""

    schema_name: ClassVar[str] = "Titled"

    session: str
    title: str
    resume: Resume = None
    gone: Gone = None


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The entries and sessions that contain all the words."""

    query: str
    sessions: Annotated[
        tuple[TitledSession, ...],
        Field(description="Other sessions whose titles contain all the words"),
    ]
    results: tuple[FoundEntry, ...]


@dataclass(frozen=True, slots=True)
class UnreadSession:
    """A session that could not be read, and the reason."""

    session: str
    error: str
    problem: Internal[BsdError]


@dataclass(frozen=True, slots=True)
class FoundInIndex(SearchAnswer):
    """The hits in the search index; with `all`, the hits on one page of a search in all text."""

    schema_name: ClassVar[str] = "Found"

    search: SearchState
    cursor: Annotated[
        str | None,
        Field(description="With `all`: cursor of the next page, if there is one"),
        OMIT_EMPTY,
    ] = None
    scanned: Annotated[
        int | None, Field(description="With `all`: bytes that were searched so far"), OMIT_EMPTY
    ] = None
    total: Annotated[int | None, Field(description="With `all`: bytes of all text"), OMIT_EMPTY] = (
        None
    )
    unread: Annotated[tuple[UnreadSession, ...], OMIT_EMPTY] = ()


def search(
    context: ActionContext,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    all: bool = False,
    cursor: str | None = None,
    wanted: SearchFilter = NO_FILTER,
) -> FoundInIndex:
    """Find the entries that contain all the words, the best first, and sessions by their titles.

    Args:
        words: words; "several words" for a phrase; begin* for any word that begins with `begin`.
        agent: only the sessions of this agent.
        all: read all text of sessions, stores and archives instead of the index: one page in half
            a second, the next page with `cursor`.
        cursor: `cursor` of the page before.
        wanted: conditions that entries must meet.

    Raises:
        Invalid: the words, the cursor or the agent's name are not valid.
        NotFound: there is no such agent.
        Busy: too many searches with `all` are running.
    """
    layout = context.layout
    if agent is not None:
        check_agent(layout, agent)
    if not all and not cursor:
        hits = search_as_it_is(layout, words, agent=agent, limit=limit, wanted=wanted)
        titled = _titled(layout, words, agent, limit, hits, wanted)
        return FoundInIndex(words, titled, found_entries(layout, hits), context.search_state())
    if not _AT_ONCE.acquire(timeout=_PAGE_SECONDS):
        raise Busy("other searches in all text are running", hint="the same call in a moment")
    try:
        page = context.query(
            search_page, words, agent=agent, limit=limit, cursor=cursor, wanted=wanted
        )
    finally:
        _AT_ONCE.release()
    return FoundInIndex(
        words,
        () if cursor else _titled(layout, words, agent, limit, [], wanted),
        page.results,
        context.search_state(),
        page.cursor,
        page.scanned,
        page.total,
        page.unread,
    )


def _titled(
    layout: Layout,
    words: str,
    agent: str | None,
    limit: int,
    hits: list[SearchHit],
    wanted: SearchFilter,
) -> tuple[TitledSession, ...]:
    """Return the sessions whose titles contain the words, except for those with hits."""
    but = {hit.session for hit in hits}
    found = by_title(layout, words, agent=agent, limit=limit, but=but, wanted=wanted)
    about = describe_found(layout, [name for name, _ in found])
    return tuple(
        TitledSession(str(name), title, about[name].resume, about[name].gone or None)
        for name, title in found
    )


def found_entries(layout: Layout, hits: list[SearchHit]) -> tuple[FoundEntry, ...]:
    """Return hits of the search index as entries of an answer."""
    about = describe_found(layout, {hit.session for hit in hits})
    return tuple(
        FoundEntry(
            session=str(hit.session),
            entry_id=hit.entry,
            index=hit.index,
            where=hit.where,
            snippet=hit.snippet.text,
            matches=hit.snippet.matches,
            score=round(hit.score, 4),
            title=about[hit.session].title,
            resume=about[hit.session].resume,
            role=hit.role,
            time=None if hit.time is None else _iso(hit.time),
            gone=about[hit.session].gone or None,
        )
        for hit in hits
    )


def _iso(time: float) -> str | None:
    """Return a time in ISO 8601; None if the time in the entry is out of range."""
    with suppress(ValueError, OverflowError, OSError):
        return iso_utc(time)
    return None


@dataclass(frozen=True, slots=True)
class FoundOnPage:
    """The hits on one page of a search in all text. `scanned` and `total` are bytes."""

    results: tuple[FoundEntry, ...]
    cursor: str | None
    scanned: int
    total: int
    unread: tuple[UnreadSession, ...]


def search_page(
    context: ActionContext,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    cursor: str | None = None,
    wanted: SearchFilter = NO_FILTER,
) -> FoundOnPage:
    """Search all text for half a second from `cursor` on; for other arguments see `search`."""
    until = time.monotonic() + _PAGE_SECONDS
    unread: list[UnreadSession] = []
    scan = FullScan(
        context.layout,
        words,
        agent,
        wanted=wanted,
        limit=limit,
        stopping=lambda: time.monotonic() >= until,
        failed=lambda name, why: unread.append(UnreadSession(str(name), why.message, why)),
    )
    done = scan.run(ScanPosition.loads(cursor) if cursor else None)
    place = done.place and done.place.dumps()
    results = found_entries(context.layout, done.hits)
    return FoundOnPage(results, place, done.scanned, done.total, tuple(unread))


# --- in all sessions as they are now ---


@dataclass(frozen=True, slots=True)
class FoundInAll(SearchAnswer):
    """The hits in all sessions as they are now, except for `unread`."""

    unread: Annotated[tuple[UnreadSession, ...], OMIT_EMPTY] = ()
    problem: Annotated[str | None, Field(description="Why no text was searched"), OMIT_EMPTY] = None
    stopped: Annotated[
        bool | None, Field(description="True if the search ended early"), OMIT_EMPTY
    ] = None


def search_all(
    context: ActionContext,
    words: str,
    *,
    all: bool = False,
    agent: str | None = None,
    limit: int = 20,
    wanted: SearchFilter = NO_FILTER,
) -> FoundInAll:
    """Bring the search index up to date, then find the entries that contain all the words.

    Args:
        words: in the syntax of `search`.
        all: read all text of sessions, stores and archives instead of the index. If
            `context.stopping()` becomes true, the answer has the entries found so far.
        agent: only the sessions of this agent.
        wanted: conditions that entries must meet.

    Raises:
        Invalid: the words or the agent's name are not valid.
        NotFound: there is no such agent.
    """
    layout, has_words = context.layout, context.config.current.search_index
    if agent is not None:
        check_agent(layout, agent, "`bsd sessions` lists all of them")
    unread: list[UnreadSession] = []

    def failed(name: SessionName, why: BsdError) -> None:
        unread.append(UnreadSession(str(name), why.message, why))

    reading: dict[str, Any] = {"progress": context.progress, "failed": failed}
    more: dict[str, Any] = {"agent": agent, "limit": limit, "wanted": wanted, **reading}
    stopped = None
    if all and wanted.file is not None:  # only the index has the files that sessions name
        bring_up_to_date(layout, agent=agent, has_words=has_words, **reading)
    if all:
        done = FullScan(layout, words, stopping=context.stopping, **more).run()
        hits, stopped = done.hits, True if done.place and context.stopping() else None
    else:
        hits = search_index(layout, words, has_words=has_words, **more)
    return FoundInAll(
        words,
        _titled(layout, words, agent, limit, hits, wanted),
        found_entries(layout, hits),
        tuple(unread),
        None if has_words or (all and wanted.file is None) else NO_INDEX,
        stopped,
    )


# --- in the extracted values of one session ---


@dataclass(frozen=True, slots=True)
class ExtractedHit:
    """An entry whose extracted values contain all the words."""

    entry_id: str | None
    index: Annotated[int, Field(description="Its line number at the time of the extraction")]
    snippet: str


@dataclass(frozen=True, slots=True)
class ExtractedHits:
    """The hits of `search_extracted`, in the order of the extractions."""

    session: str
    query: str
    results: tuple[ExtractedHit, ...]
    resume: Annotated[
        str | None,
        Field(description="The command that continues the session in its program"),
        OMIT_EMPTY,
    ] = None


def search_extracted(
    context: ActionContext,
    session: SessionName,
    query: str,
    *,
    limit: int = 10,
    offset: int = 0,
) -> ExtractedHits:
    """Find words in the extracted values of a session, without restoring them.

    In a session that its program keeps in a database, results of tools are searched: the program
    clears them from the model's context and keeps them in the database.

    Args:
        query: words that an entry must all contain, in the syntax of `search`.
        limit: the maximum number of entries.
        offset: the number of matching entries to skip.

    Raises:
        Invalid: there are no words.
        NotFound: there is no such session.
        LeftAlone: the session is excluded.
    """
    context.layout.refuse_excluded(session)
    scan = FullScan(context.layout, query, only=session, limit=offset + limit)
    if database_with(context.layout, session) is not None:
        scan = replace(scan, with_transcript=True, wanted=SearchFilter(role="tool"))
    hits = scan.run().hits[offset:]
    results = tuple(ExtractedHit(hit.entry, hit.index, hit.snippet.text) for hit in hits)
    resume = describe_found(context.layout, [session])[session].resume
    return ExtractedHits(str(session), query, results, resume)
