"""The rows of the table: each measures one promise of DESIGN §5 beside its peer."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bsd.sample import session_lines
from tests.bench import (
    api_rows,
    archive_rows,
    claude,
    daemon_rows,
    disk_rows,
    fleet_rows,
    memory_rows,
    page_rows,
    pass_rows,
    peer,
    replay_rows,
    workspace_rows,
)
from tests.bench.measure import Cost, bsd, run, settle
from tests.bench.row import Row, Rows
from tests.openclaw_tree import add_session, set_idle

_MB = 1 << 20
SIZE = int(os.environ.get("BENCH_MB", "256")) * _MB
HUGE = int(os.environ.get("BENCH_HUGE_MB", "1024")) * _MB
_SESSION = 8 * _MB  # of a backlog: many sessions of a usual size
_LONGEST = 64 * _MB
_ROUNDS = 3
_REPEATS = 11  # of short runs, whose median counts


def _backlog(root: Path) -> None:
    for number in range(max(1, SIZE // _SESSION)):
        path = add_session(root, f"main/session-{number:04d}", b"")
        _write(path, session_lines(size=min(_SESSION, SIZE), seed=number))
        set_idle(path)


def one_session(root: Path, size: int, longest_line: int = 0) -> Path:
    path = add_session(root, "main/session", b"")
    _write(path, session_lines(size=size, longest_line=longest_line))
    set_idle(path)
    return path


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb", buffering=_MB) as file:
        file.writelines(lines)


def extract(root: Path) -> Cost:
    settle()
    cost = run(bsd("--root", str(root), "--json", "extract"))
    kept = sum(1 for _ in root.glob("extracted/*/*.json"))
    if not kept:
        raise AssertionError(f"nothing was extracted: {cost.output[-500:]!r}")
    return cost


def _limit(before: Path, after: Path, scratch: Path, how: str) -> float:
    """Seconds that the layout takes at least (tests/bench/limit.py)."""
    scratch.mkdir()
    settle()
    arguments = [str(before), str(after), str(scratch), how]
    return float(run([sys.executable, "-m", "tests.bench.limit", *arguments]).output)


def first_pass(scratch: Path, _cache: Path) -> Rows:
    """A backlog of usual sessions, against the limit of the layout (tests/bench/limit.py)."""
    speeds: list[float] = []
    limits: dict[str, list[float]] = {"pooled": [], "at-once": []}
    before = scratch / "before"
    _backlog(before)
    size = sum(path.stat().st_size for path in before.glob("agents/*/sessions/*.jsonl"))
    for number in range(_ROUNDS):
        after = scratch / f"after{number}"
        shutil.copytree(before, after)
        cost = extract(after)
        speeds.append(size / cost.wall / _MB)
        for how, found in limits.items():
            found.append(size / _limit(before, after, scratch / f"{how}{number}", how) / _MB)
        # Rows delete their files only at the end: see tests/bench/__main__.py.
    ratio, at_once = (
        statistics.median(ours / limit for ours, limit in zip(speeds, found, strict=True))
        for found in limits.values()
    )
    ours = f"{statistics.median(speeds):.0f} MB/s"
    yield Row(
        f"first pass over {size // _MB} MB in {max(1, SIZE // _SESSION)} sessions",
        ours,
        f"limit {statistics.median(limits['pooled']):.0f} MB/s",
        ratio,
        "≥ 0.5 × the limit of the layout, fsyncs pooled",
        ratio >= 0.5,
    )
    yield Row(
        "the same, beside files made durable at once",
        ours,
        f"limit {statistics.median(limits['at-once']):.0f} MB/s",
        at_once,
        "reported only",
        met=True,
    )


def beside_cozempic(scratch: Path, cache: Path) -> Rows:
    """Measure a session of the same size for each program, in the program's own format."""
    program = peer.install(cache)
    ours, theirs, limits = [], [], []
    transcript = scratch / "claude.jsonl"
    claude.write_transcript(transcript, SIZE)
    before = scratch / "before"
    one_session(before, SIZE)
    for number in range(_ROUNDS):
        root = scratch / f"root{number}"
        shutil.copytree(before, root)
        ours.append(extract(root))  # its files stay: see tests/bench/__main__.py
        limits.append(_limit(before, root, scratch / f"limit{number}", "at-once"))
        copy = scratch / f"{number}.jsonl"
        shutil.copyfile(transcript, copy)
        settle()
        theirs.append(peer.treat(program, copy, scratch / "home"))
        if copy.stat().st_size >= transcript.stat().st_size:
            raise AssertionError(f"cozempic did nothing: {theirs[-1].output[-500:]!r}")
        for leftover in scratch.glob(f"{number}.*"):
            leftover.unlink()
    our_wall, their_wall = (statistics.median(c.wall for c in costs) for costs in (ours, theirs))
    our_rss, their_rss = (max(c.rss for c in costs) for costs in (ours, theirs))
    yield Row(
        f"one session of {SIZE // _MB} MB, wall",
        f"{our_wall:.2f} s",
        f"cozempic {their_wall:.2f} s",
        their_wall / our_wall,
        "≥ 3 × faster",
        their_wall >= 3 * our_wall,
    )
    limit = statistics.median(limits)
    yield Row(
        "the same, the limit of the layout",
        f"{limit:.2f} s",
        f"cozempic {their_wall:.2f} s",
        their_wall / limit,
        "reported only",
        met=True,
    )
    yield Row(
        f"one session of {SIZE // _MB} MB, peak RSS",
        f"{our_rss / _MB:.0f} MB",
        f"cozempic {their_rss / _MB:.0f} MB",
        our_rss / their_rss,
        "≤ 1/8 of its memory",
        our_rss * 8 <= their_rss,
    )


