"""Search: words in all sessions, and files that their calls changed, read or named."""

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
Since = Annotated[
    str | None,
    Query(max_length=100, description="Only entries since a time: 2h, yesterday, 2026-11-20"),
]
Until = Annotated[
    str | None,
    Query(max_length=100, description="Only entries before this time, or until this day's end"),
]


@router.get("/search", name="search")
def search_sessions(  # noqa: PLR0913 - parameters of the query
    context: Context,
    q: Words,
    agent: Agent = None,
    limit: Limit = 20,
    *,
    all: Annotated[
        bool,
        Query(description="Search all text without the index, page by page, each a short time"),
    ] = False,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
    session: Annotated[
        str | None, Query(max_length=1000, description="Only in this session, AGENT/SESSION")
    ] = None,
    role: Annotated[
        Literal["user", "assistant", "tool", "call", "thinking"] | None,
        Query(
            description="Only entries of this role, or only these parts of entries; tool results,"
            " calls and thinking are found only with `all`"
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    place: Annotated[
        SearchPlace | None,
        Query(
            description="Only text in this place: in existing sessions (live), in deleted sessions"
            " (gone), extracted into the store (extracted) or moved to the archive (archived);"
            " extracted and archived text is found only with `all`"
        ),
    ] = None,
    project: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1000,
            description="Only sessions of a project: an agent's name, or the end of a path",
        ),
    ] = None,
    file: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1000,
            description="Only sessions whose calls name this file: the end of a path, or `begin*`",
        ),
    ] = None,
    gone: Annotated[
        bool | None,
        Query(description="true: only sessions that their program deleted; false: only others"),
    ] = None,
) -> FoundInIndex:
    """Find entries that contain all the words, best matches first.

    The index contains the texts of users and assistants; `all` searches all text.
    """
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
        Query(max_length=1000, description="The end of a path (whole components), or `begin*`"),
    ],
    agent: Agent = None,
    limit: Limit = 20,
) -> FilesInIndex:
    """Find sessions whose calls changed, read or named a file, last written first."""
    return find_files(context, path, agent=agent, limit=limit)
