"""A daemon that is killed again and again in the middle of its work, while agents go on writing."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.text.splice import edit
from tests.daemon.running import children_of, configure, launched, running
from tests.needs import require_linux
from tests.openclaw_tree import add_session
from tests.sessions import sample
from tests.waiting import wait_for

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("BSD_KILLS", "5"))  # `make soak` has 50
SESSIONS = 12
_LONGEST_LIFE_SECONDS = 1.6  # a start takes about a third of it


class Agents(threading.Thread):
    """Appends turns to one session after the other, reopening it for every line."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__()
        self.files = files
        self.written: dict[Path, list[bytes]] = {file: [] for file in files}
        self._stop_asked = threading.Event()
        self._chance = random.Random(7)

    def run(self) -> None:
        number = 0
        while not self._stop_asked.wait(self._chance.uniform(0.05, 0.4)):
            file = self._chance.choice(self.files)
            for role, text in [("toolResult", "x" * 4000), *[("assistant", "ok")] * 4]:
                number += 1
                self._append(file, f"new{number}", role, text)

    def _append(self, file: Path, identity: str, role: str, text: str) -> None:
        message = {"role": role, "content": [{"type": "text", "text": text}], "stopReason": "stop"}
        entry = {"type": "message", "id": identity, "parentId": None, "message": message}
        line = json.dumps(entry).encode() + b"\n"
        with file.open("ab") as stream:
            stream.write(line)
        self.written[file].append(line)

    def end(self) -> None:
        self._stop_asked.set()
        self.join()


def _kill_some(children: list[int], chance: random.Random) -> int:
    """Every other child, at whatever it is; returns how many."""
    victims = [pid for pid in children if chance.random() < 0.5]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(victims)


def without_restored(content: bytes) -> list[bytes]:
    return [
        edit(line, remove=[("_restored",)]) if b'"_restored"' in line else line
        for line in content.splitlines(keepends=True)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_moments_it_loses_nothing(tmp_path: Path) -> None:
    require_linux()
    root = tmp_path / "root"
    originals = {
        add_session(root, f"main/s{n}", content): content
        for n in range(SESSIONS)
        for content in [sample(6, n)]
    }
    configure(root)
    chance = random.Random(3)
    agents = Agents(list(originals))
    agents.start()
    died = 0
    try:
        for left in reversed(range(KILLS)):
            with launched(root, tmp_path) as daemon:
                end = time.monotonic() + chance.uniform(0.2, _LONGEST_LIFE_SECONDS)
                while time.monotonic() < end:
                    time.sleep(chance.uniform(0.02, 0.3))
                    died += _kill_some(children_of(daemon.process.pid), chance)
                pid = daemon.process.pid
                if not left and not died:  # on a busy machine no life was long enough
                    wait_for(lambda pid=pid: _kill_some(children_of(pid), chance))  # type: ignore[misc]
                    died += 1
                assert daemon.process.poll() is None, daemon.log()
                daemon.stop(signal.SIGKILL)
    finally:
        agents.end()

    with running(root, tmp_path) as daemon:  # neither lock nor socket of a dead one is in its way
        for file in originals:
            wait_for(lambda file=file: b'"_extracted"' in file.read_bytes(), f"work on {file.name}")  # type: ignore[misc]
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        assert not daemon.status()["queue"]["parked"]
        verified = daemon.bsd("verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    assert not list(root.glob("agents/*/sessions/*.lock"))

    restored = daemon.bsd("restore-all", "--yes", "--keep-enabled")
    assert restored.returncode == 0, restored.stdout + restored.stderr
    for file, original in originals.items():
        expected = original.splitlines(keepends=True) + agents.written[file]
        assert without_restored(file.read_bytes()) == expected
