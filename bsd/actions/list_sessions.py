"""list_sessions: sessions page by page, by what is known without reading any as a whole."""

from __future__ import annotations

import base64
import heapq
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar

from bsd.actions.verb import RootHands, Server, Verb, argument, route
from bsd.core.definition import Answer, contract
from bsd.core.errors import FieldError, Invalid, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.catalog import AgentInfo, ListedSession
from bsd.maintenance.search import SessionFilter
from bsd.maintenance.titles import Titles
from bsd.store.search_file import Statistics
from bsd.transcripts.agents.program import Registry
from bsd.transcripts.agents.programs import program_of

# What can be asked of `status` beside the words of `sessions.json`, and `archived`.
_STALE, _ACTIVE = "stale", "active"
_AGES = (_STALE, _ACTIVE)

LONGEST_WORDS = 1000  # characters
MOST_LISTED = 1000

_Order = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Which sessions; None is all."""

    agent: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))
    status: str | None = field(
        default=None,
        metadata=argument("As in the list; or stale or active, by age", most=LONGEST_WORDS),
    )
    words: str | None = field(
        default=None,
        metadata=argument(
            "Words in the name, the title, the label, a model's name or the text, extracted text "
            "included",
            most=LONGEST_WORDS,
            names={"http": "q"},
        ),
    )
    limit: int = field(default=100, metadata=argument(least=1, most=MOST_LISTED))
    cursor: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))


@dataclass(frozen=True)
class SessionRow(Answer):
    """One session as it lies there. Sizes are bytes, times ISO 8601."""

    session: str = field(metadata=contract("agent/id"))
    agent: str
    id: str
    title: str | None = field(metadata=contract("How it is called, else what was first asked"))
    label: str | None = field(metadata=contract("Its key in sessions.json"))
    status: str | None
    parent: str | None
    size: int
    updated: str = field(
        metadata=contract("Time of its newest entry; of its file if none says one")
    )
    extracted_entries: int = field(metadata=contract("With a placeholder, as it stands there"))
    extracted_bytes: int = field(metadata=contract("Of their original lines"))
    no_session: str | None = field(
        default=None,
        kw_only=True,
        metadata=contract(
            "Why the file is no session; it is listed as something was taken out of it", omit=True
        ),
    )


@dataclass(frozen=True)
class Figures(Answer):
    """What was counted in a session; each is None until it was counted once."""

    entry_count: int | None
    messages: int | None
    tool_calls: int | None
    tool_outputs: int | None
    model: str | None = field(metadata=contract("The last one"))
    models: list[str] | None
    tokens: dict[str, int] | None = field(
        metadata=contract("input, output, cache_read, cache_write, total")
    )
    created: str | None
    duration_minutes: float | None
    is_stale: bool = field(metadata=contract("Nothing was written to it for a day"))
    saved_bytes: int | None = field(
        metadata=contract("By which its lines are shorter than they were")
    )


@dataclass(frozen=True)
class SessionInList(Figures, SessionRow):
    """One session. Sizes are bytes, times ISO 8601."""

    schema_name: ClassVar[str] = "Session"

    counted: bool = field(
        metadata=contract(
            "Whether the figures are of the session as it is now; each is null until it was "
            "counted once"
        )
    )


@dataclass(frozen=True, slots=True)
class SearchState(Answer):
    """How far the index of words follows the sessions."""

    complete: bool = field(metadata=contract("Whether all sessions were read"))
    waiting: int = field(metadata=contract("Sessions that are still to be read"))
    problem: str | None


@dataclass(frozen=True, slots=True)
class Sessions(Answer):
    """Some sessions, the newest first, and where the others begin."""

    sessions: tuple[SessionInList, ...]
    next: str | None = field(metadata=contract("The cursor of the next page"))
    search: SearchState | None = field(metadata=contract("With `q`: how far the text is known"))


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far somebody came in a listing.

    The newest come first, as of the moment when the listing began. What changes meanwhile moves
    behind all others, in the order of the names: so nothing is left out, whatever happens.
    """

    began: int  # ns: the newest change that the first page knew of
    after: _Order

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read what `write` wrote; raises Invalid."""
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


def session_row(info: ListedSession) -> SessionRow:
    """A session of the catalog for other programs."""
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
    )


def figures_of(found: Statistics, *, is_stale: bool) -> Figures:
    """What was counted, for other programs."""
    lasted = (found.last_ms or 0.0) - (found.created_ms or 0.0)
    return Figures(
        entry_count=found.entries,
        messages=found.messages,
        tool_calls=found.tool_calls,
        tool_outputs=found.tool_outputs,
        model=found.models[-1] if found.models else None,
        models=found.models,
        tokens=found.tokens,
        created=_iso(found.created_ms),
        duration_minutes=round(lasted / 60_000, 1),
        is_stale=is_stale,
        saved_bytes=found.saved_bytes,
    )


def _uncounted(*, is_stale: bool) -> dict[str, Any]:
    """The figures of a session that nobody has read."""
    return {one.name: None for one in fields(Figures)} | {"is_stale": is_stale}


def list_sessions(
    layout: Layout, asked: ListSessions, now: float
) -> tuple[Sessions, SessionFilter]:
    """A page of the list, as of `now` (epoch seconds), and how its words were looked for.

    How far their text is known, the page does not say yet.
    """
    if asked.agent is not None:
        check_agent(layout, asked.agent)
    where = Cursor.read(asked.cursor) if asked.cursor else None
    words = SessionFilter(layout, asked.words, asked.agent)
    titles = Titles(layout, asked.agent)
    newest = 0

    def fitting() -> Iterator[tuple[_Order, SessionName, os.stat_result]]:
        nonlocal newest
        for name, stat in _matching(layout, asked, words, titles):
            updated = titles.updated(name, stat)
            if not _has_age(updated, asked, now):
                continue
            newest = max(newest, stat.st_mtime_ns)
            place: _Order = (0, -round(updated * 1e9), str(name))
            # By its file's time: whatever was done to it, its place among the others may differ.
            if where and stat.st_mtime_ns > where.began:
                place = (1, 0, str(name))
            if not where or place > where.after:
                yield place, name, stat

    # No more of them are held than are shown.
    found = heapq.nsmallest(asked.limit + 1, fitting(), key=itemgetter(0))
    shown = found[: asked.limit]
    began = where.began if where else newest
    infos = [catalog.describe(layout, name, stat, titles) for _, name, stat in shown]
    following = Cursor(began, shown[-1][0]).write() if len(found) > len(shown) else None
    return Sessions(tuple(listed(layout, infos, now)), following, None), words


def listed(layout: Layout, infos: list[ListedSession], now: float) -> Iterator[SessionInList]:
    """Sessions as the list shows them, with the figures that are known of them."""
    known = catalog.counted(layout, infos)
    for info in infos:
        found = known.get(info.name)
        is_stale = catalog.is_stale(info.updated, now)
        row, figures = vars(session_row(info)), _uncounted(is_stale=is_stale)
        if found is not None:
            figures = vars(figures_of(found.statistics, is_stale=is_stale))
        if info.saved_bytes is not None and (found is not None or info.saved_bytes):
            figures |= {"saved_bytes": info.saved_bytes}
        yield SessionInList(**row, **figures, counted=found is not None and found.current)


def check_agent(layout: Layout, agent: str, hint: str = "/api/agents lists them") -> None:
    """Raise Invalid for a wrong name, NotFound if there is no such agent."""
    if not layout.has_agent(agent):
        raise NotFound(f"there is no agent {agent}", hint=hint)


def _matching(
    layout: Layout, asked: ListSessions, words: SessionFilter, titles: Titles
) -> Iterator[tuple[SessionName, os.stat_result]]:
    registries: dict[str, Registry] = {}
    for name, stat in catalog.with_stats(layout, asked.agent):
        entry = None
        if words.terms or asked.status:
            if name.agent not in registries:
                registries[name.agent] = program_of(layout, name.agent).registry()
            entry = next(registries[name.agent].find(name.session), None)
        by_word = asked.status and asked.status not in _AGES
        if by_word and catalog.status_of(layout, name, entry) != asked.status:
            continue
        called = [entry.key, registries[name.agent].title(name.session)] if entry else []
        if words.terms:
            called.append(titles.of(name, stat).title)
        if words.fits(name, called):
            yield name, stat


def _has_age(updated: float, asked: ListSessions, now: float) -> bool:
    if asked.status not in _AGES:
        return True
    return catalog.is_stale(updated, now) is (asked.status == _STALE)


def _iso(time_ms: float | None) -> str | None:
    with suppress(OverflowError, ValueError, OSError):  # a time that no calendar has
        return None if time_ms is None else iso_utc(time_ms / 1000)
    return None


def _ask(server: Server, asked: ListSessions) -> Sessions:
    page, words = list_sessions(server.layout, asked, time.time())
    if not asked.words:
        return page
    state = server.search_state()
    return replace(page, search=replace(state, problem=words.problem or state.problem))


LIST_SESSIONS = Verb(
    name="list_sessions",
    arguments=ListSessions,
    answer=Sessions,
    ask=_ask,
    route=route(
        "GET /api/sessions",
        "sessions",
        "Sessions, the newest first."
        "\n\nOne that changes while somebody pages comes (again) at the end: none is left out.",
    ),
)


# --- all of them, for who sits at the root itself ---


@dataclass(frozen=True, slots=True)
class EverySession:
    """Which sessions, without pages; None is all."""

    agent: str | None = field(
        default=None, metadata=argument("Only the sessions of this agent.", metavar="AGENT")
    )
    limit: int | None = field(default=None, metadata=argument("No more than so many.", least=1))
    words: str | None = field(
        default=None,
        metadata=argument(
            "Only those with these words in title, name or text.",
            metavar="WORDS",
            names={"cli": "-q --query"},
        ),
    )
    figures: bool = True  # of those that are as the last search counted them


@dataclass(frozen=True)
class CountedSession(SessionRow):
    """A session, and what was counted in it."""

    figures: Figures | None = field(metadata=contract(inline=True))


@dataclass(frozen=True, slots=True)
class AllSessions(Answer):
    """The newest first within each agent."""

    sessions: tuple[CountedSession, ...]
    agents: tuple[AgentInfo, ...]
    total_size: int
    problem: str | None = field(
        metadata=contract("Why the text of the sessions was not searched", omit=True)
    )


def _ask_for_all(hands: RootHands, asked: EverySession) -> AllSessions:
    layout = hands.layout
    agents = [one for one in catalog.agents(layout) if asked.agent in {None, one.name}]
    if asked.agent is not None and not agents:
        raise NotFound(f"there is no agent {asked.agent}", hint="`bsd sessions` lists all of them")
    words = SessionFilter(layout, asked.words, asked.agent)
    sought = (
        one
        for one in catalog.sessions(layout, asked.agent)
        if words.fits(one.name, (one.label, one.title))
    )
    found = list(islice(sought, asked.limit))
    return AllSessions(
        tuple(_counted(layout, found) if asked.figures else map(_uncounted_row, found)),
        tuple(agents),
        sum(one.size for one in found),
        words.problem,
    )


def _uncounted_row(info: ListedSession) -> CountedSession:
    return CountedSession(**vars(session_row(info)), figures=None)


def _counted(layout: Layout, infos: list[ListedSession]) -> Iterator[CountedSession]:
    now = time.time()
    known = catalog.warm(layout, infos)
    for info in infos:
        is_stale = catalog.is_stale(info.updated, now)
        counted = known.get(info.name)
        figures = figures_of(counted, is_stale=is_stale) if counted else None
        yield CountedSession(**vars(session_row(info)), figures=figures)


ALL_SESSIONS = Verb(
    name="all_sessions",
    arguments=EverySession,
    answer=AllSessions,
    ask=_ask_for_all,
    about="""
    Newest first within each agent, by their newest entries. TITLE is what `sessions.json` or the
    program calls a session, else what was first asked in it. -q finds words in it, in the name, and
    in text that `bsd search` or the daemon has read. SIZE is the session file's, OUT is what
    is out of it now, and lies in store or archive. Agents whose sessions bsd leaves alone are named
    below the table.
    With --json, sessions that `bsd search` has read have figures, too: messages, tokens and more.
    """,
    examples=(
        "bsd sessions",
        "bsd sessions --agent main --limit 10",
        'bsd sessions -q "retention cron"',
        "bsd sessions --json | jq -r '.sessions[] | select(.size > 10000000) | .session'",
    ),
)
