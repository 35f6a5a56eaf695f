"""bsd's lock and the gateway's, with real processes of both kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.__main__ import HOST_TOKEN
from bsd.core.errors import Busy
from bsd.transcripts.agents.openclaw.lock import SessionLock, inspect_lock, lock_path
from bsd.transcripts.agents.program import HeldLock, Stale
from tests.needs import require_linux, require_node

GATEWAY = Path(__file__).with_name("gateway.mjs")
CHECKOUT = Path(__file__).parents[3]
VERSIONS = ["2.12", "3.13", "5.28", "7.35"]


class Running:
    """A process of either side; it reports its actions as lines of JSON."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT
        )

    def says(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> list[Any]:
        """Release its lock; return the rest of its output."""
        output, _ = self.process.communicate()
        return [json.loads(line) for line in output.splitlines()]

    def kill(self) -> None:
        with self.process:  # waits for it and closes its pipes, ended or not
            self.process.kill()


class Sides:
    """Starts processes of both sides and ends them with the test."""

    def __init__(self) -> None:
        require_linux()
        self.node = require_node()
        self.running: list[Running] = []

    def gateway(self, what: str, version: str, *arguments: object) -> Running:
        words = [self.node, str(GATEWAY), what, version, *map(str, arguments), "openclaw"]
        return self._start(words)

    def bsd(self, what: str, *arguments: object, token: bool = True) -> Running:
        words = [sys.executable, "-m", "tests.transcripts.agents.lock_holder"]
        return self._start([*words, *(HOST_TOKEN if token else ()), what, *map(str, arguments)])

    def _start(self, command: list[str]) -> Running:
        self.running.append(Running(command))
        return self.running[-1]


@pytest.fixture
def sides() -> Iterator[Sides]:
    both = Sides()
    yield both
    for one in both.running:
        one.kill()


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "abc.jsonl"
    path.write_bytes(b"{}\n")
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_every_gateway_honours_our_lock(sides: Sides, session: Path, version: str) -> None:
    holder = sides.bsd("hold", session)
    assert holder.says() == {"event": "acquired"}
    ours = json.loads(lock_path(session).read_bytes())
    assert sides.gateway("hold", version, session, 200).end() == [{"event": "timeout", **ours}]
    assert holder.end() == [{"event": "released"}]
    gateway = sides.gateway("hold", version, session, 200)
    assert gateway.end() == [{"event": "acquired"}, {"event": "released"}]


@pytest.mark.parametrize(
    ("version", "honoured"), [("2.12", True), ("3.13", True), ("5.28", False), ("7.35", False)]
)
def test_without_the_token_newer_gateways_take_our_lock(
    sides: Sides, session: Path, version: str, honoured: bool
) -> None:
    """The token serves this case: bsd has lost the lock, and leaves the other process's lock
    alone.
    """
    holder = sides.bsd("hold", session, token=False)
    assert holder.says() == {"event": "acquired"}
    gateway = sides.gateway("hold", version, session, 200)
    if honoured:
        assert gateway.says()["event"] == "timeout"
        return
    assert gateway.says() == {"event": "removed", "reason": "not-openclaw"}
    assert gateway.says() == {"event": "acquired"}
    warning, released = holder.end()
    assert warning["event"] == "Another program removed the lock while bsd held it"
    assert released == {"event": "released"}
    state = inspect_lock(session)
    assert isinstance(state, HeldLock)
    assert state.pid == gateway.process.pid


@pytest.mark.parametrize("version", VERSIONS)
def test_we_honour_every_gateways_lock(sides: Sides, session: Path, version: str) -> None:
    gateway = sides.gateway("hold", version, session)
    assert gateway.says() == {"event": "acquired"}
    lock = lock_path(session)
    created = json.loads(lock.read_bytes())["createdAt"]
    assert inspect_lock(session) == HeldLock(gateway.process.pid, created, ours=False)
    with pytest.raises(Busy, match=rf"process {gateway.process.pid} \(.*\) since {created}"):
        SessionLock(session, timeout=0).acquire()
    assert gateway.end() == [{"event": "released"}]
    with SessionLock(session, timeout=0):
        assert lock.exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_gateways_lock_is_taken(sides: Sides, session: Path, version: str) -> None:
    gateway = sides.gateway("hold", version, session)
    assert gateway.says() == {"event": "acquired"}
    gateway.kill()
    assert inspect_lock(session) == Stale(f"its process {gateway.process.pid} is gone")
    with SessionLock(session, timeout=0):
        pass
    assert not lock_path(session).exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_bsds_lock_is_taken_by_every_gateway(
    sides: Sides, session: Path, version: str
) -> None:
    holder = sides.bsd("hold", session)
    assert holder.says() == {"event": "acquired"}
    holder.kill()
    gateway = sides.gateway("hold", version, session, 200)
    assert gateway.end() == [
        {"event": "removed", "reason": "dead-pid"},
        {"event": "acquired"},
        {"event": "released"},
    ]


def test_three_bsd_and_two_gateways_lose_no_count(
    sides: Sides, session: Path, tmp_path: Path
) -> None:
    counter = tmp_path / "count"
    counter.write_text("0")
    running = [sides.bsd("count", session, counter, 3) for _ in range(3)]
    running += [sides.gateway("count", v, session, counter, 3000) for v in ("3.13", "7.35")]
    said = [one.end() for one in running]
    assert all([line["event"] for line in lines] == ["counted"] for lines in said), said
    rounds = [lines[0]["rounds"] for lines in said]
    assert min(rounds) > 0
    assert int(counter.read_text()) == sum(rounds)
    assert not lock_path(session).exists()
