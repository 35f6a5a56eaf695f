"""Pruning by count and size, during other work, and after an interruption."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Busy, NotFound, Unavailable
from bsd.workspaces import SessionMetadata, execute, prune_sessions, record, touch_session, tree
from bsd.workspaces.listing import mounted_in, survey
from bsd.workspaces.place import (
    AWAY,
    Unusable,
    lock,
    open_directory,
    open_root,
    try_lock,
    workspace_in_use,
)
from bsd.workspaces.prune import Remover
from tests.needs import as_ordinary_user
from tests.waiting import DEADLINE_SECONDS
from tests.workspaces.spaces import NOW, age, clock, make, names, note, old


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def both(root: Path, hours: float | None, **more: Any) -> list[str]:
    """Return the deletions, which must be the same workspaces and bytes in a dry run and a run."""
    told = prune_sessions(hours, root, True, clock=clock, **more)
    done = prune_sessions(hours, root, clock=clock, **more)
    assert {**as_json(told), "dry_run": False} == as_json(done)
    return done.deleted_sessions


def test_exactly_as_old_as_allowed_stays(root: Path) -> None:
    make(root, "at-the-limit", hours=24)
    make(root, "past-it", hours=24.001)
    assert prune_sessions(24, root, clock=clock).deleted_sessions == ["past-it"]
    assert (root / "at-the-limit").is_dir()


def test_by_count_the_oldest_go(root: Path) -> None:
    for hours in (1, 2, 3, 30, 40):
        make(root, f"h{hours:02}", hours=hours)
    assert both(root, 24, max_count=2) == ["h40", "h30", "h03"]
    assert both(root, None, max_count=2) == []
    assert both(root, None, max_count=0) == ["h02", "h01"]


def test_by_bytes_the_oldest_go(root: Path) -> None:
    for hours in (1, 2, 3):
        make(root, f"h{hours}", hours=hours, files=2)
    one = prune_sessions(0, root, True, clock=clock).reclaimed_bytes // 3
    assert both(root, None, max_total_bytes=3 * one) == []
    assert both(root, None, max_total_bytes=3 * one - 1) == ["h3"]
    assert both(root, None, max_total_bytes=0) == ["h2", "h1"]


def test_one_in_use_counts_but_stays_and_the_next_goes(root: Path) -> None:
    for hours in (1, 2, 3):
        make(root, f"h{hours}", hours=hours)
    with open_root(root) as opened, workspace_in_use(opened, "h3"):
        assert both(root, None, max_count=2) == ["h2"]


def test_what_where_spares_counts(root: Path) -> None:
    for hours in (1, 2, 3):
        make(root, f"h{hours}", hours=hours)

    def spared(metadata: SessionMetadata) -> bool:
        return metadata.session_id != "h3"

    assert both(root, None, where=spared, max_count=1) == ["h2", "h1"]
    assert both(root, None, where=lambda _: False, max_count=0) == []


def test_a_predicate_that_fails_deletes_nothing(root: Path) -> None:
    for hours in (30, 31):
        make(root, f"h{hours}", hours=hours)

    def fails(metadata: SessionMetadata) -> bool:
        return 1 / (metadata.execution_count - 0) > 0

    with pytest.raises(ZeroDivisionError):
        prune_sessions(24, root, where=fails, clock=clock)
    assert names(root) == ["h30", "h31"]


def test_progress_is_told_and_it_can_be_broken_off(root: Path) -> None:
    for number in range(5):
        make(root, f"s{number}", hours=50 - number)
    told: list[tuple[int, int]] = []
    done = prune_sessions(
        24,
        root,
        progress=lambda *how_far: told.append(how_far),
        stopping=lambda: len(told) == 3,
        clock=clock,
    )
    assert told == [(0, 5), (1, 5), (2, 5)]
    assert done.deleted_sessions == ["s0", "s1", "s2"], "what has begun is finished"
    assert names(root) == ["s3", "s4"]


# --- during other work ---


def taking_away(root: Path, session_id: str, before: Callable[[], object]) -> None:
    """Prune a workspace, with an event between the look at it and the lock."""
    with open_root(root) as opened:
        (planned,) = [one for one in survey(opened).known if one.session_id == session_id]
        before()
        remover = Remover(opened, dry_run=False)
        try:
            remover.destroy(remover.take_away(planned))
        finally:
            remover.close()


def test_one_that_is_used_just_before_the_lock_stays(root: Path) -> None:
    make(root, "a", hours=100)
    with pytest.raises(Unusable, match="it has just been used"):
        taking_away(root, "a", lambda: touch_session("a", root))
    assert names(root) == ["a"]


def test_one_that_was_replaced_just_before_the_lock_stays(root: Path) -> None:
    make(root, "a", hours=100)

    def replace() -> None:
        shutil.rmtree(root / "a")
        make(root, "a", hours=0)

    with pytest.raises(Unusable, match="it has just been used"):
        taking_away(root, "a", replace)
    assert names(root) == ["a"]


def test_one_that_was_moved_away_while_it_was_being_locked_is_left_with_its_successor(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, "a", hours=100)

    def swap_first(descriptor: int, *, shared: bool) -> bool:
        (root / "a").rename(root / "moved")
        make(root, "a", hours=0)
        return try_lock(descriptor, shared=shared)

    monkeypatch.setattr("bsd.workspaces.prune.try_lock", swap_first)
    done = prune_sessions(24, root, clock=clock)
    assert (done.deleted_sessions, done.errors) == ([], {})
    assert names(root) == ["a", "moved"]


def test_one_that_is_gone_just_before_the_lock_is_nobodys_error(root: Path) -> None:
    make(root, "a", hours=100)
    with pytest.raises(FileNotFoundError):
        taking_away(root, "a", lambda: shutil.rmtree(root / "a"))


def test_one_that_became_a_link_just_before_the_lock_is_not_followed(
    root: Path, tmp_path: Path
) -> None:
    make(root, "a", hours=100)

    def swap() -> None:
        (root / "a").rename(tmp_path / "moved")
        (root / "a").symlink_to(tmp_path / "moved")

    with pytest.raises(Unusable, match="symbolic link"):
        taking_away(root, "a", swap)
    assert (tmp_path / "moved" / "file0").exists()


def test_whoever_waits_for_one_that_is_being_deleted_learns_that_it_is_gone(root: Path) -> None:
    make(root, "a", hours=100)
    with open_root(root) as opened:
        remover = Remover(opened, dry_run=False)
        (planned,) = survey(opened).known
        taken = remover.take_away(planned)
        with pytest.raises(NotFound, match="there is no workspace a"):
            touch_session("a", root)
        remover.destroy(taken)
        remover.close()


def test_whoever_comes_just_before_it_is_deleted_learns_that_it_is_gone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is open, and it gets the lock once the pruning is over."""
    make(root, "a", hours=100)

    def prune_first(*what: Any, **how: Any) -> None:
        assert prune_sessions(24, root, clock=clock).deleted_sessions == ["a"]
        lock(*what, **how)

    monkeypatch.setattr("bsd.workspaces.place.lock", prune_first)
    with pytest.raises(NotFound, match="there is no workspace a"):
        touch_session("a", root)


