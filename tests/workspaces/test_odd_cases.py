"""Each odd workspace has a decided outcome, the same in a dry run, in words for an operator."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Invalid, NotFound
from bsd.workspaces import PruneResult, create_session_sandbox, prune_sessions
from tests.workspaces.spaces import clock, make, names, note, old

_PYTHON_WORDS = ("Error", "indices", "NoneType", "argument", "'str'", "datetime", "Traceback")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def prune_both_ways(root: Path, hours: Any = 24) -> PruneResult:
    """Prune, and check that the dry run reported exactly the same, in good words."""
    told = prune_sessions(hours, root, True, clock=clock)
    done = prune_sessions(hours, root, clock=clock)
    assert {**as_json(told), "dry_run": False} == as_json(done)
    for text in [*done.errors.values(), *done.details.values()]:
        assert not any(word in text for word in _PYTHON_WORDS), text
    assert done.skipped_sessions.keys() == done.details.keys()
    return done


SKIPPED: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{ x", "corrupted_metadata"),
    "empty": (b"", "corrupted_metadata"),
    "not UTF-8": (b'{"updated_at":"\xff"}', "corrupted_metadata"),
    "an array": ([], "corrupted_metadata"),
    "a number": (b"7", "corrupted_metadata"),
    "too deep": (b"[" * 60_000, "corrupted_metadata"),
    "too large": (b" " * 70_000 + b"{}", "corrupted_metadata"),
    "no times": ({"session_id": "odd"}, "corrupted_metadata"),
    "no updated_at": (old("odd", updated_at=None), "corrupted_metadata"),
    "no created_at": (old("odd", created_at=None), "corrupted_metadata"),
    "a bad version": (old("odd", version="1"), "corrupted_metadata"),
    "not a date": (old("odd", updated_at="invalid-date"), "corrupted_timestamp"),
    "a number for a date": (old("odd", updated_at=1_700_000_000), "corrupted_timestamp"),
    "a huge number for a date": (b'{"updated_at":' + b"9" * 5000 + b"}", "corrupted_metadata"),
    "a naive date": (old("odd", updated_at="2020-01-01T00:00:00"), "corrupted_timestamp"),
    "a date only": (old("odd", updated_at="2020-01-01"), "corrupted_timestamp"),
    "before the calendar": (
        old("odd", updated_at="0001-01-01T00:00:00+14:00"),
        "corrupted_timestamp",
    ),
    "of a newer version": (old("odd", version=2), "unknown_version"),
    "of another session": (old("another"), "other_session"),
}


@pytest.mark.parametrize("case", list(SKIPPED))
def test_skipped_with_a_reason(case: str, root: Path) -> None:
    content, reason = SKIPPED[case]
    note(root / "odd", content)
    done = prune_both_ways(root)
    assert (done.skipped_sessions, done.deleted_sessions) == ({"odd": reason}, [])
    assert ".metadata.json" in done.details["odd"]
    assert names(root) == ["odd"]


DELETED = {
    "25 hours": old("odd", hours=25),
    "with a Z": old("odd", updated_at="2020-01-01T00:00:00Z"),
    "with an offset": old("odd", updated_at="2020-01-01T09:00:00.123456+09:00"),
    "without an owner": old(),
    "with a silly count": old("odd", execution_count="many", last_error=7),
    "with unknown fields": old("odd", ttl=3),
}


@pytest.mark.parametrize("case", list(DELETED))
def test_deleted(case: str, root: Path) -> None:
    note(root / "odd", DELETED[case])
    assert prune_both_ways(root).deleted_sessions == ["odd"]
    assert names(root) == []


def test_kept_and_not_mentioned(root: Path) -> None:
    make(root, "an-hour", hours=1)
    make(root, "exactly", hours=24)
    make(root, "future", hours=-5)
    (root / "plain-file").write_text("x")
    note(root / ".hidden", old(".hidden"))
    done = prune_both_ways(root)
    assert (done.deleted_sessions, done.skipped_sessions, done.errors) == ([], {}, {})
    assert names(root) == [".hidden", "an-hour", "exactly", "future", "plain-file"]


def test_a_directory_of_another_purpose_is_one_of_ours_only_by_its_metadata(root: Path) -> None:
    (root / "site-packages").mkdir()
    (root / "site-packages" / "module.py").touch()
    assert prune_both_ways(root).skipped_sessions == {"site-packages": "missing_metadata"}


def test_names_that_no_session_has(root: Path) -> None:
    note(root / "two words", old("two words"))
    note(root / os.fsdecode(b"latin-\xe9"), old())
    done = prune_both_ways(root)
    assert set(done.skipped_sessions.values()) == {"invalid_name"}
    assert len(done.skipped_sessions) == 2


@pytest.mark.parametrize("target", ["outside", "inside", "nowhere"])
def test_symlinks_are_never_followed(target: str, root: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside", hours=100)
    make(root, "inside", hours=1)
    place = {"outside": tmp_path / "outside", "inside": root / "inside", "nowhere": root / "no"}
    (root / "link").symlink_to(place[target])
    done = prune_both_ways(root)
    assert (done.deleted_sessions, done.skipped_sessions) == ([], {"link": "symlink"})
    assert (tmp_path / "outside" / "file0").exists()
    assert (root / "link").is_symlink()


def _link(path: Path, root: Path) -> None:
    note(root / "elsewhere", old("odd"))
    path.symlink_to(root / "elsewhere" / ".metadata.json")


def _socket(path: Path, _root: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its path may be too long for a socket
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    "make_it",
    [_link, lambda path, _: os.mkfifo(path), lambda path, _: path.mkdir(), _socket],
    ids=["link", "pipe", "directory", "socket"],
)
def test_metadata_that_are_no_file(make_it: Callable[[Path, Path], object], root: Path) -> None:
    (root / "odd").mkdir()
    make_it(root / "odd" / ".metadata.json", root)
    done = prune_both_ways(root)
    assert done.skipped_sessions["odd"] == "corrupted_metadata"


@pytest.mark.parametrize(
    "hours",
    [-1, -0.001, float("nan"), float("inf"), float("-inf"), "24", True, [], 10**400],
    ids=repr,
)
def test_ages_that_are_none(hours: Any, root: Path) -> None:
    make(root, "in-use", hours=0)
    with pytest.raises(Invalid, match="older_than_hours must be a number of hours, 0 or more"):
        prune_sessions(hours, root, clock=clock)
    assert names(root) == ["in-use"]


@pytest.mark.parametrize("hours", [1e9, 1e300, 10**12])
def test_an_age_longer_than_the_calendar_deletes_nothing(hours: float, root: Path) -> None:
    make(root, "old", hours=100_000)
    assert prune_both_ways(root, hours).deleted_sessions == []


@pytest.mark.parametrize("limits", [{"max_count": -1}, {"max_total_bytes": 1.5}])
def test_limits_that_are_none(limits: dict[str, Any], root: Path) -> None:
    with pytest.raises(Invalid, match="must be a whole number"):
        prune_sessions(24, root, **limits)


def test_a_missing_root_is_an_error_and_not_made(tmp_path: Path) -> None:
    for dry_run in (True, False):
        with pytest.raises(NotFound, match="there is no workspace root") as caught:
            prune_sessions(24, tmp_path / "nowhere", dry_run)
        assert caught.value.hint
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match="is not a directory"):
        prune_sessions(24, tmp_path / "file")


def test_a_root_may_be_a_link(root: Path, tmp_path: Path) -> None:
    make(root, "old", hours=30)
    (tmp_path / "alias").symlink_to(root)
    assert prune_sessions(24, tmp_path / "alias", clock=clock).deleted_sessions == ["old"]


def test_a_dry_run_writes_nothing(root: Path) -> None:
    note(root / "old", old("old"))
    prune_sessions(24, root, True, clock=clock)
    assert os.listdir(root) == ["old"]


def test_the_oldest_come_first_whatever_their_names(root: Path) -> None:
    for hours, name in ((30, "b"), (50, "c"), (40, "a"), (40, "A")):
        make(root, name, hours=hours)
    assert prune_both_ways(root).deleted_sessions == ["c", "A", "a", "b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a b", "é", "x" * 201])
def test_ids_that_no_workspace_may_have(name: str, root: Path) -> None:
    with pytest.raises(Invalid) as caught:
        create_session_sandbox(name, root)
    assert caught.value.exit_code == 2
    assert names(root) == []


def test_a_file_or_a_link_in_the_place_of_a_workspace(root: Path, tmp_path: Path) -> None:
    (root / "file").write_text("x")
    (root / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(Invalid, match="is not a directory"):
            create_session_sandbox(name, root)
    assert (root / "file").read_text() == "x"
    assert not (tmp_path / ".metadata.json").exists()
