"""Search: words in all sessions, and files that they have changed or read."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from bsd.actions.files_touched import FilesInIndex, find_files
from bsd.actions.list_sessions import LONGEST_WORDS
from bsd.actions.search import FoundInIndex, search
from bsd.core.layout import SessionName
from bsd.core.past_moments import parse_past
from bsd.http.dependencies import Agent, Context, JsonRoute
from bsd.store.search_filter import SearchFilter

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
        Literal["user", "assistant", "tool"] | None,
        Query(description="Only entries of this role; results of tools are found only with `all`"),
    ] = None,
    since: Annotated[
        str | None,
        Query(max_length=100, description="Only entries from then on: 2h, yesterday, 2026-11-20"),
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
        gone=gone,
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
