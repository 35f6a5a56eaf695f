"""The rows of the API: requests over the socket, with many sessions and with a large session.

`BENCH_SESSIONS` and `BENCH_APPEND_MB` mean the same as for the daemon's rows.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bsd.sample import session_lines
from tests.bench.daemon import Daemon, configure
from tests.bench.daemon_rows import APPEND_MB, NEVER, SESSIONS, fill, row
from tests.bench.row import Row, Rows

_MB = 1 << 20
_REPEATS = 40
_REQUESTS = 1000
_WORDS = ("harbour", "berth+vessel", "nobody-says-this")


def api(scratch: Path, _cache: Path) -> Rows:
    """Measure list, search, open and page, and memory."""
    root = scratch / "root"
    fill(root, SESSIONS)
    write_large(root / "agents" / "agent000" / "sessions" / "large.jsonl", APPEND_MB * _MB)
    configure(root, auto_cron=NEVER, retention_cron=NEVER, enabled=False)
    with Daemon(root) as daemon:
        began = time.perf_counter()
        daemon.wait(lambda: bool(daemon.status()["search"]["complete"]), "to have read all")
        yield row(
            f"index of {SESSIONS:,} sessions and one of {APPEND_MB} MB",
            f"{time.perf_counter() - began:.0f} s",
            f"RSS {daemon.rss() / _MB:.0f} MB",
            0.0,
            "reported only: it yields to everything",
            met=True,
        )
        yield _timed(daemon, f"list 100 of {SESSIONS:,} sessions", _paths("/api/sessions"), 0.3)
        words = [f"/api/sessions?q={word}" for word in _WORDS]
        yield _timed(daemon, "the same, found by their text", _paths(*words), 0.6)
        found = [f"/api/search?q={word}" for word in _WORDS]
        yield _timed(daemon, "search with snippets", _paths(*found), 0.6)
        yield from _one_large(daemon)
        yield from _memory(daemon)


def _one_large(daemon: Daemon) -> Rows:
    large = "/api/sessions/agent000/large"
    began = time.perf_counter()
    daemon.client.get(large)
    yield row(
        f"open {APPEND_MB} MB for the first time",
        f"{time.perf_counter() - began:.2f} s",
        "",
        0.0,
        "reported only: all lines are parsed once",
        met=True,
    )
    yield _timed(daemon, f"open {APPEND_MB} MB again", _paths(large), 0.1)
    lines = int(daemon.client.get(large)["entry_count"])
    pages = [f"{large}/entries?from={lines * part // 20}" for part in range(20)]
    pages += [f"{large}/entries?before={lines * part // 20}" for part in range(1, 20)]
    yield _timed(daemon, f"a page of {APPEND_MB} MB, anywhere", _paths(*pages), 0.1)


def _memory(daemon: Daemon) -> Rows:
    large = "/api/sessions/agent000/large"
    ask = _paths("/api/sessions", f"/api/sessions?q={_WORDS[0]}", f"{large}/entries?before=5000")
    for number in range(_REQUESTS // 10):
        daemon.client.get(ask(number))
    before = daemon.rss()
    for number in range(_REQUESTS):
        daemon.client.get(ask(number))
    grown = daemon.rss() - before
    yield row(
        f"RSS after {_REQUESTS:,} more requests",
        f"{(before + grown) / _MB:.0f} MB",
        f"before {before / _MB:.0f} MB",
        (before + grown) / before,
        "no growth (≤ 2 %)",
        met=grown <= before // 50,
    )


def _paths(*paths: str) -> Callable[[int], str]:
    return lambda number: paths[number % len(paths)]


def _timed(daemon: Daemon, what: str, path: Callable[[int], str], limit: float) -> Row:
    times = []
    for number in range(_REPEATS):
        began = time.perf_counter()
        daemon.client.get(path(number))
        times.append(time.perf_counter() - began)
    p95 = sorted(times)[len(times) * 95 // 100]
    return row(
        f"{what}, p95",
        f"{p95 * 1000:.0f} ms",
        f"p50 {statistics.median(times) * 1000:.0f} ms",
        p95 / limit,
        f"≤ {limit * 1000:.0f} ms",
        met=p95 <= limit,
    )


def write_large(path: Path, size: int) -> None:
    """Write a session of this many bytes, idle for an hour."""
    with path.open("wb") as file:
        for line in session_lines(size=size, seed=3):
            file.write(line)
    then = time.time() - 3600
    os.utime(path, (then, then))
