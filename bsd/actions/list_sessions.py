"""list_sessions and list_all_sessions: list sessions without reading whole transcripts."""

from __future__ import annotations

import base64
import heapq
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice
from operator import itemgetter
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bsd.actions.context import ActionContext, SearchState
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import FieldError, Invalid, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.catalog import AgentInfo, ListedSession
from bsd.maintenance.search import SessionFilter
from bsd.maintenance.titles import BEYOND_SECONDS, Titles
from bsd.planning.timing_members import (
    CallsExpected,
    CallsNeeded,
    CostNow,
    CutReason,
    TokensRewritten,
    members,
    wait_of,
)
from bsd.planning.view import time_text
from bsd.store.statistics import NOTHING_OUT, Statistics
from bsd.transcripts.agents.program import Registry
from bsd.transcripts.agents.programs import program_of

# Values of `status` in addition to the words of `sessions.json` and to `archived`.
_STALE, _ACTIVE = "stale", "active"
_AGES = (_STALE, _ACTIVE)

LONGEST_WORDS = 1000  # characters
MOST_LISTED = 1000

_Order = tuple[int, int, str]
_Rank = Callable[[SessionName, os.stat_result], int]
_MOST_TOKENS = 10**15  # more tokens than any session has, so the cost always outranks them


class SessionOrder(StrEnum):
    """The figure by which sessions are sorted, the greatest first."""

    DATE = "date"  # time of the newest entry
    SIZE = "size"
    SAVED = "saved"  # bytes that extraction saved
    COST = "cost"  # the cost that their program noted; sessions without a cost follow, by tokens


@dataclass(frozen=True)
class SessionRow:
    """One session, as its files show it. Sizes are bytes, times ISO 8601."""

    session: Annotated[str, Field(description="agent/id")]
    agent: str
    id: str
    title: Annotated[str | None, Field(description="Its title, or its first prompt")]
    label: Annotated[str | None, Field(description="Its key in sessions.json")]
    status: str | None
    parent: str | None
    size: int
    updated: Annotated[
        str, Field(description="Time of its newest entry, or of its file if no entry has a time")
    ]
    extracted_entries: Annotated[int, Field(description="Number of entries with a placeholder")]
    extracted_bytes: Annotated[int, Field(description="Size of their original lines")]
    no_session: Annotated[
        str | None,
        Field(
            description="Why the file is not a session; it is listed because values were extracted"
            " from it"
        ),
        OMIT_EMPTY,
    ] = field(default=None, kw_only=True)
    resume: Annotated[
        str | None,
        Field(description="The command that continues it in its program; null: there is none"),
    ] = field(default=None, kw_only=True)
    cache_warm_until: Annotated[
        str | None,
        Field(
            description="When its prompt cache gets cold; until then, values that its model sees"
            " are not extracted"
        ),
        OMIT_EMPTY,
    ] = field(default=None, kw_only=True)
    tokens_ready: Annotated[
        int | None, Field(description="Estimated tokens of these waiting values"), OMIT_EMPTY
    ] = field(default=None, kw_only=True)
    cut_reason: CutReason = field(default=None, kw_only=True)
    tokens_rewritten: TokensRewritten = field(default=None, kw_only=True)
    cost_now: CostNow = field(default=None, kw_only=True)
    calls_needed: CallsNeeded = field(default=None, kw_only=True)
    calls_expected: CallsExpected = field(default=None, kw_only=True)
    left_alone: Annotated[str | None, Field(description="Why bsd does not edit it"), OMIT_EMPTY] = (
        field(default=None, kw_only=True)
    )
    paused: Annotated[
        str | None,
        Field(description="The pause that covers it, and the end of the pause"),
        OMIT_EMPTY,
    ] = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Figures:
    """Figures of a session; each is None until the session was counted for the first time."""

    entry_count: int | None
    messages: int | None
    tool_calls: int | None
    tool_outputs: int | None
    model: Annotated[str | None, Field(description="The last model")]
    models: list[str] | None
    tokens: Annotated[
        dict[str, int] | None, Field(description="input, output, cache_read, cache_write, total")
    ]
    created: str | None
    cost: Annotated[
        float | None, Field(description="US dollars, as its program noted them"), OMIT_EMPTY
    ]
    duration_minutes: float | None
    is_stale: Annotated[bool, Field(description="True if it was not written to for a day")]
    saved_bytes: Annotated[int | None, Field(description="Bytes that extraction saved in it")]


