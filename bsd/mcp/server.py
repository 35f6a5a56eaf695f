"""The tools as an MCP server on stdin and stdout: `bsd mcp`.

Nobody waits long for an answer: programs give up on tools that do, and a model calls them again.
What takes longer goes on, and whoever makes the same call again is given what came of it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from bsd import __version__
from bsd.actions.answers import as_json
from bsd.actions.context import ActionContext
from bsd.actions.models import answer_model, arguments_model
from bsd.core.clock import look
from bsd.core.definition import LibraryVerb, Tool, arguments_of
from bsd.core.errors import BsdError, Forbidden, Invalid, Unavailable
from bsd.core.files import UNCERTAIN_SECONDS
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import get_logger
from bsd.core.pruning_config import ConfigService
from bsd.core.settings import Settings
from bsd.daemon import child_tasks
from bsd.daemon.children import Children
from bsd.daemon.loops import Beats, Loop
from bsd.mcp.answers import (
    MAX_RESULT_SIZE,
    first_fitting,
    paged_results,
    sent_answer,
    shortened_facts,
)
from bsd.mcp.scope import Scope
from bsd.mcp.tools import (
    MOST_ENTRIES,
    TOOLS,
    AgentTool,
    Asked,
    carry_out,
    error_answer,
    freely,
    in_short,
    read_arguments,
    read_call,
    reads_much,
    schema_of,
)
from bsd.memory.memory import Memory, classes_of, open_memory
from bsd.memory.tools import A_MOMENT, VERBS
from bsd.sessions.idle import RetryBudget
from bsd.sessions.surgeon import Surgeon
from bsd.transcripts.agents.page_size import PageSize
from bsd.transcripts.agents.programs import page_size_for

# --- tools for the memory, made from the verbs in `bsd.memory.tools` ---


class _Parameters(BaseModel):
    """What all of them have in common; both spellings of a name are taken."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )


def _read_moment(moment: Any) -> Any:
    """Read a date or a time, of UTC if it does not say otherwise, as epoch seconds."""
    if not isinstance(moment, str):
        return moment
    text = moment.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        read = datetime.fromisoformat(text)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(f"must be {A_MOMENT}") from None


def _reader(annotation: Any) -> Callable[[Any], Any] | None:
    return _read_moment if annotation == int | None else freely(annotation)


