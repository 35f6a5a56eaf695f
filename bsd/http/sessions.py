"""Sessions: list and details, history, extraction, restore, undo, deletion."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import Field

from bsd.actions.extract import check_settings, extract
from bsd.actions.history import HistoryList, list_history, undo
from bsd.actions.list_entries import FIRST_PAGE, MOST_ENTRIES, SessionDetail, show_session
from bsd.actions.list_sessions import (
    LONGEST_WORDS,
    MOST_LISTED,
    SessionOrder,
    Sessions,
    list_sessions,
)
from bsd.actions.restore import restore_all, restore_entries
from bsd.actions.summary import Summary, summarize_session
from bsd.actions.trash import delete_session
from bsd.actions.undo_since import UndoneSince, undo_since
from bsd.core.config import PER_CALL
from bsd.core.errors import BsdError, Busy, LeftAlone
from bsd.core.layout import SessionName
from bsd.core.past_moments import FORMS
from bsd.http.dependencies import Agent, Context, Input, JsonRoute, SessionPath
from bsd.maintenance.catalog import Agents, links
from bsd.maintenance.catalog import agents as list_agents
from bsd.maintenance.trashed import Deleted
from bsd.planning.result import SessionResult, Status
from bsd.planning.undo import Undone

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute)

_ONE = "/sessions/{agent}/{session}"
_Text = Annotated[str | None, Query(max_length=LONGEST_WORDS)]


@router.get("/agents")
def agents(context: Context) -> Agents:
    """List all agents, including those whose sessions bsd does not edit."""
    return Agents((*list_agents(context.layout), *links(context.layout)))


@router.get("/sessions")
def sessions(
    context: Context,
    agent: Agent = None,
    status: Annotated[
        _Text, Query(description="A status of the list, or by age: stale, active")
    ] = None,
    q: Annotated[
        _Text, Query(description="Words in the name, title, label, names of models, or text")
    ] = None,
    sort: Annotated[
        SessionOrder, Query(description="Largest value first; date: newest first")
    ] = SessionOrder.DATE,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    cursor: _Text = None,
) -> Sessions:
    """List sessions: newest, largest, most shortened or most costly first.

    A session that changes while a client pages comes again at the end, so no session is missed.
    """
    return list_sessions(
        context, agent=agent, status=status, words=q, sort=sort, limit=limit, cursor=cursor
    )


@router.get(_ONE)
def session(
    context: Context,
    session: SessionPath,
    limit: Annotated[int, Query(ge=0, le=MOST_ENTRIES, description="Entries")] = FIRST_PAGE,
) -> SessionDetail:
    """Return a session and the first page of its entries; `limit=0` avoids reading the session."""
    return context.query(show_session, session, limit=limit)


@router.delete(_ONE)
def delete(context: Context, session: SessionPath, *, permanent: bool = False) -> Deleted:
    """Move a session and its children into the trash, or delete them permanently."""
    return context.run(delete_session, session, permanent=permanent)


@router.get(f"{_ONE}/summary")
def summary(context: Context, session: SessionPath) -> Summary:
    """Summarize requests and results by word rules, without a model."""
    return context.query(summarize_session, session)


@router.get(f"{_ONE}/history")
def history(
    context: Context, session: SessionPath, limit: Annotated[int | None, Query(ge=1)] = None
) -> HistoryList:
    """List the operations that can be undone, newest first."""
    return context.query(list_history, session, limit)


class UndoBody(Input):
    """The operation to undo; without `op`, the newest that is not undone yet."""

    op: Annotated[int | None, Field(ge=1, description="A number from the history.")] = None


@router.post(f"{_ONE}/undo", name="undo")
def undo_operation(
    context: Context, session: SessionPath, body: UndoBody | None = None, *, dry_run: bool = False
) -> Undone:
    """Undo the newest operation, or the operation `op`; `dry_run` only lists the changes."""
    number = body.op if body else None
    if dry_run:
        return context.query(undo, session, number, dry_run=True)
    return context.run(undo, session, number)


class UndoSinceBody(Input):
    """Since when, and in which sessions."""

    since: Annotated[str, Field(max_length=100, description=f"One of {FORMS}.")]
    agent: Annotated[
        str | None, Field(max_length=1000, description="Only sessions of this agent.")
    ] = None
    session: Annotated[
        str | None, Field(max_length=1000, description="Only this session, AGENT/SESSION.")
    ] = None
    dry_run: Annotated[bool, Field(description="Only list the changes.")] = False


@router.post("/undo", name="undo_since")
def undo_sessions_since(context: Context, body: UndoSinceBody) -> UndoneSince:
    """Undo what bsd removed from sessions since a time, newest operation first.

    Skips sessions in use, and sessions in which later changes prevent the undo.
    """
    session = SessionName.parse(body.session) if body.session else None
    return undo_since(context, body.since, agent=body.agent, session=session, dry_run=body.dry_run)


class RestoreEntriesBody(Input):
    """The entries to restore; without `entries`, all of the session."""

    entries: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]] | None,
        Field(min_length=1, max_length=1000, description="Ids, or `#` and an index."),
    ] = None


@router.post(f"{_ONE}/restore", name="restore_entries")
def restore_session_entries(
    context: Context, session: SessionPath, body: RestoreEntriesBody | None = None
) -> SessionResult:
    """Restore the values of several entries, or of the whole session, in one change."""
    if body is None or body.entries is None:
        result = context.run(restore_all, session)
    else:
        result = context.run(restore_entries, session, body.entries)
    _raise_unless_done(result)
    return result


@router.post(f"{_ONE}/extract", name="extract")
def extract_session(
    context: Context,
    session: SessionPath,
    settings: Annotated[
        dict[str, Any] | None, Body(description=f"Only for this call: {', '.join(PER_CALL)}")
    ] = None,
    *,
    dry_run: bool = False,
    turn_over: Annotated[
        bool, Query(description="Treat the last turn as ended, even if its entries do not say so")
    ] = False,
) -> SessionResult:
    """Extract the values that are due; the body can override settings for this call."""
    check_settings(settings or {})
    result = context.run(extract, session, dry_run=dry_run, settings=settings, turn_over=turn_over)
    _raise_unless_done(result)
    return result


def _raise_unless_done(result: SessionResult) -> None:
    """Raise Busy, LeftAlone, or the error that made the operation fail."""
    reason = result.reason or f"{result.session}: {result.status}"
    match result.status:
        case Status.BUSY:
            raise Busy(reason, hint=result.hint)
        case Status.LEFT_ALONE:
            raise LeftAlone(reason, hint=result.hint)
        case Status.FAILED:
            # Keep the class of the error: it decides the HTTP status.
            raise (result.error or BsdError)(reason, hint=result.hint)
