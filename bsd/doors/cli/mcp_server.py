"""The process of `bsd mcp`: serves the tools of agents on stdin and stdout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bsd.daemon import rare_tasks
from bsd.daemon.children import Children
from bsd.daemon.loops import Beats, Loop
from bsd.doors.agent.mcp import ServerStopping, Toolbox, serve
from bsd.doors.agent.memory_tools import MEMORY_TOOLS, MemoryHands
from bsd.doors.agent.scope import Scope
from bsd.doors.agent.tools import TOOLS
from bsd.doors.cli.agent_calls import wait_for
from bsd.doors.cli.call import Call
from bsd.foundation.errors import Forbidden, Invalid
from bsd.foundation.files import UNCERTAIN_SECONDS
from bsd.foundation.layout import Layout, SessionName, check_name
from bsd.memory.facts import Memory, classes_of, open_memory
from bsd.session.rest import Patience
from bsd.session.surgeon import Surgeon
from bsd.verbs.verb import Meanwhile

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
    with _children(call) as children:
        hands = _ServersHands(call, children, stopping, scope)
        offered = {"sessions": tuple(TOOLS), "memory": tuple(MEMORY_TOOLS)}
        names = offered.get(tools, (*TOOLS, *MEMORY_TOOLS))
        serve(Toolbox(hands, scope, hands.memory(), stopping, offered=names))


@contextmanager
def _children(call: Call) -> Iterator[Children]:
    """Who changes sessions here: our threads parse, and a lease must not wait for them."""
    loops: list[Loop] = []
    settings = call.settings
    children = Children(
        call.layout,
        call.pruning,
        quiet_seconds=settings.quiet_seconds if settings else UNCERTAIN_SECONDS,
        log=lambda: (settings.log_level if settings else "info", "auto"),
        wake=lambda: loops[0].wake(),  # noqa: PLW0108 - it is made below
    )
    loops.append(Loop("children", children.step, Beats(), clock=time.monotonic))
    loops[0].start()
    try:
        yield children
    finally:
        loops[0].stop()
        children.stop()
        loops[0].join()


def _readonly(call: Call) -> bool:
    return bool(call.settings and call.settings.readonly)


class _ServersHands:
    """Makes a surgeon for each call: they come in parallel."""

    def __init__(
        self, call: Call, children: Children, stopping: threading.Event, scope: Scope
    ) -> None:
        self._scope = scope
        self.layout: Layout = call.layout
        self._config = call.pruning
        self._memory = call.settings.memory if call.settings else None
        self._readonly = _readonly(call)
        self._children = children
        self._stopping = stopping

    def memory(self) -> MemoryHands:
        """Whoever asks for facts gets a memory of its own."""
        classes = tuple(classes_of(self._memory).lifetimes)
        return MemoryHands(self._open_memory, classes, refresh=not self._readonly)

    def _open_memory(self, writes: bool) -> Memory:
        self._may(writes=writes)
        return open_memory(self.layout, self._memory, actor="agent", stopping=self._stopping.is_set)

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - all are alike
        """Whoever looks; raises Forbidden where nothing may be written."""
        self._may(writes=writes)
        patience = Patience(0.0, sleep=self._sleep, check=self._check)
        return Surgeon(self.layout, self._config, actor="agent", patience=patience)

    def send(self, verb: str, name: SessionName | None, asked: Any, meanwhile: Meanwhile) -> Any:
        """Have a child change a session; raises Forbidden where nothing may be written."""
        self._may(writes=True)
        wait = wait_for(self.layout, name, self._scope.own(self.layout)) if name else 0.0
        return self._children.call(
            *(rare_tasks.perform_verb, verb, name, asked, "agent", min(wait, _LONGEST_WAIT)),
            session=name,
            heard={"meanwhile": meanwhile},
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
