"""Serves the API on a Unix socket, and on TCP if asked to, in a thread with its own event loop.

From the first moment on it says how the daemon is; all other routes are loaded behind that, which
takes longer than everything else that a start needs.

Of uvicorn's server only the main loop is replaced, which wakes the process ten times a second to
see whether it shall stop: an end that is awaited was asked for in Kludex/uvicorn issue 742 and pull
request 1497, both closed without it, and request 2625 finds the same clock there in 2025.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import Server

from bsd.core.errors import Unavailable
from bsd.core.locations import find_socket
from bsd.core.settings import HttpAddress, Settings
from bsd.daemon.status import Service
from bsd.http.answer import LARGEST_HEAD, STOPPING, JsonAnswer, error_document, in_thread
from bsd.http.connection import BoundedProtocol, Door, LocalProtocol
from bsd.http.middleware import ErrorBoundary, KeyGuard, OriginGuard, host_of
from bsd.http.sockets import LocalSocket, open_local_socket, open_tcp_sockets

# --- how the daemon is, from the first moment on ---


_NAME = "routes"
_LOAD_SECONDS = 300.0  # on the slowest machine
_NOT_LOADED = JsonAnswer(
    error_document("the API could not be loaded", "the details are in the log"),
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def health(daemon: Service) -> Response:
    """Whether all is well. 503 before the start is complete and while it stops."""
    told = daemon.health()
    ready = told["status"] in {"ok", "degraded"}
    return JsonAnswer(told, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


def status(daemon: Service) -> Response:
    """Everything."""
    return Response(daemon.status_json(), media_type=JsonAnswer.media_type)


class Early:
    """The application while it is being loaded, and afterwards."""

    def __init__(self, daemon: Service, make: Callable[[], ASGIApp]) -> None:
        self._daemon = daemon
        self._make = make
        self._routes: Future[ASGIApp] = Future()
        # The routes of these names do the same; so it does not matter who answers.
        self._at_once: Mapping[str, Callable[[], Response]] = {
            "/api/health": lambda: health(daemon),
            "/api/status": lambda: status(daemon),
        }

    def load(self) -> None:
        """Load the routes, in a thread of their own; whoever asks for them waits until then."""
        # If that fails or hangs, nothing ends this beat: then the daemon is not well, and says so.
        self._daemon.beat(_NAME, _LOAD_SECONDS)
        threading.Thread(target=self._load, name=f"bsd-{_NAME}").start()

    def _load(self) -> None:
        try:
            self._routes.set_result(self._make())
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of any
            _log.exception("The routes of the API cannot be loaded")
            self._routes.set_exception(error)
            return
        self._daemon.end_beat(_NAME)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            answer = await self._answer_at_once(scope["path"])
            if answer is not None:
                await answer(scope, receive, send)
                return
        if not self._routes.done():
            await self._until_loaded()
        app = _NOT_LOADED if self._routes.exception() else self._routes.result()
        await app(scope, receive, send)

    async def _until_loaded(self) -> None:
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(loaded.set)

        self._routes.add_done_callback(tell)
        await loaded.wait()

    async def _answer_at_once(self, path: str) -> Response | None:
        look = self._at_once.get(path)
        # What fails here fails in the routes as well, and there it is told as all that fails.
        with suppress(Exception):
            return None if look is None else await in_thread(look)
        return None


# --- the server ---


_log = structlog.stdlib.get_logger(module="api")

LOOP_NAME = "api"
_START_SECONDS = 10.0
_STOP_SECONDS = 3.0
_GRACE_SECONDS = 0.5  # for requests that are under way when it stops
_BEAT_SECONDS = 60.0
_BACKLOG = 128  # who may wait to be let in
_AT_ONCE = 64  # who is let in, before it is looked at what they say


class ApiServer:
    """Listens from `start` to `stop`; idle, it wakes once a minute, to say that it is alive."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        daemon: Service | None = None,
        doors: Callable[[str], Door] = Door,
    ) -> None:
        self._app = app
        self._doors = doors
        self._settings = settings
        self._daemon = daemon
        self._local: LocalSocket | None = None
        # Where it listens on TCP; a port that was given as 0 is the real one here.
        self.addresses: list[HttpAddress] = []
        self._running: _Running | None = None

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.thread.is_alive()

    def start(self) -> None:
        """Listen and serve; returns when the first request may come.

        Raises TemporaryFailure if another bsd has the socket, ConfigError, Forbidden, Unavailable.
        """
        settings = self._settings
        ours = settings.socket == find_socket(settings.root, os.environ)
        self._local = open_local_socket(settings.socket, tighten=ours)
        door = self._doors("socket")
        listeners = [_Listener(self._local.socket, self._for_local_users(), LocalProtocol, door)]
        try:
            if settings.http:
                tcp = self._for_the_network(settings.http)
                sockets = open_tcp_sockets(settings.http, settings)
                door = self._doors("http")  # one, however many addresses a name has
                listeners += [_Listener(one, tcp, BoundedProtocol, door) for one in sockets]
                self.addresses = [HttpAddress(*one.getsockname()[:2]) for one in sockets]
            self._running = _Running(listeners, self._daemon)
            self._running.start()
        except BaseException:  # whatever it was: nobody may find a socket that does not answer
            self.stop()
            for listener in listeners:
                listener.socket.close()
            raise
        self._tell()

    def stop(self) -> bool:
        """Stop listening and end the thread within a second; whether it has ended."""
        local, self._local = self._local, None
        if local is not None:
            local.remove()  # still open: so nobody is refused meanwhile, and the inode is ours
        running, self._running = self._running, None
        self.addresses = []
        return running is None or running.stop()

    def _for_local_users(self) -> ASGIApp:
        settings = self._settings
        app = KeyGuard(self._app, settings.api_keys, required=False)  # the socket's mode is a key
        # Origin even here: a web server in front may pass requests of browsers on.
        return ErrorBoundary(OriginGuard(app, hosts=None, origins=settings.cors_origins))

    def _for_the_network(self, address: HttpAddress) -> ASGIApp:
        settings = self._settings
        origins = settings.cors_origins
        app: ASGIApp = KeyGuard(self._app, settings.api_keys)
        if origins:
            from starlette.middleware.cors import CORSMiddleware  # noqa: PLC0415 - seldom wanted

            app = CORSMiddleware(
                app,
                allow_origins=origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["Content-Type", "X-API-Key"],
            )
        hosts = [address.host, *map(host_of, origins)]
        return ErrorBoundary(OriginGuard(app, hosts=hosts, origins=origins))

    def _tell(self) -> None:
        _log.info("The API listens", socket=str(self._settings.socket))
        for address in self.addresses:
            _log.info("The API listens", http=str(address))
        if self.addresses and not self._settings.api_keys:
            _log.warning(
                "The API on TCP is open to whoever reaches it: BRAINSURGEON_API_KEYS is not set"
            )