def test_whoever_finds_it_locked_waits_and_then_gives_up(root: Path) -> None:
    make(root, "a", hours=100)
    with open_root(root) as opened:
        import fcntl

        descriptor = open_directory(opened, "a")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with (
            pytest.raises(Busy, match="workspace a is in use") as caught,
            workspace_in_use(opened, "a", wait=0.05),
        ):
            raise AssertionError("it is locked")
        os.close(descriptor)
    assert caught.value.exit_code == 4


def test_a_file_system_that_cannot_lock_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    make(root, "a", hours=100)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(Unavailable, match="cannot lock directories"):
        prune_sessions(24, root, clock=clock)
    assert names(root) == ["a"]


def test_a_forged_date_does_not_get_a_workspace_deleted_or_kept(root: Path) -> None:
    """While a program runs, the metadata are not those in its workspace."""
    make(root, "a", hours=1)
    with open_root(root) as opened, workspace_in_use(opened, "a") as space:
        record.begin(space)  # and then its process is killed: the metadata are not restored
        note(root / "a", old("a"))
    assert prune_sessions(24, root, clock=clock).deleted_sessions == []
    age(root, "a", hours=30)
    note(root / "a", old("a", hours=-100))
    assert both(root, 24) == ["a"]
    assert os.listdir(root / ".bsd") == [one for one in os.listdir(root / ".bsd") if "lock" in one]


