"""The archive: sessions that their program has deleted, and forgetting sessions."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bsd.actions.archive import (
    MOST_GONE,
    FoundGone,
    GoneEntries,
    GoneList,
    bring_back,
    forget,
    list_archive,
    search_archive,
    show_archived,
)
from bsd.actions.forget_project import ForgottenProject, forget_whole_project
from bsd.actions.list_entries import FIRST_PAGE, MOST_ENTRIES, MOST_TEXT
from bsd.actions.vanished import PromptsShown
from bsd.core.errors import Invalid
from bsd.http.dependencies import Agent, Context, Input, JsonRoute
from bsd.http.search import Limit, Words
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.forget import Forgotten
from bsd.maintenance.forget_project import is_path

router = APIRouter(prefix="/api/archive", tags=["archive"], route_class=JsonRoute)

_ONE = "/{agent}/{session}"


@router.get("")
def archive(
    context: Context, agent: Agent = None, limit: Annotated[int, Query(ge=1, le=MOST_GONE)] = 100
) -> GoneList:
    """List sessions that their program has deleted, and the disk use of all copies."""
    return context.query(list_archive, agent=agent, limit=limit)


@router.get("/search")
def archive_search(context: Context, q: Words, agent: Agent = None, limit: Limit = 20) -> FoundGone:
    """Find entries of deleted sessions in the search index, best matches first."""
    return context.query(search_archive, q, agent=agent, limit=limit)


@router.delete("")
def archive_forget_project(
    context: Context,
    project: Annotated[
        str, Query(min_length=1, max_length=1000, description="An agent's name, or a directory")
    ],
    *,
    dry_run: bool = False,
) -> ForgottenProject:
    """Delete permanently all that bsd stores of a project's sessions and of its memory."""
    if is_path(project) and not os.path.isabs(project):
        raise Invalid(
            "the directory of a project must be absolute: the server does not know yours",
            hint="its whole path, or an agent's name",
        )
    return context.run(forget_whole_project, project, dry_run=dry_run)


@router.get(_ONE)
def archive_show(
    context: Context,
    agent: str,
    session: str,
    start: Annotated[int, Query(alias="from", ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = FIRST_PAGE,
    texts: Annotated[
        int, Query(ge=0, le=MOST_TEXT, description="Characters of each text; 0: no texts")
    ] = 0,
) -> GoneEntries | PromptsShown:
    """Return a session that its program has deleted, with a page of its entries.

    Without a copy of the session, returns the prompts that its program's history still contains.
    """
    name = f"{agent}/{session}"
    return context.query(show_archived, name, start=start, limit=limit, texts=texts)


class BringBackBody(Input):
    """The name under which the session comes back."""

    name: Annotated[
        str | None,
        Field(alias="as", max_length=1000, description="Bring it back under this name."),
    ] = None


@router.post(f"{_ONE}/bring-back")
def archive_bring_back(
    context: Context, agent: str, session: str, body: BringBackBody | None = None
) -> BroughtBack:
    """Put a session and the files that belong to it back where its program finds them."""
    return context.run(bring_back, f"{agent}/{session}", renamed=body.name if body else None)


@router.delete(_ONE)
def archive_forget(
    context: Context,
    agent: str,
    session: str,
    entry: Annotated[str | None, Query(max_length=1000)] = None,
) -> Forgotten:
    """Delete permanently all that bsd stores of a session, or of one entry."""
    return context.run(forget, f"{agent}/{session}", entry=entry)
