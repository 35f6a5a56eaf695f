"""Pruning beside execution: used workspaces stay, stale workspaces go, and none is half deleted.

It lasts `BSD_WORKSPACE_SECONDS`: 4 by default, 20 for the whole promise.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.workspaces import list_sessions, prune_sessions
from tests.needs import require_linux
from tests.sessions.commit.crashed import fast_directory
from tests.waiting import DEADLINE_SECONDS
from tests.workspaces.inhabitants import (
    COUNT,
    FAITHFUL,
    OLDER_THAN_HOURS,
    PAYLOAD,
    furnish,
    name_of,
)
from tests.workspaces.spaces import names, noted

pytestmark = pytest.mark.chaos

# Read before the tests get an environment of their own.
SECONDS = float(os.environ.get("BSD_WORKSPACE_SECONDS", "4"))

_TOP = Path(__file__).parents[2]
_USERS = 2


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bsd-beside-", dir=fast_directory()) as top:
        yield Path(top) / "workspace"


def start(role: str, root: Path, seed: int, end: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *[sys.executable, "-m", "tests.workspaces.inhabitants"],
            *[role, str(root), str(seed), str(end)],
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TOP,
    )


def told(process: subprocess.Popen[str], did: Counter[str]) -> list[str]:
    """Return the report of a process that was not killed."""
    out, _ = process.communicate(timeout=SECONDS + DEADLINE_SECONDS)
    if process.returncode < 0:
        return []
    assert process.returncode == 0
    document = json.loads(out)
    did.update(document["did"])
    return [str(one) for one in document["problems"]]


def half_deleted(root: Path) -> list[str]:
    """Return workspaces that lack a file of their beginning."""
    wanted = {f"part{part}" for part in range(PAYLOAD)} | {".metadata.json"}
    return [
        f"{name} lacks {missing}"
        for name in names(root)
        if (missing := wanted - set(os.listdir(root / name)))
    ]


def test_pruning_beside_execution(root: Path) -> None:
    require_linux()
    for number in range(COUNT):
        furnish(root, number)
    chance = random.Random(4)
    end = time.monotonic() + SECONDS
    users = [start("user", root, seed, end) for seed in range(_USERS)]
    victims = [start("pruner", root, 0, end + 1000)]  # these are killed, in turn
    pruner = start("pruner", root, 1, end)
    did: Counter[str] = Counter()
    problems: list[str] = []
    try:
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 1.0))  # long enough to start, and to be at work
            victims[-1].kill()
            victims.append(start("pruner", root, 0, end + 1000))
    finally:
        victims[-1].kill()
        for process in [*users, pruner, *victims]:
            problems += told(process, did)
    assert problems == [], "\n".join(problems[:20])

    prune_sessions(OLDER_THAN_HOURS, root)
    left = prune_sessions(OLDER_THAN_HOURS, root)
    assert (left.deleted_sessions, left.skipped_sessions, left.errors) == ([], {}, {})
    assert left.leftovers == 0
    assert [one for one in list_sessions(root) if (one.age_hours or 0) > OLDER_THAN_HOURS] == []
    assert half_deleted(root) == []
    for number in range(FAITHFUL):  # never old: they exist, and every run was counted
        name = name_of(number)
        assert noted(root / name)["execution_count"] == did[name]
    assert did["execute"], did
    assert len(names(root)) < COUNT, "something was pruned"
    # A witness may stay when two runs end at once; then it agrees with the file.
    for witness in (root / ".bsd").glob("witness-*"):
        name = witness.name.removeprefix("witness-")
        content = witness.read_bytes().partition(b"\n")[2]
        assert not (root / name).exists() or json.loads(content) == noted(root / name)
