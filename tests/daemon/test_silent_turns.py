"""A turn that its program left in the middle: its session is due a day later, without a change."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bsd.core.formatting import iso_utc
from tests.daemon.fast_forward import Clock, machine
from tests.daemon.running import configure
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, LONG, entry, jsonl

HOUR = 3600.0
PLACEHOLDER = b"[[extracted-"


def test_a_session_is_due_when_its_turn_is_over_by_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = float(int(time.time()))
    entries = [entry(0, "user", "look"), entry(1, "toolResult", LONG), entry(2, "toolResult", LONG)]
    written = {"timestamp": iso_utc(now - HOUR)}
    path = add_session(tmp_path, "main/s1", jsonl(HEADER, *(one | written for one in entries)))
    configure(tmp_path, keep_recent=0, auto_cron="0 0 1 1 *", scan_interval_seconds=3600)
    clock = Clock(now)
    with machine(tmp_path, clock, monkeypatch) as running:
        running.settle()
        running.run_until(now + 22.9 * HOUR)
        assert PLACEHOLDER not in path.read_bytes()
        running.run_until(now + 23 * HOUR + 60)
        assert path.read_bytes().count(PLACEHOLDER) == 2


def test_it_is_due_after_a_restart_of_the_daemon_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = float(int(time.time()))
    entries = [entry(0, "user", "look"), entry(1, "toolResult", LONG)]
    written = {"timestamp": iso_utc(now - HOUR)}
    path = add_session(tmp_path, "main/s1", jsonl(HEADER, *(one | written for one in entries)))
    configure(tmp_path, keep_recent=0, auto_cron="0 0 1 1 *", scan_interval_seconds=3600)
    clock = Clock(now)
    with machine(tmp_path, clock, monkeypatch) as running:
        running.settle()
        running.run_until(now + HOUR)
    with machine(tmp_path, clock, monkeypatch) as running:
        running.run_until(now + 22 * HOUR)
        assert PLACEHOLDER not in path.read_bytes()
        running.run_until(now + 23 * HOUR + 60)
        assert PLACEHOLDER in path.read_bytes()
