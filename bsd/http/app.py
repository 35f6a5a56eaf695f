"""The application: all routes put together, and those of the daemon, its events and the page.

Starlette alone: FastAPI, whose models and documents verbs make needless, takes 7 MB of a daemon.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bsd.actions.answers import as_json
from bsd.core.definition import Body
from bsd.core.layout import Layout
from bsd.core.pruning_config import ConfigService
from bsd.core.pruning_fields import SETTABLE, SETTINGS
from bsd.core.settings import Settings
from bsd.daemon.child_tasks import ChildExecutor
from bsd.daemon.service import Daemon
from bsd.daemon.status import DaemonStatus, Health, Job, Jobs, Service
from bsd.http import server, verb_routes
from bsd.http.answer import ERRORS, LARGEST_BODY, JsonAnswer, changing, in_thread, reading
from bsd.http.middleware import ReadOnlyGuard
from bsd.http.verb_routes import WAIT_SECONDS, ApiHands, ApiRoute, actor_of, json_object
from bsd.maintenance import catalog
from bsd.maintenance.catalog import Agents
from bsd.maintenance.disk_use import SavedByHour, Savings
from bsd.memory import verbs as memory_verbs
from bsd.memory.memory import Memory, open_memory
from bsd.sessions.idle import RetryBudget
from bsd.workspaces import verbs as workspace_verbs
from bsd.workspaces.actions import WorkspaceRoot, rules_of

if TYPE_CHECKING:
    from bsd.http.metrics import MetricsPage


import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bsd.core.errors import Unavailable
from bsd.daemon.status import Event
from bsd.http.answer import STOPPING


def create_app(
    daemon: Service,
    config: ConfigService,
    hands: ApiHands,
    *,
    readonly: bool = False,
    memory: Callable[..., Memory] | None = None,
    workspaces: WorkspaceRoot | None = None,
    config_changed: Callable[[], None] = lambda: None,
) -> Starlette:
    """Put the routes together. Keys, Host and Origin are the business of each listener."""
    facts = memory or partial(open_memory, hands.layout)
    spaces = workspaces or WorkspaceRoot(None)
    routes = [
        *state_routes(daemon, hands.layout.audit_file),
        *config_routes(config, config_changed),
        _agents_route(hands.layout),
        *verb_routes.routes(hands),
        *verb_routes.library_routes(memory_verbs.VERBS, lambda actor: facts(actor=actor)),
        *verb_routes.library_routes(
            workspace_verbs.VERBS, lambda actor: nullcontext(replace(spaces, actor=actor))
        ),
        *event_routes(daemon),
    ]
    return Starlette(
        routes=[*routes, *page_routes(), _description(routes)],
        middleware=[Middleware(ReadOnlyGuard)] if readonly else [],
        exception_handlers=ERRORS,
        max_body_size=LARGEST_BODY,
    )


def _description(routes: list[ApiRoute]) -> Route:
    def describe() -> Response:
        from bsd.http.openapi import openapi  # noqa: PLC0415 - takes 4 MB, seldom wanted

        return JsonAnswer(openapi(routes))

    async def document(_: Request) -> Response:
        return await in_thread(describe)

    return Route("/api/openapi.json", document)


def app_of(daemon: Daemon, settings: Settings) -> Starlette:
    """The application of a daemon."""
    now = daemon.state
    hands = ApiHands(
        now.layout,
        now.config,
        RetryBudget(WAIT_SECONDS, settings.quiet_seconds, check=now.stop_here),
        executor=ChildExecutor(daemon.children),
        cleaned=daemon.cleaned,
        searched=daemon.search_state,
    )
    return create_app(
        daemon,
        now.config,
        hands,
        readonly=settings.readonly,
        memory=partial(open_memory, now.layout, settings.memory),
        workspaces=WorkspaceRoot(
            settings.workspace_root, now.layout, rules_of(settings), actor="api"
        ),
        config_changed=daemon.config_changed,
    )


# --- how the daemon is, and what it does: health, status, jobs, what was saved, its settings ---


_METRICS = {"content": {"text/plain": {"schema": {"type": "string"}}}}


def state_routes(daemon: Service, audit_file: Path) -> list[ApiRoute]:
    saved = SavedByHour(audit_file)

    async def health(_: Request) -> Response:
        """Whether all is well. 503 before the start is complete and while it stops."""
        return await in_thread(server.health, daemon)

    async def status(_: Request) -> Response:
        """Everything at a glance."""
        return await in_thread(server.status, daemon)

    async def savings(_: Request) -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return JsonAnswer(as_json(await in_thread(saved.savings)))

    return [
        ApiRoute.of("GET /api/health", health, "state", Health, statuses={503: "Not ready"}),
        ApiRoute.of("GET /api/status", status, "state", DaemonStatus),
        _metrics_route(daemon),
        *_job_routes(daemon),
        ApiRoute.of("GET /api/savings", savings, "state", Savings),
    ]


def _metrics_route(daemon: Service) -> ApiRoute:
    @cache
    def page() -> MetricsPage:
        from bsd.http.metrics import MetricsPage  # noqa: PLC0415 - see there

        return MetricsPage(daemon.status, daemon.jobs, daemon.health)

    def render() -> Response:
        return Response(page().render(), headers={"content-type": page().content_type})

    async def metrics(_: Request) -> Response:
        """The same in numbers, for Prometheus."""
        return await in_thread(render)

    return ApiRoute.of("GET /api/metrics", metrics, "state", _METRICS)


def _job_routes(daemon: Service) -> list[ApiRoute]:
    async def jobs(_: Request) -> Response:
        """All jobs, by name, with their last and next runs."""
        return JsonAnswer({"jobs": await in_thread(daemon.jobs)})

    async def run(request: Request) -> Response:
        """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
        return JsonAnswer(await changing(daemon.run_job, request.path_params["name"]))

    return [
        ApiRoute.of("GET /api/jobs", jobs, "jobs", Jobs),
        ApiRoute.of("POST /api/jobs/{name}/run", run, "jobs", Job),
    ]


