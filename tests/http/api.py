"""A real server on a socket, and clients that send exactly the bytes of the test."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bsd.core.settings import Settings
from bsd.http.server import ApiServer
from bsd.sessions.idle import RetryBudget
from tests.http.fake_daemon import FakeDaemon, app_over
from tests.loading import load_settings
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS


def settings_for(root: Path, **environ: str) -> Settings:
    return load_settings(None, root, {"HOME": str(root), **environ})


@contextmanager
def serving(
    root: Path,
    daemon: FakeDaemon | None = None,
    budget: RetryBudget | None = None,
    /,
    **environ: str,
) -> Iterator[tuple[ApiServer, Settings]]:
    """An API over a fake daemon, listening as the environment requires."""
    daemon = daemon or FakeDaemon()
    settings = settings_for(root, **environ)
    budget = budget or RetryBudget(wait=5.0, quiet=0.1)
    app = app_over(root, daemon, budget)
    server = ApiServer(app, settings, daemon.beats)
    server.start()
    try:
        yield server, settings
    finally:
        assert server.stop()


def request(
    connection: http.client.HTTPConnection,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, Any]:
    """Send a request; return the answer's status and document (or text)."""
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(content) if is_json else content.decode()


def over_socket(path: Path, *how: Any, **more: Any) -> tuple[int, Any]:
    return request(UnixConnection(path), *how, **more)


def over_tcp(server: ApiServer, *how: Any, **more: Any) -> tuple[int, Any]:
    address = server.addresses[0]
    connection = http.client.HTTPConnection(address.host, address.port, timeout=DEADLINE_SECONDS)
    return request(connection, *how, **more)
