"""The daemon prunes the memory: at its start, every hour, and only where it has permission."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy
from bsd.core.layout import Layout
from bsd.core.settings import MemorySettings, Settings
from bsd.daemon.library_jobs import MEMORY, MemoryKeeper, memory_job
from bsd.daemon.loops import Clocks
from bsd.daemon.scheduler import Scheduler
from bsd.daemon.state import DaemonState
from bsd.memory.memory import open_memory
from tests.daemon.running import configure, running
from tests.logs import capture_logs
from tests.memory.memories import DAY, HOUR, NOW, Clock, change, rows, store
from tests.memory.test_plugin import fill
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon


class World:
    """A root, its clock, and a daemon's timetable that can be started again and again."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.layout = Layout(root)
        self.clock = Clock()
        self.settings = Settings(
            root=root, socket=root / "s", memory=MemorySettings(**settings), readonly=False
        )
        self.start()

    def start(self) -> None:
        """Another daemon takes over."""
        self.state = DaemonState(self.settings, Clocks(self.clock, self.clock))
        self.table = Scheduler(self.state.config, clock=self.clock)
        if job := memory_job(self.state):
            self.table.add(job)

    def step(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.table.step(self.clock.now)

    def store(self, text: str, **fields: Any) -> str:
        with open_memory(self.layout, clock=self.clock) as memory:
            return store(memory, text, **fields).id

    def left(self) -> dict[str, float]:
        return dict(rows(self.layout.facts_db, "SELECT text, confidence FROM facts"))

    def job(self) -> dict[str, Any]:
        return next(job for job in self.table.status() if job["name"] == MEMORY)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    with capture_logs() as events:
        yield events


def said(told: list[dict[str, Any]], begin: str) -> list[dict[str, Any]]:
    return [event for event in told if event["event"].startswith(begin)]


def test_the_start_deletes_what_has_expired_and_nothing_fades(
    world: World, told: list[dict[str, Any]]
) -> None:
    world.store("right now: expired")
    world.clock.now += 6 * HOUR
    world.store("right now: fading")
    world.clock.now += 18 * HOUR + 1
    world.start()
    assert world.left() == {"right now: fading": 1.0}
    (event,) = said(told, "startup prune")
    assert (event["event"], event["log_level"]) == ("startup prune removed 1 expired facts", "info")
    world.start()
    assert len(said(told, "startup prune")) == 1, "there was nothing more to remove"


def test_a_start_waits_for_a_few_only_and_the_others_go_right_after_it(
    world: World, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store("right now", expires_at=NOW - 5)
    monkeypatch.setattr("bsd.daemon.library_jobs._START_SECONDS", -1.0)
    world.start()
    assert world.left() == {"right now": 1.0}
    world.step()
    assert world.left() == {}
    (event,) = said(told, "periodic prune")
    assert event["event"] == "periodic prune — 1 expired, 0 decayed"


def test_every_hour_first_hard_then_soft(world: World, told: list[dict[str, Any]]) -> None:
    world.store("right now: expired")
    world.clock.now += 6 * HOUR
    world.store("right now: fading")
    world.store("too faint", confidence=0.05)
    world.start()
    world.step(HOUR - 1)
    assert said(told, "periodic prune") == []
    world.step(1)
    (event,) = said(told, "periodic prune")
    assert (event["event"], event["deleted"]) == ("periodic prune — 0 expired, 0 decayed", 1)
    world.step(17 * HOUR + 1)
    event = said(told, "periodic prune")[-1]
    assert (event["event"], event["log_level"]) == ("periodic prune — 1 expired, 1 decayed", "info")
    assert world.left() == {"right now: fading": 0.5}
    world.step(HOUR)
    event = said(told, "periodic prune")[-1]
    assert event["event"] == "periodic prune — 0 expired, 1 decayed"
    assert world.left() == {"right now: fading": 0.25}
    assert world.job()["schedule"] == "every 3600 s"


def test_restarts_do_not_put_the_hourly_run_off(world: World) -> None:
    """The plugin's timer starts again with each restart: with frequent restarts it never runs."""
    world.store("right now")
    world.clock.now += 18 * HOUR - 60
    for _ in range(3):
        world.start()
        world.step(40 * 60)
    assert world.left() == {"right now": 0.25}, "it ran after 80 minutes"


def test_downtime_is_made_up_for_at_once(world: World) -> None:
    world.store("right now")
    world.start()
    world.clock.now += 18 * HOUR + 1
    world.start()
    assert world.left() == {"right now": 1.0}
    world.step()
    assert world.left() == {"right now": 0.5}
    world.step(1)
    assert world.job()["last_result"]["ok"] is True


def test_a_database_made_later_is_cared_for_too(world: World) -> None:
    world.step()
    assert not world.layout.facts_db.parent.exists(), "none is made for it"
    world.store("right now", expires_at=NOW + 5)
    world.step(HOUR)
    assert world.left() == {}


@pytest.mark.parametrize(
    ("settings", "cares"), [({}, False), ({"enabled": True}, True), ({"enabled": False}, False)]
)
def test_a_foreign_database_is_cared_for_only_if_that_is_wanted(
    tmp_path: Path, settings: dict[str, Any], cares: bool
) -> None:
    path = Layout(tmp_path).facts_db
    path.parent.mkdir()
    fill(path, "links")
    change(path, "UPDATE facts SET expires_at = 5 WHERE id = 'a'")
    before = path.read_bytes()
    world = World(tmp_path, **settings)
    assert ("Ada likes the harbour" not in world.left()) is cares
    world.step(HOUR)
    assert (path.read_bytes() != before) is cares


def test_ours_is_left_alone_if_that_is_wanted(tmp_path: Path) -> None:
    world = World(tmp_path, enabled=False)
    world.store("right now", expires_at=NOW - 5)
    world.start()
    world.step(2 * HOUR)
    assert world.left() == {"right now": 1.0}
    assert all(job["name"] != MEMORY for job in world.table.status())


def test_where_nothing_may_be_changed_nothing_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store("right now", expires_at=NOW - 5)
    world.settings = world.settings.model_copy(update={"readonly": True})
    world.start()
    world.step(2 * HOUR)
    assert world.left() == {"right now": 1.0}


def test_a_database_elsewhere_is_cared_for_as_well(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "f.db"
    world = World(tmp_path, database=path)
    with open_memory(world.layout, world.settings.memory, clock=world.clock) as memory:
        store(memory, "right now", expires_at=NOW - 5)
    world.start()
    assert rows(path, "SELECT * FROM facts") == []
    assert not world.layout.facts_db.exists()
    *_, told = AuditLog(world.layout.audit_file).search(b"")
    assert (told["actor"], told["action"], told["expired"]) == ("daemon", "memory_prune", 1)


def test_the_hour_is_kept_if_the_run_came_to_its_end(
    world: World, told: list[dict[str, Any]]
) -> None:
    world.store("we decided")
    world.start()
    world.step(HOUR + 9)
    with open_memory(world.layout) as memory:
        assert memory.noted("last_run") == NOW + HOUR + 9
    (event,) = said(told, "periodic prune")
    assert event["log_level"] == "debug", "there was nothing to do"
    assert {"deleted", "vectors_deleted", "vectors_pending"} <= event.keys()
    world.clock.now += HOUR
    world.state.stopping.set()
    MemoryKeeper(world.state).run()
    with open_memory(world.layout) as memory:
        assert memory.noted("last_run") == NOW + HOUR + 9, "it was broken off"


def test_trouble_is_told_and_tried_again_an_hour_later(
    world: World, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store("right now", expires_at=NOW + 5)
    world.start()
    with monkeypatch.context() as patch:
        patch.setattr("bsd.memory.decay.prune", _busy)
        world.step(HOUR)
        assert (
            world.job()["last_result"] | {"ok": False, "error": "in use"}
            == (world.job()["last_result"])
        )
        world.start()
    assert [event["event"] for event in said(told, "periodic prune")] == [
        "periodic prune failed: in use"
    ]
    assert [event["event"] for event in said(told, "startup prune")] == [
        "startup prune failed: in use"
    ]
    assert all("exception" not in event for event in told)
    world.step(HOUR)
    assert world.left() == {}


def _busy(*_: object, **__: object) -> None:
    raise Busy("in use", hint="wait")


def test_a_damaged_database_does_not_keep_the_daemon_from_starting(tmp_path: Path) -> None:
    path = Layout(tmp_path).facts_db
    path.parent.mkdir()
    path.write_text("no database at all, really\n" * 100)
    memory = MemorySettings(enabled=True)
    settings = Settings(root=tmp_path, socket=tmp_path / "s", memory=memory)
    keeper = MemoryKeeper(DaemonState(settings, Clocks(Clock(), Clock())))
    with capture_logs() as logs:
        assert keeper.begin() is None
        with pytest.raises(BsdError, match="is not a database"):
            keeper.run()
    (told,) = [event["event"] for event in logs if event["event"].startswith("periodic")]
    assert told == f"periodic prune failed: {path} is not a database"


def test_a_place_that_nobody_may_see_does_not_keep_the_daemon_from_starting(
    world: World, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store("right now", expires_at=NOW + 5)

    def stat(path: Path, **_: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        world.start()
        world.step(HOUR)
    (start,) = said(told, "startup prune")
    assert start["event"].endswith("facts.db: Permission denied")
    (hour,) = said(told, "periodic prune")
    assert hour["event"].startswith("periodic prune failed: ")
    assert all("exception" not in event for event in told)
    world.step(HOUR)
    assert world.left() == {}


def test_a_run_that_a_wrong_clock_noted_puts_nothing_off(world: World) -> None:
    world.store("right now")
    world.clock.now += 90 * DAY
    world.start()  # the first sight, far ahead
    world.clock.now = NOW
    world.store("right now, too")
    world.clock.now += 18 * HOUR - 60
    for _ in range(3):
        world.start()
        world.step(40 * 60)
    assert world.left() == {"right now, too": 0.25}, "it ran after 80 minutes"


def test_a_real_daemon_prunes_at_its_start_and_lists_the_job(tmp_path: Path, root: Path) -> None:
    layout = Layout(root)
    with open_memory(layout) as memory:
        store(memory, "right now", expires_at=int(time.time()) - DAY)
        store(memory, "we decided")
    configure(root)
    with running(root, tmp_path) as daemon:
        assert daemon.said("startup prune removed 1 expired facts")
        jobs = {job["name"]: job for job in daemon.ask("jobs")["jobs"]}
        assert jobs[MEMORY]["schedule"] == "every 3600 s"
        assert daemon.ask("memory/stats")["facts"] == 1
        done = daemon.ask("jobs/memory/run", "POST")
        assert done["last_result"]["ok"] is True
        assert wait_for(lambda: daemon.said("periodic prune — 0 expired, 0 decayed"), "its words")
