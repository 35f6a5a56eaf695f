"""An MCP server that answers every call within a few seconds.

Programs give up on a slow tool, and the model then calls it again. So a call that takes longer
continues in the background; repeat the same call to get its result. `server` adds the tools.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import structlog
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, Tool, ToolAnnotations

from bsd import __version__
from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Invalid, Unavailable
from bsd.mcp.answers import MAX_RESULT_SIZE, fit_answer, to_result
from bsd.mcp.arguments import read_arguments
from bsd.mcp.restoring import RestoredText
from bsd.mcp.tools import error_answer
from bsd.transcripts.agents.page_size import PageSize
from bsd.transcripts.agents.programs import page_size_for

_log = structlog.stdlib.get_logger(module="mcp")

_CALLS_AT_ONCE = 8
_ANSWER_SECONDS = 4.0
_STOP_SECONDS = 10.0  # time to finish a commit that has begun
_MOST_RESULTS = 32  # results of slow calls, kept until the same call is repeated
_TOLD_OF_PARAMETERS = ("type", "enum", "items", "description")

_UNFINISHED = Unavailable(
    "the call takes longer than an answer may, and continues in the background",
    hint="repeat the very same call later: you then get its answer, and it is not started again",
)


@dataclass(slots=True)
class _Call:
    """A call of a tool, until its result has been sent."""

    arguments: dict[str, Any]  # as the client wrote them
    size: PageSize  # the largest answer that the client's program accepts
    done: anyio.Event = field(default_factory=anyio.Event)
    result: CallToolResult | None = None
    early: dict[str, Any] | None = None  # the answer to send as long as there is no result

    def result_so_far(self) -> CallToolResult:
        if self.result is not None:
            return self.result
        if self.early is not None:
            return to_result(self.early, self.size)
        return to_result(error_answer(_UNFINISHED), self.size, failed=True)


_current_call: ContextVar[_Call] = ContextVar("_current_call")


def current_page_size() -> PageSize:
    """Return the page size of the client whose call is running."""
    return _current_call.get().size


def note_early_answer(answer: RestoredText) -> None:
    """Set the answer that is sent if the running call does not finish in time."""
    _current_call.get().early = as_json(answer)


class ToolServer(MCPServer[Any]):
    """An MCP server whose calls continue in the background if they take long.

    Calls run within the context `running`.

    Args:
        budget: seconds after which a call is answered, even if it is not finished.
        hidden: parameters of tools that are omitted from the schemas.
        choices: by name of a parameter, values that are known only at run time.
    """

    def __init__(
        self,
        *,
        instructions: str | None = None,
        budget: float = _ANSWER_SECONDS,
        hidden: Collection[str] = (),
        choices: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        # If the root logger had no handler, the library would configure logging to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
        super().__init__(
            "bsd",
            title="BrainSurgeon",
            version=__version__,
            instructions=instructions,
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
        """Add a method as a tool, with its parameters, and its docstring as description.

        Args:
            long: answers may be longer than the 50,000 characters that Claude Code shows.
            structured: also send the answer as `structuredContent`.
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
        """List the tools, with short schemas: programs send them with each request."""
        return [
            tool.model_copy(update={"input_schema": self._short_schema(tool.input_schema)})
            for tool in await super().list_tools()
        ]

    def _short_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema with type, choices and description of each parameter.

        Defaults, bounds and null are omitted; a null argument counts as missing.
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
        """Answer a call within the budget; an error is an answer too.

        If the call is not finished by then, its result becomes the answer to the next equal call.
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
        except Exception as error:  # noqa: BLE001 - the server must continue
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
            raise Unavailable("the server is stopping")
        if name not in self._methods:
            raise Invalid(f"there is no tool {name}", hint=f"one of {', '.join(self._methods)}")
        return read_arguments(self._methods[name], arguments)

    def _forget_old_results(self) -> None:
        finished = [key for key, call in self._calls.items() if call.result is not None]
        for key in finished[:-_MOST_RESULTS]:
            del self._calls[key]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run calls while this context lasts; at its end, wait for running calls."""
        async with anyio.create_task_group() as self._tasks:
            yield
            await self.finish_calls()
            self._tasks.cancel_scope.cancel()

    async def finish_calls(self) -> bool:
        """Refuse new calls and wait for running calls, so that no commit is interrupted.

        Returns:
            False if calls still run after 10 seconds.
        """
        self.stopping = True
        with anyio.move_on_after(_STOP_SECONDS) as limit:
            for call in list(self._calls.values()):
                await call.done.wait()
        return not limit.cancelled_caught


def _page_size(context: Context[Any, Any] | None) -> PageSize:
    """Return the page size for the client that the `initialize` request names."""
    client = None if context is None else context.request_context.session.client_params
    return page_size_for(client.client_info.name if client else None)
