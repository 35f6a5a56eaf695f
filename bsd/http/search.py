"""Search: words in all sessions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from bsd.actions.list_sessions import LONGEST_WORDS
from bsd.actions.search import FoundInIndex, search
from bsd.http.dependencies import Agent, Context, JsonRoute

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute)

Words = Annotated[
    str, Query(max_length=LONGEST_WORDS, description='Words, "several words", begin*')
]
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("/search", name="search")
def search_sessions(
    context: Context,
    q: Words,
    agent: Agent = None,
    limit: Limit = 20,
    *,
    all: Annotated[
        bool, Query(description="Without the index: all text, for a moment, page by page")
    ] = False,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> FoundInIndex:
    """Entries that hold all the words, the best first: those of users and assistants, or all."""
    return search(context, q, agent=agent, limit=limit, all=all, cursor=cursor)
