"""A daemon whose machine's clock is put forward, while it runs and while it does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bsd.core import clock as machine_clock
from tests.daemon.fast_forward import Clock, machine
from tests.daemon.running import configure

pytestmark = pytest.mark.daemon

HOUR = 3600.0


class Jumping(Clock):
    """Somebody may set it."""

    def put_forward(self, seconds: float) -> None:
        self.wall += seconds
        self._boot += seconds  # the steady one knows nothing of it


def stored(root: Path, written: float) -> Path:
    file = root / "extracted" / "main_gone" / "0001_thinking.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    os.utime(file, (written, written))
    return file


@pytest.fixture
def clock() -> Jumping:
    clock = Jumping(time.time())
    clock._boot -= 30 * HOUR  # the machine has been up for long
    return clock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "agents").mkdir(parents=True)
    configure(tmp_path / "root", retention_cron="*/5 * * * *")
    return tmp_path / "root"


def test_nothing_goes_until_the_machine_has_run_for_as_long_as_things_are_kept(
    root: Path, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stored(root, clock.wall - HOUR)
    with machine(root, clock, monkeypatch) as running:
        running.run_until(clock.wall + 600)
        assert running.daemon.report.status()["clock"] is None
        clock.put_forward(30 * HOUR)
        running.run_until(clock.wall + 600)
        assert [name for name, _ in running.jobs].count("retention") > 3
        assert file.exists()
        status = running.daemon.report.status()
        assert "put forward by 1d 6h" in status["clock"]
        assert status["retention"]["held"]
        assert status["retention"]["trash"]["held"]
    clock.go_to(clock.wall + HOUR)
    with machine(root, clock, monkeypatch) as running:  # it is remembered
        running.run_until(clock.wall + 21 * HOUR)
        assert file.exists()
        running.run_until(clock.wall + 3 * HOUR)
        assert not file.exists(), "it goes on by itself"
        assert "kept 2w" in running.daemon.report.status()["clock"], "the trash waits for longer"


def test_a_clock_that_is_set_back_in_time_was_never_wrong(
    root: Path, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stored(root, clock.wall - 23 * HOUR)
    with machine(root, clock, monkeypatch) as running:
        clock.put_forward(30 * HOUR)
        running.run_until(clock.wall + 300)
        clock.wall -= 30 * HOUR
        clock._boot -= 30 * HOUR
        running._timer_at = clock.wall
        running.run_until(clock.wall + 600)
        assert running.daemon.report.status()["clock"] is None
        assert file.exists()


def test_a_machine_without_a_clock_of_its_own_destroys_nothing_and_goes_on(
    root: Path, clock: Jumping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins in 1970, and learns the time a minute after bsd has begun."""
    now = clock.wall
    old, young = stored(root, now - 25 * HOUR), root / "extracted/main_gone/0002_thinking.json"
    young.write_bytes(b"y")
    with machine(root, clock, monkeypatch) as running:
        running.run_until(now + 60)
    assert not old.exists()
    old.write_bytes(b"x")
    os.utime(old, (now - 25 * HOUR,) * 2)
    monkeypatch.setattr(machine_clock, "boot_id", lambda: "another start")
    begun = Jumping(30.0)
    begun._boot = 0.0
    with machine(root, begun, monkeypatch) as running:
        running.run_until(60.0)
        assert "1970" in running.daemon.report.status()["clock"]
        written = root / "extracted/main_gone/0003_thinking.json"
        written.write_bytes(b"z")
        os.utime(written, (50.0, 50.0))
        begun.put_forward(now + 120)
        running._timer_at = begun.wall
        running.run_until(begun.wall + 600)
        assert running.daemon.report.status()["clock"] is None
        assert (old.exists(), young.exists(), written.exists()) == (False, True, True)
