"""Where two names cannot be exchanged, no file changes, and bsd reports that once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core import filesystem
from bsd.core.errors import LeftAlone
from bsd.daemon.directories import Mounts
from bsd.maintenance.doctor import examine
from bsd.sessions.commit.inflight import InFlight
from tests import forked
from tests.daemon.running import configure, running
from tests.needs import require_program
from tests.openclaw_tree import add_session
from tests.refusing import raising
from tests.session_files import sample
from tests.sessions.commit.scene import EDITED, SESSION, Scene
from tests.waiting import wait_for


@pytest.fixture(params=[errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests for exchanges to a kernel that supports none."""
    calls: list[str] = []

    def refuse(one: str, _: str) -> None:
        calls.append(one)
        raise OSError(request.param, os.strerror(request.param), one)

    monkeypatch.setattr(filesystem, "swap_names", refuse)
    return calls


def test_a_session_is_left_alone_with_a_reason(scene: Scene, asked: list[str]) -> None:
    kept: list[str] = []
    for _ in range(5):
        with pytest.raises(LeftAlone, match="cannot exchange two names") as caught:
            scene.commit(keep=lambda: kept.append("stored"))
        assert "ext4" in str(caught.value.hint)
        assert str(scene.root) not in caught.value.message, "so that reasons can be counted"
    assert len(asked) == 1, "tried once, whatever is asked for"
    assert (scene.content, kept) == (SESSION, [])
    assert list(scene.layout.inflight.iterdir()) == []


def test_it_is_tried_once_for_all_agents_of_a_mount(scene: Scene, asked: list[str]) -> None:
    for number in range(4):
        sessions = scene.layout.agents / f"a{number}" / "sessions"
        sessions.mkdir(parents=True)
        with pytest.raises(LeftAlone):
            scene.inflight.directory_for(sessions / "s.jsonl")
    assert len(asked) == 1


def test_where_it_works_it_is_tried_once_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scene.inflight.can_exchange(scene.path.parent) is None
    assert scene.inflight.can_exchange(scene.path.parent, make=True) is True

    monkeypatch.setattr(filesystem, "swap_names", raising(AssertionError("tried again")))
    assert scene.inflight.can_exchange(scene.path.parent) is True
    assert scene.commit().committed
    assert scene.content == EDITED


def test_doctor_names_it(scene: Scene, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsd.maintenance.doctor.strength", lambda _: filesystem.judge(0x65735546))
    (before,) = (check for check in examine(scene.layout) if check.name == "leases")
    assert before.level == "warn"  # no file of bsd is there yet to try it with
    assert not scene.layout.own.exists()
    assert InFlight(scene.layout).can_exchange(scene.path.parent, make=True) is False
    (found,) = (check for check in examine(scene.layout) if check.name == "leases")
    assert found.level == "fail"
    assert found.message.startswith("none: ")
    assert found.hint
    assert asked


def test_status_and_health_know_the_level(
    scene: Scene, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.daemon.directories.strength", lambda _: filesystem.judge(0x65735546))
    inflight = InFlight(scene.layout)
    mounts = Mounts(lambda path: inflight.can_exchange(path, make=True))
    for _ in range(3):
        mounts.look([scene.path.parent])
    (found,) = mounts.snapshot()
    assert (found["level"], found["filesystem"]) == ("none", "FUSE")
    (problem,) = mounts.problems()
    assert str(scene.path.parent) in problem
    assert "(try: " in problem
    assert len(asked) == 1


# A real file system that cannot exchange two names.


@pytest.fixture
def bindfs(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/fuse, to mount")
    program = require_program("bindfs")
    behind, place = tmp_path / "behind", tmp_path / "bindfs"
    for directory in (behind, place):
        directory.mkdir(mode=0o700)
    done = subprocess.run([program, str(behind), str(place)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"needs to mount: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _bsd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = forked.run("--root", str(root), *arguments)
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.mark.daemon
def test_bindfs(bindfs: Path, tmp_path: Path) -> None:
    root = bindfs / "root"
    root.mkdir(mode=0o700)
    path = add_session(root, "main/s", sample(8, 1))
    os.utime(path, (1e9, 1e9))
    before = path.read_bytes()
    configure(root)
    done = _bsd(root, "extract", "--json")
    (result,) = json.loads(done.stdout)["sessions"]
    assert (result["status"], "FUSE" in result["reason"]) == ("left_alone", True), done
    assert "try: move the sessions" in _bsd(root, "extract").stderr
    assert path.read_bytes() == before
    assert not (root / "extracted").exists()
    found = _bsd(root, "doctor", "--json")
    assert found.returncode == 1
    (check,) = (one for one in json.loads(found.stdout)["checks"] if one["name"] == "leases")
    assert (check["level"], check["message"][:5]) == ("fail", "none:")
    with running(root, tmp_path) as daemon:
        wait_for(lambda: daemon.status()["left_alone"]["count"], "it to be left alone")
        status = daemon.status()
        assert [one["level"] for one in status["roots"]] == ["none"]
        assert status["queue"]["parked"] == []
        assert any("exchange" in text for text in daemon.ask("health")["problems"])
        assert not daemon.said("internal error")
    assert path.read_bytes() == before
