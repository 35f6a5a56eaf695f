"""The API as a whole: real sockets, real requests, a thread that ends."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.core.errors import ConfigError, TemporaryFailure, Unavailable
from bsd.http.server import ApiServer
from tests.http.api import over_socket, over_tcp, serving, settings_for
from tests.http.fake_daemon import FakeDaemon, sample_job, sample_status
from tests.logs import capture_logs
from tests.needs import as_ordinary_user, require_program
from tests.refusing import raising
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon


@pytest.fixture
def root(short_path: Path) -> Path:
    root = short_path / "root"
    root.mkdir(mode=0o700)
    return root


def api_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name == "bsd-api" or "AnyIO" in name]


def wait_until_gone() -> None:
    wait_for(lambda: api_threads() == [], "threads to end")


def test_it_answers_on_the_socket(root: Path) -> None:
    with serving(root) as (server, settings):
        assert settings.socket == root / ".brainsurgeon" / "bsd.sock"
        assert over_socket(settings.socket, "/api/status") == (200, sample_status())
        assert over_socket(settings.socket, "/api/nope")[0] == 404
        assert server.alive
        assert server.addresses == []


def test_curl_reaches_it(root: Path) -> None:
    curl = require_program("curl")
    with serving(root) as (_, settings):
        done = subprocess.run(
            [curl, "-sf", "--unix-socket", str(settings.socket), "http://bsd/api/health"],
            check=True,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert '"status":"ok"' in done.stdout


def test_stopping_leaves_no_thread_and_no_socket(root: Path) -> None:
    with serving(root) as (server, settings):
        over_socket(settings.socket, "/api/status")  # starts a worker thread
        idle = UnixConnection(settings.socket)  # … and a connection that is kept open
        idle.request("GET", "/api/health")
        idle.getresponse().read()
        assert api_threads()
        assert server.stop()
        assert not server.alive
        wait_until_gone()
        assert not settings.socket.exists()
        assert server.stop(), "once more is no error"
        idle.close()
    with serving(root) as (_, settings):
        assert over_socket(settings.socket, "/api/health")[0] == 200


def test_a_request_that_is_under_way_gets_its_answer(root: Path) -> None:
    daemon = FakeDaemon(holding=threading.Event())
    answers: list[tuple[int, object]] = []
    with serving(root, daemon) as (server, settings):
        path = "/api/jobs/retention/run"
        caller = threading.Thread(
            target=lambda: answers.append(over_socket(settings.socket, path, "POST"))
        )
        caller.start()
        assert daemon.running.wait(DEADLINE_SECONDS)
        server.stop_listening()
        assert not settings.socket.exists()
        assert daemon.holding
        daemon.holding.set()
        assert server.join()
        caller.join(DEADLINE_SECONDS)
        wait_until_gone()
    assert answers == [(200, sample_job())]


def test_a_half_request_does_not_keep_it(root: Path) -> None:
    with (
        serving(root) as (server, settings),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as half,
    ):
        half.connect(str(settings.socket))
        half.sendall(b"POST /api/config HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert over_socket(settings.socket, "/api/health")[0] == 200
        assert server.stop()
        wait_until_gone()


def test_an_unforeseen_error_is_logged_and_tells_nothing_of_the_inside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        logging.getLogger("uvicorn.error"), "error", lambda text, **_: told.append(text)
    )
    daemon = FakeDaemon(failing=ZeroDivisionError("secret detail"))
    with capture_logs() as lines, serving(root, daemon) as (_, settings):
        status, answer = over_socket(settings.socket, "/api/status")
    assert (status, answer["error"]) == (500, "internal error: ZeroDivisionError")
    assert "secret" not in json.dumps(answer)
    assert [line["path"] for line in lines if line["event"] == "A request has failed"] == [
        "/api/status"
    ]
    assert [text.strip() for text in told] == ["Exception in ASGI application"], "the traceback"


def test_it_beats_while_it_runs_and_says_goodbye(root: Path) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon):
        assert "api" in daemon.beats._promised
    assert daemon.beats._promised == {}


def test_a_second_daemon_is_refused_and_the_first_goes_on(root: Path) -> None:
    with serving(root) as (_, settings):
        with pytest.raises(TemporaryFailure), serving(root):
            pass
        assert over_socket(settings.socket, "/api/health")[0] == 200


def test_signals_stay_with_the_main_thread(root: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with serving(root):
        during = {number: signal.getsignal(number) for number in before}
    assert during == before


# --- permissions ------------------------------------------------------------------------------

_STRANGER = """
import socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    client.connect(sys.argv[1])
except PermissionError:
    sys.exit("no permission")
answer = b""
try:
    while piece := client.recv(65536):
        answer += piece
except ConnectionError:
    pass
print(answer.decode())
"""


def as_another_user(path: Path) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    return subprocess.run(
        [*as_ordinary_user(), sys.executable, "-c", _STRANGER, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def test_another_user_cannot_even_connect(root: Path) -> None:
    with serving(root) as (_, settings):
        done = as_another_user(settings.socket)
    assert (done.returncode, done.stderr.strip()) == (1, "no permission")


@pytest.fixture
def reachable_root() -> Iterator[Path]:
    """A root that other users can reach: pytest's own directories are closed to them."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        root.mkdir(mode=0o700)
        yield root


