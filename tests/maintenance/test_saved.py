"""Bytes saved over time, from the audit log, which is read once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.audit import AuditLog
from bsd.core.errors import Forbidden
from bsd.maintenance import disk_use
from bsd.maintenance.disk_use import SavedByHour

HOUR = 3600


def points(counted: SavedByHour) -> list[tuple[str, int, int]]:
    told = as_json(counted.savings())
    assert told["step_seconds"] == HOUR
    return [(one["at"][:16], one["saved"], one["given_back"]) for one in told["points"]]


def note(path: Path, hour: float, **what: Any) -> None:
    AuditLog(path, clock=lambda: hour * HOUR).record(actor="cli", action="x", **what)


def test_it_adds_up_by_hour_and_reads_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    counted = SavedByHour(path)
    assert points(counted) == []
    note(path, 1.0, bytes_saved=100)
    note(path, 1.9, bytes_saved=11)
    note(path, 3.5, bytes_before=10, bytes_after=50)
    first = [("1970-01-01T01:00", 111, 0), ("1970-01-01T03:00", 0, 40)]
    assert points(counted) == first
    note(path, 3.6, bytes_before=50, bytes_after=10)
    note(path, 3.7, files_removed=4)  # no bytes left a session
    assert points(counted) == [first[0], ("1970-01-01T03:00", 40, 40)]
    assert points(counted) == [first[0], ("1970-01-01T03:00", 40, 40)]


def test_it_adds_up_by_agent_with_the_tokens_that_were_noted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    counted = SavedByHour(path)
    note(path, 1.0, agent="main", bytes_saved=100)
    note(path, 1.1, agent="claude-code:-home", bytes_saved=10, tokens_saved=3)
    note(path, 1.2, agent="claude-code:-srv", bytes_saved=20, tokens_saved=4)
    note(path, 2.0, agent="main", bytes_before=10, bytes_after=50)
    found = as_json(counted.savings())
    assert [
        (one["agent"], one["saved"], one["given_back"], one["tokens"]) for one in found["by_agent"]
    ] == [
        ("claude-code", 30, 0, 7),
        ("main", 100, 0, None),
        ("main", 0, 40, None),
    ]
    assert [one["saved"] for one in found["points"]] == [130, 0]
    note(path, 3.0, agent="codex:2026:11:27", bytes_saved=0, tokens_saved=5)
    newest = as_json(counted.savings())["by_agent"][-1]
    assert (newest["agent"], newest["saved"], newest["tokens"]) == ("codex", 0, 5)


def test_a_line_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    counted = SavedByHour(path)
    line = json.dumps({"time": "1970-01-01T05:10:00.000Z", "bytesSaved": 7})
    path.write_text(line[:20])
    assert points(counted) == []
    path.write_text(f"{line}\n[1]\nnot json\n\n" + '{"time":"x","bytesSaved":1}\n')
    assert points(counted) == [("1970-01-01T05:00", 7, 0)]


def test_a_rotated_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    counted = SavedByHour(path)
    note(path, 1, bytes_saved=1)
    assert points(counted) == [("1970-01-01T01:00", 1, 0)]
    path.rename(tmp_path / "audit.jsonl.1")
    assert points(counted) == [("1970-01-01T01:00", 1, 0)]
    note(path, 2, bytes_saved=2)
    assert points(counted) == [("1970-01-01T01:00", 1, 0), ("1970-01-01T02:00", 2, 0)]


def test_what_is_very_old_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_use, "_MOST_HOURS", 2)
    monkeypatch.setattr(disk_use, "_BLOCK", 7)  # lines longer than a block of the reader
    path = tmp_path / "audit.jsonl"
    for hour in range(5):
        note(path, hour, bytes_saved=10**hour)
    assert points(SavedByHour(path)) == [
        ("1970-01-01T03:00", 1111, 0),
        ("1970-01-01T04:00", 10000, 0),
    ]


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Forbidden):
        SavedByHour(tmp_path).savings()
