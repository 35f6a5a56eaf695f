"""`bsd status` and `bsd jobs`, against a real socket."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bsd.cli import status as status_command
from bsd.cli.client import Client
from bsd.cli.main import run
from bsd.core.errors import Forbidden, Unavailable
from tests.http.api import serving
from tests.http.fake_daemon import FakeDaemon, FakeScheduler, sample_job, sample_status
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.daemon


@pytest.fixture
def root(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = short_path / "root"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("OPENCLAW_ROOT", str(root))
    return root


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A socket that gives any answer, to one caller."""
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                with suppress(ConnectionResetError):
                    connection.recv(65_536)
                with suppress(BrokenPipeError):  # the caller may have gone
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(DEADLINE_SECONDS)


def socket_of(root: Path) -> Path:
    return root / ".brainsurgeon" / "bsd.sock"


# --- status -----------------------------------------------------------------------------------


def test_status_is_told_to_people(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(root):
        assert run(["status"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("bsd 0.2.0 is running: process 4711, up 1 d 2 h\n")
    assert "117.7 MB" in shown


def test_status_is_told_to_programs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(root):
        assert run(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == sample_status()


@pytest.mark.parametrize("left", ["nothing", "a stale socket"])
@pytest.mark.parametrize(
    "line", [["status"], ["status", "--watch"], ["jobs"], ["jobs", "run", "x"]]
)
def test_without_a_daemon_it_says_how_to_start_one(
    root: Path, left: str, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if left == "a stale socket":
        socket_of(root).parent.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(socket_of(root)))
    assert run(line) == 3
    assert capsys.readouterr().err == "Error: the daemon is not running\nTry: `bsd run` starts it\n"


def test_without_a_daemon_programs_get_a_document(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["hint"] == "`bsd run` starts it"


def test_watching_goes_on_while_the_daemon_restarts(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Enough(Exception):
        pass

    waits: list[float] = []
    daemon = FakeDaemon()
    with serving(root, daemon) as (server, _):

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            match len(waits):
                case 1:
                    daemon.document["totals"]["sessions"] = 4321
                case 2:
                    server.stop()
                case 3:
                    server.start()
                case _:
                    raise Enough

        with pytest.raises(Enough):
            status_command._watch(Client(socket_of(root)), 2.0, as_json=False, sleep=sleep)
    shown = capsys.readouterr().out.split("\n\n")
    pages = [page for page in shown if "bsd 0.2.0 is running" in page or "not running" in page]
    assert "1,234 sessions" in pages[0]
    assert "4,321 sessions" in pages[1]
    assert pages[2].strip() == "the daemon is not running (try: `bsd run` starts it)"
    assert "4,321 sessions" in pages[3]
    assert waits == [2.0] * 4


def test_watching_as_json_is_a_line_each_time(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(root), pytest.raises(KeyboardInterrupt):
        status_command._watch(
            Client(socket_of(root)), 1.0, as_json=True, sleep=raising(KeyboardInterrupt)
        )
    assert json.loads(capsys.readouterr().out) == sample_status()


# --- which daemon -----------------------------------------------------------------------------


def test_the_socket_is_where_the_settings_say(
    root: Path,
    short_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = short_path / "other"
    other.mkdir(mode=0o700)
    file = short_path / "bsd.toml"
    file.write_text(f'socket = "{socket_of(other)}"\n')
    with serving(other):
        assert run(["status"]) == 3
        assert run(["status", "--root", str(other)]) == 0
        assert run(["--config", str(file), "status"]) == 0
        monkeypatch.setenv("BRAINSURGEON_SOCKET", str(socket_of(other)))
        assert run(["status"]) == 0
    assert capsys.readouterr().out.count("bsd 0.2.0 is running") == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
    ],
)
def test_half_an_answer_is_none(root: Path, answer: bytes) -> None:
    path = socket_of(root)
    with answering(path, answer), pytest.raises(Unavailable, match="broke off"):
        Client(path).get("/api/status")


def test_a_socket_of_another_user_is_not_believed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.cli.client.may_be_believed", lambda uid: uid != os.geteuid())
    path = socket_of(root)
    refused = pytest.raises(Forbidden, match=f"belongs to user {os.geteuid()}")
    with answering(path, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), refused:
        Client(path).get("/api/status")


# --- jobs -------------------------------------------------------------------------------------


def test_jobs_are_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(root):
        assert run(["jobs"]) == 0
        head, auto, retention = capsys.readouterr().out.splitlines()
        assert run(["jobs", "--json"]) == 0
    assert head.split() == ["JOB", "SCHEDULE", "LAST", "RUN", "NEXT", "RUN", "RESULT"]
    assert auto.split() == ["auto", "when", "asked", *["not", "since", "the", "start"]]
    assert retention.startswith("retention  0 */6 * * *  ")
    document = json.loads(capsys.readouterr().out)
    assert document["jobs"][1] == sample_job()


def failing(name: str) -> dict[str, Any]:
    result = {"ok": False, "error": "disk full", "seconds": 1.0}
    return {**sample_job(name), "last_result": result}


def test_a_job_is_run(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = FakeDaemon()
    with serving(root, daemon):
        assert run(["jobs", "run", "retention"]) == 0
        assert capsys.readouterr().out == "retention is done, in 0.2 s\n"
        assert daemon.ran == ["retention"]
        assert run(["jobs", "run", "retention", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == sample_job()
        assert run(["jobs", "run", "../nope x"]) == 1
        assert capsys.readouterr().err.startswith("Error: there is no ")
        monkeypatch.setattr(FakeScheduler, "status_of", lambda _, name: failing(name))
        assert run(["jobs", "run", "retention"]) == 1
        assert capsys.readouterr().out == "retention failed: disk full\n"


def test_a_read_only_daemon_runs_no_job(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(root, None, BRAINSURGEON_READONLY="true"):
        assert run(["jobs", "run", "retention"]) == 1
    assert "Server is in read-only mode" in capsys.readouterr().err
