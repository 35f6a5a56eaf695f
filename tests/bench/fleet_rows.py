"""What a bucket that hangs costs the work on this machine: nothing, beside a daemon without one."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.bench.daemon import configure
from tests.bench.daemon_rows import NEVER, answer, fill, row
from tests.bench.row import Rows
from tests.servers.s3 import environment

_SESSIONS = 400  # all of them wait to be uploaded
_SECONDS = 20.0


def hanging_bucket(scratch: Path, _cache: Path) -> Rows:
    """Measure the time from an append until the session is in the queue, as `latency` does."""
    delays: dict[str, list[float]] = {}
    # Connections are accepted by the system, and never answered.
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        reached = environment(f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name, fleet in (
            ("without", ""),
            ("hangs", '[fleet]\nbucket = "s3://bench"\ncopy_after = "1m"\npush_seconds = 10\n'),
        ):
            root = scratch / name
            fill(root, _SESSIONS)
            configure(root, auto_cron=NEVER, retention_cron=NEVER)
            (config := scratch / f"{name}.toml").write_text(fleet)
            argv = ["-m", "tests.bench.daemon_latency", str(root), str(_SECONDS), "0", str(config)]
            found = answer(argv, **reached)
            if found["lost"] > _SESSIONS // 100:
                raise AssertionError(f"{found['lost']} appends were never queued")
            delays[name] = sorted(found["delays"])
        silent.setblocking(False)
        silent.accept()[0].close()  # raises BlockingIOError if no push has tried to upload
    for percent, most in ((50, 1.1), (90, 1.25)):
        ours, beside = (
            each[len(each) * percent // 100] for each in (delays["hangs"], delays["without"])
        )
        yield row(
            f"append → queued, p{percent}, bucket hangs",
            f"{ours * 1000:.2f} ms",
            f"no bucket {beside * 1000:.2f} ms",
            ours / beside,
            f"≤ {most} ×",
            met=ours <= most * beside,
        )
