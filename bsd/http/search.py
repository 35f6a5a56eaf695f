"""Search: words in all sessions, and files that they have changed or read."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from bsd.actions.files_touched import FilesInIndex, find_files
from bsd.actions.list_sessions import LONGEST_WORDS
from bsd.actions.search import FoundInIndex, search
from bsd.core.layout import SessionName
from bsd.core.past_moments import parse_past, parse_until
from bsd.http.dependencies import Agent, Context, JsonRoute
from bsd.store.search_filter import SearchFilter, SearchPlace

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute)

Words = Annotated[
    str, Query(max_length=LONGEST_WORDS, description='Words, "several words", begin*')
]
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("/search", name="search")
def search_sessions(  # noqa: PLR0913 - as many as the query has
    context: Context,
    q: Words,
    agent: Agent = None,
    limit: Limit = 20,
    *,
    all: Annotated[
        bool, Query(description="Without the index: all text, for a moment, page by page")
    ] = False,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
    session: Annotated[
        str | None, Query(max_length=1000, description="Only in this session, AGENT/SESSION")
    ] = None,
    role: Annotated[
        Literal["user", "assistant", "tool", "call", "thinking"] | None,
        Query(
            description="Only entries of this role, or in these parts of them; results of tools,"
            " calls and thinking are found only with `all`"
        ),
    ] = None,
    since: Annotated[
        str | None,
        Query(max_length=100, description="Only entries from then on: 2h, yesterday, 2026-11-20"),
    ] = None,
    until: Annotated[
        str | None,
        Query(max_length=100, description="Only entries before then, or up to the end of a day"),
    ] = None,
    place: Annotated[
        SearchPlace | None,
        Query(
            description="Only text that lies there: in sessions (live), in sessions that are gone,"
            " taken out and in the store (extracted) or the archive (archived); text that was taken"
            " out is found only with `all`"
        ),
    ] = None,
    project: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1000,
            description="Only sessions of a project: an agent, or the end of a directory's path",
        ),
    ] = None,
    file: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1000,
            description="Only sessions whose calls name this file: the end of its path, or begin*",
        ),
    ] = None,
    gone: Annotated[
        bool | None,
        Query(description="Only sessions that their program has deleted, or only the others"),
    ] = None,
) -> FoundInIndex:
    """Entries that hold all the words, the best first: those of users and assistants, or all."""
    wanted = SearchFilter(
        session=None if session is None else SessionName.parse(session),
        role=role,
        since=None if since is None else parse_past(since, context.now()),
        until=None if until is None else parse_until(until, context.now()),
        gone=gone,
        place=place,
        project=project,
        file=file,
    )
    return search(context, q, agent=agent, limit=limit, all=all, cursor=cursor, wanted=wanted)


@router.get("/files", name="files")
def find_sessions_with_file(
    context: Context,
    path: Annotated[
        str,
        Query(max_length=1000, description="The end of a path, in whole components, or `begin*`"),
    ],
    agent: Agent = None,
    limit: Limit = 20,
) -> FilesInIndex:
    """Sessions whose calls have changed, read or named a file, those written to last first."""
    return find_files(context, path, agent=agent, limit=limit)
