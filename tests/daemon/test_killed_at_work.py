"""A daemon that is killed again and again in the middle of its work, while agents keep writing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.transcripts.splice import edit
from tests.daemon.running import children_of, configure, launched, running
from tests.needs import require_linux
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("BSD_KILLS", "5"))  # `make soak` has 50
SESSIONS = 12
# Read before the tests get an environment of their own.
SECONDS = float(os.environ.get("BSD_CHAOS_SECONDS", "4"))
_LONGEST_LIFE_SECONDS = 1.6  # a start takes about a third of it


class Agents(threading.Thread):
    """Appends turns to the sessions in turn, reopening the file for every line."""

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
    """Kill every other child, during any work; return how many were killed."""
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


@pytest.mark.soak  # the crash tests kill at every step
@pytest.mark.slow
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

    with running(root, tmp_path) as daemon:  # neither lock nor socket of a dead daemon blocks it
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


DEEDS = {"packed", "merged", "restored", "copied", "brought back"}

# Another bsd, which performs every operation on the archive, as often as it can.
_ARCHIVIST = """
import os, random, sys, time
from contextlib import suppress
from pathlib import Path

from bsd.maintenance import bring_back as bringing_back
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.snapshots import take_snapshots
from bsd.maintenance.retention import RetentionRun
from bsd.core.errors import Busy, Conflict, NotFound
from bsd.core.layout import Layout
from bsd.core.config_file import ConfigService
from bsd.core.config import PruningConfig
from bsd.sessions.idle import RetryBudget
from tests.actions.performed import Caller
from bsd.store import archive
from bsd.store.archive import SessionArchive
from tests.actions import performed

root, seed = sys.argv[1:]
layout, chance = Layout(Path(root)), random.Random(seed)
archive._MANY = 3
merge = SessionArchive.merge

def told(self, span=None):
    made = merge(self, span)
    if made:
        print("merged", flush=True)
    return made

SessionArchive.merge = told
# Its clock is ahead: every session has been at rest for long.
budget = RetryBudget(0.0, quiet=0.0, clock=lambda: time.time() + 200_000, sleep=lambda _: None)
config = ConfigService(layout.config_file)
caller = Caller(layout=layout, config=config, actor="chaos", budget=budget)

def retention():
    for file in layout.extracted.glob("*/[0-9]*.json"):
        if chance.random() < 0.7:
            with suppress(FileNotFoundError):
                os.utime(file, (time.time() - 90_000,) * 2)
    done = RetentionRun(layout, actor="chaos", wait=0.1).clean_all(PruningConfig())
    return "packed" if done.cleaned else ""

def restore():
    stores = sorted(layout.archive.iterdir()) if layout.archive.is_dir() else []
    chance.shuffle(stores)
    for store in stores:
        records = []
        for path in SessionArchive(store).packs():
            with suppress(FileNotFoundError), archive.Pack(path) as pack:
                records += pack.records()
        if records:
            name = layout.session_of_store(store.name)
            entry = chance.choice(records)["entry_id"]
            answer = performed.restore(caller, name, entry)
            return "restored" if not answer.get("unavailable") else f"PROBLEM {answer}"
    return ""

def keep():
    return "copied" if take_snapshots(layout, "never", budget).sessions else ""

def bring_back():
    for copy in deleted_sessions(layout):
        back = bringing_back.bring_back(layout, copy, actor="chaos", budget=budget)
        return f"PROBLEM {back}" if back.unavailable else "brought back"
    return ""

while True:
    for work in (retention, restore, keep, bring_back):
        try:
            if said := work():
                print(said, flush=True)
        except (Busy, Conflict, NotFound):  # somebody has it just now; it is gone
            pass
        except Exception as error:
            print(f"PROBLEM {work.__name__}: {error!r}", flush=True)
"""


class Archivist:
    """The other bsd; it can be killed during any work, and begins again."""

    def __init__(self, root: Path, told: Path) -> None:
        self._root = root
        self._told = told
        self._begun = 0
        self.begin()

    def begin(self) -> None:
        self._begun += 1
        with self._told.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _ARCHIVIST, str(self._root), str(self._begun)],
                cwd=Path(__file__).parents[2],
                stdout=out,
                stderr=out,
            )

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL, self._told.read_text()

    def did(self) -> Counter[str]:
        """Count each kind of work that it reported; no report may show a fault."""
        said = self._told.read_text().splitlines()
        wrong = [line for line in said if line.startswith(("PROBLEM", "Traceback"))]
        assert not wrong, "\n".join(wrong[:10])
        return Counter(said)


def _some_vanish(layout: Layout, names: list[SessionName], chance: random.Random) -> None:
    """The program deletes sessions that have a copy, without notice to bsd."""
    for name in names:
        copied = any(layout.archive_dir(name).glob("session-*/copy.json"))
        if copied and chance.random() < 0.3:
            layout.transcript(name).unlink(missing_ok=True)


@pytest.mark.soak
@pytest.mark.slow
def test_beside_an_archive_that_takes_merges_and_gives_it_loses_nothing(tmp_path: Path) -> None:
    """Daemon, children and another bsd are killed; agents write; some sessions are deleted."""
    require_linux()
    root = tmp_path / "root"
    originals = {
        add_session(root, f"main/s{n}", content): content
        for n in range(SESSIONS)
        for content in [sample(6, n)]
    }
    configure(root, keep_recent=0, min_value_length=500, keep_after_restore_seconds=0)
    layout, chance = Layout(root), random.Random(5)
    # No program writes to the first three: any copy of them is as good as the last.
    vanishing = [SessionName("main", f"s{n}") for n in range(3)]
    agents = Agents(list(originals)[3:])
    archivist = Archivist(root, tmp_path / "told")
    agents.start()
    end = time.monotonic() + SECONDS
    latest = end + DEADLINE_SECONDS
    longest_life = 4.0
    try:
        while (now := time.monotonic()) < end or (now < latest and archivist.did().keys() < DEEDS):
            with launched(root, tmp_path) as daemon:
                life = time.monotonic() + chance.uniform(1.0, longest_life)
                longest_life *= 1.1  # on a busy machine no operation ends within a short life
                while time.monotonic() < life:
                    time.sleep(chance.uniform(0.05, 0.3))
                    if chance.random() < 0.3:
                        _kill_some(children_of(daemon.process.pid), chance)
                    _some_vanish(layout, vanishing, chance)
                assert daemon.process.poll() is None, daemon.log()
                daemon.stop(signal.SIGKILL)
            archivist.kill()
            archivist.begin()
        wait_for(lambda: all(map(Path.exists, originals)), "the last of them to be brought back")
    finally:
        agents.end()
        archivist.kill()
    sys.stdout.write(f"\nchaos, the archive: {dict(archivist.did())}\n")
    assert archivist.did().keys() == DEEDS

    with running(root, tmp_path) as daemon:
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        # A retention that was killed leaves the index of a store behind, until the next has run.
        tidied = daemon.bsd("retention")
        assert tidied.returncode == 0, tidied.stdout + tidied.stderr
        verified = daemon.bsd("verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    restored = daemon.bsd("restore-all", "--yes", "--keep-enabled")
    assert restored.returncode == 0, restored.stdout + restored.stderr
    for file, original in originals.items():
        expected = original.splitlines(keepends=True) + agents.written.get(file, [])
        assert without_restored(file.read_bytes()) == expected