@dataclass(frozen=True)
class SessionInList(Figures, SessionRow):
    """One session. Sizes are bytes, times ISO 8601."""

    schema_name: ClassVar[str] = "Session"

    counted: Annotated[
        bool,
        Field(
            description="True if the figures are up to date; each is null until the session was"
            " counted for the first time"
        ),
    ]


@dataclass(frozen=True, slots=True)
class Sessions:
    """A page of sessions in the requested order, and the cursor of the next page."""

    sessions: tuple[SessionInList, ...]
    next: Annotated[str | None, Field(description="The cursor of the next page")]
    search: Annotated[
        SearchState | None, Field(description="With `q`: the state of the search index")
    ]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position at which the next page of a listing begins.

    Sessions are listed in the order that they had when the listing began. A session that changes
    during the listing moves behind all others, where these are sorted by name. So no session is
    left out.
    """

    began: int  # ns: time of the newest change when the listing began
    after: _Order

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read the output of `write`; raises Invalid."""
        try:
            began, part, updated, name = json.loads(base64.urlsafe_b64decode(text.encode()))
            if (type(began), type(part), type(updated), type(name)) == (int, int, int, str):
                return cls(began, (part, updated, name))
        except (ValueError, TypeError, RecursionError):
            pass
        problem = FieldError("cursor", "not a cursor of this server")
        raise Invalid(
            f"cursor: {problem.message}",
            hint="start again without a cursor",
            errors=(problem,),
        )

    def write(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.began, *self.after]).encode()).decode()


def session_row(info: ListedSession, now: float) -> SessionRow:
    """Return a session of the catalog as a row of an answer; `now` in epoch seconds."""
    wait = wait_of(info.waits, now)
    until = wait.cold_at if wait else None
    pause = info.paused
    return SessionRow(
        session=str(info.name),
        agent=info.name.agent,
        id=info.name.session,
        title=info.title,
        label=info.label,
        status=info.status,
        parent=info.parent,
        size=info.size,
        updated=iso_utc(info.updated),
        extracted_entries=info.extracted_entries,
        extracted_bytes=info.extracted_bytes,
        no_session=info.no_session,
        resume=info.resume,
        cache_warm_until=None if until is None else iso_utc(until),
        tokens_ready=wait.cut.removed if wait else None,
        **members(wait),
        left_alone=info.left_alone,
        paused=None if pause is None else f"{pause.name}, {pause.spelled_end}",
    )


def figures_of(found: Statistics, *, is_stale: bool) -> Figures:
    """Return the statistics of a session as figures of an answer."""
    lasted = (found.last_ms or 0.0) - (found.created_ms or 0.0)
    return Figures(
        entry_count=found.entries,
        messages=found.messages,
        tool_calls=found.tool_calls,
        tool_outputs=found.tool_outputs,
        model=found.models[-1] if found.models else None,
        models=found.models,
        tokens=found.tokens,
        created=time_text(found.created_ms),
        cost=round(found.cost, 6) or None,
        duration_minutes=round(lasted / 60_000, 1),
        is_stale=is_stale,
        saved_bytes=found.saved_bytes,
    )


