"""A real daemon in trouble: killed, hurried, forbidden to change anything, badly configured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon.running import children_of, configure, is_alive, launched, running
from tests.needs import require_linux
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

PLACEHOLDER = b"[[extracted-"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_linux()
    root = tmp_path / "root"
    (root / "agents" / "main" / "sessions").mkdir(parents=True)
    configure(root)
    return root


@pytest.mark.soak
def test_asked_twice_it_ends_at_once_and_nothing_is_lost(root: Path, tmp_path: Path) -> None:
    with launched(root, tmp_path) as daemon:
        wait_for(daemon.is_running, "the daemon to be ready")
        path = add_session(root, "main/stuck", sample(500, 1))
        wait_for((root / "extracted").exists, "the work to begin")  # a child keeps something
        children = children_of(daemon.process.pid)  # the second may read for the search index
        assert children
        for child in children:
            os.kill(child, signal.SIGSTOP)  # now no task comes to its end
        try:
            daemon.process.send_signal(signal.SIGTERM)
            wait_for(lambda: daemon.said("bsd stops"), "the first signal to be heard")
            assert daemon.stop(signal.SIGTERM) == -signal.SIGTERM
        finally:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGCONT)
        wait_for(
            lambda: not any(map(is_alive, children)),
            "the children to finish what they had begun, and leave",
        )
    with running(root, tmp_path) as daemon:
        wait_for(lambda: PLACEHOLDER in path.read_bytes(), "the session to be extracted")
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        before = path.read_bytes().count(PLACEHOLDER)
        with path.open("ab") as session:
            session.writelines(sample(12, 3).splitlines(keepends=True)[1:])
        wait_for(lambda: path.read_bytes().count(PLACEHOLDER) > before, "what was appended to go")
        lock = path.with_name(f"{path.name}.lock")
        wait_for(lambda: not lock.exists(), "no lock to be left")
        assert daemon.is_sound()


def test_it_does_not_wait_until_a_long_text_can_be_searched(root: Path, tmp_path: Path) -> None:
    """Exit code 75 would mean that work was interrupted."""
    long = json.dumps({"type": "message", "id": "e", "message": {"content": "word " * 4_000_000}})
    for number in range(4):
        add_session(root, f"main/s{number}", sample(1, 1) + long.encode() + b"\n")
    with launched(root, tmp_path, BRAINSURGEON_READONLY="1") as daemon:
        wait_for(daemon.is_running, "the daemon to be ready")
        wait_for(lambda: daemon.status()["search"]["waiting"], "the reading to begin")
        for child in children_of(daemon.process.pid):
            os.kill(child, signal.SIGSTOP)  # as long as a text that takes minutes
        assert daemon.status()["search"]["waiting"], "they were read too soon to show anything"
        assert daemon.stop() == 0, daemon.log()


@pytest.mark.soak
def test_killed_again_and_again_under_load_it_loses_nothing(root: Path, tmp_path: Path) -> None:
    originals = {f"main/s{n}": sample(8, 20 + n) for n in range(6)}
    for name, content in originals.items():
        add_session(root, name, content)
    for done in (1, 3):
        with launched(root, tmp_path) as daemon:
            wait_for(
                lambda done=done: len(list(root.glob("extracted/*"))) >= done,  # type: ignore[misc]
                "some work to be done",
            )
            daemon.stop(signal.SIGKILL)
    with running(root, tmp_path) as daemon:
        files = {name: root / "agents/main/sessions" / f"{name[5:]}.jsonl" for name in originals}
        wait_for(
            lambda: all(PLACEHOLDER in path.read_bytes() for path in files.values()), "the rest"
        )
        wait_for(lambda: not daemon.status()["queue"]["working"], "the work to end")
        assert daemon.is_sound()
    restored = daemon.bsd("restore-all", "--yes", "--keep-enabled")
    assert restored.returncode == 0, restored.stderr
    for name, path in files.items():
        lines = path.read_bytes().count(b"\n")
        assert lines == originals[name].count(b"\n")
        assert PLACEHOLDER not in path.read_bytes()


def test_one_that_may_change_nothing_changes_nothing(root: Path, tmp_path: Path) -> None:
    path = add_session(root, "main/alpha", sample(6, 2))
    before = path.stat(), (root / ".brainsurgeon" / "config.json").read_bytes()
    with running(root, tmp_path, BRAINSURGEON_READONLY="true") as daemon:
        assert [job["name"] for job in daemon.ask("jobs")["jobs"]] == ["index", "scan"]
        assert daemon.status()["totals"]["sessions"] == 1
        with path.open("ab") as session:
            session.write(b"\n")

        def queued() -> int:  # no worker takes jobs from the queue
            queue = daemon.status()["queue"]
            return int(queue["ready"] + queue["waiting"])

        wait_for(queued, "it to see that there is work")
    assert path.stat().st_ino == before[0].st_ino
    assert (root / ".brainsurgeon" / "config.json").read_bytes() == before[1]
    assert not (root / "extracted").exists()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("root", "there is no directory"),
        ("config", "config.json"),
        ("settings", "BRAINSURGEON_WORKERS"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_done(
    root: Path, spoil: str, told: str
) -> None:
    env = dict(os.environ)
    where = root
    if spoil == "root":
        where = root / "nowhere"
    elif spoil == "config":
        (root / ".brainsurgeon" / "config.json").write_text("{")
    else:
        env["BRAINSURGEON_WORKERS"] = "many"
    ended = subprocess.run(
        [sys.executable, "-m", "bsd", "--root", str(where), "run"],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env=env,
    )
    assert ended.returncode == 78
    assert told in ended.stderr
    assert "Try:" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_taken_is_an_error_and_no_daemon_is_left(
    root: Path, tmp_path: Path
) -> None:
    with running(root, tmp_path) as daemon:
        other = tmp_path / "other"
        (other / "agents").mkdir(parents=True)
        ended = subprocess.run(
            [sys.executable, "-m", "bsd", "--root", str(other), "run"],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            env=daemon.env,  # the same socket
        )
        assert ended.returncode != 0
        assert "Try:" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert daemon.is_running()
