"""The rows that need a daemon, or a part of a daemon.

`BENCH_SESSIONS` is the number of watched sessions (default 10,000, in 200 agents),
`BENCH_IDLE_SECONDS` the duration of the idle measurement (60), `BENCH_APPEND_MB` the size of the
session that the appends go to (200), `BENCH_MANY` the number of sessions that counts as very many
(100,000). Unless a row says otherwise, memory and CPU are those of the daemon and all processes
that it has started. Each row also shows the load of the machine during the measurement; daemons
are not bound to one core.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bsd.sample import session_lines
from tests.bench.daemon import Daemon, configure
from tests.bench.measure import Failed, bsd, environment, run
from tests.bench.row import Row, Rows

_MB = 1 << 20
SESSIONS = int(os.environ.get("BENCH_SESSIONS", "10000"))
_PER_AGENT = 50
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
_MANY = int(os.environ.get("BENCH_MANY", "100000"))
APPEND_MB = int(os.environ.get("BENCH_APPEND_MB", "200"))
_ROUNDS = 5
_REPEATS = 11
_QUERIES = 300
NEVER = "0 0 1 1 *"
_LATENCY_SESSIONS = 400
_LATENCY_SECONDS = 20.0


def latency(scratch: Path, _cache: Path) -> Rows:
    """Measure the time from an append by another process until the session is in the queue."""
    for load, text in ((0, "idle"), (2, "two children parse")):
        root = scratch / str(load)
        fill(root, _LATENCY_SESSIONS)
        # Its cron, every two minutes, would queue them all.
        configure(root, auto_cron=NEVER, retention_cron=NEVER)
        argv = ["-m", "tests.bench.daemon_latency", str(root), str(_LATENCY_SECONDS), str(load)]
        found = answer(argv)
        delays, sleeper = sorted(found["delays"]), sorted(found["sleeper"])
        if found["lost"] > _LATENCY_SESSIONS // 100:
            raise AssertionError(f"{found['lost']} appends were never queued")
        for percent, target in ((50, 0.001), (99, 0.030)):
            delay = delays[len(delays) * percent // 100]
            asleep = sleeper[len(sleeper) * percent // 100]
            # DESIGN's targets are for a daemon with work to do. Threads of an idle daemon sleep
            # deeper, and watchdog hands an event through two of its own.
            yield row(
                f"append → queued, p{percent}, {text}",
                f"{delay * 1000:.2f} ms",
                f"only sleeping {asleep * 1000:.2f} ms",
                delay / target,
                f"≤ {target * 1000:.0f} ms" if load else "reported only",
                met=delay <= target or not load,
            )


def append(scratch: Path, _cache: Path) -> Rows:
    """Append one turn to a large session whose lines are final."""
    argv = ["-m", "tests.bench.daemon_append", str(scratch / "root"), str(APPEND_MB), str(_ROUNDS)]
    found = answer(argv)
    size = f"{found['size'] // _MB} MB"
    kept, written = found["kept"], found["written"]
    read = statistics.median(each["read"] for each in kept)
    turn = statistics.median(each["appended"] for each in kept)
    yield row(
        f"append to {size}, bytes read",
        f"{read / 1024:.0f} KB",
        f"append {turn / 1024:.0f} KB",
        read / turn,
        "∝ the append, not the file",
        met=read <= 4 * turn + 256 * 1024,
    )
    # Opening any session and seeing that it is idle has a cost that does not depend on its size.
    wall, least = (statistics.median(x[key] for x in kept) for key in ("seconds", "small"))
    yield row(
        f"append to {size}, not rewritten",
        f"{wall * 1000:.1f} ms",
        f"to a small one {least * 1000:.1f} ms",
        (wall - least) / 0.010,
        "≤ 10 ms more",
        met=wall - least <= 0.010,
    )
    pairs = zip(written, found["copy"], strict=True)
    times = [(ours["seconds"], copy["seconds"]) for ours, copy in pairs if ours["something"]]
    ratio = statistics.median(ours / copy for ours, copy in times)
    yield row(
        f"append to {size}, rewritten",
        f"{statistics.median(ours for ours, _ in times):.2f} s",
        f"copy+fsync {statistics.median(copy for _, copy in times):.2f} s",
        ratio,
        "≤ 1.3 × kernel copy + fsync",
        met=ratio <= 1.3,
    )


def many(scratch: Path, _cache: Path) -> Rows:
    """Measure very many sessions: start, idle, status."""
    root = scratch / "root"
    fill(root, SESSIONS)
    configure(root, auto_cron=NEVER, retention_cron=NEVER, scan_interval_seconds=3600)
    with Daemon(root) as daemon:  # the first time, while the daemon knows none of them
        cpu = daemon.wait_until_idle()
        yield row(
            f"{SESSIONS:,} sessions, first look at all, CPU",
            f"{cpu:.1f} s",
            "",
            cpu,
            "reported only",
            met=True,
        )
        every = daemon.wait_until_indexed()
        most = 20.0 * SESSIONS / 10_000
        yield row(
            "the same, words into the search index included, CPU",
            f"{every:.1f} s",
            "",
            every / most,
            f"≤ {most:g} s",
            met=every <= most,
        )
    with Daemon(root) as daemon:
        yield from _start(daemon, root)
        yield from _rest(daemon, root)
        yield from _status(daemon, root)


def _start(daemon: Daemon, root: Path) -> Rows:
    walk = statistics.median(_walk(root) for _ in range(_REPEATS))
    ready = daemon.seconds_until_ready
    yield row(
        f"start with {SESSIONS:,} known sessions",
        f"{ready:.2f} s",
        f"scandir+stat {walk:.3f} s",
        ready / walk,
        "≤ 3 s",
        met=ready <= 3,
    )
    loaded = daemon.seconds_until_loaded
    yield row(
        "the same, until all routes answer",
        f"{loaded:.2f} s",
        "",
        loaded / walk,
        "reported only",
        met=True,
    )
    began = time.perf_counter()
    cpu = daemon.wait_until_idle()
    after = time.perf_counter() - began
    yield row(
        "the same, until nothing is left to do",
        f"{loaded + after:.2f} s",
        f"CPU {cpu:.2f} s",
        (loaded + after) / walk,
        "reported only",
        met=True,
    )


def _rest(daemon: Daemon, root: Path) -> Rows:
    daemon.wait_until_indexed()
    # An ended child's time is known in ticks only; a tick a minute nearly fills the target.
    daemon.wait_until_alone()
    share, wakeups = daemon.over(IDLE_SECONDS)
    yield row(
        f"{SESSIONS:,} sessions at rest, between scans, CPU",
        f"{share:.3%}",
        "",
        share / 0.005,
        "≤ 0.5 %",
        met=share <= 0.005,
    )
    yield row(
        "the same, wake-ups",
        f"{wakeups:.2f} /s",
        "",
        wakeups / 15,
        "≤ 15 /s",
        met=wakeups <= 15,
    )
    yield from _rest_with_scans(daemon, root, SESSIONS, share=0.005, rss=120 * _MB)


def _rest_with_scans(daemon: Daemon, root: Path, sessions: int, share: float, rss: int) -> Rows:
    """Measure a daemon with default settings, against a share of a core and a limit of memory."""
    configure(root, retention_cron=NEVER)  # all other settings at their defaults
    daemon.client.post("/api/jobs/auto_cron/run")  # the first run takes all sessions
    daemon.wait_until_idle()
    daemon.wait_until_indexed()
    found, wakeups = daemon.over(2 * IDLE_SECONDS)
    yield row(
        f"{sessions:,} sessions at rest, scans and cron, CPU",
        f"{found:.3%}",
        f"{wakeups:.2f} wake-ups/s",
        found / share,
        f"≤ {share * 100:g} %",
        met=found <= share,
    )
    own, every = daemon.rss(), daemon.rss_of_all()
    yield row(
        f"{sessions:,} sessions at rest, RSS",
        f"{every / _MB:.0f} MB",
        f"without children {own / _MB:.0f} MB",
        every / rss,
        f"≤ {rss // _MB} MB",
        met=every <= rss,
    )


def very_many(scratch: Path, _cache: Path) -> Rows:
    """Measure ten times `BENCH_MANY` sessions, once the daemon knows all of them."""
    root = scratch / "root"
    fill(root, _MANY)
    configure(root, auto_cron=NEVER, retention_cron=NEVER)
    with Daemon(root) as daemon:
        daemon.wait_until_idle()
        daemon.wait_until_indexed()
    with Daemon(root) as daemon:
        daemon.wait_until_idle()
        yield from _rest_with_scans(daemon, root, _MANY, share=0.015, rss=200 * _MB)


def _status(daemon: Daemon, root: Path) -> Rows:
    command = bsd("--root", str(root), "status")
    cpu = statistics.median(run(command, daemon.env).cpu for _ in range(_REPEATS))
    python = [sys.executable, "-c", "pass"]
    bare = statistics.median(run(python, daemon.env).cpu for _ in range(_REPEATS))
    yield row(
        "bsd status, CPU",
        f"{cpu * 1000:.0f} ms",
        f"python {bare * 1000:.0f} ms",
        cpu / bare,
        "≤ 0.8 s",
        met=cpu <= 0.8,
    )
    daemon.status()
    times = []
    for _ in range(_QUERIES):
        began = time.perf_counter()
        daemon.client.get("/api/status")
        times.append(time.perf_counter() - began)
    query = statistics.median(times)
    yield row(
        "status over the socket, p50",
        f"{query * 1000:.2f} ms",
        "reading its JSON included",
        query / 0.010,
        "≤ 10 ms",
        met=query <= 0.010,
    )


def answer(argv: list[str], **more: str) -> Any:
    """Run a program and return its JSON output; like a daemon, it is not bound to one core.

    `more` are variables for its environment.
    """
    done = subprocess.run(
        [sys.executable, *argv],
        check=False,
        capture_output=True,
        text=True,
        env=environment() | more,
    )
    if done.returncode:
        raise Failed(f"{' '.join(argv)[:200]}: {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def row(what: str, ours: str, beside: str, ratio: float, target: str, *, met: bool) -> Row:
    load = f"(load {os.getloadavg()[0]:.1f})"
    return Row(what, ours, f"{beside} {load}".strip(), ratio, target, met)


def fill(root: Path, number: int) -> None:
    """Write many small idle sessions of several agents."""
    content = b"".join(session_lines(turns=1, seed=1))[:2000].rpartition(b"\n")[0] + b"\n"
    then = time.time() - 3600
    for each in range(number):
        directory = root / "agents" / f"agent{each // _PER_AGENT:03}" / "sessions"
        if each % _PER_AGENT == 0:
            directory.mkdir(parents=True)
        path = directory / f"session-{each:05}.jsonl"
        path.write_bytes(content)
        os.utime(path, (then, then))


def _walk(root: Path) -> float:
    """Return the seconds that calling stat on all sessions takes, without any other work."""
    began = time.perf_counter()
    for agent in os.scandir(root / "agents"):
        with os.scandir(f"{agent.path}/sessions") as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
    return time.perf_counter() - began
