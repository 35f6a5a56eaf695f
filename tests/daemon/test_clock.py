"""A daemon whose machine's clock is set forward while it runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.daemon.fast_forward import Clock, Machine, machine
from tests.daemon.running import configure

pytestmark = pytest.mark.daemon

HOUR = 3600.0


class Jumping(Clock):
    """It can be set."""

    def put_forward(self, seconds: float) -> None:
        self.wall += seconds
        self._boot += seconds  # the monotonic clock is not set


def stored(root: Path, written: float) -> Path:
    file = root / "extracted" / "main_gone" / "0001_thinking.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    os.utime(file, (written, written))
    return file


def next_retention(running: Machine) -> None:
    before = len(running.jobs)
    while "retention" not in [name for name, _ in running.jobs[before:]]:
        running.run_until(running.clock.wall + 30)


@pytest.mark.parametrize("archive", [True, False])
def test_the_next_run_destroys_nothing_and_the_one_after_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, archive: bool
) -> None:
    # Between two times of the cron, so that no second run follows within the same step.
    root, clock = tmp_path / "root", Jumping(time.time() // 300 * 300 - 200)
    clock._boot -= 30 * HOUR  # the machine has been up for a long time
    (root / "agents").mkdir(parents=True)
    configure(root, retention_cron="*/5 * * * *", archive=archive)
    file = stored(root, clock.wall - HOUR)
    with machine(root, clock, monkeypatch) as running:
        running.may_fail = "retention"
        running.run_until(clock.wall + 600)
        assert running.daemon.report.status()["clock"] is None
        clock.put_forward(30 * HOUR)
        next_retention(running)
        [said] = running.failed
        assert "the clock was put forward by 1d 6h" in said
        assert file.exists() is not archive, "what moves into the archive moves all the same"
        assert len(list(root.rglob("*.zst"))) == archive
        next_retention(running)
        assert len(running.failed) == 1
        assert not file.exists()
        assert running.daemon.report.status()["clock"] is None