def test_a_workspace_that_was_removed_by_hand_leaves_nothing_to_its_successor(root: Path) -> None:
    make(root, "a", hours=1)
    with open_root(root) as opened, workspace_in_use(opened, "a") as space:
        record.begin(space)  # and then the host is killed
    shutil.rmtree(root / "a")
    make(root, "a", hours=30)
    assert not list((root / ".bsd").glob("witness-*")), "another directory may get its inode"
    assert both(root, 24) == ["a"]


# --- interrupted prunings ---


def test_what_a_broken_off_pruning_has_taken_away_is_deleted_by_the_next(root: Path) -> None:
    make(root, "gone", hours=100, files=3)
    make(root, "b", hours=100)
    with open_root(root) as opened:
        remover = Remover(opened, dry_run=False)
        (planned,) = [one for one in survey(opened).known if one.session_id == "gone"]
        taken = remover.take_away(planned)
        # a process that deletes it right now is not disturbed
        told = prune_sessions(24, root, True, clock=clock)
        assert (told.leftovers, told.deleted_sessions) == (0, ["b"])
        os.close(taken.fd)
        remover.close()
    (left,) = [name for name in names(root) if name.startswith(AWAY)]
    assert left.endswith("-gone")
    shutil.rmtree(root / left / "nothing", ignore_errors=True)
    (root / left / "file0").unlink()  # it was killed during the deletion
    told = prune_sessions(24, root, True, clock=clock)
    done = prune_sessions(24, root, clock=clock)
    assert {**as_json(told), "dry_run": False} == as_json(done)
    assert (done.leftovers, done.deleted_sessions) == (1, ["b"])
    assert done.reclaimed_bytes > 10_000
    assert names(root) == []


def test_what_a_killed_creation_has_begun_is_swept_away(root: Path) -> None:
    make(root, "a", hours=1)
    (root / ".bsd" / "new-b" / "half").mkdir(parents=True)
    prune_sessions(24, root, True, clock=clock)
    assert (root / ".bsd" / "new-b").exists()
    prune_sessions(24, root, clock=clock)
    assert not (root / ".bsd" / "new-b").exists()
    assert names(root) == ["a"]


def test_a_workspace_whose_deletion_fails_is_an_error_and_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        make(root, name, hours=100)
    remove = tree.remove
    failed: list[int] = []

    def fail_once(top: int) -> None:
        if not failed:
            failed.append(top)
            raise OSError(5, os.strerror(5))
        remove(top)

    monkeypatch.setattr(tree, "remove", fail_once)
    done = prune_sessions(24, root, clock=clock)
    assert done.deleted_sessions == ["b"]
    assert done.errors == {"a": "cannot be deleted: Input/output error"}
    again = prune_sessions(24, root, clock=clock)
    assert (again.leftovers, again.errors, names(root)) == (1, {}, [])


def test_a_mount_in_a_workspace_keeps_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(root, "a", hours=100)
    table = root.parent / "mountinfo"
    point = str(root / "a" / "my data").replace(" ", "\\040")
    table.write_text(f"36 35 98:0 / {point} rw,noatime - ext4 /dev/root rw\n")
    monkeypatch.setattr("bsd.workspaces.listing._MOUNTS", table)
    with open_root(root) as opened:
        assert mounted_in(opened) == {"a": "my data"}
    for dry_run in (True, False):
        done = prune_sessions(24, root, dry_run, clock=clock)
        assert done.errors == {
            "a": "cannot be deleted: my data: another file system is mounted here"
        }
    assert names(root) == ["a"]


