"""Set-up: list the agents on this machine, turn them on and off, restart the daemon.

Only trusted callers (on the Unix socket, or with an API key) may see and change files of other
programs. On TCP without keys, any program on this machine can send requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field

from bsd.actions.agents import (
    AgentsHere,
    AgentTurned,
    Turn,
    list_agents,
    sessions_to_foretell,
    turn_agent,
    would_leave,
)
from bsd.actions.setup import WouldLeave
from bsd.core.errors import Forbidden
from bsd.http.dependencies import Context, Input, JsonRoute
from bsd.setup.additions import SetupContext
from bsd.setup.states import command_of
from bsd.setup.switch import setup_of

router = APIRouter(prefix="/api/setup", tags=["setup"], route_class=JsonRoute)

_LOOK_SECONDS = 3.0  # for the sessions of one agent
_OPEN = "every program on this machine can reach this page without a key"


def _setup(request: Request) -> SetupContext:
    """Return the set-up context, made from the current settings; raises ConfigError."""
    make: Callable[[], SetupContext] = request.app.state.setup
    return make()


Setup = Annotated[SetupContext, Depends(_setup)]
AgentPath = Annotated[str, Path(pattern="^[a-z][a-z0-9-]*$", max_length=64)]


async def _is_trusted(request: Request) -> bool:
    """True if the caller has an API key or uses the Unix socket; set by the middleware."""
    return bool(getattr(request.state, "trusted", False))


Trusted = Annotated[bool, Depends(_is_trusted)]


@router.get("")
def agents(context: Context, setup: Setup, *, trusted: Trusted) -> AgentsHere:
    """List the agents that bsd supports, with their sessions and the state of their set-up."""
    here = list_agents(context, setup)
    return here if trusted else replace(here, locked=_OPEN)


@router.get("/{agent}/would-leave")
def leaves(context: Context, setup: Setup, agent: AgentPath) -> WouldLeave:
    """Estimate, within a few seconds, what an extraction would remove from an agent's sessions."""
    layout, files = sessions_to_foretell(context, setup, agent)
    return context.query(would_leave, layout, files, seconds=_LOOK_SECONDS)


class TurnBody(Input):
    """Whether to turn the agent on or off, and how."""

    turn: Turn
    permission: Annotated[
        bool, Field(description="For on: the agent may call bsd's tools without asking")
    ] = True
    force: Annotated[
        bool, Field(description="For off: also remove additions that were changed since")
    ] = False
    dry_run: bool = False
    seen: Annotated[
        str | None,
        Field(max_length=64, description="`seen` of a dry run: carry out exactly its changes"),
    ] = None


@router.post("/restart")
def restart(request: Request, setup: Setup, *, trusted: Trusted) -> None:  # noqa: ARG001
    """Restart the daemon, so that it reads bsd.toml again; it answers again within seconds."""
    # `setup` fails if bsd.toml is invalid: then the daemon is not restarted.
    if not trusted:
        raise Forbidden(f"the page cannot restart bsd: {_OPEN}", hint="use a terminal")
    request.app.state.restart()


@router.post("/{agent}")
def turn(
    request: Request, setup: Setup, agent: AgentPath, body: TurnBody, *, trusted: Trusted
) -> AgentTurned:
    """Turn an agent on or off; if this changes bsd.toml, the daemon restarts.

    403 on TCP without keys.
    """
    title = setup_of(agent).title
    if not trusted:
        command = command_of(setup, agent, body.turn)
        raise Forbidden(f"{title} cannot be turned {body.turn} on this page: {_OPEN}", hint=command)
    answer = turn_agent(
        setup,
        agent,
        body.turn,
        permission=body.permission,
        force=body.force,
        dry_run=body.dry_run,
        seen=body.seen,
    )
    if answer.settings_changed:
        request.app.state.restart()
    return answer
