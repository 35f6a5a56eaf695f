"""A real daemon follows `exclude` and pauses while it runs, and keeps pauses after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core.filesystem import strength
from bsd.core.layout import Layout
from bsd.core.pauses import begin_pause
from tests.daemon.running import Running, configure, launched, running
from tests.needs import require_linux
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import sample
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

MARK = b"[[extracted-"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_linux()
    if strength(tmp_path).level != "strong":
        pytest.skip("needs a file system with leases that prove something")
    add_session(tmp_path / "root", "main/first", sample(turns=8, seed=1))
    configure(tmp_path / "root", scan_interval_seconds=3600)
    return tmp_path / "root"


@pytest.fixture
def daemon(root: Path, tmp_path: Path) -> Iterator[Running]:
    with running(root, tmp_path) as started:
        yield started


def append(root: Path, name: str, seed: int) -> Path:
    """Let a session appear, or grow, so that some of its values are due at once."""
    path = add_session(root, name, sample(turns=8, seed=seed))
    set_idle(path)
    return path


def until_extracted(daemon: Running, path: Path) -> None:
    def is_extracted() -> bool:
        daemon.must_run()
        return MARK in path.read_bytes()

    wait_for(is_extracted, f"{path} to be extracted")


def until_followed(daemon: Running, key: str, value: object) -> None:
    wait_for(lambda: daemon.status()[key] == value, f"{key} to be {value}")


def test_exclude_is_followed_at_once_and_so_is_its_end(daemon: Running, root: Path) -> None:
    until_extracted(daemon, root / "agents/main/sessions/first.jsonl")
    assert daemon.bsd("exclude", "secret", "main/hid*").returncode == 0
    until_followed(daemon, "exclude", ["secret", "main/hid*"])
    hidden = [append(root, "secret/one", 2), append(root, "main/hidden", 3)]
    until_extracted(daemon, append(root, "main/shown", 4))
    daemon.ask("jobs/scan/run", "POST")
    daemon.ask("jobs/keep_sessions/run", "POST")
    until_extracted(daemon, append(root, "other/shown", 5))
    assert not any(MARK in path.read_bytes() for path in hidden)
    listed = {one["session"] for one in daemon.ask("sessions")["sessions"]}
    assert listed == {"main/first", "main/shown", "other/shown"}
    assert daemon.ask("sessions/secret/one")["error"].startswith("secret/one is excluded by")
    assert daemon.ask("sessions?agent=secret")["error"].startswith("secret is excluded by")
    assert {one["name"] for one in daemon.ask("agents")["agents"]} == {"main", "other"}
    assert not list(Layout(root).archive.glob("secret*"))
    status = daemon.status()
    assert status["totals"]["sessions"] == 3
    assert not any("secret" in one["session"] for one in status["sessions"])

    assert daemon.bsd("exclude", "--remove", "secret", "main/hid*").returncode == 0
    for path in hidden:
        until_extracted(daemon, path)


def test_what_waits_in_the_queue_is_left_alone_when_it_is_excluded(
    daemon: Running, root: Path
) -> None:
    until_extracted(daemon, root / "agents/main/sessions/first.jsonl")
    path = add_session(root, "main/late", sample(turns=8, seed=6))
    path.touch()  # written to just now: it waits until it has been quiet
    assert daemon.bsd("exclude", "main/late").returncode == 0
    until_followed(daemon, "exclude", ["main/late"])
    set_idle(path)
    until_extracted(daemon, append(root, "main/other", 7))
    assert MARK not in path.read_bytes()
    assert daemon.bsd("exclude", "--remove", "main/late").returncode == 0
    until_extracted(daemon, path)


def test_a_pause_is_followed_at_once_and_so_is_its_end(daemon: Running, root: Path) -> None:
    until_extracted(daemon, root / "agents/main/sessions/first.jsonl")
    assert daemon.bsd("pause", "main").returncode == 0
    wait_for(lambda: [one["name"] for one in daemon.status()["pauses"]] == ["main"], "the pause")
    path = append(root, "main/paused", 8)
    before = path.read_bytes()

    def is_refused() -> bool:
        results = {one["session"]: one for one in daemon.status()["sessions"]}
        return "is paused until it is ended" in str(results.get("main/paused", {}).get("reason"))

    wait_for(is_refused, "the daemon to look at it")
    until_extracted(daemon, append(root, "other/free", 9))
    assert path.read_bytes() == before

    def is_nothing_tried_again() -> bool:
        queue = daemon.status()["queue"]
        return (queue["waiting"], queue["ready"], queue["parked"]) == (0, 0, [])

    wait_for(is_nothing_tried_again, "the queue to be empty")
    listed = {one["session"]: one for one in daemon.ask("sessions")["sessions"]}
    assert listed["main/paused"]["paused"] == "main, until it is ended"
    assert "is paused" in daemon.ask("sessions/main/paused/extract", "POST")["error"]
    assert daemon.bsd("pause", "main", "--end").returncode == 0
    until_extracted(daemon, path)


def test_a_pause_survives_a_start_and_its_sessions_are_due_when_it_ends(
    root: Path, tmp_path: Path
) -> None:
    path = root / "agents/main/sessions/first.jsonl"
    begin_pause(Layout(root), "main/first", 6.0)
    with launched(root, tmp_path) as daemon:
        until_extracted(daemon, path)
    audit = Layout(root).audit_file.read_text().splitlines()
    done = [change["time"] for change in map(json.loads, audit) if change["action"] == "extract"]
    [pause] = json.loads(Layout(root).pauses_file.read_bytes())["pauses"]
    assert done
    assert min(done) >= pause["until"][:19]


def test_the_pages_routes_begin_and_end_pauses(daemon: Running, root: Path) -> None:
    assert daemon.ask("pauses") == {"pauses": []}
    assert daemon.bsd("pause", "main", "--for", "1h").returncode == 0
    [pause] = daemon.ask("pauses")["pauses"]
    assert pause["name"] == "main"
