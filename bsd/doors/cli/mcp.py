"""`bsd mcp`: the agent's tools as an MCP server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.tools import wait_for

if TYPE_CHECKING:
    from bsd.doors.agent.memory_tools import MemoryHands
    from bsd.doors.agent.scope import Scope
    from bsd.foundation.layout import Layout, SessionName
    from bsd.memory.facts import Memory
    from bsd.session.commit.exchangers import Exchanger
    from bsd.session.surgeon import Surgeon

_LONGEST_WAIT = 3.0  # seconds: an answer has to be there within 5


@command(
    "mcp",
    """
    Speaks MCP on stdin and stdout, for an agent to start: purge_control, restore_remote, restore,
    read_extracted, context and search_extracted for sessions; memory_store, memory_recall,
    memory_lookup, memory_confirm, memory_forget, memory_checkpoint and memory_prune for facts. It
    needs no daemon, and works beside one. Without options every session can be named; where none
    is, it is the one that the program which started the server has at work, if that can be told.

    Each tool's description takes room in the agent's context: --tools leaves out what it need not
    have.

    \b
    Examples:
      bsd mcp
      bsd mcp --agent main
      bsd mcp --session main/4f2a --tools sessions
      openclaw mcp set bsd '{"command":"bsd","args":["mcp","--agent","main"]}'
    """,
)
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option(
    "--session", type=SESSION, metavar="AGENT/SESSION", help="Only this session; no tool names it."
)
@click.option(
    "--tools",
    type=click.Choice(["all", "sessions", "memory"]),
    default="all",
    show_default=True,
    help="Those for sessions, for facts, or both.",
)
@click.pass_obj
def mcp(call: Call, /, agent: str | None, session: SessionName | None, tools: str) -> int:
    from bsd.doors.agent.mcp import Toolbox, serve
    from bsd.doors.agent.memory_tools import MEMORY_TOOLS
    from bsd.doors.agent.scope import Scope
    from bsd.doors.agent.tools import TOOLS
    from bsd.foundation.errors import Invalid
    from bsd.foundation.layout import check_name
    from bsd.session.commit.exchangers import HelperExchanger

    if agent is not None:
        check_name(agent, "agent")
    if agent is not None and session is not None and session.agent != agent:
        raise Invalid(f"{session} is no session of {agent}", hint="name one of --agent, --session")
    stopping = threading.Event()
    call.surgeon(writes=not _readonly(call), actor="agent")  # finishes what was in flight
    scope = Scope(agent, session)
    with HelperExchanger() as exchanger:
        hands = _Hands(call, exchanger, stopping, scope)
        offered = {"sessions": tuple(TOOLS), "memory": tuple(MEMORY_TOOLS)}
        names = offered.get(tools, (*TOOLS, *MEMORY_TOOLS))
        serve(Toolbox(hands, scope, hands.memory(), stopping, offered=names))
    return 0


def _readonly(call: Call) -> bool:
    return bool(call.settings and call.settings.readonly)


class _Hands:
    """Makes a surgeon for each call: they come in parallel."""

    def __init__(
        self, call: Call, exchanger: Exchanger, stopping: threading.Event, scope: Scope
    ) -> None:
        self._scope = scope
        self.layout: Layout = call.layout
        self._config = call.pruning
        self._memory = call.settings.memory if call.settings else None
        self._readonly = _readonly(call)
        self._quiet = call.settings.quiet_seconds if call.settings else None
        self._exchanger = exchanger
        self._stopping = stopping

    def memory(self) -> MemoryHands:
        """Whoever asks for facts gets a memory of its own."""
        from bsd.doors.agent.memory_tools import MemoryHands
        from bsd.memory.facts import classes_of

        classes = tuple(classes_of(self._memory).lifetimes)
        return MemoryHands(self._open_memory, classes, refresh=not self._readonly)

    def _open_memory(self, writes: bool) -> Memory:
        from bsd.memory.facts import open_memory

        self._may(writes=writes)
        return open_memory(self.layout, self._memory, actor="agent", stopping=self._stopping.is_set)

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:
        """Whoever does it; raises Forbidden where nothing may be written."""
        from dataclasses import replace

        from bsd.session.rest import Patience
        from bsd.session.surgeon import Surgeon

        self._may(writes=writes)
        wait = wait_for(self.layout, name, self._scope.own(self.layout)) if writes else 0.0
        patience = Patience(
            min(wait, _LONGEST_WAIT),
            sleep=self._sleep,
            check=self._check,
        )
        if self._quiet is not None:
            patience = replace(patience, quiet=self._quiet)
        return Surgeon(
            self.layout,
            self._config,
            actor="agent",
            patience=patience,
            # Other threads parse: a lease must not wait for them.
            exchanger=self._exchanger,
        )

    def _may(self, *, writes: bool) -> None:
        from bsd.foundation.errors import Forbidden

        if writes and self._readonly:
            raise Forbidden("this bsd only reads", hint="unset BRAINSURGEON_READONLY")

    def _check(self) -> None:
        from bsd.doors.agent.mcp import ServerStopping

        if self._stopping.is_set():
            raise ServerStopping

    def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self._check()