def _agents_route(layout: Layout) -> ApiRoute:
    async def agents(_: Request) -> Response:
        """All agents, those whose sessions are left alone included."""
        found = await reading(catalog.agents, layout)
        return JsonAnswer(as_json(Agents(tuple(found))))

    return ApiRoute.of("GET /api/agents", agents, "sessions", Agents)


def config_routes(config: ConfigService, changed: Callable[[], None]) -> list[ApiRoute]:
    """The runtime settings; `changed` is called when some were."""

    async def show(_: Request) -> Response:
        """All runtime settings; needs no API key."""
        return JsonAnswer((await in_thread(lambda: config.current)).as_json())

    async def change(request: Request) -> Response:
        """Change some; they are in force when this answers. 400 names every bad field.

        `last_*` are ignored.
        """
        wanted = await json_object(request)
        new = await in_thread(config.update, wanted, actor=actor_of(request))
        changed()
        return JsonAnswer(new.as_json())

    some = Body(read=dict, settings=tuple(SETTINGS))
    return [
        ApiRoute.of("GET /api/config", show, "config", "RuntimeConfig"),
        ApiRoute.of("POST /api/config", change, "config", "RuntimeConfig", body=some),
    ]


# --- what happens, as it happens: server-sent events ---

# Streamed by Starlette's own response: sse-starlette wakes the process twice a second from its
# first listener on and replaces a method of uvicorn's.


MOST_LISTENERS = 32
_SIGN_OF_LIFE_SECONDS = 20.0  # proxies close what is silent for a minute
_STREAM_EXAMPLE = 'event: session\ndata: {"type":"session","at":"2026-11-22T10:02:00.000Z"}\n\n'
_STREAM_TYPE = "text/event-stream"
_STREAM = {
    "description": "Events of type session, job, config, state; `lost` says how many a slow "
    "listener has missed",
    "content": {_STREAM_TYPE: {"schema": {"type": "string"}, "example": _STREAM_EXAMPLE}},
}
_STREAM_HEADERS = {"x-accel-buffering": "no"}  # nginx would keep events back


