"""The agents' programs on this machine, and the parts of bsd that are set up for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError
from bsd.core.layout import Layout
from bsd.core.sources import Source
from bsd.setup.additions import SetupContext, is_there
from bsd.setup.foreign_files import read_foreign, text_of
from bsd.setup.record import read_record
from bsd.setup.switch import is_the_root
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.agents.programs import agent_setups, kind_of, program_of
from bsd.transcripts.agents.setup_files import AgentSetup, SetupPart


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent's program on this machine."""

    agent: Annotated[str, Field(description="The word for it in commands and bsd.toml")]
    title: str
    directory: Annotated[Path, Field(description="Of its sessions; OpenClaw's own directory")]
    found: Annotated[bool, Field(description="Whether the directory is there")]
    sessions: Annotated[int, Field(description="Without subagents")]
    on: Annotated[bool, Field(description="Whether bsd looks after its sessions")]
    parts: Annotated[
        dict[SetupPart, bool], Field(description="What of bsd is set up, whoever has done it")
    ]
    turned_off: Annotated[bool, Field(description="`bsd agents off` was the last that was said")]
    problem: Annotated[str | None, OMIT_EMPTY] = None


def available(context: SetupContext) -> list[AgentState]:
    """Return the state of each agent that bsd knows; one that cannot be read says so."""
    turned_off: set[str] = set()
    with suppress(BsdError):  # `bsd agents on` reports the problem
        turned_off = read_record(context.layout).turned_off
    return [
        _state(context, agent, setup, turned_off=agent in turned_off)
        for agent, setup in agent_setups().items()
    ]


def _state(context: SetupContext, agent: str, setup: AgentSetup, *, turned_off: bool) -> AgentState:
    sources = [source for source in context.layout.sources if source.kind == agent]
    directory = sources[0].path if sources else setup.directory(context.environ)
    problem, count = None, 0
    try:
        found = os.path.isdir(directory)
        if found:
            count = sum(_sessions(agent, setup, directory))
    except OSError as error:
        problem = f"{directory}: {error.strerror}"
    is_on = bool(sources) or (setup.is_root and found and is_the_root(context, setup))
    parts = {SetupPart.SOURCE: is_on}
    for addition in setup.additions(context.commands, context.environ):
        there = False
        try:
            file = read_foreign(addition.file)
            there = is_there(None if file.content is None else text_of(file), addition)
        except BsdError as error:
            where = "" if str(addition.file) in error.message else f"{addition.file}: "
            problem = problem or f"{where}{error.message}"
        parts[addition.part] = there and parts.get(addition.part, True)
    return AgentState(
        agent, setup.title, directory, found, count, is_on, parts, turned_off, problem
    )


def _sessions(agent: str, setup: AgentSetup, directory: Path) -> Iterator[int]:
    """Count the sessions in each directory of an agent's program; raises OSError."""
    for program, place in _programs(agent, setup, directory):
        if program.part_of is None:
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as files:
                yield sum(program.is_session_file(file.name) for file in files)


def _programs(
    agent: str, setup: AgentSetup, directory: Path
) -> Iterator[tuple[AgentProgram, Path]]:
    if setup.is_root:
        layout = Layout(directory)
        for each in sorted(layout.agents.iterdir()) if layout.agents.is_dir() else ():
            with suppress(BsdError):  # no agent has such a name
                yield program_of(layout, each.name), layout.sessions_dir(each.name)
        return
    kind = kind_of(agent)
    for _, place in Source(agent, agent, directory, kind.routes).directories():
        yield kind.program(directory, place), place
