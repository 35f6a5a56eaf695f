"""list_sessions and list_all_sessions: facts of sessions without reading them whole."""

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
from bsd.planning.view import time_text
from bsd.store.statistics import NOTHING_OUT, Statistics
from bsd.transcripts.agents.program import Registry
from bsd.transcripts.agents.programs import program_of

# The values of `status` beside the words of `sessions.json`, and `archived`.
_STALE, _ACTIVE = "stale", "active"
_AGES = (_STALE, _ACTIVE)

LONGEST_WORDS = 1000  # characters
MOST_LISTED = 1000

_Order = tuple[int, int, str]
_Rank = Callable[[SessionName, os.stat_result], int]
_MOST_TOKENS = 10**15  # more than any session has: a cent counts for more than all tokens


class SessionOrder(StrEnum):
    """By which figure sessions are listed, the greatest first."""

    DATE = "date"  # the newest entry
    SIZE = "size"
    SAVED = "saved"  # by how much they are shorter than they were
    COST = "cost"  # as their program noted it; behind these, those of which only tokens are known


@dataclass(frozen=True)
class SessionRow:
    """One session as it lies there. Sizes are bytes, times ISO 8601."""

    session: Annotated[str, Field(description="agent/id")]
    agent: str
    id: str
    title: Annotated[str | None, Field(description="How it is called, else what was first asked")]
    label: Annotated[str | None, Field(description="Its key in sessions.json")]
    status: str | None
    parent: str | None
    size: int
    updated: Annotated[
        str, Field(description="Time of its newest entry; of its file if none says one")
    ]
    extracted_entries: Annotated[int, Field(description="With a placeholder, as it stands there")]
    extracted_bytes: Annotated[int, Field(description="Of their original lines")]
    no_session: Annotated[
        str | None,
        Field(
            description="Why the file is no session; it is listed as something was taken out of it"
        ),
        OMIT_EMPTY,
    ] = field(default=None, kw_only=True)
    resume: Annotated[
        str | None,
        Field(description="The command that continues it in its program; null: there is none"),
    ] = field(default=None, kw_only=True)
    cache_warm_until: Annotated[
        str | None,
        Field(description="What its model sees waits for its prompt cache to get cold then"),
        OMIT_EMPTY,
    ] = field(default=None, kw_only=True)
    tokens_ready: Annotated[
        int | None, Field(description="Of what waits so: an estimate"), OMIT_EMPTY
    ] = field(default=None, kw_only=True)
    left_alone: Annotated[str | None, Field(description="Why bsd does not edit it"), OMIT_EMPTY] = (
        field(default=None, kw_only=True)
    )
    paused: Annotated[
        str | None, Field(description="By which pause it is not edited, and until when"), OMIT_EMPTY
    ] = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Figures:
    """What was counted in a session; each is None until it was counted once."""

    entry_count: int | None
    messages: int | None
    tool_calls: int | None
    tool_outputs: int | None
    model: Annotated[str | None, Field(description="The last one")]
    models: list[str] | None
    tokens: Annotated[
        dict[str, int] | None, Field(description="input, output, cache_read, cache_write, total")
    ]
    created: str | None
    cost: Annotated[
        float | None, Field(description="US dollars, as its program noted them"), OMIT_EMPTY
    ]
    duration_minutes: float | None
    is_stale: Annotated[bool, Field(description="Nothing was written to it for a day")]
    saved_bytes: Annotated[
        int | None, Field(description="By which its lines are shorter than they were")
    ]


@dataclass(frozen=True)
class SessionInList(Figures, SessionRow):
    """One session. Sizes are bytes, times ISO 8601."""

    schema_name: ClassVar[str] = "Session"

    counted: Annotated[
        bool,
        Field(
            description="Whether the figures are of the session as it is now; each is null until "
            "it was counted once"
        ),
    ]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Some sessions in the order that was asked for, and where the others begin."""

    sessions: tuple[SessionInList, ...]
    next: Annotated[str | None, Field(description="The cursor of the next page")]
    search: Annotated[SearchState | None, Field(description="With `q`: how far the text is known")]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page of a listing begins.

    The newest (or those first by another order) come first, as of the moment when the listing
    began. What changes meanwhile moves behind all others, in the order of the names: so nothing is
    left out, whatever happens.
    """

    began: int  # ns: the newest change that the first page knew of
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
        problem = FieldError("cursor", "none that this server has given")
        raise Invalid(
            f"cursor: {problem.message}",
            hint="begin again without a cursor",
            errors=(problem,),
        )

    def write(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.began, *self.after]).encode()).decode()


def session_row(info: ListedSession, now: float) -> SessionRow:
    """A session of the catalog for other programs; `now` in epoch seconds."""
    waits = info.waits if info.waits and (info.waits.warm_until or 0.0) > now else None
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
        cache_warm_until=iso_utc(waits.warm_until) if waits and waits.warm_until else None,
        tokens_ready=waits.tokens_ready if waits else None,
        left_alone=info.left_alone,
        paused=None if pause is None else f"{pause.name}, {pause.spelled_end}",
    )


def figures_of(found: Statistics, *, is_stale: bool) -> Figures:
    """Return the figures that were counted, for other programs."""
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
    """List sessions page by page, the newest (or largest, or …) first.

    A session that changes between two pages comes (again) at the end, so that none is left out.

    Args:
        agent: only the sessions of this agent.
        status: as in the list; or `stale` or `active`, by age.
        words: words in name, title, label, a model's name or the text, extracted text included.
        sort: the same for all pages. `cost` goes by what the search index has counted so far.
        cursor: `next` of the page before.

    Raises:
        Invalid: the cursor or the agent's name is wrong.
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
            # By its file's time: after any change to it, its place among the others may differ.
            if begin and stat.st_mtime_ns > begin.began:
                place = (1, 0, str(name))
            if not begin or place > begin.after:
                yield place, name, stat

    # No more of them are held than are shown.
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
    """Yield sessions with their times, as long as one can be among the newest `wanted`.

    No message counts that is much newer than its file: older files need not be opened.
    """
    best: list[int] = []  # a heap: the times of the newest `wanted` so far
    for name, stat in sorted(matching, key=lambda each: -each[1].st_mtime_ns):
        if len(best) == wanted and stat.st_mtime_ns + BEYOND_SECONDS * 1e9 < best[0]:
            return
        time = rank(name, stat)
        (heapq.heappush if len(best) < wanted else heapq.heappushpop)(best, time)
        yield time, name, stat


def _rank(layout: Layout, agent: str | None, sort: SessionOrder, titles: Titles) -> _Rank:
    """Return the figure by which sessions are ordered, as a whole number."""
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
    """Sessions as the list shows them, with the figures that are known of them."""
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
    """Raise Invalid for a wrong name, NotFound if there is no such agent, LeftAlone if excluded."""
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
    """A session, and what was counted in it."""


@dataclass(frozen=True, slots=True)
class AllSessions:
    """The newest first within each agent; in another order, over all agents."""

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
        words: only those with these words in title, name or text.
        sort: list them in this order instead, over all agents.
        figures: with the figures of sessions that are as the last search counted them.

    Raises:
        NotFound: there is no such agent.
        LeftAlone: it is excluded.
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
    """Yield all sessions in an order over all agents."""
    titles = Titles(layout, agent)
    rank = _rank(layout, agent, sort, titles)
    found = sorted(catalog.with_stats(layout, agent), key=lambda each: (-rank(*each), str(each[0])))
    return (catalog.describe(layout, name, stat, titles) for name, stat in found)
