"""As an ordinary user: bsd names clearly what the machine refuses, and loses no data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bsd.core.filesystem import strength
from tests.commands import run_here
from tests.needs import as_ordinary_user, require_linux
from tests.sessions.commit.crashed import build

pytestmark = pytest.mark.crash

_TOP = Path(__file__).parents[3]
_NOBODY = 65534
Mount = Callable[..., Path]


@pytest.fixture(autouse=True)
def on_linux() -> None:
    require_linux()


@pytest.fixture
def top() -> Iterator[Path]:
    """A directory with a root in it, which an ordinary user may enter and owns."""
    # Not tmp_path: its parent directories are open only to their owner.
    place = Path(tempfile.mkdtemp(prefix="bsd-adversity-"))
    build(place)
    yield give_away(place)
    shutil.rmtree(place, ignore_errors=True)


def give_away(place: Path) -> Path:
    """Make an ordinary user the owner of everything in `place`, and of itself."""
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)
    return place


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mount the given file system; where that is not possible, skip the test, in CI too."""
    with ExitStack() as mounted:

        def do(where: Path, *arguments: str) -> Path:
            if os.geteuid() != 0:
                pytest.skip("needs root, to mount a file system")
            where.mkdir(exist_ok=True)
            command = ["mount", *arguments, str(where)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"needs to mount a file system: {done.stderr.strip()}")
            mounted.callback(subprocess.run, ["umount", "-l", str(where)], check=True)
            return where

        yield do


