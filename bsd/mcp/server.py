"""`bsd mcp`: serves the tools for sessions and for the memory on stdin and stdout."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from bsd.actions.context import ActionContext, Executor
from bsd.core.clock import note_first_use
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Forbidden
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.price_list import PriceSources
from bsd.core.settings import MemorySettings, Settings
from bsd.daemon.child_tasks import ChildExecutor
from bsd.daemon.children import Children
from bsd.daemon.loops import Beats, Loop
from bsd.mcp.memory_tools import MemoryTools
from bsd.mcp.scope import Scope
from bsd.mcp.tool_server import ToolServer, current_page_size, note_early_answer
from bsd.mcp.tools import SessionTools
from bsd.memory.memory import Memory, classes_of, open_memory
from bsd.sessions.idle import RetryBudget

T = TypeVar("T")

_LONGEST_WAIT = 3.0  # seconds, for a session in use; less than the time limit of an answer

# Seed 001's four points, and a fifth. contrib/openclaw/agent-instructions.md contains them too.
INSTRUCTIONS = """\
Old large values of this session are kept outside of it, and can be had again, byte for byte, for \
as long as they are kept (settings; by default for ever, after 24 hours compressed).

- What leaves: tool results and thinking of 500 characters or more (settings may say otherwise), \
once a few newer messages follow. In their place stands [[extracted-ID]].
- When to restore: only if you need the very text. search_extracted finds words in what is away; \
read_extracted with entry ID gives the text in its answer, and so does purge_control with action \
restore. You need not name your own session.
- What then happens: `inline` of the answer says it. Your own session is in use: you have the text \
in the answer, and it comes back inline only if you pass inline true, after the turn, and not in \
every program. What came back is not taken out again for 10 minutes (a setting), and only then are \
the call and its result tidied away.
- What must stay: purge_control with action set_extractable, the entry's ID and value false keeps \
an entry in sight for good: skills, rules, the task itself.
- Never copy a placeholder [[extracted-ID]] into a file, a command or an answer: it is not the text.
"""


def add_session_tools(server: ToolServer, tools: SessionTools) -> None:
    """Add the tools for sessions."""
    server.add(tools.purge_control, long=True)
    server.add(tools.restore_remote, long=True)
    server.add(tools.restore, long=True)
    server.add(tools.read_extracted, long=True, read_only=True)
    server.add(tools.context, destructive=True, structured=True)
    server.add(tools.search_extracted, long=True, read_only=True, structured=True)


def add_memory_tools(server: ToolServer, tools: MemoryTools) -> None:
    """Add the tools for the memory. None is read-only: facts that are found are refreshed."""
    server.add(tools.memory_store, structured=True)
    server.add(tools.memory_recall, structured=True, long=True)
    server.add(tools.memory_lookup, structured=True, long=True)
    server.add(tools.memory_confirm, structured=True)
    server.add(tools.memory_forget, structured=True, destructive=True)
    server.add(tools.memory_checkpoint, structured=True, long=True)
    server.add(tools.memory_prune, structured=True, destructive=True)


def serve(
    layout: Layout,
    config: ConfigService,
    settings: Settings | None,
    scope: Scope,
    which: str | None,
) -> None:
    """Serve tools on stdin and stdout until stdin ends or SIGINT or SIGTERM arrives.

    Args:
        scope: the sessions that tools may reach.
        which: `sessions`, `memory` or `all`; None: the tools for sessions, and those for the
            memory if it is in use.
    """
    layout = replace(layout, bound_to=scope.session)  # children read no other session's store
    memory = settings.memory if settings else MemorySettings()
    readonly = bool(settings and settings.readonly)
    with _children(layout, config, settings) as children:
        executor = _child_executor(children, scope, readonly=readonly)
        context = ActionContext(
            layout=layout,
            config=config,
            actor="agent",
            fleet=settings.fleet if settings else FleetSettings(),
            prices=settings.price_sources if settings else PriceSources(),
            early_answer=note_early_answer,
            executor=executor,
        )
        anyio.run(_serve, make_server(context, scope, memory, which, readonly=readonly))


def make_server(
    context: ActionContext,
    scope: Scope,
    memory: MemorySettings,
    which: str | None,
    *,
    readonly: bool,
) -> ToolServer:
    """Return a server with the tools that `serve` serves."""
    layout = context.layout
    server = ToolServer(
        instructions=INSTRUCTIONS,
        hidden=() if scope.session is None else ("session",),
        choices={"decayClass": list(classes_of(memory).lifetimes)},
    )
    if which != "memory":
        add_session_tools(server, SessionTools(context, scope, current_page_size))
    if which in {"memory", "all"} or (which is None and _is_memory_used(layout, memory)):

        def open_for_agent(writes: bool) -> Memory:  # noqa: FBT001 - its only argument
            if writes:
                _prepare_change(layout, readonly=readonly)
            return open_memory(layout, memory, actor="agent", stopping=lambda: server.stopping)

        add_memory_tools(server, MemoryTools(open_for_agent, refresh=not readonly))
    return server


def _is_memory_used(layout: Layout, settings: MemorySettings) -> bool:
    """Return True if the settings enable the memory, or do not say and facts are stored."""
    if settings.enabled is not None:
        return settings.enabled
    try:
        return open_memory(layout, settings).exists()
    except BsdError:
        return True  # the tools report the problem


def _child_executor(children: Children, scope: Scope, *, readonly: bool) -> Executor:
    """Return an executor that opens sessions in child processes.

    No thread of this process parses a transcript, since parsing could delay the release of a lease.
    """

    def call_in_child(
        context: ActionContext,
        action: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> T:
        session: SessionName = args[0]
        if changes:
            _prepare_change(context.layout, readonly=readonly)
        waits = changes and scope.may_wait(context.layout, session)
        budget = RetryBudget(_LONGEST_WAIT if waits else 0.0)
        return execute(replace(context, budget=budget), action, args, kwargs, changes=changes)

    execute = ChildExecutor(children)
    return call_in_child


def _prepare_change(layout: Layout, *, readonly: bool) -> None:
    """Raise Forbidden in read-only mode; record the clocks for a later retention run."""
    if readonly:
        raise Forbidden("this bsd is read-only", hint="unset BRAINSURGEON_READONLY")
    note_first_use(layout)


@contextmanager
def _children(
    layout: Layout, config: ConfigService, settings: Settings | None
) -> Iterator[Children]:
    """Run the child processes that open sessions, and a thread that ends them when idle."""
    loops: list[Loop] = []
    children = Children(
        layout,
        config,
        quiet_seconds=settings.quiet_seconds if settings else UNCERTAIN_SECONDS,
        fleet=settings.fleet if settings else None,
        prices=settings.price_sources if settings else None,
        log=lambda: (settings.log_level if settings else "info", "auto"),
        wake=lambda: loops[0].wake(),  # noqa: PLW0108 - created below
    )
    loops.append(Loop("children", children.step, Beats(), clock=time.monotonic))
    loops[0].start()
    try:
        yield children
    finally:
        loops[0].stop()
        children.stop()
        loops[0].join()


async def _serve(server: ToolServer) -> None:
    async with server.running(), anyio.create_task_group() as signals:
        signals.start_soon(_obey_signals, server)
        await server.run_stdio_async()
        if not await server.finish_calls():
            os._exit(1)  # threads that wait for a child process cannot be stopped
        signals.cancel_scope.cancel()


async def _obey_signals(server: ToolServer) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            await server.finish_calls()
            os._exit(128 + number)  # a thread blocks on stdin and cannot be stopped
