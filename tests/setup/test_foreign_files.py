"""Files of other programs are replaced whole, with all their attributes, or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, Busy, Conflict, Forbidden, NotFound
from bsd.setup import foreign_files
from bsd.setup.foreign_files import (
    make_directories,
    read_foreign,
    remove_empty,
    remove_leftovers,
    replace_foreign,
)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_link_is_followed_and_mode_and_attributes_stay(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "claude.json"
    target.write_bytes(b"{}")
    target.chmod(0o640)
    os.setxattr(target, "user.mine", b"1")
    link = tmp_path / ".claude.json"
    link.symlink_to("dotfiles/claude.json")
    replace_foreign(read_foreign(link), b"new", private=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.getxattr(target, "user.mine") == b"1"
    assert names(target.parent) == ["claude.json"]


def test_a_new_file_is_private_if_that_is_wanted(tmp_path: Path) -> None:
    for private, mode in ((True, 0o600), (False, 0o644)):
        path = tmp_path / str(private) / "deeper" / "file"
        made = make_directories(path)
        assert made == (path.parent.parent, path.parent)
        replace_foreign(read_foreign(path), b"new", private=private)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        replace_foreign(read_foreign(path), None, private=private)
        remove_empty(made)
        assert not path.parent.parent.exists()


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling", "loop", "two names"])
def test_what_is_no_file_of_its_own_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path)
        case "two names":
            path.write_bytes(b"{}")
            os.link(path, tmp_path / "other")
    with pytest.raises((Forbidden, NotFound)) as caught:
        read_foreign(path)
    assert caught.value.hint


def test_a_file_that_was_changed_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    read = read_foreign(path)
    path.write_bytes(b"{1}")
    for content in (b"new", None):
        with pytest.raises(Conflict, match="just been changed"):
            replace_foreign(read, content, private=True)
    assert path.read_bytes() == b"{1}"
    path.unlink()
    with pytest.raises(Conflict):
        replace_foreign(read, b"new", private=True)
    assert names(tmp_path) == []
    gone = read_foreign(path)
    path.write_bytes(b"others")
    with pytest.raises(Conflict):
        replace_foreign(gone, b"new", private=True)
    assert path.read_bytes() == b"others"


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(foreign_files, "write_all", full)
    with pytest.raises(BsdError, match="No space left") as caught:
        replace_foreign(read_foreign(path), b"new", private=True)
    assert "free some space" in str(caught.value.hint)
    assert path.read_bytes() == b"{}"
    assert names(tmp_path) == ["config.json"]


def test_the_lock_of_the_program_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "config.json", tmp_path / "config.json.lock"
    path.write_bytes(b"{}")
    lock.mkdir()
    monkeypatch.setattr(foreign_files, "_LOCK_SECONDS", 0.0)
    with pytest.raises(Busy):
        replace_foreign(read_foreign(path), b"new", private=True, lock=lock)
    assert path.read_bytes() == b"{}"
    monkeypatch.setattr(foreign_files, "_LOCK_SECONDS", 60.0)
    releasing = threading.Timer(0.1, lock.rmdir)
    releasing.start()
    replace_foreign(read_foreign(path), b"new", private=True, lock=lock)
    releasing.join()
    assert names(tmp_path) == ["config.json"]
    lock.mkdir()
    os.utime(lock, (0, 0))  # of a program that has ended
    replace_foreign(read_foreign(path), b"newer", private=True, lock=lock)
    assert names(tmp_path) == ["config.json"]
    monkeypatch.setattr(foreign_files, "_LOCK_SECONDS", 0.03)
    descriptor = foreign_files._take(lock)  # of another bsd, which is running
    assert descriptor is not None
    with pytest.raises(Busy, match="holds"):
        replace_foreign(read_foreign(path), b"last", private=True, lock=lock)
    os.close(descriptor)  # the other bsd is killed
    replace_foreign(read_foreign(path), b"last", private=True, lock=lock)
    assert (path.read_bytes(), names(tmp_path)) == (b"last", ["config.json"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_root_keeps_the_owner(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 4242, 4243)
    path = home / "config.json"
    path.write_bytes(b"{}")
    os.chown(path, 4242, 4244)
    replace_foreign(read_foreign(path), b"new", private=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4244)
    new = home / "skills" / "x" / "SKILL.md"
    make_directories(new)
    replace_foreign(read_foreign(new), b"new", private=False)
    for each in (new, new.parent, new.parent.parent):
        assert (each.stat().st_uid, each.stat().st_gid) == (4242, 4243)


def test_what_a_killed_bsd_has_left_beside_a_file_goes(tmp_path: Path) -> None:
    target = tmp_path / "settings.json"
    dead = tmp_path / ".settings.json.0123456789ab.bsd-tmp"
    at_work = tmp_path / ".settings.json.ba9876543210.bsd-tmp"
    others = [
        tmp_path / ".settings.json.bak.bsd-tmp",
        tmp_path / ".other.json.0123456789ab.bsd-tmp",
    ]
    for path in (target, dead, at_work, *others):
        path.write_bytes(b"{}")
    with at_work.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_leftovers(target)
    assert names(tmp_path) == sorted(each.name for each in (target, at_work, *others))


def test_a_file_is_locked_for_as_long_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "settings.json"
    replace = os.replace

    def swept_before(old: Path, new: Path) -> None:
        remove_leftovers(target)
        replace(old, new)

    monkeypatch.setattr("bsd.setup.foreign_files.os.replace", swept_before)
    replace_foreign(read_foreign(target), b"new", private=True)
    assert target.read_bytes() == b"new"
