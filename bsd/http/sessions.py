"""Sessions: the list, one of them, its history; extraction, restoring, undo, deletion."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import Field

from bsd.actions.extract import check_settings, extract
from bsd.actions.history import HistoryList, list_history, undo
from bsd.actions.list_entries import FIRST_PAGE, MOST_ENTRIES, SessionDetail, show_session
from bsd.actions.list_sessions import LONGEST_WORDS, MOST_LISTED, Sessions, list_sessions
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
    """List all agents, also those whose sessions bsd leaves alone."""
    return Agents((*list_agents(context.layout), *links(context.layout)))


@router.get("/sessions")
def sessions(
    context: Context,
    agent: Agent = None,
    status: Annotated[
        _Text, Query(description="As in the list; or stale or active, by age")
    ] = None,
    q: Annotated[
        _Text, Query(description="Words in name, title, label, a model's name or the text")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    cursor: _Text = None,
) -> Sessions:
    """Sessions, the newest first.

    One that changes while you page comes (again) at the end: none is left out.
    """
    return list_sessions(context, agent=agent, status=status, words=q, limit=limit, cursor=cursor)


@router.get(_ONE)
def session(
    context: Context,
    session: SessionPath,
    limit: Annotated[int, Query(ge=0, le=MOST_ENTRIES, description="Entries")] = FIRST_PAGE,
) -> SessionDetail:
    """One session with the first page of its entries; with none it need not be read."""
    return context.query(show_session, session, limit=limit)


@router.delete(_ONE)
def delete(context: Context, session: SessionPath, *, permanent: bool = False) -> Deleted:
    """Delete a session and its children: into the trash, or for good."""
    return context.run(delete_session, session, permanent=permanent)


@router.get(f"{_ONE}/summary")
def summary(context: Context, session: SessionPath) -> Summary:
    """Summarize requests and results by plain rules on the words, without a model."""
    return context.query(summarize_session, session)


@router.get(f"{_ONE}/history")
def history(
    context: Context, session: SessionPath, limit: Annotated[int | None, Query(ge=1)] = None
) -> HistoryList:
    """The operations that can be undone, the newest first."""
    return context.query(list_history, session, limit)


class UndoBody(Input):
    """Which operation; without `op` the newest one that is not undone."""

    op: Annotated[int | None, Field(ge=1, description="A number from the history.")] = None


@router.post(f"{_ONE}/undo", name="undo")
def undo_operation(
    context: Context, session: SessionPath, body: UndoBody | None = None, *, dry_run: bool = False
) -> Undone:
    """Take an operation back: the newest, or one by its number; `dry_run` says what it changes."""
    number = body.op if body else None
    if dry_run:
        return context.query(undo, session, number, dry_run=True)
    return context.run(undo, session, number)


class UndoSinceBody(Input):
    """From when on, and of which sessions."""

    since: Annotated[str, Field(max_length=100, description=f"One of {FORMS}.")]
    agent: Annotated[str | None, Field(max_length=1000, description="Only of this agent.")] = None
    session: Annotated[
        str | None, Field(max_length=1000, description="Only this one, AGENT/SESSION.")
    ] = None
    dry_run: Annotated[bool, Field(description="Say what it changes; change nothing.")] = False


@router.post("/undo", name="undo_since")
def undo_sessions_since(context: Context, body: UndoSinceBody) -> UndoneSince:
    """Take back what bsd took out of sessions since a moment, newest first.

    Sessions in use are left, and those in which later changes stand in the way.
    """
    session = SessionName.parse(body.session) if body.session else None
    return undo_since(context, body.since, agent=body.agent, session=session, dry_run=body.dry_run)


class RestoreEntriesBody(Input):
    """Which entries; without `entries` all of the session."""

    entries: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]] | None,
        Field(min_length=1, max_length=1000, description="Ids, or `#` and a line number."),
    ] = None


@router.post(f"{_ONE}/restore", name="restore_entries")
def restore_session_entries(
    context: Context, session: SessionPath, body: RestoreEntriesBody | None = None
) -> SessionResult:
    """Put the values of several entries back in one change, or all values of the session."""
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
        dict[str, Any] | None, Body(description=f"For this call: {', '.join(PER_CALL)}")
    ] = None,
    *,
    dry_run: bool = False,
    turn_over: Annotated[
        bool, Query(description="The last turn has ended, whatever its entries say")
    ] = False,
) -> SessionResult:
    """Extract what is due; the body may change settings for this call."""
    check_settings(settings or {})
    result = context.run(extract, session, dry_run=dry_run, settings=settings, turn_over=turn_over)
    _raise_unless_done(result)
    return result


def _raise_unless_done(result: SessionResult) -> None:
    """Raise Busy, LeftAlone, or the error by which it failed."""
    reason = result.reason or f"{result.session}: {result.status}"
    match result.status:
        case Status.BUSY:
            raise Busy(reason, hint=result.hint)
        case Status.LEFT_ALONE:
            raise LeftAlone(reason, hint=result.hint)
        case Status.FAILED:
            # A full disk is not a missing right: each error has its own status.
            raise (result.error or BsdError)(reason, hint=result.hint)
