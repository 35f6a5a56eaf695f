"""Clients that wait, trickle, do not read, or come in crowds: nobody else notices them."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from bsd.http.answer import LARGEST_HEAD, JsonAnswer
from bsd.http.connection import MOST_CONNECTIONS, Door, TimeLimits, places
from bsd.http.server import ApiServer
from tests.daemon.running import configure, running
from tests.http.api import over_socket, over_tcp, serving, settings_for
from tests.logs import capture_logs
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

_PATIENT = TimeLimits(DEADLINE_SECONDS, DEADLINE_SECONDS, DEADLINE_SECONDS)


class App:
    """Answers at once, when it is told to, or with more than anybody wants to have."""

    def __init__(self) -> None:
        self.working = 0
        self.ended: list[str] = []
        self._go_on = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """Let those go on who wait."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._go_on.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            match scope["path"]:
                case "/wait":
                    self.working += 1
                    await self._go_on.wait()
                case "/flood":
                    await self._flood(send)
                    return
                case "/read":
                    self.working += 1
                    while (message := await receive()).get("more_body"):
                        pass
                    if message["type"] == "http.disconnect":
                        return
            await JsonAnswer({"path": scope["path"]})(scope, receive, send)
        finally:
            self.ended.append(scope["path"])

    async def _flood(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100_000):
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})


