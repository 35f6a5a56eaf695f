"""`bsd run` serves other machines only with API keys, or with an option that opens it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from tests.cli.conftest import Program
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon


@pytest.fixture
def bsd_toml(tmp_path: Path) -> Path:
    path = tmp_path / "bsd.toml"
    path.touch()
    return path


@pytest.fixture
def program(root: Path, bsd_toml: Path) -> Program:
    return Program(root)


def listening_on(program: Program) -> list[str]:
    """The TCP addresses on which the API listens, from the log."""
    log = program.root / "logs" / "brainsurgeon.log"
    lines = log.read_text().splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["http"] for event in events if "http" in event]


def log_of(program: Program) -> str:
    log = program.root / "logs" / "brainsurgeon.log"
    return log.read_text() if log.exists() else ""


@contextmanager
def serving(program: Program, *arguments: str, **env: str) -> Iterator[tuple[Popen[str], int]]:
    """`bsd run`, and the port on which it listens."""
    with tempfile.TemporaryDirectory(prefix="bsd-test-") as place:
        env["BRAINSURGEON_SOCKET"] = f"{place}/bsd.sock"
        process = program.start(*arguments, **env)
        try:
            wait_for(
                lambda: process.poll() is not None or "bsd is ready" in log_of(program),
                "the daemon to be ready",
            )
            assert process.poll() is None, process.communicate()
            yield process, int(listening_on(program)[-1].rpartition(":")[2])
            process.terminate()
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()
            process.communicate()


def status_of(port: int, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", "/api/sessions", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("address", ["[::]:0", "[::ffff:0.0.0.0]:0"])
def test_without_a_key_an_address_that_others_reach_is_refused(
    program: Program, address: str
) -> None:
    before = sorted(program.root.rglob("*"))
    done = program("run", "--http", address)
    assert done.code == 78
    assert done.err.startswith("Error: without an API key, every computer that reaches ")
    assert "Try: set BRAINSURGEON_API_KEYS" in done.err
    assert "--open" in done.err
    assert sorted(program.root.rglob("*")) == before, "nothing has begun"


@pytest.mark.soak
@pytest.mark.parametrize("where", ["environment", "bsd.toml"])
def test_wherever_the_address_is_said(program: Program, bsd_toml: Path, where: str) -> None:
    bsd_toml.write_text('http = "0.0.0.0:0"\n' if where == "bsd.toml" else "")
    env = {"BRAINSURGEON_HTTP": "0.0.0.0:0"} if where == "environment" else {}
    done = program("--config", str(bsd_toml), "run", **env)
    assert done.code == 78
    assert "Try: set BRAINSURGEON_API_KEYS" in done.err
    looking = program("--config", str(bsd_toml), "sessions", **env)
    assert looking.code == 0, "only the daemon listens"


def test_an_empty_list_is_no_key(program: Program) -> None:
    env = {"BRAINSURGEON_API_KEYS": " , "}
    assert program("run", "--http", "0.0.0.0:0", **env).code == 78


def test_with_a_key_it_listens_and_asks_for_it(program: Program) -> None:
    with serving(program, "run", "--http", "0.0.0.0:0", BRAINSURGEON_API_KEYS="k1") as (_, port):
        assert status_of(port) == 401
        assert status_of(port, **{"X-API-Key": "k1"}) == 200


@pytest.mark.parametrize("address", ["127.0.0.2:0", "localhost:0"])
def test_this_machine_needs_no_key(program: Program, address: str) -> None:
    with serving(program, "run", "--http", address) as (_, _):
        assert "needs no key" in log_of(program)


@pytest.mark.parametrize("where", ["command line", "bsd.toml"])
def test_it_is_open_if_that_is_said(program: Program, bsd_toml: Path, where: str) -> None:
    bsd_toml.write_text("http_open = true\n" if where == "bsd.toml" else "")
    options = ["--open"] if where == "command line" else []
    arguments = ["--config", str(bsd_toml), "run", "--http", "0.0.0.0:0", *options]
    with serving(program, *arguments) as (_, port):
        assert status_of(port) == 200
        assert "needs no key" in log_of(program)


def test_settings_that_would_open_it_are_refused_while_it_runs(
    program: Program, bsd_toml: Path
) -> None:
    bsd_toml.write_text('api_keys = ["k1"]\nhttp = "0.0.0.0:0"\n')
    with serving(program, "--config", str(bsd_toml), "run") as (process, port):
        bsd_toml.write_text('http = "0.0.0.0:0"\n')
        os.kill(process.pid, signal.SIGHUP)
        wait_for(lambda: "Settings were read again" in log_of(program), "a look at the settings")
        refused = [line for line in log_of(program).splitlines() if "cannot be used" in line]
        assert len(refused) == 1
        assert "without an API key" in refused[0]
        assert status_of(port) == 401
        assert status_of(port, **{"X-API-Key": "k1"}) == 200
