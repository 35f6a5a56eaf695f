"""Setting up: agents on this machine, turned on and off; and starting the daemon again.

Files of other programs are shown and written only for callers that have the right to do so: on the
Unix socket, or with an API key. On TCP without keys, any program of this machine could ask.
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
_OPEN = "anyone on this machine can reach this page without a key"


def _setup(request: Request) -> SetupContext:
    """Return the context of the set-up, by the settings as they are now; raises ConfigError."""
    make: Callable[[], SetupContext] = request.app.state.setup
    return make()


Setup = Annotated[SetupContext, Depends(_setup)]
AgentPath = Annotated[str, Path(pattern="^[a-z][a-z0-9-]*$", max_length=64)]


async def _is_trusted(request: Request) -> bool:
    """Whether the caller has a key, or asks on the Unix socket, as the middleware has noted."""
    return bool(getattr(request.state, "trusted", False))


Trusted = Annotated[bool, Depends(_is_trusted)]


@router.get("")
def agents(context: Context, setup: Setup, *, trusted: Trusted) -> AgentsHere:
    """List the agents' programs that bsd knows, with their sessions and what is set up."""
    here = list_agents(context, setup)
    return here if trusted else replace(here, locked=_OPEN)


@router.get("/{agent}/would-leave")
def leaves(context: Context, setup: Setup, agent: AgentPath) -> WouldLeave:
    """Look for some seconds at what would leave an agent's sessions now."""
    layout, files = sessions_to_foretell(context, setup, agent)
    return context.query(would_leave, layout, files, seconds=_LOOK_SECONDS)


class TurnBody(Input):
    """What an agent is turned, and how."""

    turn: Turn
    permission: Annotated[
        bool, Field(description="Of on: bsd's tools may be called without asking")
    ] = True
    force: Annotated[bool, Field(description="Of off: also what was changed since")] = False
    dry_run: bool = False
    seen: Annotated[
        str | None,
        Field(max_length=64, description="Of the answer to a dry run: carry out just that"),
    ] = None


@router.post("/restart")
def restart(request: Request, setup: Setup, *, trusted: Trusted) -> None:  # noqa: ARG001
    """Start the daemon again, so that it follows bsd.toml; it answers again within seconds."""
    # `setup` is read: a daemon that could not start by bsd.toml as it is now goes on as before.
    if not trusted:
        raise Forbidden(f"bsd is not started again from here: {_OPEN}", hint="use a terminal")
    request.app.state.restart()


@router.post("/{agent}")
def turn(
    request: Request, setup: Setup, agent: AgentPath, body: TurnBody, *, trusted: Trusted
) -> AgentTurned:
    """Turn an agent on or off; if that changes bsd.toml, the daemon starts again.

    403 on TCP without keys.
    """
    title = setup_of(agent).title
    if not trusted:
        command = command_of(setup, agent, body.turn)
        raise Forbidden(f"{title} is not turned {body.turn} from here: {_OPEN}", hint=command)
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
