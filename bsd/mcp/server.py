"""The tools as an MCP server on stdin and stdout: `bsd mcp`.

Programs give up on a tool that takes long, and the model then calls it again. So every call is
answered within a few seconds: a call that takes longer continues in the background, and the same
call again gets its result.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
import anyio.abc
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, Tool, ToolAnnotations

from bsd import __version__
from bsd.actions.answers import as_json
from bsd.actions.context import ActionContext, Executor
from bsd.core.clock import look
from bsd.core.errors import BsdError, Forbidden, Invalid, Unavailable
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import get_logger
from bsd.core.pruning_config import ConfigService
from bsd.core.settings import MemorySettings, Settings
from bsd.daemon.child_tasks import ChildExecutor
from bsd.daemon.children import Children
from bsd.daemon.loops import Beats, Loop
from bsd.mcp.answers import MAX_RESULT_SIZE, fit_answer, to_result
from bsd.mcp.arguments import read_arguments
from bsd.mcp.memory_tools import MemoryTools
from bsd.mcp.restoring import RestoredText
from bsd.mcp.scope import Scope
from bsd.mcp.tools import SessionTools, error_answer
from bsd.memory.memory import Memory, classes_of, open_memory
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.page_size import PageSize
from bsd.transcripts.agents.programs import page_size_for

T = TypeVar("T")

_TOLD_OF_PARAMETERS = ("type", "enum", "items", "description")

_log = get_logger("mcp")

_CALLS_AT_ONCE = 8
_ANSWER_SECONDS = 4.0
_LONGEST_WAIT = 3.0  # for a session in use, in seconds; less than an answer may take
_STOP_SECONDS = 10.0  # a commit that has begun is finished
_MOST_RESULTS = 32  # results of slow calls that are kept until the same call comes again

# Seed 001's four points, and one more. contrib/openclaw/agent-instructions.md holds them too.
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

_UNFINISHED = Unavailable(
    "it takes longer than an answer may, and goes on",
    hint="make the very same call again in a while: it is given the answer, and not begun anew",
)


@dataclass(slots=True)
class _Call:
    """A call of a tool, until its result has been sent."""

    arguments: dict[str, Any]  # as the client wrote them
    size: PageSize  # how much the client's program takes in one answer
    done: anyio.Event = field(default_factory=anyio.Event)
    result: CallToolResult | None = None
    early: dict[str, Any] | None = None  # an answer that is true until there is a result

    def result_so_far(self) -> CallToolResult:
        if self.result is not None:
            return self.result
        if self.early is not None:
            return to_result(self.early, self.size)
        return to_result(error_answer(_UNFINISHED), self.size, failed=True)


_current_call: ContextVar[_Call] = ContextVar("_current_call")


class ToolServer(MCPServer[Any]):
    """An MCP server whose calls continue in the background if they take long.

    Args:
        budget: seconds until a call is answered, finished or not.
        hidden: parameters of tools that clients are not told of.
        choices: the values of a parameter that are known only now, by its name.
    """

    def __init__(
        self,
        *,
        budget: float = _ANSWER_SECONDS,
        hidden: Collection[str] = (),
        choices: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(
            "bsd",
            title="BrainSurgeon",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
            subscriptions=False,
        )
        self._budget = budget
        self._hidden = hidden
        self._choices = choices or {}
        self._methods: dict[str, Callable[..., dict[str, Any]]] = {}
        self._calls: dict[str, _Call] = {}
        self._limiter = anyio.CapacityLimiter(_CALLS_AT_ONCE)
        self._tasks: anyio.abc.TaskGroup | None = None
        self.stopping = False

    def add(
        self,
        method: Callable[..., dict[str, Any]],
        *,
        read_only: bool = False,
        destructive: bool = False,
        long: bool = False,
        structured: bool = False,
    ) -> None:
        """Add a tool: its parameters are those of the method, its description the docstring.

        Args:
            long: answers may have more than the 50,000 characters that Claude Code shows.
            structured: the answer is sent as `structuredContent` as well.
        """
        name = method.__name__
        self._methods[name] = method

        @self.tool(
            description=" ".join((method.__doc__ or "").split()),
            annotations=ToolAnnotations(
                read_only_hint=read_only or None,
                destructive_hint=None if read_only else destructive,
                open_world_hint=False,
            ),
            meta=MAX_RESULT_SIZE if long else None,
            structured_output=False,
        )
        @functools.wraps(method)
        def answer(**arguments: Any) -> CallToolResult:
            call = _current_call.get()
            document = method(**arguments)
            offset = arguments.get("offset", 0)
            page = fit_answer(document, name, call.arguments, offset, call.size)
            return to_result(page, call.size, structured=structured)

    async def list_tools(self) -> list[Tool]:
        """List the tools; programs send their schemas with each request, so they are short."""
        return [
            tool.model_copy(update={"input_schema": self._short_schema(tool.input_schema)})
            for tool in await super().list_tools()
        ]

    def _short_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema that says of each parameter its type, choices and description.

        Defaults and bounds are left out, and null: an argument that is null is not there.
        """
        properties = {}
        for name, described in schema["properties"].items():
            kinds = [kind for kind in described.get("anyOf", ()) if kind != {"type": "null"}]
            whole = {**kinds[0], **described} if kinds else described
            short = {key: whole[key] for key in _TOLD_OF_PARAMETERS if key in whole}
            if name in self._choices:
                short["enum"] = list(self._choices[name])
            if name not in self._hidden:
                properties[name] = short
        required = {"required": schema["required"]} if "required" in schema else {}
        return {"type": "object", "properties": properties, **required}

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult:
        """Answer a call within the budget; an error is an answer, too.

        The result of a call that was not finished then is the answer to the next call that is
        equal to it.
        """
        key = json.dumps([name, arguments], sort_keys=True, default=str)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(arguments, _page_size(context))
            assert self._tasks is not None  # noqa: S101 - `running` has set it
            self._tasks.start_soon(self._run, call, name)
        with anyio.move_on_after(self._budget):
            await call.done.wait()
        if call.result is not None:
            self._calls.pop(key, None)
        self._forget_old_results()
        return call.result_so_far()

    async def _run(self, call: _Call, name: str) -> None:
        _current_call.set(call)
        try:
            async with self._limiter:
                arguments = self._read(name, call.arguments)
                result = await super().call_tool(name, arguments)
                assert isinstance(result, CallToolResult)  # noqa: S101 - `add` makes no other
                call.result = result
        except (BsdError, ToolError) as error:
            problem = error.__cause__ if isinstance(error, ToolError) else error
            if not isinstance(problem, BsdError):
                _log.error("A call has failed", tool=name, exc_info=problem)
                problem = Unavailable(f"internal error: {problem!r}")
            call.result = to_result(error_answer(problem), call.size, failed=True)
        finally:
            call.done.set()

    def _read(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments of a call; raises Invalid, and Unavailable if the server stops."""
        if self.stopping:
            raise Unavailable("the server stops")
        if name not in self._methods:
            raise Invalid(f"there is no tool {name}", hint=f"one of {', '.join(self._methods)}")
        return read_arguments(self._methods[name], arguments)

    def _forget_old_results(self) -> None:
        finished = [key for key, call in self._calls.items() if call.result is not None]
        for key in finished[:-_MOST_RESULTS]:
            del self._calls[key]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let calls run as long as this context lasts; at its end, wait for those that run."""
        async with anyio.create_task_group() as self._tasks:
            yield
            await self.finish_calls()
            self._tasks.cancel_scope.cancel()

    async def finish_calls(self) -> bool:
        """Refuse new calls, and wait until no call runs: a commit must not be cut off.

        Returns:
            False if some still run after 10 seconds.
        """
        self.stopping = True
        with anyio.move_on_after(_STOP_SECONDS) as limit:
            for call in list(self._calls.values()):
                await call.done.wait()
        return not limit.cancelled_caught


def _page_size(context: Context[Any, Any] | None) -> PageSize:
    """Return the page size of the client, by the name in its `initialize` request."""
    client = None if context is None else context.request_context.session.client_params
    return page_size_for(client.client_info.name if client else None)


def add_session_tools(server: ToolServer, tools: SessionTools) -> None:
    """Add the tools for sessions."""
    server.add(tools.purge_control, long=True)
    server.add(tools.restore_remote, long=True)
    server.add(tools.restore, long=True)
    server.add(tools.read_extracted, long=True, read_only=True)
    server.add(tools.context, destructive=True, structured=True)
    server.add(tools.search_extracted, long=True, read_only=True, structured=True)


def add_memory_tools(server: ToolServer, tools: MemoryTools) -> None:
    """Add the tools for the memory. None only reads: facts that are found live on."""
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
    """Serve tools on stdin and stdout until stdin ends, or SIGINT or SIGTERM comes.

    Args:
        scope: the sessions that tools may reach.
        which: `sessions`, `memory` or `all` tools; None: those for sessions, and those for the
            memory if it is in use.
    """
    layout = replace(layout, bound_to=scope.session)  # children read no other session's store
    memory = settings.memory if settings else MemorySettings()
    readonly = bool(settings and settings.readonly)
    with _children(layout, config, settings) as children:
        executor = _child_executor(children, scope, readonly=readonly)
        context = call_context(layout, config, executor)
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
        hidden=() if scope.session is None else ("session",),
        choices={"decayClass": list(classes_of(memory).lifetimes)},
    )
    if which != "memory":
        add_session_tools(server, SessionTools(context, scope, lambda: _current_call.get().size))
    if which in {"memory", "all"} or (which is None and _is_memory_used(layout, memory)):

        def open_for_agent(writes: bool) -> Memory:  # noqa: FBT001 - its only argument
            if writes:
                _prepare_change(layout, readonly=readonly)
            return open_memory(layout, memory, actor="agent", stopping=lambda: server.stopping)

        add_memory_tools(server, MemoryTools(open_for_agent, refresh=not readonly))
    return server