class Feed:
    """All connections that listen, of one event loop; call it there."""

    def __init__(self, daemon: Service) -> None:
        self._daemon = daemon
        self._listeners: set[Listener] = set()

    def listen(self, stopping: asyncio.Event | None) -> Listener:
        """Listen until it is closed, or the server stops; raises Unavailable if too many do."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise Unavailable(
                f"{MOST_LISTENERS} connections listen already", hint="close one of them"
            )
        listener = Listener(self._daemon, stopping, self._listeners.discard)
        self._listeners.add(listener)
        return listener


class Listener:
    """The events for one connection."""

    def __init__(
        self,
        daemon: Service,
        stopping: asyncio.Event | None,
        forget: Callable[[Listener], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._forget = forget
        self._subscription = daemon.subscribe(self._wake)
        self._end = asyncio.ensure_future(self._end_at(stopping)) if stopping else None

    async def get(self) -> Event | None:
        """Wait for the next event; None when there will be no more."""
        while True:
            self._changed.clear()
            closed = self._subscription.closed
            if (event := self._subscription.take()) or closed:
                return event
            await self._changed.wait()

    def take_lost(self) -> int:
        """How many events were lost, because they were not taken, since it was last asked."""
        return self._subscription.take_lost()

    def close(self) -> None:
        """Listen no more."""
        self._forget(self)
        self._subscription.close()
        if self._end:
            self._end.cancel()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _end_at(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._subscription.close()


class EventStream(StreamingResponse):
    """Sends events until the other side hangs up, or there will be no more."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(_events(listener), media_type=_STREAM_TYPE, headers=_STREAM_HEADERS)
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listener.close()


async def _events(listener: Listener) -> AsyncIterator[bytes]:
    yield b": listening\n\n"
    while True:
        try:
            event = await asyncio.wait_for(listener.get(), _SIGN_OF_LIFE_SECONDS)
        except TimeoutError:
            yield b": still here\n\n"
            continue
        if lost := listener.take_lost():
            yield _event("lost", {"type": "lost", "lost": lost})
        if event is None:
            return
        yield _event(event.type, event.as_json())


def _event(type: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), orjson.dumps(data, default=str))


def event_routes(daemon: Service) -> list[ApiRoute]:
    feed = Feed(daemon)

    async def events(request: Request) -> Response:
        """What happens from now on, until the server stops."""
        if request.method == "HEAD":  # which has no use for a body without end
            return Response(media_type=_STREAM_TYPE, headers=_STREAM_HEADERS)
        return EventStream(feed.listen(request.scope.get("state", {}).get(STOPPING)))

    return [ApiRoute.of("GET /api/events", events, "events", _STREAM)]


# --- the page: `/`, and what it loads from `/web/`: files as they are, and one made here ---


_FOLDER = files("bsd.http") / "web"
_START = "index.html"
_TABLE = "settings_table.js"  # made from the table of settings
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline, and no text ever becomes markup. Pictures of a session are
# shown by URLs that the page's own scripts make (blob:), for as long as they are shown.
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    # Ask each time: after an upgrade the parts must fit each other.
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def page_routes() -> list[Route]:
    async def start(request: Request) -> Response:
        return await in_thread(_answer, request, _START)

    async def part(request: Request) -> Response:
        return await in_thread(_answer, request, request.path_params["name"])

    return [Route("/", start), Route("/web/{name}", part)]


def _answer(request: Request, name: str) -> Response:
    if name not in _names():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    content = settings_table() if name == _TABLE else (_FOLDER / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {**_HEADERS, "etag": tag}
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip().removeprefix("W/") for one in known):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers)
    media_type = _TYPES["." + name.rpartition(".")[2]]
    return Response(content, headers=headers, media_type=media_type)


def _names() -> frozenset[str]:
    """What there is: a name from outside is only ever compared with these."""
    names = (item.name for item in _FOLDER.iterdir() if item.is_file())
    return frozenset({_TABLE, *(one for one in names if "." + one.rpartition(".")[2] in _TYPES)})


def settings_table() -> bytes:
    """What the page knows of the settings: where each stands, and how it is written."""
    groups: dict[str, list[dict[str, Any]]] = {}
    # What is written as JSON takes much room and is rarely wanted: it stands last in its group.
    for name in sorted(SETTABLE, key=lambda one: SETTINGS[one].kind.control == "json"):
        one = SETTINGS[name]
        groups.setdefault(one.place, []).append(
            {
                "name": name,
                "control": one.kind.control,
                "choices": list(one.kind.choices.items()),
                "label": one.label,
                "help": one.note,
            }
        )
    return f"export const GROUPS = {json.dumps(list(groups.items()))};\n".encode()
