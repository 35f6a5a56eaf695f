"""A real `bsd run` in a process of its own, over a root of a test.

It is forked by a server that has loaded bsd (`tests/forked.py`), which saves most of its start.
`launch_fresh` starts it as a user does.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.answers import as_json
from bsd.core.layout import Layout
from bsd.maintenance.verify import verify
from tests import forked
from tests.unix import UnixConnection
from tests.waiting import DEADLINE_SECONDS, wait_for

# Scheduled jobs must not do the work that a test checks.
QUIET_CONFIG = {"auto_cron": "0 0 1 1 *", "retention_cron": "0 0 1 1 *"}


@dataclass
class Running:
    """The process of a daemon."""

    root: Path
    socket: Path
    process: subprocess.Popen[bytes] | forked.Process
    env: dict[str, str] = field(default_factory=dict)

    def ask(self, route: str, method: str = "GET") -> Any:
        """Return the API's answer; raise OSError while no daemon listens."""
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, f"/api/{route}")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("status")
        return answer

    def is_running(self) -> bool:
        self.must_run()
        with suppress(OSError, http.client.HTTPException):
            return bool(self.ask("health")["status"] in {"ok", "degraded"})
        return False

    def must_run(self) -> None:
        assert self.process.poll() is None, f"it ended:\n{self.log()}"

    def log(self) -> str:
        path = self.root / "logs" / "brainsurgeon.log"
        # A full disk tears lines, in the middle of a character as well.
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        return [json.loads(line) for line in self.log().splitlines() if line.endswith("}")]

    def said(self, text: str) -> bool:
        return any(text in event["event"] for event in self.events())

    def is_sound(self) -> bool:
        """Whether `bsd verify` finds the root sound."""
        found = verify(Layout(self.root))
        assert found.clean, as_json(found)
        return True

    def bsd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another bsd on the same root."""
        return forked.run("--root", str(self.root), *arguments, env=self.env)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)


def configure(root: Path, **fields: Any) -> None:
    """Write config.json before a start."""
    own = root / ".brainsurgeon"
    own.mkdir(mode=0o700, exist_ok=True)
    (own / "config.json").write_text(json.dumps({**QUIET_CONFIG, **fields}))


def launch(root: Path, tmp_path: Path, **env: str) -> Running:
    """Start `bsd run`; `until_ready` waits for it."""
    socket, full = _place(env)
    with (tmp_path / "bsd.out").open("ab") as out:
        process = forked.start("--root", str(root), "run", out=out, env=full)
    return Running(root, socket, process, full)


def launch_fresh(root: Path, tmp_path: Path, **env: str) -> Running:
    """Start `bsd run` as a user starts it, in a Python that has loaded no modules."""
    socket, full = _place(env)
    with (tmp_path / "bsd.out").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "bsd", "--root", str(root), "run"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=full,
        )
    return Running(root, socket, process, full)


def _place(env: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """The address at which a daemon listens, and its environment."""
    # Not under tmp_path, which may be too long for a socket; private, as bsd demands.
    socket = Path(tempfile.mkdtemp(prefix="bsd-test-")) / "bsd.sock"
    return socket, {
        **os.environ,
        "BRAINSURGEON_SOCKET": str(socket),
        "BRAINSURGEON_DEBOUNCE_SECONDS": "0.1",
        "BRAINSURGEON_LOG_LEVEL": "debug",
        **env,
    }


@contextmanager
def launched(root: Path, tmp_path: Path, **env: str) -> Iterator[Running]:
    """A started daemon; it ends with the block, with all processes that it started."""
    with ending(launch(root, tmp_path, **env), tmp_path) as daemon:
        yield daemon


@contextmanager
def ending(daemon: Running, tmp_path: Path) -> Iterator[Running]:
    """End a daemon, with all processes that it started."""
    children: list[int] = []
    try:
        yield daemon
        children = children_of(daemon.process.pid)
        if daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.log()
    finally:
        children += children_of(daemon.process.pid)
        daemon.process.kill()
        daemon.process.wait()
        shutil.rmtree(daemon.socket.parent)
        wait_for(lambda: not any(map(is_alive, children)), "its children to leave")
    out = (tmp_path / "bsd.out").read_text()
    assert "Traceback" not in out, out


@contextmanager
def running(root: Path, tmp_path: Path, **env: str) -> Iterator[Running]:
    """A daemon that is ready."""
    with launched(root, tmp_path, **env) as daemon:
        wait_for(daemon.is_running, "the daemon to be ready")
        yield daemon


def children_of(pid: int) -> list[int]:
    """Processes that a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; a process that only waits to be buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