def test_another_file_system_in_a_workspace_keeps_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the system does not list its mounts, bsd detects it by the device."""
    below = make(root, "a", hours=100) / "data" / "mounted"
    (below / "precious").mkdir(parents=True)
    mounted, fstat = below.stat().st_ino, os.fstat

    def elsewhere(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if found.st_ino != mounted:
            return found
        fields = list(found)
        fields[2] += 1
        return os.stat_result(fields, {"st_blocks": found.st_blocks})

    monkeypatch.setattr(os, "fstat", elsewhere)
    for dry_run in (True, False):
        done = prune_sessions(24, root, dry_run, clock=clock)
        text = "cannot be deleted: data/mounted: another file system is mounted here"
        assert done.errors == {"a": text}
    assert (below / "precious").is_dir()


# --- contents of workspaces ---


def test_a_very_deep_tree(root: Path) -> None:
    path = make(root, "deep", hours=100)
    here = os.open(path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 40, dir_fd=here)
        below = os.open("d" * 40, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert both(root, 24) == ["deep"]
    assert names(root) == []


def test_a_file_with_a_name_elsewhere_frees_nothing_until_the_last(root: Path) -> None:
    first, second = make(root, "a", hours=100), make(root, "b", hours=90)
    (first / "big").write_bytes(b"x" * 1_000_000)
    os.link(first / "big", second / "same")
    os.link(first / "big", first / "twice")
    told = prune_sessions(95, root, True, clock=clock)
    assert told.deleted_sessions == ["a"]
    assert told.reclaimed_bytes < 500_000
    assert prune_sessions(24, root, True, clock=clock).reclaimed_bytes > 1_000_000
    assert both(root, 95) == ["a"]
    assert prune_sessions(24, root, clock=clock).reclaimed_bytes > 1_000_000


def test_holes_count_for_nothing_and_links_out_are_not_followed(root: Path, tmp_path: Path) -> None:
    path = make(root, "a", hours=100)
    (path / "holes").touch()
    os.truncate(path / "holes", 1 << 30)
    (tmp_path / "outside").write_bytes(b"x" * 1_000_000)
    (path / "out").symlink_to(tmp_path / "outside")
    (path / "up").symlink_to(tmp_path)
    os.mkfifo(path / "pipe")
    done = prune_sessions(24, root, clock=clock)
    assert done.reclaimed_bytes < 200_000
    assert (tmp_path / "outside").stat().st_size == 1_000_000


def test_executing_what_was_pruned_says_so(root: Path) -> None:
    make(root, "a", hours=100)
    prune_sessions(24, root, clock=clock)
    with pytest.raises(NotFound, match="there is no workspace a") as caught:
        execute("a", ["true"], root, clock=lambda: NOW, isolate=False)
    assert "pruned" in (caught.value.hint or "")


# --- a dry run and a run agree exactly, for any contents of a workspace ---


_TOP = Path(__file__).parents[2]
_TREES = int(os.environ.get("BSD_WORKSPACE_TREES", "60"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that an ordinary user may write to."""
    with tempfile.TemporaryDirectory(prefix="bsd-agreement-", ignore_cleanup_errors=True) as top:
        os.chmod(top, 0o777)
        yield Path(top)


def test_a_dry_run_and_a_run_agree_exactly(place: Path) -> None:
    answer = subprocess.run(
        [
            *as_ordinary_user(),
            *[sys.executable, "-m", "tests.workspaces.agreement"],
            *[str(place), "7", str(_TREES)],
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=_TOP,
        timeout=DEADLINE_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    told = json.loads(answer.stdout)
    assert told["problems"] == [], "\n".join(told["problems"][:10])
    # each of these outcomes has really occurred
    assert all(told["seen"][one] for one in ("deleted_sessions", "errors", "skipped_sessions"))