def list_sessions(
    context: ActionContext,
    *,
    agent: str | None = None,
    status: str | None = None,
    words: str | None = None,
    sort: SessionOrder = SessionOrder.DATE,
    limit: int = 100,
    cursor: str | None = None,
) -> Sessions:
    """List sessions page by page, in the order of `sort`.

    A session that changes between two pages is listed (again) at the end, so that no session is
    left out.

    Args:
        agent: only the sessions of this agent.
        status: only sessions with this `status`; `stale` and `active` select by age.
        words: only sessions with these words in the name, the title, the label, a model's name or
            the text; extracted text counts.
        sort: the order, the same for all pages. `cost` uses the figures in the search index.
        cursor: `next` of the page before.

    Raises:
        Invalid: the cursor or the agent's name is not valid.
        NotFound: there is no such agent.
    """
    layout, now = context.layout, context.now()
    if agent is not None:
        check_agent(layout, agent)
    begin = Cursor.read(cursor) if cursor else None
    wanted = SessionFilter(layout, words, agent)
    titles = Titles(layout, agent)
    rank = _rank(layout, agent, sort, titles)
    newest = 0

    def fitting() -> Iterator[tuple[_Order, SessionName, os.stat_result]]:
        nonlocal newest
        matching = _matching(layout, agent, status, wanted, titles, now)
        is_newest_first = sort is SessionOrder.DATE and begin is None
        ranked = (
            _while_newest(matching, rank, limit + 1)
            if is_newest_first
            else ((rank(*each), *each) for each in matching)
        )
        for figure, name, stat in ranked:
            newest = max(newest, stat.st_mtime_ns)
            place: _Order = (0, -figure, str(name))
            # A session whose file changed after the listing began may have another position now.
            if begin and stat.st_mtime_ns > begin.began:
                place = (1, 0, str(name))
            if not begin or place > begin.after:
                yield place, name, stat

    # nsmallest holds no more sessions in memory than the page shows.
    found = heapq.nsmallest(limit + 1, fitting(), key=itemgetter(0))
    shown = found[:limit]
    began = begin.began if begin else newest
    infos = [catalog.describe(layout, name, stat, titles) for _, name, stat in shown]
    following = Cursor(began, shown[-1][0]).write() if len(found) > len(shown) else None
    search = None
    if words:
        state = context.search_state()
        search = replace(state, problem=wanted.problem or state.problem)
    return Sessions(tuple(listed(layout, infos, now)), following, search)


def _while_newest(
    matching: Iterable[tuple[SessionName, os.stat_result]], rank: _Rank, wanted: int
) -> Iterator[tuple[int, SessionName, os.stat_result]]:
    """Yield sessions with their times, as long as a session can be among the newest `wanted`.

    A time in a session that is much newer than its file is ignored, so older files need not be
    opened.
    """
    best: list[int] = []  # a heap: the times of the newest `wanted` so far
    for name, stat in sorted(matching, key=lambda each: -each[1].st_mtime_ns):
        if len(best) == wanted and stat.st_mtime_ns + BEYOND_SECONDS * 1e9 < best[0]:
            return
        time = rank(name, stat)
        (heapq.heappush if len(best) < wanted else heapq.heappushpop)(best, time)
        yield time, name, stat


def _rank(layout: Layout, agent: str | None, sort: SessionOrder, titles: Titles) -> _Rank:
    """Return the function that computes the sort key of a session, a whole number."""
    if sort is SessionOrder.SIZE:
        return lambda _, stat: stat.st_size
    if sort is SessionOrder.SAVED:
        return lambda name, stat: (titles.out(name, stat) or NOTHING_OUT).saved
    if sort is SessionOrder.COST:
        spent = {
            name: round(cost * 1e6) * _MOST_TOKENS + tokens
            for name, (cost, tokens) in catalog.spending(layout, agent).items()
        }
        return lambda name, _: spent.get(str(name), 0)
    return lambda name, stat: round(titles.updated(name, stat) * 1e9)


def listed(layout: Layout, infos: list[ListedSession], now: float) -> Iterator[SessionInList]:
    """Yield sessions as the list shows them, with the figures that the search index has."""
    known = catalog.counted(layout, infos)
    for info in infos:
        statistics, is_current = known.get(info.name, (None, False))
        yield SessionInList(**_with_figures(info, statistics, now), counted=is_current)


def _with_figures(info: ListedSession, statistics: Statistics | None, now: float) -> dict[str, Any]:
    """Return the fields of `SessionRow` and `Figures` for a session."""
    is_stale = catalog.is_stale(info.updated, now)
    if statistics is not None:
        figures = vars(figures_of(statistics, is_stale=is_stale))
    else:
        figures = {one.name: None for one in fields(Figures)} | {"is_stale": is_stale}
    if info.saved_bytes is not None and (statistics is not None or info.saved_bytes):
        figures |= {"saved_bytes": info.saved_bytes}
    return {**vars(session_row(info, now)), **figures}


