"""All machines that share a bucket or a catalogue: their state, sessions, and a search.

The routes wait in threads of their own, so that a database that hangs delays no other request.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request

from bsd.actions.fleet import (
    FleetFilter,
    FoundOnHosts,
    SessionsOnHosts,
    list_fleet_sessions,
    search_fleet,
)
from bsd.actions.fleet_status import FleetStatus, fleet_status
from bsd.core.past_moments import parse_past, parse_until
from bsd.http.dependencies import Agent, Context, JsonRoute
from bsd.http.fleet_threads import FleetThreads, LastAnswer, answer_of
from bsd.http.search import Limit, Since, Until, Words

router = APIRouter(prefix="/api/fleet", tags=["fleet"], route_class=JsonRoute)

ANSWER_SECONDS = 10.0
_STATUS_SECONDS = 25.0  # the bucket and the database may each take ten
_CACHE_SECONDS = 10.0

Host = Annotated[
    str | None,
    Query(
        max_length=100,
        description="Only of this host, `NAME` or `NAME~ID`; left out or `*`: of all",
    ),
]
After = Annotated[str | None, Query(max_length=2000, description="`next` of the page before")]


class FleetRequests:
    """The threads of these routes, and the last state of all hosts."""

    def __init__(self) -> None:
        self.threads = FleetThreads()
        self.status: LastAnswer[FleetStatus] = LastAnswer(_CACHE_SECONDS)


async def _requests(request: Request) -> FleetRequests:
    requests: FleetRequests = request.app.state.fleet
    return requests


Requests = Annotated[FleetRequests, Depends(_requests)]


@router.get("/status")
async def status(context: Context, requests: Requests) -> FleetStatus:
    """Return the state of all hosts, this machine first; at most ten seconds old.

    Parts that do not answer are listed under `problems`.
    """
    submit = partial(requests.threads.submit, partial(fleet_status, context, manifests=False))
    return await answer_of(requests.status.get(submit), _STATUS_SECONDS)


@router.get("/sessions")
async def sessions(  # noqa: PLR0913 - parameters of the query
    context: Context,
    requests: Requests,
    host: Host = None,
    agent: Agent = None,
    directory: Annotated[
        str | None,
        Query(max_length=4096, description="Only sessions that began in this directory, or below"),
    ] = None,
    untouched: Annotated[
        str | None,
        Query(max_length=100, description="Only sessions unchanged for so long: 12h, 30d"),
    ] = None,
    *,
    limit: Limit = 50,
    after: After = None,
) -> SessionsOnHosts:
    """List the sessions of all hosts, the last changed first."""
    call = partial(
        list_fleet_sessions,
        context,
        host=host,
        agent=agent,
        directory=directory,
        untouched=untouched,
        limit=limit,
        after=after,
    )
    return await requests.threads.ask(call, ANSWER_SECONDS)


@router.get("/search")
async def search(  # noqa: PLR0913 - parameters of the query
    context: Context,
    requests: Requests,
    q: Words,
    *,
    host: Host = None,
    agent: Agent = None,
    role: Annotated[
        Literal["user", "assistant"] | None, Query(description="Only entries of this role")
    ] = None,
    tool: Annotated[
        str | None, Query(max_length=500, description="Only calls of this tool")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    after: After = None,
) -> FoundOnHosts:
    """Find the entries of all hosts that contain all the words, the newest first, without text.

    The catalogue has the words of users and assistants, names of tools, and paths in their calls.
    """
    now = context.now()
    wanted = FleetFilter(
        host=host,
        agent=agent,
        role=role,
        tool=tool,
        since=None if since is None else parse_past(since, now),
        until=None if until is None else parse_until(until, now),
    )
    call = partial(search_fleet, context, q, wanted, limit=limit, after=after)
    return await requests.threads.ask(call, ANSWER_SECONDS)
