"""A process is killed in the middle of each operation: the database stays whole."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.memory import actions
from bsd.memory.memory import Memory
from tests.memory.memories import DAY, HOUR, NOW, Clock, rows, sound, store
from tests.memory.test_plugin import fill

pytestmark = pytest.mark.crash

# The process kills itself after this many steps of SQLite's virtual machine, at any place.
_CHILD = """
import os, signal, sys
from pathlib import Path
from bsd.memory import database
from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact

path, name, now = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
operations = {
    "create": lambda m: actions.store(m, NewFact("the first harbour")),
    "take over": lambda m: actions.prune(m),
    "store": lambda m: actions.store(m, NewFact("another harbour", supersedes="f5")),
    "recall": lambda m: actions.recall(m, "harbour", limit=50).results,
    "confirm": lambda m: actions.confirm(m, "f5"),
    "forget": lambda m: actions.forget(m, "f5"),
    "prune": lambda m: actions.prune(m),
    "backfill": lambda m: actions.backfill(m).reclassified,
    "checkpoint": lambda m: actions.save_checkpoint(m, "a", "b"),
}
for steps in sys.argv[4:]:
    if os.fork() == 0:
        memory = Memory(path, clock=lambda: now)
        left = int(steps)
        opened = database.Database.__init__
        def armed(self, *args, **kwargs):
            opened(self, *args, **kwargs)
            self._db.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), left)
        database.Database.__init__ = armed
        operations[name](memory)
        os._exit(0)
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status))
"""
_STEPS = ("40", "150", "400", "1000", "2500", "6000")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Facts of all kinds: old, fading, expired, wrongly classified."""
    path = tmp_path_factory.mktemp("filled") / "facts.db"
    with Memory(path, clock=Clock()) as memory:
        for number in range(60):
            fact = store(memory, f"harbour {number}", decay_class=("stable", "session")[number % 2])
            memory.open(write=True).run(
                "UPDATE facts SET id = ?, last_confirmed_at = ?, expires_at = ? WHERE id = ?",
                (
                    f"f{number}",
                    NOW - 19 * HOUR if number % 3 else NOW - DAY,
                    NOW + 5 * HOUR if number % 3 else NOW - 1,
                    fact.id,
                ),
            )
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("create", "take over", "store", "recall", "confirm", "forget", "prune", "backfill"),
        "checkpoint",
    ],
)
def test_whoever_is_killed_leaves_a_whole_database(tmp_path: Path, filled: Path, name: str) -> None:
    path = tmp_path / "facts.db"
    if name == "take over":  # the first version of the plugin's, brought up to date
        fill(path, "first")
    elif name != "create":
        shutil.copyfile(filled, path)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), name, str(NOW), *_STEPS],
        check=True,
        capture_output=True,
        text=True,
    )
    ends = [int(line) for line in done.stdout.split()]
    assert -signal.SIGKILL in ends, "nobody was killed"
    if rows(path, "SELECT name FROM sqlite_master WHERE name = 'facts'"):
        sound(path)
    with Memory(path, clock=Clock()) as memory:
        store(memory, "life goes on")
        actions.prune(memory)
        assert actions.recall(memory, "life").results
    sound(path)
    # all or nothing: a confidence never without its base
    faded = "confidence < 1.0 AND bsd_base_confidence IS NULL"
    assert rows(path, f"SELECT COUNT(*) FROM facts WHERE {faded}") == [(0,)]