def memory(scratch: Path, _cache: Path) -> Rows:
    """Measure a huge session that contains one very long line."""
    path = one_session(scratch, HUGE, _LONGEST)
    size = path.stat().st_size
    rss = extract(scratch).rss
    bound = 150 * _MB + 3 * _LONGEST
    yield Row(
        f"peak RSS, session of {size // _MB} MB, one line of {_LONGEST // _MB}",
        f"{rss / _MB:.0f} MB",
        f"bound {bound / _MB:.0f} MB",
        rss / bound,
        "≤ 150 MB + 3 × the longest line",
        rss <= bound,
    )


def _median_cpu(argv: list[str]) -> float:
    return statistics.median(run(argv).cpu for _ in range(_REPEATS))


def start_up(scratch: Path, _cache: Path) -> Rows:
    """The cost of starting, beside a bare interpreter and beside the imports alone."""
    bare = _median_cpu([sys.executable, "-c", "pass"])
    help_page = _median_cpu(bsd("--help"))
    yield Row(
        "bsd --help, CPU",
        f"{help_page * 1000:.0f} ms",
        f"python {bare * 1000:.0f} ms",
        help_page / bare,
        "≤ 0.4 s",
        help_page <= 0.4,
    )
    one_session(scratch, 200_000)
    command = bsd("--root", str(scratch), "--json", "extract", "--dry-run")
    dry_run = _median_cpu(command)
    imports = _median_cpu([sys.executable, "-c", _import_program(command)])
    yield Row(
        "bsd extract --dry-run, one small session, CPU",
        f"{dry_run * 1000:.0f} ms",
        f"its imports {imports * 1000:.0f} ms",
        dry_run / imports,
        "≤ 100 ms more than its imports",
        dry_run - imports <= 0.1,
    )


def _import_program(command: list[str]) -> str:
    """Run a program that only makes the imports of `command`, in the same order."""
    python, *arguments = command
    done = subprocess.run(
        [python, "-X", "importtime", *arguments], check=True, capture_output=True, text=True
    )
    names = re.findall(r"^import time:[^|]*\|[^|]*\| +(\S+)$", done.stderr, re.MULTILINE)
    # importtime also lists modules that Python looked for in vain.
    return (
        f"import contextlib, importlib\nfor name in {names!r}:\n"
        "    with contextlib.suppress(ImportError):\n        importlib.import_module(name)"
    )


def splice(_scratch: Path, _cache: Path) -> Rows:
    """Replacing long values in raw lines beside parsing these lines."""
    size = str(min(SIZE, 64 * _MB) // _MB)
    seconds = json.loads(run([sys.executable, "-m", "tests.bench.splice_cost", size]).output)
    ours, loads = (seconds["bytes"] / seconds[key] / _MB for key in ("splice", "loads"))
    yield Row(
        "replacing long values in raw lines",
        f"{ours:.0f} MB/s",
        f"orjson.loads {loads:.0f} MB/s",
        ours / loads,
        "reported only: part of the first pass",
        met=True,
    )


ALL: dict[str, Callable[[Path, Path], Rows]] = {
    "start-up": start_up,
    "splice": splice,
    "first-pass": first_pass,
    "cozempic": beside_cozempic,
    "memory": memory,
    "archive": archive_rows.archive,
    "disk": disk_rows.disk,
    "daemon-latency": daemon_rows.latency,
    "daemon-append": daemon_rows.append,
    "daemon-many": daemon_rows.many,
    "daemon-very-many": daemon_rows.very_many,
    "daemon-living": pass_rows.living,
    "daemon-cores": pass_rows.two_cores,
    "fleet": fleet_rows.hanging_bucket,
    "facts": memory_rows.memory_of_facts,
    "daemon-api": api_rows.api,
    "page": page_rows.page,
    "workspaces": workspace_rows.workspaces,
    "replay": replay_rows.replay,
}
