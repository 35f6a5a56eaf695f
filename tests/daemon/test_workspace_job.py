"""The daemon and workspaces: the job `workspace_cron`, and the API of a real daemon."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bsd.daemon.library_jobs import WORKSPACE_CRON, workspace_job
from bsd.daemon.loops import Clocks
from bsd.daemon.scheduler import Scheduler
from bsd.daemon.state import DaemonState
from bsd.workspaces import create_session_sandbox, touch_session
from tests.daemon.running import configure, running
from tests.loading import load_settings
from tests.logs import capture_logs

pytestmark = pytest.mark.daemon

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z
HOUR = 3600.0


class Day:
    """A timetable with this one job, on a clock of its own."""

    def __init__(self, tmp_path: Path, **environ: str) -> None:
        self.now = START
        root = tmp_path / "root"
        root.mkdir()
        settings = load_settings(None, root, {"HOME": str(tmp_path), **environ})
        self.state = DaemonState(settings, Clocks(lambda: self.now, lambda: self.now))
        self.table = Scheduler(self.state.config, clock=lambda: self.now)
        if job := workspace_job(self.state):
            self.table.add(job)

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.table.step(self.now)

    def jobs(self) -> list[dict[str, Any]]:
        return self.table.status()


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    return tmp_path / "spaces"


def make(spaces: Path, session_id: str, then: float) -> Path:
    return create_session_sandbox(session_id, spaces, clock=lambda: then).path


def test_it_prunes_every_hour_what_is_older_than_a_day(tmp_path: Path, spaces: Path) -> None:
    day = Day(tmp_path, BRAINSURGEON_WORKSPACE_ROOT=str(spaces))
    old = make(spaces, "old", START - 23.5 * HOUR)
    new = make(spaces, "new", START)
    (job,) = day.jobs()
    assert (job["name"], job["schedule"], job["enabled"]) == (WORKSPACE_CRON, "0 * * * *", True)
    day.go(HOUR - 60)
    assert old.exists()
    day.go(61)
    assert (old.exists(), new.exists()) == (False, True)
    (job,) = day.jobs()
    assert job["last_result"]["ok"]
    (line,) = (tmp_path / "root/.brainsurgeon/audit.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["actor"], entry["action"]) == ("daemon", "workspace_prune")
    assert entry["sessions"] == ["old"]


def test_it_follows_the_settings(tmp_path: Path, spaces: Path) -> None:
    day = Day(
        tmp_path,
        BRAINSURGEON_WORKSPACE_ROOT=str(spaces),
        BRAINSURGEON_WORKSPACE_CRON="*/5 * * * *",
        BRAINSURGEON_WORKSPACE_MAX_AGE="10m",
    )
    path = make(spaces, "a", START)
    day.go(600)
    assert path.exists(), "ten minutes are not more than ten minutes"
    touch_session("a", spaces, clock=lambda: START + 1)
    day.go(300)
    assert not path.exists()


def test_a_root_that_is_not_there_yet_is_no_trouble(tmp_path: Path, spaces: Path) -> None:
    day = Day(tmp_path, BRAINSURGEON_WORKSPACE_ROOT=str(spaces))
    with capture_logs() as lines:
        day.go(HOUR)
    assert day.jobs()[0]["last_result"]["ok"]
    assert not spaces.exists()
    assert {line["log_level"] for line in lines} <= {"debug", "trace"}


def test_a_daemon_that_stops_breaks_it_off(tmp_path: Path, spaces: Path) -> None:
    day = Day(tmp_path, BRAINSURGEON_WORKSPACE_ROOT=str(spaces))
    path = make(spaces, "old", START - 100 * HOUR)
    day.state.stopping.set()
    day.go(HOUR)
    assert path.exists()


@pytest.mark.parametrize(
    "environ", [{}, {"BRAINSURGEON_WORKSPACE_ROOT": "/spaces", "BRAINSURGEON_READONLY": "1"}]
)
def test_without_a_root_or_allowed_to_read_only_there_is_no_such_job(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert Day(tmp_path, **environ).jobs() == []


def test_a_real_daemon(tmp_path: Path, spaces: Path) -> None:
    root = tmp_path / "root"
    (root / "agents").mkdir(parents=True)
    configure(root)
    make(spaces, "old", time.time() - 30 * HOUR)
    make(spaces, "new", time.time())
    environ = {"BRAINSURGEON_WORKSPACE_ROOT": str(spaces)}
    with running(root, tmp_path, **environ) as daemon:
        names = {job["name"]: job["schedule"] for job in daemon.ask("jobs")["jobs"]}
        assert names[WORKSPACE_CRON] == "0 * * * *"
        listed = daemon.ask("workspaces?sizes=true")
        assert [one["session_id"] for one in listed["workspaces"]] == ["old", "new"]
        told = daemon.ask("workspaces/prune?dry_run=true", "POST")
        assert told["deleted_sessions"] == ["old"]
        job = daemon.ask(f"jobs/{WORKSPACE_CRON}/run", "POST")
        assert job["last_result"]["ok"], job
        assert not (spaces / "old").exists()
        assert daemon.ask("workspaces/new/touch", "POST")["metadata"]["session_id"] == "new"
        assert daemon.said("session.prune.completed")
