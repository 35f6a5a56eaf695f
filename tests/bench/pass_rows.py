"""The daemon's first pass: its cost for sessions in use, and the gain of a second core.

`BENCH_PASS_SESSIONS` is the number of sessions beside those in use (default 20,000),
`BENCH_PASS_MB` the size of the backlog that is extracted (1024, in 100 sessions).
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bsd.sample import session_lines
from tests.bench.daemon import Daemon, configure
from tests.bench.daemon_rows import NEVER, fill, row
from tests.bench.measure import Failed, settle
from tests.bench.row import Rows
from tests.openclaw_tree import add_session

_MB = 1 << 20
_SESSIONS = int(os.environ.get("BENCH_PASS_SESSIONS", "20000"))
_PASS_MB = int(os.environ.get("BENCH_PASS_MB", "1024"))
_BACKLOG = 100  # sessions
_LIVING = 10  # that are appended to during the pass, and the same number after it
_LIST_SECONDS = 0.1  # from one request for the list to the next
_LIST_TIMES = 30  # at least, or a single slow request would decide about 95 of 100
_LOOK_SECONDS = 0.02


def living(scratch: Path, _cache: Path) -> Rows:
    """A client writes, and another loads the list, while all sessions are new to the daemon."""
    root = scratch / "root"
    fill(root, _SESSIONS)
    turns = [b"".join(session_lines(turns=2, seed=seed)) for seed in range(2 * _LIVING)]
    sessions = [add_session(root, f"living/{n}", turn) for n, turn in enumerate(turns)]
    configure(root, auto_cron=NEVER, retention_cron=NEVER, keep_recent=0)
    with Daemon(root) as daemon:
        with _list_asked(daemon) as asked_during:
            during = list(_appended(daemon, sessions[:_LIVING], only_while_busy=True))
            while len(asked_during) < _LIST_TIMES and _is_busy(daemon):
                time.sleep(_LIST_SECONDS)
        if not during or len(asked_during) < _LIST_TIMES:
            raise Failed("the pass was over too soon: more BENCH_PASS_SESSIONS")
        daemon.wait_until_idle()
        daemon.wait_until_indexed()
        with _list_asked(daemon) as asked_idle:
            idle = list(_appended(daemon, sessions[_LIVING:]))
            while len(asked_idle) < _LIST_TIMES:
                time.sleep(_LIST_SECONDS)
    ours, theirs = statistics.median(during), statistics.median(idle)
    beside = f"first look at {_SESSIONS:,}"
    yield row(
        f"append → extracted, during the {beside}, median of {len(during)}",
        f"{ours:.2f} s",
        f"idle {theirs:.2f} s",
        ours / theirs,
        "≤ 2 × idle",
        met=ours <= 2 * theirs,
    )
    yield row(
        "the same, the slowest",
        f"{max(during):.2f} s",
        f"idle {max(idle):.2f} s",
        max(during) / max(idle),
        "reported only",
        met=True,
    )
    ours, theirs = _p95(asked_during), _p95(asked_idle)
    yield row(
        f"GET /api/sessions, during the {beside}, p95",
        f"{ours * 1000:.0f} ms",
        f"idle {theirs * 1000:.0f} ms",
        ours / theirs,
        "≤ 2 × idle",
        met=ours <= 2 * theirs,
    )
    yield row(
        "the same, the first, of which nothing is known yet",
        f"{asked_during[0] * 1000:.0f} ms",
        f"{len(asked_during)} during the pass, {len(asked_idle)} idle",
        asked_during[0] / theirs,
        "reported only: each session is read",
        met=True,
    )


def _is_busy(daemon: Daemon) -> bool:
    return bool(daemon.status()["queue"]["ready"] > _LIVING)


def _appended(
    daemon: Daemon, sessions: Sequence[Path], *, only_while_busy: bool = False
) -> Iterator[float]:
    """Append a turn to each in turn; return the seconds until it has left again.

    A file may be changed after two seconds without a write; these seconds are included.
    """
    for seed, path in enumerate(sessions):
        if only_while_busy and not _is_busy(daemon):
            return
        began = time.perf_counter()
        with path.open("ab") as file:
            file.write(b"".join(list(session_lines(turns=2, seed=100 + seed))[1:]))
            size = os.fstat(file.fileno()).st_size

        def extracted(path: Path = path, size: int = size) -> bool:
            time.sleep(_LOOK_SECONDS)
            return path.stat().st_size < size

        daemon.wait(extracted, f"to look at {path}")
        yield time.perf_counter() - began


@contextmanager
def _list_asked(daemon: Daemon) -> Iterator[list[float]]:
    """Ask for the list of sessions again and again in the block; the seconds that each took."""
    client, over, took = daemon.another_client(), threading.Event(), list[float]()

    def ask() -> None:
        while not over.wait(_LIST_SECONDS):
            began = time.perf_counter()
            client.get("/api/sessions")
            took.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


def two_cores(scratch: Path, _cache: Path) -> Rows:
    """The same backlog on one core and on two."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise Failed("this needs two cores")
    one, peak_of_one = _pass(scratch / "one", cores[:1])
    two, peak_of_two = _pass(scratch / "two", cores)
    size = f"{_PASS_MB} MB in {_BACKLOG} sessions"
    yield row(
        f"daemon's first pass over {size}, 2 cores",
        f"{two:.1f} s",
        f"1 core {one:.1f} s",
        one / two,
        "≥ 1.7 × one core",
        met=one >= 1.7 * two,
    )
    yield row(
        "the same, most memory of all processes",
        f"{peak_of_two / _MB:.0f} MB",
        f"1 core {peak_of_one / _MB:.0f} MB",
        peak_of_two / peak_of_one,
        "reported only",
        met=True,
    )


def _pass(root: Path, cores: Sequence[int]) -> tuple[float, int]:
    """Seconds until all is extracted, start included, and peak memory."""
    for number in range(_BACKLOG):
        content = b"".join(session_lines(size=_PASS_MB * _MB // _BACKLOG, seed=number))
        add_session(root, f"main/session-{number:03}", content)
    configure(root, auto_cron=NEVER, retention_cron=NEVER)
    settle()
    began = time.perf_counter()
    with Daemon(root, cores) as daemon, daemon.peak() as peak:
        daemon.wait_until_idle()
        seconds = time.perf_counter() - began
    stores = sum(1 for _ in root.glob("extracted/*/index.json"))
    if stores != _BACKLOG:
        raise Failed(f"{stores} of {_BACKLOG} sessions were extracted")
    return seconds, peak.rss
