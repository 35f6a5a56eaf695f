"""Claude Code's hooks beside a real daemon: the script, the route, and the session afterwards."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.filesystem import strength
from bsd.setup.claude_hook import _REQUEST
from tests.daemon.running import Running, configure, running
from tests.needs import require_linux
from tests.setup.patient_hook import patient
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

OTHER = "00000000-0000-4000-8000-000000000001"
THIRD = "00000000-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Home]]:
    """A daemon that looks at sessions an hour after they were written to, or at the next scan."""
    require_linux()
    top = tmp_path_factory.mktemp("hooks")
    if strength(top).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    home = Home.of(CLAUDE_CODE, top, claude_code_lines())
    for name in (OTHER, THIRD):
        home.path.with_name(f"{name}.jsonl").write_bytes(home.path.read_bytes())
    os.utime(home.path)
    settings = top / "config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home.source}"\n')
    root = top / "root"
    configure(root, keep_recent=0, scan_interval_seconds=3600)
    config = str(top / "config")
    with running(root, top, XDG_CONFIG_HOME=config, BRAINSURGEON_QUIET_SECONDS="3600") as daemon:
        yield daemon, home


def hook(daemon: Running, script: Path, path: Path, **said: Any) -> str:
    """Run the script as Claude Code does; return its output."""
    command = [sys.executable, "-I", "-S", str(script), "--socket", str(daemon.socket)]
    done = subprocess.run(
        command,
        check=False,
        input=json.dumps({"session_id": path.stem, "transcript_path": str(path), **said}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_session_that_is_idle_is_lean_soon_and_its_model_is_told(
    world: tuple[Running, Home], tmp_path: Path
) -> None:
    daemon, home = world
    script = patient(tmp_path / "hook.py", 60.0)
    assert hook(daemon, script, home.path, hook_event_name="Stop") == ""

    def is_lean() -> bool:
        daemon.must_run()
        return b"[[extracted-" in home.path.read_bytes()

    wait_for(is_lean, "the session to be extracted")
    other = home.path.with_name(f"{OTHER}.jsonl")
    assert b"[[extracted-" not in other.read_bytes(), "no hook has said that it is idle"

    def told() -> str:
        return hook(daemon, script, home.path, hook_event_name="SessionStart", source="resume")

    answer = json.loads(wait_for(told, "the daemon to count what is out"))
    assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert "[[extracted-ID]]" in answer["hookSpecificOutput"]["additionalContext"]
    started = {"hook_event_name": "SessionStart", "source": "startup"}
    assert hook(daemon, script, home.path, **started) == ""
    resumed = {"hook_event_name": "SessionStart", "source": "resume"}
    assert hook(daemon, script, other, **resumed) == ""
    assert hook(daemon, script, Path("/etc/passwd"), **resumed) == ""


def test_a_hook_that_does_not_wait_for_the_answer_is_heard(world: tuple[Running, Home]) -> None:
    daemon, home = world
    path = home.path.with_name(f"{THIRD}.jsonl")
    said = json.dumps({"hook_event_name": "SessionEnd", "transcript_path": str(path)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(daemon.socket))
        connection.sendall(_REQUEST % (len(said), said))
    wait_for(lambda: b"[[extracted-" in path.read_bytes(), "the session to be extracted")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("claude-code", b"{", 400),
        ("claude-code", b"[]", 400),
        ("claude-code", b"{}", 204),
        ("claude-code", b'{"hook_event_name": 7, "transcript_path": {}}', 204),
        ("claude-code", b'{"x": "' + b"x" * (1 << 20) + b'"}', 413),
        ("nonsense", b"{}", 404),
        ("..", b"{}", 400),
    ],
)
def test_what_is_no_hook_is_refused(
    world: tuple[Running, Home], path: str, body: bytes, status: int
) -> None:
    daemon, _ = world
    connection: http.client.HTTPConnection = UnixConnection(daemon.socket)
    try:
        connection.request("POST", f"/api/hooks/{path}", body)
        answer = connection.getresponse()
        assert answer.status == status
        assert bool(answer.read()) == (status != 204)
    finally:
        connection.close()
