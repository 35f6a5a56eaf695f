"""The rows about workspaces: 10,000 of them listed and pruned, beside `find` and `rm -rf`.

`BENCH_WORKSPACES` is how many there are; half of them are stale.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from bsd.workspaces.record import SessionMetadata
from tests.bench.measure import Cost, bsd, run, settle
from tests.bench.row import Row, Rows

WORKSPACES = int(os.environ.get("BENCH_WORKSPACES", "10000"))
_ROUNDS = 3
_FILES = 3  # in each, beside the metadata
_DAY = 86_400.0
_OLD = "-mmin +1440"


def _build(root: Path) -> None:
    """Make workspaces as the library leaves them, without its fsyncs."""
    now = time.time()
    root.mkdir(mode=0o700)
    for number in range(WORKSPACES):
        name = f"space-{number:05d}"
        path = root / name
        path.mkdir(mode=0o700)
        used = now - (2 * _DAY if number % 2 else 0.0)
        for part in range(_FILES):
            (path / f"part{part}").write_bytes(b"x" * 1000)
        metadata = path / ".metadata.json"
        metadata.write_bytes(SessionMetadata.new(name, used).render())
        os.utime(metadata, (used, used))


def _median(costs: list[Cost]) -> float:
    return statistics.median(cost.wall for cost in costs)


def _shell(script: str) -> Cost:
    settle()
    return run(["sh", "-c", script])


def workspaces(scratch: Path, _cache: Path) -> Rows:
    """Measure list and prune, and the system's own programs for the same work."""
    listed, found, pruned, removed, imports = [], [], [], [], []
    for number in range(_ROUNDS):
        ours, theirs = scratch / f"ours{number}", scratch / f"theirs{number}"
        _build(ours)
        _build(theirs)
        place = ["--workspace-root", str(ours)]
        imports.append(run([sys.executable, "-c", "import bsd.cli.main, bsd.workspaces"]))
        settle()
        listed.append(run(bsd("--json", "workspace", "list", *place)))
        stale = f"find {theirs} -mindepth 2 -maxdepth 2 -name .metadata.json"
        found.append(_shell(f"{stale} -exec cat {{}} + >/dev/null"))
        settle()
        pruned.append(run(bsd("workspace", "prune", "--older-than", "24h", "--yes", *place)))
        command = f"{stale} {_OLD} -printf '%h\\0' | xargs -0 rm -rf"
        removed.append(_shell(command))
        left = {len([one for one in os.listdir(top) if one != ".bsd"]) for top in (ours, theirs)}
        if left != {WORKSPACES - WORKSPACES // 2}:
            raise AssertionError(f"not the same were removed: {left}")
    start = _median(imports)
    yield _row("list", listed, "find + cat", found, start, most=6.0)
    yield _row("prune half of", pruned, "find + rm -rf", removed, start, most=4.0)


def _row(
    what: str, ours: list[Cost], peer: str, theirs: list[Cost], start: float, most: float
) -> Row:
    """Subtract the start of Python, which does not grow."""
    wall = _median(ours) - start
    ratio = wall / _median(theirs)
    return Row(
        f"{what} {WORKSPACES:,} workspaces",
        f"{wall:.2f} s",
        f"{peer} {_median(theirs):.2f} s",
        ratio,
        f"≤ {most:g} × that",
        ratio <= most,
    )