def play(scene: str, top: Path) -> dict[str, Any]:
    """Run a scene of ordinary.py; return bsd's answers and the faults found."""
    done = subprocess.run(
        [
            *as_ordinary_user(),
            sys.executable,
            "-m",
            "tests.sessions.commit.ordinary",
            scene,
            str(top),
        ],
        check=False,
        cwd=_TOP,
        capture_output=True,
        text=True,
        env=_environment(top),
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["problems"] == [], told
    return told


def _environment(home: Path) -> dict[str, str]:
    """The caller's environment, with another home: the caller's own home is closed to other
    users.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {**kept, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def test_a_full_disk_at_every_stage(top: Path, mount: Mount) -> None:
    small = mount(top / "small", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    build(small)
    told = play("full_disk", give_away(small))
    failures = [answer for answer in told["answers"] if answer.get("status") == "failed"]
    assert len(failures) >= 4, "it must fail at several stages"
    assert {answer["hint"] for answer in failures} == {
        "free some space on this disk and run it again"
    }, failures


def test_a_read_only_store(top: Path) -> None:
    (answer,) = play("read_only_store", top)["answers"]
    assert answer["status"] == "failed"
    assert "extracted" in answer["reason"]
    assert "permissions" in answer["hint"]


def test_a_read_only_session_directory(top: Path) -> None:
    (answer,) = play("read_only_sessions", top)["answers"]
    assert answer["status"] == "failed"
    assert "sessions" in answer["reason"]
    assert "writable" in answer["hint"]


def test_a_session_that_may_not_be_read(top: Path) -> None:
    (answer,) = play("unreadable_session", top)["answers"]
    assert "chat.jsonl" in answer["reason"]
    assert "user who owns" in answer["hint"]


def test_a_read_only_file_system(top: Path, mount: Mount) -> None:
    place = mount(top / "readonly", "-t", "tmpfs", "tmpfs")
    build(place)
    # Settings were made earlier: they cannot be made here.
    play("just_extract", give_away(top))
    shutil.copytree(top / "root" / ".brainsurgeon", place / "root" / ".brainsurgeon")
    give_away(place)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    done = _bsd(place / "root", "extract", "main/chat")
    assert done.returncode in (1, 77), done
    assert "Try: remount the file system writable" in done.stderr


def test_a_vanished_session(top: Path) -> None:
    answers = play("vanished", top)["answers"]
    assert answers
    for answer in answers:
        assert answer.get("status", "failed") == "failed", answer
        assert "chat" in answer["reason"], answer
        assert answer["hint"], answer


def test_sessions_on_another_file_system(top: Path, mount: Mount) -> None:
    sessions = mount(top / "root/agents/main/sessions", "-t", "tmpfs", "tmpfs")
    _fresh(top, sessions)
    (answer,) = play("extract_and_restore", give_away(top))["answers"]
    assert answer["status"] == "extracted", answer


def test_sessions_behind_a_bind_mount(top: Path, mount: Mount) -> None:
    """The same file system and device number, but a rename across is refused."""
    real = top / "real"
    real.mkdir()
    sessions = mount(top / "root/agents/main/sessions", "--bind", str(real))
    _fresh(top, sessions)
    (answer,) = play("extract_and_restore", give_away(top))["answers"]
    assert answer["status"] == "extracted", answer


def _fresh(top: Path, sessions: Path) -> None:
    spare = top / "spare"
    spare.mkdir()
    shutil.copy2(build(spare).path, sessions / "chat.jsonl")
    shutil.rmtree(spare)


def test_acls_and_attributes_stay(top: Path) -> None:
    path = top / "root/agents/main/sessions/chat.jsonl"
    if shutil.which("setfacl") is None:
        pytest.skip("needs the program `setfacl`")
    done = subprocess.run(["setfacl", "-m", "u:1:r,g:1:rw", str(path)], check=False)
    if done.returncode:
        pytest.skip("needs a file system with ACLs")
    os.setxattr(path, "user.note", b"hello")
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    inode = path.stat().st_ino
    (answer,) = play("extract_and_restore", top)["answers"]
    assert answer["status"] == "extracted", answer
    assert path.stat().st_ino != inode
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert "system.posix_acl_access" in before


def test_a_session_whose_owner_cannot_be_kept_is_left_alone(top: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to somebody else")
    path = top / "root/agents/main/sessions/chat.jsonl"
    os.chown(path, 1, 1)
    path.chmod(0o666)
    before = path.read_bytes()
    (answer,) = play("just_extract", top)["answers"]
    assert answer["status"] in ("failed", "left_alone"), answer
    assert answer["hint"] == "run bsd as the user who owns the session", answer
    assert path.read_bytes() == before
    assert path.stat().st_uid == 1


def test_an_overlay_is_weak_by_name_and_works(top: Path, mount: Mount) -> None:
    layers = [top / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    options = f"lowerdir={layers[0]},upperdir={layers[1]},workdir={layers[2]}"
    place = mount(top / "merged", "-t", "overlay", "overlay", "-o", options)
    build(place)
    found = strength(place)
    assert (found.level, found.filesystem) == ("weak", "overlayfs")
    give_away(top)
    (answer,) = play("extract_and_restore", give_away(place))["answers"]
    assert answer["status"] == "extracted", answer
    assert "overlayfs" in _bsd(place / "root", "doctor").stdout


def test_fuse_is_weak_by_name(top: Path) -> None:
    mounts = Path("/proc/mounts").read_text().splitlines()
    fuse = [row.split()[1] for row in mounts if row.split()[2].startswith("fuse.")]
    usable = [place for place in fuse if os.access(place, os.R_OK)]
    if not usable:
        pytest.skip("needs a FUSE mount on this machine")
    found = strength(Path(usable[0]))
    assert (found.level, found.filesystem) == ("weak", "FUSE")


def test_links_out_of_the_root_are_refused(top: Path) -> None:
    answers = play("links", top)["answers"]
    assert answers
    for answer in answers:
        assert answer.get("error") == "Forbidden" or answer.get("status") == "failed", answer
        assert answer["reason"], answer
        assert answer["hint"], answer


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("extract", "main/../chat"),
        ("extract", "../chat"),
        ("extract", "main/.."),
        ("extract", "../../etc/passwd"),
        ("restore-all", "main/../chat"),
        ("show", "main/../chat"),
        ("verify", "main/../chat"),
    ],
)
def test_names_with_dots_go_nowhere(tmp_path: Path, command: str, name: str) -> None:
    build(tmp_path)
    ended = run_here(tmp_path / "root", command, name)
    assert ended.code in (1, 2), ended
    assert "Try:" in ended.err or "hint" in ended.out, ended
    assert not (tmp_path / "chat.jsonl").exists()


def _bsd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*as_ordinary_user(), sys.executable, "-m", "bsd", "--root", str(root), *arguments],
        check=False,
        cwd=_TOP,
        capture_output=True,
        text=True,
        env=_environment(root.parent),
    )
