"""The state of each agent's program on this machine: its sessions, and bsd's set-up for it."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError
from bsd.setup.additions import SetupContext, is_there
from bsd.setup.discovery import SOON_DAYS, AgentSessions, FoundAgent, find_agents, sessions_of
from bsd.setup.foreign_files import is_writable, read_foreign, text_of
from bsd.setup.record import read_record
from bsd.setup.switch import is_the_root
from bsd.transcripts.agents.programs import agent_setups, kind_of
from bsd.transcripts.agents.setup_files import AgentSetup, SetupPart

_NO_SESSIONS = AgentSessions((), 0, (), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The state of an agent's program on this machine."""

    agent: Annotated[str, Field(description="Its name in commands and bsd.toml")]
    title: str
    directory: Annotated[Path, Field(description="Of its sessions; for OpenClaw, its directory")]
    found: Annotated[bool, Field(description="Whether the directory exists")]
    sessions: Annotated[int, Field(description="Without sub-agents")]
    subagents: int
    bytes: Annotated[int, Field(description="Size of all its transcripts")]
    deleted_soon: Annotated[
        int, Field(description=f"Sessions that the program deletes within {SOON_DAYS} days")
    ]
    to_copy: Annotated[int, Field(description="The number of these without a copy in bsd")]
    by_project: Annotated[bool, Field(description="Its program stores sessions by project")]
    on: Annotated[bool, Field(description="Whether bsd manages its sessions")]
    parts: Annotated[
        dict[SetupPart, bool], Field(description="Which parts are set up, by bsd or by hand")
    ]
    turned_off: Annotated[bool, Field(description="Turned off by the user (`bsd agents off`)")]
    command: Annotated[str, Field(description="The command to turn it off, or on if it is off")]
    read_only: Annotated[
        list[Path], Field(description="Files of the set-up that this process cannot write")
    ]
    problem: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None


def available(context: SetupContext, now: float) -> list[AgentState]:
    """Return the state of each agent that bsd supports; `problem` is set if reading it failed.

    Args:
        now: epoch seconds.
    """
    turned_off: set[str] = set()
    with suppress(BsdError):  # `bsd agents on` reports the problem
        turned_off = read_record(context.layout).turned_off
    here = {each.kind: each for each in find_agents(context.layout, context.environ)}
    return [
        _state(context, agent, setup, here.get(agent), now, turned_off=agent in turned_off)
        for agent, setup in agent_setups().items()
    ]


def _state(
    context: SetupContext,
    agent: str,
    setup: AgentSetup,
    here: FoundAgent | None,
    now: float,
    *,
    turned_off: bool,
) -> AgentState:
    directory = here.directory if here else setup.directory(context.environ)
    found = os.path.isdir(directory)
    problem, hint = (here.problem, here.hint) if here else (None, None)
    sessions = _NO_SESSIONS
    if here is not None:
        try:
            sessions = sessions_of(here.layout, None if setup.is_root else agent, now)
        except BsdError as error:
            problem, hint = problem or error.message, hint or error.hint
    problem = problem or next(iter(sessions.problems), None)
    served = here is not None and here.served
    is_on = found and is_the_root(context, setup) if setup.is_root else served
    parts, files = {SetupPart.SOURCE: is_on}, [context.settings_file]
    for addition in setup.additions(context.commands, context.environ):
        there = False
        try:
            file = read_foreign(addition.file)
            there = is_there(None if file.content is None else text_of(file), addition)
        except BsdError as error:
            where = "" if str(addition.file) in error.message else f"{addition.file}: "
            problem = problem or f"{where}{error.message}"
        parts[addition.part] = there and parts.get(addition.part, True)
        files.append(addition.file)
    return AgentState(
        agent=agent,
        title=setup.title,
        directory=directory,
        found=found,
        sessions=sessions.sessions,
        subagents=sessions.parts,
        bytes=sessions.bytes,
        deleted_soon=len(sessions.deleted_soon),
        to_copy=len(sessions.without_copy(here.layout)) if here else 0,
        by_project=not setup.is_root and kind_of(agent).project_directory is not None,
        on=is_on,
        parts=parts,
        turned_off=turned_off,
        command=command_of(context, agent, "off" if is_on else "on"),
        read_only=[file for file in dict.fromkeys(files) if not is_writable(file)],
        problem=problem,
        hint=hint,
    )


def command_of(context: SetupContext, agent: str, turn: str) -> str:
    """Return the command that turns an agent on or off."""
    return shlex.join(("bsd", *context.commands.options, "agents", turn, agent))


def leave_command(context: SetupContext) -> str:
    """Return the command that uninstalls bsd."""
    return shlex.join(("bsd", *context.commands.options, "leave"))