def check_agent(layout: Layout, agent: str, hint: str = "/api/agents lists them") -> None:
    """Check that an agent exists and is not excluded.

    Raises:
        Invalid: the name is not valid.
        NotFound: there is no such agent.
        LeftAlone: the agent is excluded.
    """
    if exclusion := layout.exclusions().agent(agent):
        raise exclusion.refusal(agent)
    if not layout.has_agent(agent):
        raise NotFound(f"there is no agent {agent}", hint=hint)


def _matching(
    layout: Layout,
    agent: str | None,
    status: str | None,
    words: SessionFilter,
    titles: Titles,
    now: float,
) -> Iterator[tuple[SessionName, os.stat_result]]:
    registries: dict[str, Registry] = {}
    for name, stat in catalog.with_stats(layout, agent):
        entry = None
        if words.terms or status:
            if name.agent not in registries:
                registries[name.agent] = program_of(layout, name.agent).registry()
            entry = next(registries[name.agent].find(name.session), None)
        by_word = status and status not in _AGES
        if by_word and catalog.status_of(layout, name, entry) != status:
            continue
        called = [entry.key, registries[name.agent].title(name.session)] if entry else []
        if words.terms:
            called.append(titles.of(name, stat).title)
        if not words.fits(name, called):
            continue
        if status in _AGES:
            is_wanted = catalog.is_stale(titles.updated(name, stat), now) is (status == _STALE)
            if not is_wanted:
                continue
        yield name, stat


# --- all of them, without pages ---


@dataclass(frozen=True)
class CountedSession(Figures, SessionRow):
    """A session with its figures."""


@dataclass(frozen=True, slots=True)
class AllSessions:
    """All sessions: by agent and the newest first, or with `sort` in one order over all agents."""

    sessions: tuple[CountedSession, ...]
    agents: tuple[AgentInfo, ...]
    total_size: int
    problem: Annotated[
        str | None, Field(description="Why the text of the sessions was not searched"), OMIT_EMPTY
    ]


def list_all_sessions(
    context: ActionContext,
    *,
    agent: str | None = None,
    limit: int | None = None,
    words: str | None = None,
    sort: SessionOrder | None = None,
    figures: bool = True,
) -> AllSessions:
    """List all sessions, the newest first within each agent.

    Args:
        agent: only the sessions of this agent.
        limit: the maximum number of sessions; None: all.
        words: only sessions with these words in the title, the name or the text.
        sort: sort all sessions in this order instead, over all agents.
        figures: add the figures of sessions that have not changed since they were counted.

    Raises:
        NotFound: there is no such agent.
        LeftAlone: the agent is excluded.
    """
    layout = context.layout
    if agent is not None and (exclusion := layout.exclusions().agent(agent)):
        raise exclusion.refusal(agent)
    every = (*catalog.agents(layout), *catalog.links(layout))
    agents = [one for one in every if agent in {None, one.name}]
    if agent is not None and not agents:
        raise NotFound(f"there is no agent {agent}", hint="`bsd sessions` lists all of them")
    wanted = SessionFilter(layout, words, agent)
    matching = (
        info
        for info in (
            catalog.sessions(layout, agent) if sort is None else _sorted(layout, agent, sort)
        )
        if wanted.fits(info.name, (info.label, info.title))
    )
    infos = list(islice(matching, limit))
    known, now = catalog.warm(layout, infos) if figures else {}, context.now()
    return AllSessions(
        tuple(CountedSession(**_with_figures(info, known.get(info.name), now)) for info in infos),
        tuple(agents),
        sum(info.size for info in infos),
        wanted.problem,
    )


def _sorted(layout: Layout, agent: str | None, sort: SessionOrder) -> Iterator[ListedSession]:
    """Yield all sessions, sorted over all agents."""
    titles = Titles(layout, agent)
    rank = _rank(layout, agent, sort, titles)
    found = sorted(catalog.with_stats(layout, agent), key=lambda each: (-rank(*each), str(each[0])))
    return (catalog.describe(layout, name, stat, titles) for name, stat in found)
