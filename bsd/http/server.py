"""Serves the API on a Unix socket, and on TCP if configured, in a thread with its own event loop.

Each listener has its own server object, because the limit on connections applies to TCP only.
`bsd status` gets its answer on the Unix socket even if TCP has reached its limit.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time

import structlog
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp
from uvicorn import Config, Server

from bsd.core.errors import Unavailable
from bsd.core.locations import find_socket
from bsd.core.settings import HttpAddress, Settings
from bsd.daemon.loops import Beats
from bsd.http.middleware import AccessMiddleware, host_of
from bsd.http.sockets import LocalSocket, open_local_socket, open_tcp_sockets

_log = structlog.stdlib.get_logger(module="api")

LOOP_NAME = "api"
MOST_CONNECTIONS = 128  # on TCP; further clients get 503
_LARGEST_HEAD = 16 * 1024  # bytes, of a request
_BEAT_SECONDS = 60.0
_GRACE_SECONDS = 1  # for requests in progress when the server stops
_START_SECONDS = 10.0
_STOP_SECONDS = 3.0
_MOST_FILES = 1 << 16


class ApiServer:
    """The API server; listens from `start` to `stop`."""

    def __init__(self, app: ASGIApp, settings: Settings, beats: Beats | None = None) -> None:
        self._app = app
        self._settings = settings
        self._beats = beats
        self._local: LocalSocket | None = None
        self._servers: list[tuple[Server, list[socket.socket]]] = []
        self._thread: threading.Thread | None = None
        # The TCP addresses on which it listens; a configured port 0 is the real port here.
        self.addresses: list[HttpAddress] = []

    @property
    def alive(self) -> bool:
        """True while the server's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def page(self) -> str | None:
        """The URL of the page; None if the server does not listen on TCP."""
        if not self.addresses:
            return None
        host, port = self.addresses[0]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - all of them
        return f"http://{HttpAddress(host, port)}/"

    def start(self) -> None:
        """Listen and serve; returns when the server accepts requests.

        Raises:
            TemporaryFailure: another bsd listens on the socket.
            ConfigError, Forbidden, Unavailable: the server cannot listen at the address.
        """
        settings = self._settings
        ours = settings.socket == find_socket(settings.root, os.environ)
        self._local = open_local_socket(settings.socket, tighten=ours)
        self._servers = [(Server(self._local_config()), [self._local.socket])]
        try:
            if settings.http:
                sockets = open_tcp_sockets(settings.http, settings)
                self._servers.append((Server(self._tcp_config(settings.http)), sockets))
                self.addresses = [HttpAddress(*one.getsockname()[:2]) for one in sockets]
            _allow_many_files()
            self._thread = threading.Thread(target=self._run, name="bsd-api")
            self._thread.start()
            self._wait_until_started()
        except BaseException:  # also an interrupt must not leave sockets without a server
            sockets = [one for _, some in self._servers for one in some]
            self.stop()
            for one in sockets:
                one.close()
            raise
        self._log_start()

    def stop(self) -> bool:
        """Stop listening and end the thread; returns False if the thread still runs after 3 s."""
        self.stop_listening()
        return self.join()

    def stop_listening(self) -> None:
        """Begin to stop: accept no further requests."""
        local, self._local = self._local, None
        if local is not None:
            local.remove()  # the socket is still open, so the inode cannot be another file's yet
        for server, _ in self._servers:
            server.should_exit = True
        self._servers, self.addresses = [], []

    def join(self) -> bool:
        """Wait up to 3 s for requests in progress; returns False if they take longer."""
        thread = self._thread
        if thread is None or thread.ident is None:
            return True
        thread.join(_STOP_SECONDS)
        return not thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # noqa: BLE001 - any error must be logged
            _log.exception("The API has ended")  # its heartbeat stops; the watchdog notices
        else:
            if self._beats:
                self._beats.end(LOOP_NAME)

    async def _serve(self) -> None:
        await asyncio.gather(*(server.serve(sockets) for server, sockets in self._servers))

    async def _beat(self) -> None:
        if self._beats:
            self._beats.beat(LOOP_NAME, _BEAT_SECONDS)

    def _wait_until_started(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not all(server.started for server, _ in self._servers):
            if not self.alive or time.monotonic() > deadline:
                text = "the API could not be started"
                raise Unavailable(text, hint="the details are in the log")
            time.sleep(0.005)

    def _local_config(self) -> Config:
        settings = self._settings
        app = AccessMiddleware(
            self._app,
            keys=settings.api_keys,
            keys_required=False,  # the socket's mode 0600 takes the place of a key
            # Also here: a reverse proxy may forward requests of browsers to the socket.
            origins=settings.cors_origins,
            readonly=settings.readonly,
        )
        return self._config(app)

    def _tcp_config(self, address: HttpAddress) -> Config:
        settings = self._settings
        app: ASGIApp = AccessMiddleware(
            self._app,
            keys=settings.api_keys,
            hosts=[address.host, *map(host_of, settings.cors_origins)],
            origins=settings.cors_origins,
            readonly=settings.readonly,
        )
        if settings.cors_origins:
            app = CORSMiddleware(
                app,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["Content-Type", "X-API-Key"],
            )
        return self._config(app, most_connections=MOST_CONNECTIONS)

    def _config(self, app: ASGIApp, most_connections: int | None = None) -> Config:
        return Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,  # warnings and errors reach our log through the standard library
            access_log=False,
            proxy_headers=False,  # no code here depends on the client's address
            server_header=False,
            limit_concurrency=most_connections,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            callback_notify=self._beat,
            timeout_notify=int(_BEAT_SECONDS) // 2,
            h11_max_incomplete_event_size=_LARGEST_HEAD,
        )

    def _log_start(self) -> None:
        _log.info("The API listens", socket=str(self._settings.socket))
        for address in self.addresses:
            _log.info("The API listens", http=str(address))
        if self.addresses and not self._settings.api_keys:
            _log.warning("The API on TCP needs no key, since BRAINSURGEON_API_KEYS is not set")


def _allow_many_files() -> None:
    """Raise the soft limit of open files, so that idle connections do not use all descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
