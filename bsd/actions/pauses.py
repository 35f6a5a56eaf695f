"""Pauses: bsd still reads paused agents and sessions but does not edit them (`core/pauses.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.actions.context import ActionContext
from bsd.core.audit import AuditLog
from bsd.core.errors import NotFound
from bsd.core.formatting import MINUTE, parse_duration
from bsd.core.layout import Layout, SessionName, check_name
from bsd.core.pauses import PauseInfo, begin_pause, pauses_of
from bsd.core.pauses import end_pause as end_pause_of
from bsd.transcripts.agents.opening import require_transcript


@dataclass(frozen=True, slots=True)
class PauseList:
    """The pauses in force."""

    pauses: tuple[PauseInfo, ...]


def list_pauses(context: ActionContext) -> PauseList:
    """List the pauses in force; raises Unavailable if their file cannot be read."""
    wall = context.now()
    return PauseList(tuple(PauseInfo.of(each, wall) for each in pauses_of(context.layout, wall)))


def pause(context: ActionContext, name: str, length: str | None = None) -> PauseList:
    """Pause an agent, a source or a session; if it is paused already, set a new end.

    Args:
        name: an agent, a source with all its agents, or AGENT/SESSION.
        length: the duration, for example `2h`, at least `1m`; None: until `end_pause`.

    Returns:
        All pauses.

    Raises:
        NotFound: no agent, source or session has this name.
        Invalid: the duration or the name is not valid.
        LeftAlone: the agent or the session is excluded.
    """
    layout = context.layout
    seconds = None if length is None else parse_duration(length, minimum=MINUTE) / 1000
    _refuse_unknown(layout, name)
    begin_pause(layout, name, seconds, context.budget.clock)
    _audit(context, "pause", name, length)
    return list_pauses(context)


def end_pause(context: ActionContext, name: str) -> PauseList:
    """End a pause and return the others; raises NotFound if no pause has this name."""
    end_pause_of(context.layout, name)
    _audit(context, "pause_end", name, None)
    return list_pauses(context)


def _refuse_unknown(layout: Layout, name: str) -> None:
    if "/" in name:
        session = SessionName.parse(name)
        layout.refuse_excluded(session)
        require_transcript(layout, session)
        return
    check_name(name, "agent")
    is_source = any(name == source.name for source in layout.sources)
    if not is_source and not layout.has_agent(name):
        raise NotFound(f"there is no agent {name}", hint="`bsd sessions` lists them")
    if exclusion := layout.exclusions().agent(name):
        raise exclusion.refusal(name)


def _audit(context: ActionContext, action: str, name: str, length: str | None) -> None:
    agent, _, session = name.partition("/")
    AuditLog(context.layout.audit_file, context.budget.clock).record(
        actor=context.actor,
        action=action,
        agent=agent,
        session_id=session or None,
        **({} if length is None else {"length": length}),
    )
