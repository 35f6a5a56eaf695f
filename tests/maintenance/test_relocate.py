"""Moving from one mount to another: nothing that somebody adds meanwhile is lost, nor replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.filesystem import strength
from bsd.maintenance.relocate import copy_file, give_up_for_copy, join, link_back
from tests.sessions.commit.scene import somebody_is_blocked_on
from tests.waiting import DEADLINE_SECONDS, wait_for

_APPEND = "import sys; open(sys.argv[1], 'ab').write(b'late\\n')"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"one\n")
    return path


def test_what_was_added_after_the_copy_was_made_is_in_it(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_file(source, copy)
    with source.open("ab") as file:
        file.write(b"two\n")
    assert give_up_for_copy(source, copy)
    assert copy.read_bytes() == b"one\ntwo\n"
    assert not source.exists()


def test_a_file_that_somebody_has_open_is_not_given_up(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_file(source, copy)
    with source.open("ab"):
        program = "import sys; from pathlib import Path; from bsd.maintenance import relocate; "
        program += "print(relocate.give_up_for_copy(*map(Path, sys.argv[1:])))"
        command = [sys.executable, "-c", program, str(source), str(copy)]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
    assert told.stdout == "False\n"
    assert source.exists()


def test_who_comes_at_the_last_moment_writes_into_a_file_that_stays(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if strength(tmp_path).level != "strong":
        pytest.skip("needs leases that prove something")
    copy = tmp_path / "copy"
    copy_file(source, copy)
    others: list[subprocess.Popen[bytes]] = []
    fsync, inode = os.fsync, source.stat().st_ino

    def fsync_as_somebody_comes(descriptor: int) -> None:
        fsync(descriptor)
        if not others:
            others.append(subprocess.Popen([sys.executable, "-I", "-c", _APPEND, str(source)]))
            wait_for(lambda: somebody_is_blocked_on(inode), "the other waits for the lease")

    monkeypatch.setattr(os, "fsync", fsync_as_somebody_comes)
    assert not give_up_for_copy(source, copy)
    assert others[0].wait(DEADLINE_SECONDS) == 0
    assert source.read_bytes() == b"one\nlate\n"
    assert give_up_for_copy(source, copy)
    assert copy.read_bytes() == b"one\nlate\n"


def test_what_differs_stays_behind_when_two_directories_become_one(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory, own in ((here, b"here"), (there, b"there")):
        directory.mkdir()
        (directory / "same").write_bytes(b"same")
        (directory / "other").write_bytes(own)
    (here / "new").write_bytes(b"new")
    join(here, there)
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        "same": b"same",
        "other": b"there",
        "new": b"new",
    }
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {"other": b"here"}


def test_a_name_that_is_taken_again_is_not_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"another\n")
    with pytest.raises(FileExistsError):
        link_back(source, target, tmp_path / "temporary")
    assert (source.read_bytes(), target.read_bytes()) == (b"one\n", b"another\n")


# --- sessions on a mount of their own: what cannot be renamed is copied, whole and durable ---


_SCRIPT = """
import sys, time
from pathlib import Path
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
layout, name = Layout(Path(sys.argv[1])), SessionName("main", "s1")
path = layout.session_file(name)
before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode
Trash(layout, "14d", budget=RetryBudget(wait=0.0)).delete(name)
assert not path.exists()
(item,) = Trash(layout, "14d").items()
assert (layout.trash / f"{item.id}.jsonl").read_bytes() == before[0]
Trash(layout, "14d", budget=RetryBudget(wait=0.0)).restore(item.id)
assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) == before
assert sorted(p.name for p in path.parent.iterdir()) == ["s1.jsonl"]
print("there and back")
"""


def test_a_bind_mount_of_the_sessions(tmp_path: Path) -> None:
    sessions = tmp_path / "root/agents/main/sessions"
    elsewhere = tmp_path / "elsewhere"
    for directory in (sessions, elsewhere):
        directory.mkdir(parents=True)
    (elsewhere / "s1.jsonl").write_bytes(b'{"type":"session","version":3}\n' * 50_000)
    os.utime(elsewhere / "s1.jsonl", (1_700_000_000, 1_700_000_000))
    steps = f'mount --bind "{elsewhere}" "{sessions}" && exec "$@"'
    here = Path(__file__).parents[2]
    program = [sys.executable, "-c", _SCRIPT, str(tmp_path / "root")]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", steps, "sh", *program],
        cwd=here,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    if "unshare" in done.stderr or "mount" in done.stderr.split(":")[0]:
        pytest.skip(f"no mounts of our own here: {done.stderr.strip()}")
    assert done.stdout == "there and back\n", done.stderr
