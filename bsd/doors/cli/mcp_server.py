"""The process of `bsd mcp`: serves the tools of agents on stdin and stdout."""

from __future__ import annotations

import threading
from dataclasses import replace

from bsd.doors.agent.mcp import ServerStopping, Toolbox, serve
from bsd.doors.agent.memory_tools import MEMORY_TOOLS, MemoryHands
from bsd.doors.agent.scope import Scope
from bsd.doors.agent.tools import TOOLS
from bsd.doors.cli.agent_calls import wait_for
from bsd.doors.cli.call import Call
from bsd.foundation.errors import Forbidden, Invalid
from bsd.foundation.layout import Layout, SessionName, check_name
from bsd.memory.facts import Memory, classes_of, open_memory
from bsd.session.commit.exchangers import Exchanger, HelperExchanger
from bsd.session.rest import Patience
from bsd.session.surgeon import Surgeon

_LONGEST_WAIT = 3.0  # seconds: an answer has to be there within 5


def serve_tools(call: Call, agent: str | None, session: SessionName | None, tools: str) -> None:
    """Serve tools over MCP until the other side hangs up; raises Invalid."""
    if agent is not None:
        check_name(agent, "agent")
    if agent is not None and session is not None and session.agent != agent:
        raise Invalid(f"{session} is no session of {agent}", hint="name one of --agent, --session")
    stopping = threading.Event()
    call.surgeon(writes=not _readonly(call), actor="agent")  # finishes what was in flight
    scope = Scope(agent, session)
    with HelperExchanger() as exchanger:
        hands = _ServersHands(call, exchanger, stopping, scope)
        offered = {"sessions": tuple(TOOLS), "memory": tuple(MEMORY_TOOLS)}
        names = offered.get(tools, (*TOOLS, *MEMORY_TOOLS))
        serve(Toolbox(hands, scope, hands.memory(), stopping, offered=names))


def _readonly(call: Call) -> bool:
    return bool(call.settings and call.settings.readonly)


class _ServersHands:
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
        classes = tuple(classes_of(self._memory).lifetimes)
        return MemoryHands(self._open_memory, classes, refresh=not self._readonly)

    def _open_memory(self, writes: bool) -> Memory:
        self._may(writes=writes)
        return open_memory(self.layout, self._memory, actor="agent", stopping=self._stopping.is_set)

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:
        """Whoever does it; raises Forbidden where nothing may be written."""
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
        if writes and self._readonly:
            raise Forbidden("this bsd only reads", hint="unset BRAINSURGEON_READONLY")

    def _check(self) -> None:
        if self._stopping.is_set():
            raise ServerStopping

    def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self._check()
