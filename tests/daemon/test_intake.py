"""Sessions for which the queue has no room are not forgotten."""

from __future__ import annotations

import time
from pathlib import Path

from bsd.daemon.debounce import Debounce
from bsd.daemon.intake import Intake
from bsd.daemon.jobs import Finished
from bsd.daemon.queue import WorkQueue
from bsd.daemon.scan import Scan
from bsd.foundation.layout import Layout


def test_what_finds_no_room_is_found_again_by_the_next_scan(tmp_path: Path) -> None:
    sessions = tmp_path / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for number in range(3):
        (sessions / f"s{number}.jsonl").write_bytes(b"{}\n")
    scan, queue = Scan(Layout(tmp_path)), WorkQueue(capacity=1, clock=lambda: 0.0)
    intake = Intake(queue, scan, Debounce(), quiet=0.0, wake=lambda: None, clock=lambda: 0.0)
    worked = set()
    for _ in range(3):
        for name, seen in scan.step():
            assert seen is not None
            intake.found(name, seen, 0.0, time.time())
        taken = queue.take_now(1.0)
        assert taken is not None
        queue.done(taken, Finished(), 1.0)
        worked.add(taken.session)
    assert worked == {"s0", "s1", "s2"}
    assert list(scan.step()) == []
