"""Seed 004, point by point: its success criteria, its risks, its open questions."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bsd.workspaces import (
    SessionMetadata,
    create_session_sandbox,
    execute,
    list_sessions,
    prune_sessions,
    read_session_metadata,
    repair_session_metadata,
    touch_session,
)
from bsd.workspaces.place import open_root, workspace_in_use
from tests.logs import capture_logs
from tests.workspaces.spaces import HOUR, NOW, at, clock, make, names, note, noted, old


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


# --- success criteria ---


def test_1_workspaces_have_metadata_with_created_at_and_updated_at(root: Path) -> None:
    sandbox = create_session_sandbox("build-7", root, clock=clock)
    assert sandbox.created
    assert noted(sandbox.path) == {
        "session_id": "build-7",
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
        "version": 1,
        "execution_count": 0,
        "last_error": None,
    }
    assert (sandbox.path / ".metadata.json").stat().st_mode & 0o777 == 0o600
    assert sandbox.path.stat().st_mode & 0o777 == 0o700
    assert len(create_session_sandbox(None, root).session_id) == 36, "a UUID without a name"


def test_2_updated_at_refreshes_on_each_execute_even_if_it_fails(root: Path) -> None:
    path = make(root, "a", hours=100)
    moments = iter([NOW - 50 * HOUR, NOW - 50 * HOUR, NOW, NOW])
    done = execute("a", ["true"], root, isolate=False, clock=lambda: next(moments))
    assert (done.exit_code, at(done.metadata)) == (0, NOW - 50 * HOUR)
    done = execute("a", ["false"], root, isolate=False, clock=lambda: next(moments))
    assert (done.exit_code, done.succeeded, at(done.metadata)) == (1, False, NOW)
    after = noted(path)
    assert after["created_at"] == "2027-01-11T04:00:00.000Z"
    assert after["updated_at"] == "2027-01-15T08:00:00.000Z"
    assert (after["execution_count"], after["last_error"]) == (2, "exit code 1")


def test_3_prune_deletes_sessions_inactive_for_24_hours(root: Path) -> None:
    make(root, "stale", hours=25)
    make(root, "fresh", hours=1)
    done = prune_sessions(older_than_hours=24, workspace_root=root, clock=clock)
    assert done.deleted_sessions == ["stale"]
    assert (done.skipped_sessions, done.errors, done.dry_run) == ({}, {}, False)
    assert done.reclaimed_bytes >= 5000
    assert names(root) == ["fresh"]
    assert str(done).startswith("Pruned 1 session, reclaimed ")


def test_4_dry_run_lists_candidates_with_bytes_and_deletes_nothing(root: Path) -> None:
    for number in range(3):
        make(root, f"stale{number}", hours=30 + number, files=number)
    before = sorted(str(path) for path in root.rglob("*"))
    told = prune_sessions(24, root, True, clock=clock)
    assert sorted(str(path) for path in root.rglob("*")) == before
    done = prune_sessions(24, root, clock=clock)
    assert told.dry_run
    assert told.deleted_sessions == done.deleted_sessions == ["stale2", "stale1", "stale0"]
    assert told.reclaimed_bytes == done.reclaimed_bytes > 0
    assert names(root) == []


def test_5_sessions_without_metadata_continue_working(root: Path) -> None:
    legacy = root / "legacy"
    legacy.mkdir(parents=True)
    (legacy / "work").write_text("kept")
    with capture_logs() as lines:
        assert not create_session_sandbox("legacy", root).created
        assert execute("legacy", ["cat", "work"], root, isolate=False).stdout == "kept"
        assert touch_session("legacy", root) is None
        assert read_session_metadata("legacy", root) is None
        assert prune_sessions(0, root).skipped_sessions == {"legacy": "missing_metadata"}
    assert sorted(os.listdir(legacy)) == ["work"], "none is made where there was none"
    warned = [line for line in lines if line["log_level"] == "warn"]
    assert {line["event"] for line in warned} == {
        "session.metadata.unusable",
        "session.prune.skipped",
    }
    assert all(line["reason"] == "missing_metadata" for line in warned)


def test_6_touch_and_creation_move_timestamps_as_they_should(root: Path) -> None:
    make(root, "a", hours=100)
    again = create_session_sandbox("a", root, clock=clock)
    assert not again.created
    assert at(again.metadata()) == NOW - 100 * HOUR, "opening resets nothing"
    assert at(touch_session("a", root, clock=clock)) == NOW
    metadata = read_session_metadata("a", root)
    assert metadata is not None
    assert metadata.created_at.timestamp() == NOW - 100 * HOUR
    assert metadata.execution_count == 0


def test_7_structured_logging_is_an_audit_trail(root: Path) -> None:
    with capture_logs() as lines:
        make(root, "stale", hours=25)
        note(root / "broken", b"{ x")
        prune_sessions(24, root, clock=clock)
    by_event = {line["event"]: line for line in lines}
    assert by_event["session.created"]["session_id"] == "stale"
    started = by_event["session.prune.started"]
    assert (started["threshold_hours"], started["dry_run"]) == (24, False)
    assert started["workspace_root"] == str(root)
    assert by_event["session.prune.candidate"]["age_hours"] == 25
    deleted = by_event["session.prune.deleted"]
    assert (deleted["session_id"], deleted["age_hours"]) == ("stale", 25)
    assert deleted["reclaimed_bytes"] > 0
    skipped = by_event["session.prune.skipped"]
    assert (skipped["log_level"], skipped["reason"]) == ("warn", "corrupted_metadata")
    completed = by_event["session.prune.completed"]
    assert (completed["deleted"], completed["skipped"], completed["errors"]) == (1, 1, 0)


# --- risks ---


def test_risk_clock_skew_dates_in_the_future_are_kept(root: Path) -> None:
    make(root, "ahead", hours=-5)
    done = prune_sessions(0, root, clock=clock)
    assert (done.deleted_sessions, done.skipped_sessions, done.errors) == ([], {}, {})
    assert names(root) == ["ahead"]
    assert list_sessions(root, clock=clock)[0].age_hours == -5
    assert "NTP" in (prune_sessions.__doc__ or ""), "the assumption is documented"


def test_risk_concurrent_access_a_session_in_use_is_skipped(root: Path) -> None:
    make(root, "busy", hours=100)
    with open_root(root) as opened, workspace_in_use(opened, "busy"):
        for dry_run in (True, False):
            done = prune_sessions(24, root, dry_run, clock=clock)
            assert (done.deleted_sessions, done.skipped_sessions) == ([], {"busy": "in_use"})
    assert prune_sessions(24, root, clock=clock).deleted_sessions == ["busy"]


def test_risk_corrupted_or_deleted_metadata_skips_with_a_warning(root: Path) -> None:
    note(root / "corrupted", b"\xff\xfe{")
    (make(root, "deleted", hours=100) / ".metadata.json").unlink()
    with capture_logs() as lines:
        done = prune_sessions(24, root, clock=clock)
    assert done.skipped_sessions == {
        "corrupted": "corrupted_metadata",
        "deleted": "missing_metadata",
    }
    warned = {line["session_id"] for line in lines if line["log_level"] == "warn"}
    assert warned == {"corrupted", "deleted"}
    assert names(root) == ["corrupted", "deleted"]


def test_risk_metadata_can_be_repaired_from_file_times(root: Path) -> None:
    path = root / "old"
    path.mkdir(parents=True)
    (path / "f").write_text("x")
    os.utime(path / "f", (NOW - 30 * HOUR, NOW - 30 * HOUR))
    repair = repair_session_metadata("old", root, clock=clock)
    assert (repair.repaired, repair.reason) == (True, "missing_metadata")
    assert at(repair.metadata) == NOW - 30 * HOUR
    assert prune_sessions(24, root, clock=clock).deleted_sessions == ["old"]


def test_risk_breaking_existing_sessions_files_of_the_seed_are_understood(root: Path) -> None:
    """The seed's own files: two times and no other member."""
    note(root / "theirs", old())
    done = execute("theirs", ["true"], root, isolate=False, clock=clock)
    assert done.metadata is not None
    assert (done.metadata.session_id, done.metadata.execution_count) == ("theirs", 1)
    note(root / "stale", old())
    assert prune_sessions(24, root, clock=clock).deleted_sessions == ["stale"]


# --- open questions ---


def test_question_2_a_predicate_over_metadata(root: Path) -> None:
    for number in range(4):
        make(root, f"s{number}", hours=100)
        if number % 2:
            execute(f"s{number}", ["false"], root, isolate=False, clock=lambda: NOW - 90 * HOUR)

    def failed(metadata: SessionMetadata) -> bool:
        return metadata.last_error is not None

    assert prune_sessions(24, root, where=failed, clock=clock).deleted_sessions == ["s1", "s3"]
    assert names(root) == ["s0", "s2"]


def test_question_4_unknown_fields_are_kept(root: Path) -> None:
    note(root / "a", old("a", owner={"team": "x"}, big=2**70))
    touch_session("a", root)
    after = noted(root / "a")
    assert (after["owner"], after["big"]) == ({"team": "x"}, 2**70)
    assert abs(time.time() - at(read_session_metadata("a", root))) < HOUR


def test_sessions_are_portable_by_copying_their_directory(root: Path, tmp_path: Path) -> None:
    import shutil

    path = make(root, "a", hours=30)
    other = tmp_path / "other-host"
    shutil.copytree(path, other / "a")
    assert prune_sessions(24, other, clock=clock).deleted_sessions == ["a"]
