"""The audit log: a durable line per change, in seed 000's words (SP-08)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.core.audit import AuditLog
from tests.logs import capture_logs
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".brainsurgeon" / "audit.jsonl"


@pytest.fixture
def audit(path: Path) -> AuditLog:
    return AuditLog(path, clock=lambda: 0.0)


def test_a_line_is_what_seed_000_shows_with_time_and_actor(audit: AuditLog, path: Path) -> None:
    audit.record(
        actor="cli", action="delete", agent="main", session_id="abc123", moved_to_trash=True
    )
    audit.record(
        actor="0a1b2c3d",
        action="delete_extracted",
        agent="main",
        session_id="abc123",
        files_removed=15,
        bytes_removed=1258291,
    )
    audit.record(actor="daemon", action="retention", cleaned=3, errors=0)
    head = '{"time":"1970-01-01T00:00:00.000Z","actor":'
    assert path.read_text().splitlines() == [
        head + '"cli","action":"delete","agent":"main","sessionId":"abc123","movedToTrash":true}',
        head + '"0a1b2c3d","action":"delete_extracted","agent":"main","sessionId":"abc123",'
        '"filesRemoved":15,"bytesRemoved":1258291}',
        head + '"daemon","action":"retention","cleaned":3,"errors":0}',
    ]


def test_the_file_and_its_directory_are_private(audit: AuditLog, path: Path) -> None:
    audit.record(actor="cli", action="extract")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["\ud800", "two\nlines\r\u2028\x00", "größer 😀", "x" * 200_000])
def test_any_text_is_one_line_and_comes_back(audit: AuditLog, path: Path, text: str) -> None:
    audit.record(actor="agent", action="restore", agent="a", session_id="b", entry_id=text)
    assert path.read_bytes().count(b"\n") == 1
    assert next(audit.search(b""))["entryId"] == text


def test_things_json_does_not_know_are_written_as_text(audit: AuditLog) -> None:
    audit.record(actor="cli", action="x", where=Path("/a"), keys=["a", "b"], size=2**70)
    (entry,) = audit.search(b"")
    assert (entry["where"], entry["keys"], entry["size"]) == ("/a", ["a", "b"], 2**70)


def test_lines_come_oldest_first(audit: AuditLog) -> None:
    for number in range(20):
        audit.record(actor="cli", action="extract", number=number, filler="x" * 9000)
    assert [entry["number"] for entry in audit.search(b"")] == list(range(20))


def test_no_file_has_no_lines(audit: AuditLog) -> None:
    assert list(audit.search(b"")) == []


@pytest.mark.parametrize("torn", [b'{"action":"ha', b"[1]\n", b"\xff\xfe\n"])
def test_a_torn_line_spoils_no_other(audit: AuditLog, path: Path, torn: bytes) -> None:
    audit.record(actor="cli", action="one")
    with path.open("ab") as file:
        file.write(torn)
    audit.record(actor="cli", action="two")
    first, second, third = audit.search(b"")
    assert first["action"] == "one"
    assert second == {"torn": torn.rstrip(b"\n").decode("utf-8", "replace")}
    assert third["action"] == "two"


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_is_told_in_the_log_and_stops_nobody(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(os, call, raising(OSError(28, "No space left on device")))
        audit.record(actor="cli", action="lost")
    (told,) = logs
    assert told["event"] == "The audit log cannot be written"
    assert (told["log_level"], told["action"]) == ("error", "lost")
    assert str(path) in told["error"]
    assert "No space left on device" in told["error"]


def test_a_line_is_durable_before_the_call_returns(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real: Callable[[int], None] = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    audit.record(actor="cli", action="one")
    top, directory, file = (one.stat().st_ino for one in (path.parent.parent, path.parent, path))
    assert synced == [top, file, directory]  # the directory itself is new
    audit.record(actor="cli", action="two")
    assert synced[3:] == [file]


def test_a_link_is_not_followed(audit: AuditLog, path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "elsewhere").write_text("")
    path.symlink_to(tmp_path / "elsewhere")
    with capture_logs() as logs:
        audit.record(actor="cli", action="x")
    assert [told["event"] for told in logs] == ["The audit log cannot be written"]
    assert (tmp_path / "elsewhere").read_text() == ""


def test_processes_that_write_at_once_tear_nothing(path: Path) -> None:
    program = """
import sys
from pathlib import Path
from bsd.core.audit import AuditLog
audit = AuditLog(Path(sys.argv[1]))
for number in range(50):
    audit.record(actor=sys.argv[2], action="extract", number=number, filler="x" * 5000)
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in ("a", "b")
    ]
    assert [writer.wait(timeout=DEADLINE_SECONDS) for writer in writers] == [0, 0]
    entries = [json.loads(line) for line in path.read_text().splitlines() if line]
    for name in ("a", "b"):
        found = [entry["number"] for entry in entries if entry["actor"] == name]
        assert found == list(range(50))


def test_lines_are_found_by_their_bytes(audit: AuditLog, path: Path) -> None:
    assert list(audit.search(b"x")) == []
    audit.record(actor="agent", action="restore", in_band=True, call="c1")
    audit.record(actor="cli", action="restore")
    audit.record(actor="agent", action="replace", in_band=True, call="c2")
    with path.open("ab") as file:
        file.write(b'{"inBand":true, torn')
    found = list(audit.search(b'"inBand":true'))
    assert [line.get("call") for line in found] == ["c1", "c2", None]
    assert "torn" in found[2]


def test_new_changes_are_counted_once(audit: AuditLog, path: Path) -> None:
    assert audit.count("restore_failed", 0) == (0, 0)
    for action in ("restore_failed", "extract", "restore_failed"):
        audit.record(actor="cli", action=action, entry_id="e1")
    with path.open("ab") as file:
        file.write(b'{"action":"restore_failed", unfinished')
    found, end = audit.count("restore_failed", 0)
    assert found == 2
    audit.record(actor="cli", action="restore_failed")
    assert audit.count("restore_failed", end) == (2, audit.size())  # the torn line, too
    assert audit.count("restore_failed", audit.size()) == (0, audit.size())
    path.unlink()
    audit.record(actor="cli", action="restore_failed")
    assert audit.count("restore_failed", end) == (1, audit.size())