def _is_memory_used(layout: Layout, settings: MemorySettings) -> bool:
    """Return True if settings ask for a memory, or facts are stored and settings do not forbid."""
    if settings.enabled is None:
        return open_memory(layout, settings).exists()
    return settings.enabled


def call_context(layout: Layout, config: ConfigService, executor: Executor) -> ActionContext:
    """Return the context of the tools; an early answer is noted for the call that is running."""

    def note(answer: RestoredText) -> None:
        _current_call.get().early = as_json(answer)

    return ActionContext(
        layout=layout, config=config, actor="agent", early_answer=note, executor=executor
    )


def _child_executor(children: Children, scope: Scope, *, readonly: bool) -> Executor:
    """Return an executor that has child processes open sessions.

    The threads of this process parse transcripts for nobody: a lease must not wait for them.
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
    """Raise Forbidden if nothing may be changed; note the clocks, for a later retention."""
    if readonly:
        raise Forbidden("this bsd only reads", hint="unset BRAINSURGEON_READONLY")
    look(layout)


@contextmanager
def _children(
    layout: Layout, config: ConfigService, settings: Settings | None
) -> Iterator[Children]:
    """Processes that open sessions, and a thread that ends them when they are idle."""
    loops: list[Loop] = []
    children = Children(
        layout,
        config,
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


async def _serve(server: ToolServer) -> None:
    async with server.running(), anyio.create_task_group() as signals:
        signals.start_soon(_obey_signals, server)
        await server.run_stdio_async()
        if not await server.finish_calls():
            os._exit(1)  # threads that wait for a child cannot be ended
        signals.cancel_scope.cancel()


async def _obey_signals(server: ToolServer) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            await server.finish_calls()
            os._exit(128 + number)  # a thread waits for the next line of stdin
