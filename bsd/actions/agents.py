"""Agents' programs on this machine: list them, forecast an extraction, turn an agent on or off."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.in_flight import replaced_versions
from bsd.actions.setup import WouldLeave, foretell_extraction
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import Busy, Conflict, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.setup.additions import SetupContext
from bsd.setup.discovery import find_agents, sessions_of
from bsd.setup.states import AgentState, available, leave_command
from bsd.setup.stored import stored_sessions
from bsd.setup.switch import (
    FileEdit,
    KeptAddition,
    SetupDone,
    SetupPlan,
    apply,
    plan_off,
    plan_on,
    setup_of,
)

Turn = Literal["on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsHere:
    """The agents' programs that bsd knows, and the paths of bsd's root and settings file."""

    root: Path
    settings_file: Path
    leave: Annotated[str, Field(description="The command that uninstalls bsd")]
    agents: list[AgentState]
    not_followed: Annotated[
        list[str],
        Field(
            description="Agents that were turned on or off since the daemon started; the change"
            " takes effect when the daemon restarts"
        ),
    ]
    locked: Annotated[
        str | None, Field(description="Why this caller cannot turn agents on or off")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurned:
    """The changes that turn an agent on or off; with `dry_run` they are only planned."""

    agent: str
    title: str
    turn: Annotated[str, Field(description="on or off")]
    files: list[FileEdit]
    kept: list[KeptAddition]
    dry_run: bool
    seen: Annotated[
        str, Field(description="A digest of these diffs; send it back to apply exactly these")
    ]
    written: list[Path] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    settings_changed: Annotated[
        bool,
        Field(description="bsd.toml was written; the change takes effect when the daemon restarts"),
    ] = False
    stored_sessions: Annotated[
        int | None,
        Field(description="For `off`: the number of sessions of which bsd stores values"),
        OMIT_EMPTY,
    ] = None

    @classmethod
    def of(
        cls, context: SetupContext, plan: SetupPlan, done: SetupDone | None, stored: int | None
    ) -> AgentTurned:
        """Return the answer for a plan; `done` is None if the plan was not applied."""
        return cls(
            agent=plan.agent,
            title=plan.title,
            turn=plan.turn,
            files=plan.files,
            kept=plan.kept,
            dry_run=done is None,
            seen=_seen(plan),
            written=done.written if done else [],
            failed=done.failed if done else {},
            settings_changed=done is not None and context.settings_file in done.written,
            stored_sessions=stored,
        )


def list_agents(context: ActionContext, setup: SetupContext) -> AgentsHere:
    """List the agents' programs that bsd knows, with their sessions and the setup of each.

    Args:
        context: if the daemon calls, its layout is the one with which the daemon started.
        setup: the setup according to bsd.toml as it is now.
    """
    now, then = _sources(setup.layout), _sources(context.layout)
    return AgentsHere(
        root=setup.layout.root,
        settings_file=setup.settings_file,
        leave=leave_command(setup),
        agents=available(setup, context.now()),
        not_followed=sorted({kind for kind, _ in now ^ then}),
    )


def _sources(layout: Layout) -> set[tuple[str, Path]]:
    return {(source.kind, source.path) for source in layout.sources}


def sessions_to_foretell(
    context: ActionContext, setup: SetupContext, agent: str
) -> tuple[Layout, tuple[tuple[SessionName, int], ...]]:
    """Return the arguments of `would_leave` for an agent: a layout, and sessions with their sizes.

    Raises:
        NotFound: the agent has no sessions on this machine.
    """
    title = setup_of(agent).title
    found = next((e for e in find_agents(setup.layout, setup.environ) if e.kind == agent), None)
    if found is None:
        raise NotFound(
            f"{title} has no sessions on this machine", hint="`bsd agents` lists the agents"
        )
    kind = None if found.is_root else agent
    return found.layout, sessions_of(found.layout, kind, context.now()).files


def would_leave(
    context: ActionContext,
    layout: Layout,
    files: tuple[tuple[SessionName, int], ...],
    *,
    seconds: float,
) -> WouldLeave:
    """Estimate from a sample which values an extraction would take out of sessions now.

    No session is changed.

    Args:
        layout: the layout in which the sessions have these names; its sources need not be in
            bsd.toml yet.
        files: the sessions, with their sizes in bytes.
        seconds: the time for reading sessions.
    """
    return foretell_extraction(replace(context, layout=layout), files, seconds=seconds)


def turn_agent(
    setup: SetupContext,
    agent: str,
    turn: Turn,
    *,
    permission: bool = True,
    force: bool = False,
    dry_run: bool = False,
    seen: str | None = None,
) -> AgentTurned:
    """Turn an agent on or off, as `bsd agents on|off` does.

    Args:
        permission: for `on`: also let the agent's model call bsd's tools without asking.
        force: for `off`: also remove additions that were changed since bsd made them.
        dry_run: return the files that would change, and change none.
        seen: `seen` of the answer to a dry run: refuse if the changes differ from that answer.

    Raises:
        NotFound: the agent does not exist, or has no sessions on this machine.
        Conflict: its sessions are not in this root, or the changes differ from those `seen`.
        TemporaryFailure: another bsd process is turning an agent on or off.
        Busy: replaced versions of its sessions are still watched for late lines (a minute).
        ConfigError: the record of the additions is damaged.
    """
    if turn == "on":
        plan = plan_on(setup, agent, permission=permission)
    else:
        plan = plan_off(setup, agent, force=force)
    if seen is not None and seen != _seen(plan):
        raise Conflict(
            "the files have changed since they were shown", hint="preview the changes again"
        )
    if plan.ends_source and not dry_run and (many := replaced_versions(setup.layout, agent)):
        versions = "1 replaced version" if many == 1 else f"{many} replaced versions"
        raise Busy(
            f"{plan.title} stays on: {versions} of its sessions may still get late lines",
            hint="again in a minute",
        )
    stored = stored_sessions(setup.layout, agent) if turn == "off" else None
    return AgentTurned.of(setup, plan, None if dry_run else apply(setup, plan), stored)


def _seen(plan: SetupPlan) -> str:
    """Return a digest of what a plan shows."""
    shown = "\0".join(f"{edit.path}\0{edit.diff}" for edit in plan.files)
    return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]
