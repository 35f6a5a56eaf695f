"""Search: entries by their words, and sessions by their titles; in the index, or in everything.

Files that sessions have changed or read are found by `files_touched`.

search asks the index as it is, search_all brings it up to date before. search_extracted searches
the extracted values of one session.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
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

# A page of a search through everything ends after so long, and so many are made at once.
_PAGE_SECONDS = 0.5
_AT_ONCE = threading.BoundedSemaphore(2)

Resume = Annotated[
    str | None,
    Field(
        description="The command that continues the session in its program; of one that is gone,"
        " once it is brought back"
    ),
]
Gone = Annotated[
    bool | None,
    Field(description="Its program has deleted the session: the archive brings it back"),
    OMIT_EMPTY,
]


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry with all the words; `matches` are [start, end) in the snippet's characters."""

    schema_name: ClassVar[str] = "Hit"

    session: str
    entry_id: str | None
    index: Annotated[
        int, Field(description="Line number; of extracted text: when it was taken out")
    ]
    where: Literal["transcript", "extracted"]
    snippet: str
    matches: tuple[tuple[int, int], ...]
    score: float
    title: Annotated[str | None, Field(description="Of the session"), OMIT_EMPTY] = None
    resume: Resume = None
    role: Annotated[str | None, OMIT_EMPTY] = None
    time: Annotated[str | None, Field(description="When it was written"), OMIT_EMPTY] = None
    gone: Gone = None


@dataclass(frozen=True, slots=True)
class TitledSession:
    """A session whose title holds all the words."""

    schema_name: ClassVar[str] = "Titled"

    session: str
    title: str
    resume: Resume = None
    gone: Gone = None


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The entries and sessions with all the words."""

    query: str
    sessions: Annotated[
        tuple[TitledSession, ...],
        Field(description="Other sessions, whose titles hold all the words"),
    ]
    results: tuple[FoundEntry, ...]


@dataclass(frozen=True, slots=True)
class UnreadSession:
    """One that could not be read, and why."""

    session: str
    error: str
    problem: Internal[BsdError]


@dataclass(frozen=True, slots=True)
class FoundInIndex(SearchAnswer):
    """What the index knows so far; or, with `all`, what this page of everything holds."""

    schema_name: ClassVar[str] = "Found"

    search: SearchState
    cursor: Annotated[
        str | None, Field(description="With `all`: of the next page, if there is one"), OMIT_EMPTY
    ] = None
    scanned: Annotated[
        int | None, Field(description="With `all`: bytes that were searched so far"), OMIT_EMPTY
    ] = None
    total: Annotated[int | None, Field(description="Of so many"), OMIT_EMPTY] = None
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
    """Find the entries that hold all the words, the best first, and sessions with such titles.

    Args:
        words: words, "several words" that stand together, and begin* for any word that begins so.
        agent: only the sessions of this agent.
        all: without the index, through all text of sessions, stores and archives: for a moment,
            and on from `cursor` with the next call.
        cursor: of the page before.
        wanted: conditions that entries have to meet.

    Raises:
        Invalid: the words, the cursor or the agent's name are wrong.
        NotFound: there is no such agent.
        Busy: others search everything just now.
    """
    layout = context.layout
    if agent is not None:
        check_agent(layout, agent)
    if not all and not cursor:
        hits = search_as_it_is(layout, words, agent=agent, limit=limit, wanted=wanted)
        titled = _titled(layout, words, agent, limit, hits, wanted)
        return FoundInIndex(words, titled, found_entries(layout, hits), context.search_state())
    if not _AT_ONCE.acquire(timeout=_PAGE_SECONDS):
        raise Busy("others search everything just now", hint="the same call again in a moment")
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
    """Return the sessions whose titles hold the words, other than those with hits."""
    but = {hit.session for hit in hits}
    found = by_title(layout, words, agent=agent, limit=limit, but=but, wanted=wanted)
    about = describe_found(layout, [name for name, _ in found])
    return tuple(
        TitledSession(str(name), title, about[name].resume, about[name].gone or None)
        for name, title in found
    )


def found_entries(layout: Layout, hits: list[SearchHit]) -> tuple[FoundEntry, ...]:
    """Return the hits in the form of answers."""
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
    """A time as JSON has it; None if no calendar has it, as an entry may say anything."""
    with suppress(ValueError, OverflowError, OSError):
        return iso_utc(time)
    return None


@dataclass(frozen=True, slots=True)
class FoundOnPage:
    """What a page of a search through everything holds, and how far it came. Bytes."""

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
    """Search everything for half a second, on from `cursor`; `search` describes the others."""
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
    """What is in all sessions as they are now, but for those that could not be read."""

    unread: Annotated[tuple[UnreadSession, ...], OMIT_EMPTY] = ()
    problem: Annotated[str | None, Field(description="Why no text was searched"), OMIT_EMPTY] = None
    stopped: Annotated[
        bool | None, Field(description="True if it ended before all was searched"), OMIT_EMPTY
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
    """Find the entries that hold all the words, once the index has read new lines.

    Args:
        words: as `search` takes them.
        all: without the index, through all text of sessions, stores and archives; if the context
            says that it is `stopping`, the answer has the entries found so far.
        agent: only the sessions of this agent.
        wanted: conditions that entries have to meet.

    Raises:
        Invalid: the words or the agent's name are wrong.
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
    if all and wanted.file is not None:  # which sessions name it, the index knows
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
    """An entry with all the words."""

    entry_id: str | None
    index: Annotated[int, Field(description="Its line number when it was taken out")]
    snippet: str


@dataclass(frozen=True, slots=True)
class ExtractedHits:
    """In the order in which they were taken out."""

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
    """Find words in the extracted values of a session, without putting them back.

    Args:
        query: words that must all be there, as `search` takes them.
        offset: so many entries with the words are passed over.

    Raises:
        Invalid: there are no words.
        NotFound: there is no such session.
        LeftAlone: it is excluded.
    """
    context.layout.refuse_excluded(session)
    scan = FullScan(context.layout, query, only=session, limit=offset + limit)
    hits = scan.run().hits[offset:]
    results = tuple(ExtractedHit(hit.entry, hit.index, hit.snippet.text) for hit in hits)
    resume = describe_found(context.layout, [session])[session].resume
    return ExtractedHits(str(session), query, results, resume)
