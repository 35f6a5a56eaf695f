"""Two processes write at once: nothing is lost, nothing is there twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bsd.memory.facts import Memory
from tests.memory.memories import rows, sound

_COUNT = 60
# Each stores facts of its own and ones that the other has as well, and prunes and recalls between.
_CHILD = """
import sys
from pathlib import Path
from bsd.memory.facts import Memory
from bsd.memory.new_fact import NewFact

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    with Memory(path, wait=60.0) as memory:
        memory.store(NewFact(f"{name} says {number}"))
        memory.store(NewFact(f"all say {number}"))
        if number % 10 == 0:
            memory.prune()
            memory.recall("say", limit=20)
"""


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"  # not even made yet
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(path), name, str(_COUNT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.close()
    for child in children:
        assert child.wait(100) == 0
        assert child.stdout is not None
        child.stdout.close()
    found = [text for (text,) in rows(path, "SELECT text FROM facts")]
    expected = {f"{who} {number}" for number in range(_COUNT) for who in ("one says", "two says")}
    expected |= {f"all say {number}" for number in range(_COUNT)}
    assert len(found) == len(set(found))
    assert set(found) == expected
    sound(path)
    with Memory(path) as memory:
        assert memory.is_ours()