@dataclass(frozen=True, slots=True)
class _Listener:
    socket: socket.socket
    app: ASGIApp
    protocol: type[BoundedProtocol]
    door: Door


class _Server(Server):
    """uvicorn's server without its clock, which would wake the process ten times a second."""

    def __init__(self, config: Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping
        self.ready = asyncio.Event()

    async def main_loop(self) -> None:
        self.ready.set()
        await self._stopping.wait()


class _Running:
    """The thread, its loop, and the servers in it."""

    def __init__(self, listeners: list[_Listener], daemon: Service | None) -> None:
        self._listeners = listeners
        self._daemon = daemon
        self._ready: Future[Callable[[], None]] = Future()
        self.thread = threading.Thread(target=self._run, name="bsd-api")

    def start(self) -> None:
        self.thread.start()
        try:
            self._ready.result(_START_SECONDS)
        except Exception as error:  # whatever it was: the start has failed
            raise Unavailable(
                f"the API could not be started: {error}", hint="the details are in the log"
            ) from error

    def stop(self) -> bool:
        if not self.thread.is_alive():
            return True
        # A loop that has ended meanwhile cannot be told.
        with suppress(RuntimeError, TimeoutError):
            self._ready.result(_STOP_SECONDS)()
        self.thread.join(_STOP_SECONDS)
        return not self.thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - it must be told to whoever waits, or logged
            _log.exception("The API has ended")  # and it beats no more: the watchdog will see that
            if not self._ready.done():
                self._ready.set_exception(error)
        else:
            if self._daemon:
                self._daemon.end_beat(LOOP_NAME)

    async def _serve(self) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for listener in self._listeners:
                app = _tell_of_stop(listener.app, stopping)
                server = _Server(_uvicorn_config(listener, app), stopping)
                group.create_task(server.serve(sockets=[listener.socket]))
                await server.ready.wait()
                listener.socket.listen(_BACKLOG)  # asyncio makes one of the two numbers
            self._beat(loop)
            self._ready.set_result(lambda: _tell_loop(loop, stopping))

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._daemon:
            self._daemon.beat(LOOP_NAME, _BEAT_SECONDS)
            loop.call_later(_BEAT_SECONDS, self._beat, loop)


def _tell_loop(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    loop.call_soon_threadsafe(stopping.set)


def _tell_of_stop(app: ASGIApp, stopping: asyncio.Event) -> ASGIApp:
    """Let requests that would last for ever know when the server stops."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})[STOPPING] = stopping
        await app(scope, receive, send)

    return told


def _uvicorn_config(listener: _Listener, app: ASGIApp) -> Config:
    config = Config(
        app,
        http=partial(listener.protocol, listener.door),  # type: ignore[arg-type] # it is only called
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # its warnings and errors reach our log as those of all libraries do
        access_log=False,
        proxy_headers=False,  # nothing here depends on where a request comes from
        server_header=False,
        date_header=False,  # Edge does that
        backlog=min(_AT_ONCE, listener.door.most // 2),
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    # asyncio takes a fraction; Config's signature does not say so.
    config.timeout_graceful_shutdown = _GRACE_SECONDS  # type: ignore[assignment]
    return config