def test_another_user_who_gets_in_is_refused(reachable_root: Path) -> None:
    with capture_logs() as lines, serving(reachable_root) as (_, settings):
        for directory in [settings.socket, *settings.socket.parents]:
            if directory.is_relative_to(reachable_root.parent):
                directory.chmod(0o777)  # a user has opened the directory to everyone
        done = as_another_user(settings.socket)
        assert over_socket(settings.socket, "/api/health")[0] == 200
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HTTP/1.1 403 ")
    assert "this socket belongs to the daemon of another user" in done.stdout
    assert "totals" not in done.stdout
    refused = [line for line in lines if line["event"].startswith("A connection of another user")]
    assert [line["uid"] for line in refused] == [65534]


def answer_to_stranger(path: Path) -> bytes:
    """Return the socket's answer; it may be closed before any request was sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(DEADLINE_SECONDS)
        client.connect(str(path))
        answer = b""
        with suppress(ConnectionError):
            while piece := client.recv(65536):
                answer += piece
        return answer


def test_a_user_that_is_not_trusted_is_told_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(root) as (server, settings):
        with monkeypatch.context() as patch:
            patch.setattr("bsd.http.sockets.may_talk_to_us", lambda uid: uid != os.geteuid())
            head, _, body = answer_to_stranger(settings.socket).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 ")
        assert json.loads(body)["error"] == "this socket belongs to the daemon of another user"
        assert server.alive
        assert over_socket(settings.socket, "/api/health")[0] == 200, "others are let in again"


@pytest.mark.skipif(sys.platform != "linux", reason="another system is asked in another way")
def test_a_user_that_the_system_does_not_tell_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(root) as (_, settings), monkeypatch.context() as patch:
        problem = OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        patch.setattr("bsd.http.sockets.peer_uid", raising(problem))
        assert answer_to_stranger(settings.socket).startswith(b"HTTP/1.1 403 ")


# --- TCP --------------------------------------------------------------------------------------


def test_without_being_asked_nothing_listens_on_tcp(root: Path) -> None:
    with serving(root) as (server, _):
        assert server.addresses == []


def test_tcp_without_keys_is_open_and_the_log_warns(root: Path) -> None:
    with capture_logs() as lines, serving(root, BRAINSURGEON_HTTP="127.0.0.1:0") as (server, _):
        assert over_tcp(server, "/api/status") == (200, sample_status())
        assert over_tcp(server, "/api/status", Host="evil.example")[0] == 403
        assert over_tcp(server, "/api/status", Origin="http://evil.example")[0] == 403
    warnings = [line["event"] for line in lines if line["log_level"] == "warn"]
    assert any("needs no key" in text for text in warnings)


def test_tcp_with_keys_asks_for_one_and_the_socket_does_not(root: Path) -> None:
    environ = {"BRAINSURGEON_HTTP": "127.0.0.1:0", "BRAINSURGEON_API_KEYS": "k1, k2"}
    with capture_logs() as lines, serving(root, None, **environ) as (server, settings):
        assert over_tcp(server, "/api/status")[0] == 401
        assert over_tcp(server, "/api/status", X_API_Key="k3")[0] == 403
        assert over_tcp(server, "/api/status", X_API_Key="k2")[0] == 200
        assert over_tcp(server, "/api/health")[0] == 200
        assert over_tcp(server, "/api/config")[0] == 200
        body = b'{"keep_recent":7}'
        assert over_tcp(server, "/api/config", "POST", body)[0] == 401
        assert over_tcp(server, "/api/config", "POST", body, X_API_Key="k1")[0] == 200
        assert over_socket(settings.socket, "/api/status")[0] == 200
    assert not [line for line in lines if "needs no key" in line["event"]]
    [changed] = [line for line in lines if line["event"] == "Config changed"]
    assert changed["actor"] == hashlib.sha256(b"k1").hexdigest()[:8]


def test_another_page_may_ask_if_it_is_named(root: Path) -> None:
    environ = {
        "BRAINSURGEON_HTTP": "127.0.0.1:0",
        "BRAINSURGEON_API_KEYS": "k1",
        "BRAINSURGEON_CORS_ORIGINS": "https://bs.example.com",
    }
    with serving(root, None, **environ) as (server, _):
        address = server.addresses[0]
        asking = http.client.HTTPConnection(address.host, address.port, timeout=DEADLINE_SECONDS)
        headers = {
            "Origin": "https://bs.example.com",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-api-key,content-type",
        }
        asking.request("OPTIONS", "/api/config", headers=headers)
        answer = asking.getresponse()
        answer.read()
        assert answer.status == 200
        assert answer.getheader("Access-Control-Allow-Origin") == "https://bs.example.com"
        asking.request("GET", "/api/status", headers={"Origin": "https://bs.example.com"})
        refused = asking.getresponse()
        refused.read()
        assert refused.status == 401
        assert refused.getheader("Access-Control-Allow-Origin") == "https://bs.example.com"
        asking.close()


def test_a_port_in_use_is_named_and_the_socket_is_taken_back(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = settings_for(root, BRAINSURGEON_HTTP=f"127.0.0.1:{port}")
        server = ApiServer(lambda *_: None, settings)  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}") as refused:
            server.start()
    assert refused.value.hint
    assert not settings.socket.exists()
    assert api_threads() == []


def test_an_address_of_another_machine_is_a_wrong_setting(root: Path) -> None:
    settings = settings_for(root, BRAINSURGEON_HTTP="192.0.2.1:8000")
    with pytest.raises(ConfigError):
        ApiServer(lambda *_: None, settings).start()  # type: ignore[arg-type]
    assert not settings.socket.exists()