class Scene:
    def __init__(self, server: ApiServer, app: App, path: Path) -> None:
        self.server, self.app, self.path = server, app, path
        self.clients = ExitStack()

    def connect(self, said: bytes = b"", *, tcp: bool = True) -> socket.socket:
        client = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.clients.enter_context(client)
        client.settimeout(DEADLINE_SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(tuple(self.server.addresses[0]) if tcp else str(self.path))
        client.sendall(said)
        return client


@contextmanager
def scene(root: Path, limits: TimeLimits, most: int = 8) -> Iterator[Scene]:
    settings = settings_for(root, BRAINSURGEON_HTTP="127.0.0.1:0")
    app = App()
    server = ApiServer(app, settings, doors=partial(Door, most=most, limits=limits))
    server.start()
    found = Scene(server, app, settings.socket)
    try:
        with found.clients:
            yield found
    finally:
        assert server.stop()


def whole_answer(client: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    answer = b""
    try:
        while piece := client.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    return answer


def says(client: socket.socket, text: bytes) -> bool:
    """Whether a text comes."""
    answer = b""
    while text not in answer and (piece := client.recv(65536)):
        answer += piece
    return text in answer


def head(path: str, method: str = "GET", **more: object) -> bytes:
    fields = {"Host": "localhost", **{key.replace("_", "-"): more[key] for key in more}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {fields[key]}" for key in fields)]
    return "\r\n".join([*lines, "", ""]).encode()


def trickle(client: socket.socket, what: bytes = b"x") -> None:
    """Send a byte from time to time until the server hangs up."""

    def gone() -> bool:
        client.setblocking(False)
        try:
            client.send(what)
            return client.recv(65536) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    wait_for(gone, "the server to hang up")


@pytest.mark.parametrize("tcp", [True, False])
def test_who_says_nothing_is_not_waited_for(root: Path, *, tcp: bool) -> None:
    with scene(root, TimeLimits(head=0.2)) as here:
        assert whole_answer(here.connect(tcp=tcp)) == b""


@pytest.mark.parametrize("before", [b"", head("/first")])
def test_a_head_that_trickles_has_its_time(root: Path, before: bytes) -> None:
    with scene(root, TimeLimits(head=0.5)) as here:
        trickle(here.connect(before + head("/")[:-2] + b"X-Long: "))


def test_a_body_that_trickles_is_answered_with_why(root: Path) -> None:
    with capture_logs() as lines, scene(root, TimeLimits(body=0.2)) as here:
        answer = whole_answer(here.connect(head("/read", "POST", Content_Length=10) + b"{"))
        wait_for(lambda: here.app.ended, "the application to hear of it")
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "the request took too long to arrive"
    }
    assert not [line for line in lines if line["log_level"] == "error"]


def test_a_body_that_nobody_wants_has_its_time_too(root: Path) -> None:
    with scene(root, TimeLimits(body=0.5)) as here:
        trickle(here.connect(head("/", Content_Length=1000)))


def test_a_body_that_is_broken_off_is_no_error(root: Path) -> None:
    with (
        capture_logs() as lines,
        serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _),
    ):
        with socket.create_connection(server.addresses[0], DEADLINE_SECONDS) as client:
            client.sendall(head("/api/config", "POST", Content_Length=10) + b"{")
        wait_for(
            lambda: any("hung up" in line["event"] for line in lines), "the daemon to notice it"
        )
    assert not [line for line in lines if line["log_level"] == "error"]


def test_who_does_not_read_is_not_waited_for(root: Path) -> None:
    with scene(root, TimeLimits(reading=0.2)) as here:
        here.connect(head("/flood"))
        wait_for(lambda: here.app.ended, "the answer to end")


def test_who_does_not_read_the_end_of_an_answer_is_not_waited_for(root: Path) -> None:
    """What the application has sent is in nobody's hands but ours."""
    with scene(root, TimeLimits(reading=0.2)) as here:
        client = here.connect(head("/flood", Connection="close"))
        wait_for(lambda: here.app.ended, "the answer to end")
        whole_answer(client)  # ends, as the server has hung up


def test_those_who_are_at_rest_make_way(root: Path) -> None:
    with scene(root, _PATIENT, most=8) as here:
        idle = [here.connect() for _ in range(20)]
        assert over_tcp(here.server, "/one") == (200, {"path": "/one"})
        assert [whole_answer(client) for client in idle[:12]] == [b""] * 12, "the first ones"


def test_bodies_that_trickle_make_way_after_those_who_say_nothing(root: Path) -> None:
    with scene(root, _PATIENT, most=4) as here:
        slow = [here.connect(head("/read", "POST", Content_Length=10) + b"{") for _ in range(4)]
        wait_for(lambda: here.app.working == 4, "all of them to be heard")
        idle = here.connect()
        assert over_tcp(here.server, "/one")[0] == 200
        assert whole_answer(idle) == b""
        assert over_tcp(here.server, "/two")[0] == 200
        for client in slow[1:]:  # one of them has made way for the idle one
            client.sendall(b"123456789")
            assert says(client, b'{"path":"/read"}')


def test_where_everybody_is_at_work_the_next_one_hears_so(root: Path) -> None:
    with capture_logs() as lines, scene(root, _PATIENT, most=4) as here:
        working = [here.connect(head("/wait")) for _ in range(4)]
        wait_for(lambda: here.app.working == 4, "all of them to be at work")
        answer = whole_answer(here.connect())
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"there are too many connections" in answer
        assert over_socket(here.path, "/one")[0] == 200, "the other door has places of its own"
        here.app.release()
        for client in working:
            assert says(client, b'{"path":"/wait"}')
    assert "There are too many connections" in [line["event"] for line in lines]


def test_those_who_are_refused_are_few_at_a_time(root: Path) -> None:
    with scene(root, _PATIENT, most=4) as here:
        for _ in range(4):
            here.connect(head("/wait"))
        wait_for(lambda: here.app.working == 4, "all of them to be at work")
        refused = [here.connect() for _ in range(50)]
        assert [whole_answer(client)[:12] for client in refused[-10:]] == [b"HTTP/1.1 503"] * 10
        here.app.release()


@pytest.mark.parametrize("tcp", [True, False])
def test_what_is_no_http_is_told_so(root: Path, *, tcp: bool) -> None:
    with scene(root, _PATIENT) as here:
        answer = whole_answer(here.connect(b"\x16\x03\x01 hello\r\n\r\n", tcp=tcp))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert "error" in json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("length", [LARGEST_HEAD, 400_000])
def test_a_head_that_is_too_large_is_refused(root: Path, length: int) -> None:
    with scene(root, _PATIENT) as here:
        small = here.connect(head("/", X_Long="x" * (LARGEST_HEAD // 2), Connection="close"))
        assert whole_answer(small).startswith(b"HTTP/1.1 200 OK\r\n")
        large = here.connect(head("/", X_Long="x" * length, Connection="close"))
        answer = whole_answer(large)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert str(LARGEST_HEAD) in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_chunks_that_are_none_are_refused(root: Path) -> None:
    with capture_logs() as lines, scene(root, _PATIENT) as here:
        client = here.connect(head("/read", "POST", Transfer_Encoding="chunked") + b"nonsense\r\n")
        assert whole_answer(client).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        wait_for(lambda: here.app.ended, "the application to hear of it")
    assert not [line for line in lines if line["log_level"] == "error"]


@pytest.mark.parametrize(
    ("files", "most"),
    [
        (20_000, MOST_CONNECTIONS),
        (1024, MOST_CONNECTIONS),
        (256, 32),
        (16, 4),
        (resource.RLIM_INFINITY, MOST_CONNECTIONS),
    ],
)
def test_places_leave_files_for_work(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert places() == most


def test_a_crowd_keeps_nobody_from_work(root: Path, tmp_path: Path) -> None:
    """With few descriptors: sessions are extracted, both doors answer, the log stays small."""
    configure(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    with ExitStack() as clients:
        try:
            daemon = clients.enter_context(running(root, tmp_path, BRAINSURGEON_HTTP="127.0.0.1:0"))
        finally:
            # The clients are here, and an ordinary user may have a thousand files open.
            most = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
            clients.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        listening = next(event["http"] for event in daemon.events() if "http" in event)
        host, _, port = listening.rpartition(":")
        for number in range(600):
            tcp = socket.create_connection((host, int(port)), DEADLINE_SECONDS)
            clients.enter_context(tcp).sendall(head("/api/events")[: number % 40])
            local = clients.enter_context(socket.socket(socket.AF_UNIX))
            local.connect(str(daemon.socket))  # waits to be let in
        session = add_session(root, "main/one", sample(12, 1))
        wait_for(lambda: b"[[extracted-" in session.read_bytes(), "the session to be extracted")
        assert daemon.bsd("status").returncode == 0
        assert len(daemon.log()) < 1_000_000
        assert not daemon.said("out of system resource")
