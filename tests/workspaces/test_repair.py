"""Repair: metadata are rebuilt, and never made older than the known times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.core.errors import Conflict, Forbidden, NotFound
from bsd.workspaces import prune_sessions, repair_all, repair_session_metadata
from bsd.workspaces.place import open_root, workspace_in_use
from tests.workspaces.spaces import HOUR, NOW, at, clock, make, note, noted, old


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def written(path: Path, hours: float) -> None:
    """A file that was written this long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (NOW - hours * HOUR, NOW - hours * HOUR))


def test_the_newest_file_counts_not_its_directory(root: Path) -> None:
    written(root / "a" / "deep" / "er" / "newest", 30)
    written(root / "a" / "oldest", 50)
    repair = repair_session_metadata("a", root, clock=clock)
    assert repair.metadata is not None
    assert repair.metadata.updated_at.timestamp() == NOW - 30 * HOUR
    assert repair.metadata.created_at.timestamp() == NOW - 50 * HOUR
    assert noted(root / "a")["session_id"] == "a"
    assert (root / "a" / ".metadata.json").stat().st_mode & 0o777 == 0o600


def test_without_any_file_it_counts_as_used_now(root: Path) -> None:
    (root / "a" / "empty").mkdir(parents=True)
    os.utime(root / "a", (1, 1))
    assert at(repair_session_metadata("a", root, clock=clock).metadata) == NOW


def test_files_of_the_future_are_a_wrong_clocks(root: Path) -> None:
    written(root / "a" / "f", -1000)
    assert at(repair_session_metadata("a", root, clock=clock).metadata) == NOW


def test_a_broken_file_was_written_when_the_workspace_was_used(root: Path) -> None:
    """A run without changes to its files was recorded there, before recording failed."""
    written(root / "a" / "f", 500)
    note(root / "a", b"{ x")
    os.utime(root / "a" / ".metadata.json", (NOW - 2 * HOUR, NOW - 2 * HOUR))
    repair = repair_session_metadata("a", root, clock=clock)
    assert repair.reason == "corrupted_metadata"
    assert at(repair.metadata) == NOW - 2 * HOUR


@pytest.mark.parametrize(
    ("hours", "expected"), [(2, 2), (-7, -7), (600, 500)], ids=["newer", "future", "older"]
)
def test_what_a_broken_file_tells_is_kept_and_never_makes_it_older(
    root: Path, hours: float, expected: float
) -> None:
    written(root / "a" / "f", 500)
    note(root / "a", old("a", hours=hours, created_at=None, execution_count=9, tag="mine"))
    os.utime(root / "a" / ".metadata.json", (NOW - 900 * HOUR, NOW - 900 * HOUR))
    repair = repair_session_metadata("a", root, clock=clock)
    assert at(repair.metadata) == NOW - expected * HOUR
    assert noted(root / "a")["execution_count"] == 9
    assert noted(root / "a")["tag"] == "mine"


def test_a_copy_becomes_its_own(root: Path) -> None:
    note(root / "copy", old("original", hours=5))
    assert prune_sessions(1, root, clock=clock).skipped_sessions == {"copy": "other_session"}
    repair_session_metadata("copy", root, clock=clock)
    assert noted(root / "copy")["session_id"] == "copy"


def state_of(path: Path) -> tuple[int, ...]:
    """All but the time of the last read."""
    found = path.stat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def test_good_metadata_are_left_alone(root: Path) -> None:
    path = make(root, "a", hours=100)
    before = state_of(path / ".metadata.json")
    repair = repair_session_metadata("a", root, clock=clock)
    assert (repair.repaired, repair.reason) == (False, None)
    assert state_of(path / ".metadata.json") == before


def test_a_dry_run_writes_nothing(root: Path) -> None:
    written(root / "a" / "f", 30)
    told = repair_session_metadata("a", root, True, clock=clock)
    assert (told.repaired, told.dry_run) == (True, True)
    assert os.listdir(root / "a") == ["f"]
    assert os.listdir(root) == ["a"]
    done = repair_session_metadata("a", root, clock=clock)
    assert done.metadata == told.metadata


def test_whatever_lies_there_makes_room(root: Path, tmp_path: Path) -> None:
    written(tmp_path / "theirs", 30)
    (root / "link").mkdir()
    (root / "link" / ".metadata.json").symlink_to(tmp_path / "theirs")
    (root / "dir" / ".metadata.json" / "x").mkdir(parents=True)
    done = repair_all(root, clock=clock)
    assert [(one.session_id, one.repaired) for one in done] == [("dir", True), ("link", True)]
    assert noted(root / "dir")["session_id"] == "dir"
    assert (tmp_path / "theirs").read_text() == "x"


def test_all_that_need_it_and_can_be(root: Path) -> None:
    make(root, "good", hours=1)
    note(root / "newer", old("newer", version=99))
    note(root / "two words", b"")
    (root / "bare").mkdir()
    (root / "busy").mkdir()
    (root / "link").symlink_to(root / "bare")
    with open_root(root) as opened, workspace_in_use(opened, "busy"):
        done = {one.session_id: one for one in repair_all(root, clock=clock)}
    assert {name: one.repaired for name, one in done.items()} == {
        "bare": True,
        "busy": False,
        "newer": False,
    }
    assert done["busy"].error == "workspace busy is in use"
    assert "version 99" in (done["newer"].error or "")
    with pytest.raises(Conflict, match="version 99"):
        repair_session_metadata("newer", root)
    with pytest.raises(NotFound, match="there is no workspace none"):
        repair_session_metadata("none", root)
    with pytest.raises(Forbidden, match="symbolic link"):
        repair_session_metadata("link", root)
