"""Idle connections in crowds, requests that break off, and requests that are no HTTP."""

from __future__ import annotations

import http.client
import json
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from bsd.http.server import MOST_CONNECTIONS
from tests.daemon.running import configure, running
from tests.http.api import over_socket, over_tcp, serving
from tests.logs import capture_logs
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

HEALTH = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def many_files() -> None:
    """Let this process open several thousand files: the clients run in it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("needs to open 4096 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_connections_leave_the_socket_and_the_work_alone(
    root: Path, tmp_path: Path
) -> None:
    configure(root)
    with ExitStack() as clients:
        daemon = clients.enter_context(running(root, tmp_path, BRAINSURGEON_HTTP="127.0.0.1:0"))
        listening = next(event["http"] for event in daemon.events() if "http" in event)
        host, _, port = listening.rpartition(":")
        for number in range(1000):
            tcp = socket.create_connection((host, int(port)), DEADLINE_SECONDS)
            clients.enter_context(tcp).sendall(HEALTH[: number % len(HEALTH)])
        session = add_session(root, "main/one", sample(12, 1))
        wait_for(lambda: b"[[extracted-" in session.read_bytes(), "the session to be extracted")
        assert daemon.ask("health")["status"] == "ok"
        assert daemon.bsd("status").returncode == 0
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as late:
            late.sendall(HEALTH + b"\r\n")
            assert late.recv(65536).startswith(b"HTTP/1.1 503 ")
        assert not daemon.said("out of system resource")


@pytest.mark.usefixtures("many_files")
def test_the_limit_is_for_tcp_only(root: Path) -> None:
    with (
        serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, settings),
        ExitStack() as clients,
    ):
        for _ in range(MOST_CONNECTIONS + 10):
            local = clients.enter_context(socket.socket(socket.AF_UNIX))
            local.connect(str(settings.socket))
        assert over_socket(settings.socket, "/api/health")[0] == 200
        assert over_tcp(server, "/api/health")[0] == 200


def test_what_is_no_http_is_told_so(root: Path) -> None:
    with (
        serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        socket.create_connection(server.addresses[0], DEADLINE_SECONDS) as client,
    ):
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_hundred_megabytes_are_refused(root: Path, *, chunked: bool) -> None:
    how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 104857600"
    piece = b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20)) if chunked else bytes(1 << 20)
    with (
        serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
        socket.create_connection(server.addresses[0], DEADLINE_SECONDS) as client,
    ):
        client.sendall(b"POST /api/config HTTP/1.1\r\nHost: localhost\r\n" + how + b"\r\n\r\n")
        client.sendall(2 * piece)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 413
        assert json.loads(answer.read())["error"] == "the body is larger than 1048576 bytes"


def test_a_body_that_is_broken_off_is_no_error(root: Path) -> None:
    with (
        capture_logs() as lines,
        serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
    ):
        with socket.create_connection(server.addresses[0], DEADLINE_SECONDS) as client:
            client.sendall(b"POST /api/config HTTP/1.1\r\nHost: localhost\r\n")
            client.sendall(b"Content-Length: 10\r\n\r\n{")
        assert over_tcp(server, "/api/health")[0] == 200
    assert not [line for line in lines if line["log_level"] == "error"]