@dataclass(frozen=True)
class MemoryTool:
    """One tool: what a model is told of it, and the verb that it does."""

    told: Tool
    verb: LibraryVerb[Memory, Any, Any]

    @cached_property
    def _parameters(self) -> type[BaseModel]:
        # Whether what is found lives on is not for an agent to say.
        known = [one for one in arguments_of(self.verb.arguments) if one != "refresh"]
        names = self.told.takes or known
        return arguments_model(self.verb.arguments, _Parameters, names=names, reader=_reader)

    def read(self, arguments: object) -> dict[str, Any]:
        """Understand what a model wrote; raises Invalid that names every bad field."""
        read = read_arguments(self._parameters, arguments)
        return {name: getattr(read, name) for name in read.model_fields_set}

    def schema(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The JSON schema of its arguments, where these are the classes that there are."""
        schema = schema_of(self._parameters)
        schema.pop("description", None)  # the tool has one, and each takes room
        if (decay_class := schema["properties"].get("decayClass")) is not None:
            described = decay_class["description"]
            named = {"type": "string", "enum": list(classes), "description": described}
            schema["properties"]["decayClass"] = named
        return schema

    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of its answers."""
        return schema_of(answer_model(self.verb.answer))

    def carry_out(self, arguments: object, hands: MemoryHands) -> dict[str, Any]:
        """Do what a call asks for; raises Invalid for all bad fields, or what memory raises."""
        verb, given = self.verb, self.read(arguments)
        if "refresh" in arguments_of(verb.arguments):
            given["refresh"] = hands.refresh
        asked = verb.arguments(**given)
        with hands.open(verb.will_change(asked)) as memory:
            return json_of(verb.act(memory, asked))


MEMORY_TOOLS = {told.name: MemoryTool(told, verb) for verb in VERBS for told in verb.tools}


@dataclass(frozen=True, slots=True)
class MemoryHands:
    """Who does it: opens a memory, True if it is to be written; raises Forbidden."""

    open: Callable[[bool], Memory]
    classes: tuple[str, ...]  # by their names
    refresh: bool  # what is found lives on


# --- who does it ---


class _ServersHands:
    """Makes a surgeon for each call: they come in parallel."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        settings: Settings | None,
        children: Children,
        stopping: threading.Event,
        scope: Scope,
    ) -> None:
        self.layout = layout
        self.config = config
        self._scope = scope
        self._memory = settings.memory if settings else None
        self._readonly = bool(settings and settings.readonly)
        self._children = children
        self._stopping = stopping

    def memory(self) -> MemoryHands:
        """Whoever asks for facts gets a memory of its own."""
        classes = tuple(classes_of(self._memory).lifetimes)
        return MemoryHands(self._open_memory, classes, refresh=not self._readonly)

    def _open_memory(self, writes: bool) -> Memory:  # noqa: FBT001 - as hands are asked
        self._may(writes=writes)
        return open_memory(self.layout, self._memory, actor="agent", stopping=self._stopping.is_set)

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - all are alike
        """Whoever looks; raises Forbidden where nothing may be written."""
        self._may(writes=writes)
        budget = RetryBudget(0.0, sleep=self._sleep, check=self._check)
        return Surgeon(self.layout, self.config, actor="agent", budget=budget)

    def executor(
        self,
        context: ActionContext,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> Any:
        """Have a child call an action; raises Forbidden where nothing may be written."""
        self._may(writes=changes)
        waits = changes and self._scope.may_wait(self.layout, args[0])
        asked = ActionContext(
            layout=self.layout,
            config=self.config,
            actor="agent",
            budget=RetryBudget(_LONGEST_WAIT if waits else 0.0),
            early_answer=context.early_answer,
        )
        return child_tasks.ChildExecutor(self._children)(
            asked, action, args, kwargs, changes=changes
        )

    def _may(self, *, writes: bool) -> None:
        if writes and self._readonly:
            raise Forbidden("this bsd only reads", hint="unset BRAINSURGEON_READONLY")
        if writes:  # `bsd retention` compares the clocks with what they showed now
            look(self.layout)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise ServerStopping

    def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self._check()


# --- the server ---


_log = get_logger("mcp")

_AT_ONCE = 8  # calls; more wait for their turn
_LEAVE_SECONDS = 10.0  # a commit that has begun is finished
_ANSWER_SECONDS = 4.0
_LONGEST_WAIT = 3.0  # seconds: an answer has to be there within 5
_MOST_LATE = 32  # calls whose answers nobody came for

# What a model must know of bsd to work with it: seed 001's four points, and one more.
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


class ServerStopping(Exception):
    """The server stops; raised where nothing is half done."""


@dataclass(slots=True)
class _Work:
    """One call, from when it is made until its answer is there."""

    size: PageSize  # of its answer
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: types.CallToolResult | None = None
    meanwhile: dict[str, Any] | None = None  # what is true before that

    def is_under_way(self, answer: Any) -> None:
        self.meanwhile = as_json(answer)

    def so_far(self) -> types.CallToolResult:
        """What whoever can wait no longer is told."""
        if self.meanwhile is not None:
            return sent_answer(self.meanwhile, self.size)
        return sent_answer(error_answer(_NOT_YET), self.size, failed=True)


_NOT_YET = Unavailable(
    "it takes longer than an answer may, and goes on",
    hint="make the very same call again in a while: it is given the answer, and not begun anew",
)


class Toolbox:
    """Answers calls of tools, each on a thread of its own."""

    def __init__(
        self,
        hands: Any,
        scope: Scope,
        memory: MemoryHands,
        stopping: threading.Event,
        *,
        offered: Collection[str],
        budget: float = _ANSWER_SECONDS,
    ) -> None:
        """`offered`: the names of the tools that there are; `patience`: seconds until an answer."""
        self._offered = offered
        self._hands = hands
        self._memory = memory
        self._scope = scope
        self._stopping = stopping
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._one_by_one = anyio.CapacityLimiter(1)
        self._budget = budget
        self._late: OrderedDict[str, _Work] = OrderedDict()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._idle = threading.Condition()
        self._working = 0

    async def list(
        self, _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Say which tools there are."""
        names_session = self._scope.session is None
        tools = [
            *(_session_tool(tool, takes_session=names_session) for tool in TOOLS.values()),
            *(_memory_tool(tool, self._memory.classes) for tool in MEMORY_TOOLS.values()),
        ]
        return types.ListToolsResult(tools=[one for one in tools if one.name in self._offered])

    async def call(
        self, context: ServerRequestContext[Any] | None, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Carry a call out; what goes wrong with it is an answer, too."""
        which = json.dumps([params.name, params.arguments], sort_keys=True, default=str)
        work = self._late.pop(which, None) or self._begin(params, _page_size(context))
        with anyio.move_on_after(self._budget):
            await work.done.wait()
        if work.answer is not None:
            return work.answer
        self._late[which] = work
        if len(self._late) > _MOST_LATE:
            self._late.popitem(last=False)
        return work.so_far()

    def works_in(self, tasks: anyio.abc.TaskGroup) -> None:
        """Say where work goes on for which nobody waits any more; before the first call."""
        self._tasks = tasks

    def _begin(self, params: types.CallToolRequestParams, size: PageSize) -> _Work:
        work = _Work(size)
        assert self._tasks is not None  # noqa: S101 - `serve` has said it
        self._tasks.start_soon(self._do, work, params)
        return work

    async def _do(self, work: _Work, params: types.CallToolRequestParams) -> None:
        answer = partial(self._answer, params.name, params.arguments, work)
        much = reads_much(params.name, params.arguments)
        limiter = self._one_by_one if much else self._limiter
        try:
            work.answer = await run_sync(answer, abandon_on_cancel=True, limiter=limiter)
        finally:
            work.done.set()

    def leave(self) -> bool:
        """Let everyone finish what must not be left half done; whether they did in time."""
        self._stopping.set()
        with self._idle:
            return self._idle.wait_for(lambda: not self._working, _LEAVE_SECONDS)

    def _answer(
        self, name: str, arguments: dict[str, Any] | None, work: _Work
    ) -> types.CallToolResult:
        with self._at_work():
            try:
                answer = self._carry_out(name, arguments, work)
                return sent_answer(answer, work.size, structured=_has_schema(name))
            except ServerStopping:
                problem: BsdError = Unavailable("the server stops")
            except BsdError as error:
                problem = error
            except Exception as error:  # noqa: BLE001 - one call's trouble is not the others'
                _log.exception("A call has failed", tool=name)
                problem = Unavailable(f"internal error: {error!r}")
        return sent_answer(error_answer(problem), work.size, failed=True)

    def _carry_out(
        self, name: str, arguments: dict[str, Any] | None, work: _Work
    ) -> dict[str, Any]:
        if self._stopping.is_set():
            raise ServerStopping
        if name not in self._offered:
            raise Invalid(f"there is no tool {name}", hint=f"one of {', '.join(self._offered)}")
        size, given = work.size, dict(arguments or {})
        if (tool := MEMORY_TOOLS.get(name)) is not None:
            offset = tool.read(arguments).get("offset", 0)
            answer = shortened_facts(tool.carry_out(arguments, self._memory), offset, size)
        else:
            call = read_call(name, arguments).with_pages_of(size)
            session = self._scope.find(self._hands.layout, call.session, call.lacks)
            answer = carry_out(call, session, self._hands, work.is_under_way)
            offset = call.offset
            if "extracted_ids" in answer:
                return _listing(answer, call, size)
        return paged_results(answer, name, given, offset, size) if "results" in answer else answer

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._idle:
            self._working += 1
        try:
            yield
        finally:
            with self._idle:
                self._working -= 1
                self._idle.notify_all()


def _page_size(context: ServerRequestContext[Any] | None) -> PageSize:
    """Return the page size of the client, by the name in its `initialize` request."""
    client = context.session.client_params if context is not None else None
    return page_size_for(client.client_info.name if client else None)


def _listing(whole: dict[str, Any], call: Asked, size: PageSize) -> dict[str, Any]:
    """Return a page of what `get_context` lists."""
    page = first_fitting(lambda most: in_short(whole, call.offset, most), MOST_ENTRIES, size)
    if call.session is not None and "next" in page:
        page["next"]["session"] = call.session
    return page


def _has_schema(name: str) -> bool:
    """Whether the answers of a tool are JSON alone, as its output schema says."""
    return name in MEMORY_TOOLS or not TOOLS[name].told.pictures


def _session_tool(tool: AgentTool, *, takes_session: bool) -> types.Tool:
    schema = tool.schema(takes_session=takes_session)
    again = not tool.told.destroys
    return _described(tool, schema, read_only=not tool.changes, idempotent=again)


def _memory_tool(tool: MemoryTool, classes: tuple[str, ...]) -> types.Tool:
    # What is only found lives on, so that nothing only reads.
    return _described(tool, tool.schema(classes), read_only=False, idempotent=False)


def _described(
    tool: AgentTool | MemoryTool, schema: dict[str, Any], *, read_only: bool, idempotent: bool
) -> types.Tool:
    told = tool.told
    return types.Tool(
        name=told.name,
        title=told.title,
        description=told.description,
        input_schema=schema,
        output_schema=tool.output_schema(),
        annotations=types.ToolAnnotations(
            title=told.title,
            read_only_hint=read_only,
            destructive_hint=told.destroys,
            idempotent_hint=idempotent,
            open_world_hint=False,
        ),
        meta=MAX_RESULT_SIZE if told.pictures or told.lists else None,
    )


def serve(
    layout: Layout, config: ConfigService, settings: Settings | None, scope: Scope, which: str
) -> None:
    """Serve tools until stdin ends, or a signal comes: for sessions, for memory, or all."""
    layout = replace(layout, bound_to=scope.session)  # children read no other session's store
    stopping = threading.Event()
    with _children(layout, config, settings) as children:
        hands = _ServersHands(layout, config, settings, children, stopping, scope)
        offered = {"sessions": tuple(TOOLS), "memory": tuple(MEMORY_TOOLS)}
        names = offered.get(which, (*TOOLS, *MEMORY_TOOLS))
        anyio.run(_serve, Toolbox(hands, scope, hands.memory(), stopping, offered=names))


@contextmanager
def _children(
    layout: Layout, config: ConfigService, settings: Settings | None
) -> Iterator[Children]:
    """Who changes sessions here: our threads parse, and a lease must not wait for them."""
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


async def _serve(toolbox: Toolbox) -> None:
    server: Server[Any] = Server(
        "bsd",
        version=__version__,
        title="BrainSurgeon",
        instructions=INSTRUCTIONS,
        on_list_tools=toolbox.list,
        on_call_tool=toolbox.call,
    )
    async with anyio.create_task_group() as group:
        toolbox.works_in(group)
        group.start_soon(_obey_signals, toolbox)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
            await run_sync(toolbox.leave)
        group.cancel_scope.cancel()


async def _obey_signals(toolbox: Toolbox) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            await run_sync(toolbox.leave)
            # A thread that waits for the next line of stdin would keep us for ever.
            os._exit(128 + number)
