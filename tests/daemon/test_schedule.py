"""Jobs at their times, by the current settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Conflict, NotFound
from bsd.core.layout import Layout
from bsd.daemon.cron import Every
from bsd.daemon.library_jobs import MEMORY
from bsd.daemon.scheduler import ScheduledJob, Scheduler
from bsd.daemon.service import (
    AUTO_CRON,
    COPY_SESSIONS,
    INDEX,
    RECOVER,
    RECOVER_SECONDS,
    RETENTION,
    SCAN,
    SIZES,
)
from tests.daemon.fast_forward import Clock as MachineClock
from tests.daemon.fast_forward import machine
from tests.daemon.running import configure

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


class Book:
    """A timetable whose jobs only record that they ran."""

    def __init__(self, root: Path, **config: Any) -> None:
        root.mkdir(exist_ok=True)
        self.now = START
        self.config = ConfigService(root / ".brainsurgeon" / "config.json")
        if config:
            self.config.update(config)
        self.ran: list[str] = []
        self.woken = 0
        self.unsettled = 0
        self.changed: list[list[str]] = []
        self.table = Scheduler(
            self.config,
            wake=self.wake,
            changed=self.changed.append,
            extraction_changed=self.unsettle,
            clock=lambda: self.now,
        )

    def fill(self) -> None:
        """The jobs whose times are in the settings, and a job without a time."""
        add = self.table.add
        add(ScheduledJob(SCAN, self.scan))
        add(ScheduledJob(AUTO_CRON, lambda: self.ran.append(AUTO_CRON), noted_as="last_run_at"))
        retention = ScheduledJob(RETENTION, lambda: self.ran.append(RETENTION), at_start=True)
        retention.noted_as = "last_retention_run_at"
        add(retention)
        add(ScheduledJob(RECOVER, lambda: self.ran.append(RECOVER)))

    def scan(self) -> None:
        self.table.apply()
        self.ran.append(SCAN)

    def wake(self) -> None:
        self.woken += 1

    def unsettle(self) -> None:
        self.unsettled += 1

    def step(self, seconds: float = 0.0) -> list[str]:
        """Let time pass, and return the jobs that ran."""
        self.now += seconds
        self.ran.clear()
        self.table.step(self.now)
        return sorted(self.ran)

    def job(self, name: str) -> dict[str, Any]:
        return next(job for job in self.table.status() if job["name"] == name)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path)
    book.fill()
    return book


def test_at_the_start_retention_runs_and_then_everything_at_its_time(book: Book) -> None:
    assert book.step() == [RETENTION]
    assert book.step(30) == [SCAN]
    assert book.step(90) == [AUTO_CRON, SCAN]
    assert book.step(6 * 3600) == [AUTO_CRON, RETENTION, SCAN]


def test_what_was_missed_runs_once(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.config.note_run("last_run_at", START - 3 * 3600)
    book.config.note_run("last_retention_run_at", START - 60)
    again = Book(tmp_path)
    again.fill()
    assert again.step() == [AUTO_CRON, RETENTION]
    assert again.step(1) == []


def test_a_day_in_suspend_is_one_run_of_each(book: Book) -> None:
    book.step()
    assert book.step(24 * 3600) == [AUTO_CRON, RETENTION, SCAN]
    assert book.step(1) == []


def test_settings_move_the_jobs_at_once(book: Book) -> None:
    book.step()
    book.config.update({"auto_cron": "*/30 * * * *", "scan_interval_seconds": 600})
    book.table.look_at_settings()
    assert book.woken
    assert book.step() == []
    assert book.step(120) == [], "neither the scan nor the cron of before"
    assert book.job(AUTO_CRON)["schedule"] == "*/30 * * * *"
    assert book.step(600) == [SCAN]
    assert book.step(1800) == [AUTO_CRON, SCAN]
    assert book.changed == [["scan_interval_seconds", "auto_cron"]]
    assert book.unsettled == 0, "nothing else is extracted because of that"


def test_the_scan_notices_settings_that_nobody_told_of(book: Book) -> None:
    book.step()
    book.config.update({"min_value_length": 10})
    assert book.unsettled == 0
    assert SCAN in book.step(30)
    assert book.unsettled == 1
    book.config.update({"enabled": False})
    book.step(30)
    assert book.unsettled == 1, "switched off, no session is due"
    book.config.update({"enabled": True})
    book.step(30)
    assert book.unsettled == 2


def test_a_job_without_a_schedule_runs_while_it_has_one(book: Book) -> None:
    assert RECOVER not in book.step()
    book.table.reschedule(RECOVER, Every(RECOVER_SECONDS))
    assert RECOVER not in book.step(29)
    assert RECOVER in book.step(1)
    book.table.reschedule(RECOVER, None)
    assert book.job(RECOVER)["next_run"] is None
    assert RECOVER not in book.step(3600)


def test_a_job_asked_for_runs_on_the_timers_thread(book: Book) -> None:
    book.step()
    book.table.ask(SCAN)
    assert book.woken
    assert book.step() == [SCAN]
    assert book.step() == []


def test_a_job_can_be_run_now_and_an_unknown_one_cannot(book: Book) -> None:
    run = book.table.run(AUTO_CRON)
    assert run.error is None
    assert book.job(AUTO_CRON)["last_result"] == {"ok": True, "error": None, "seconds": 0.0}
    with pytest.raises(NotFound):
        book.table.run("nonsense")


def test_a_job_that_runs_is_not_run_again_meanwhile(tmp_path: Path) -> None:
    book = Book(tmp_path)
    refused: list[str] = []

    def recursive() -> None:
        try:
            book.table.run(RECOVER)
        except Conflict as conflict:
            refused.append(conflict.message)
        book.table.ask(RECOVER)

    book.table.add(ScheduledJob(RECOVER, recursive))
    book.table.run(RECOVER)
    assert len(refused) == 1


def names_of_jobs(root: Path, patch: pytest.MonkeyPatch, **environ: str) -> dict[str, bool]:
    """The table of a real daemon: which jobs there are, and which do anything."""
    with machine(root, MachineClock(START), patch, **environ) as running:
        return {job["name"]: job["enabled"] for job in running.daemon.scheduler.status()}


def test_a_daemon_that_may_change_nothing_only_looks(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = names_of_jobs(layout.root, monkeypatch, BRAINSURGEON_READONLY="true")
    assert found == {INDEX: True, SCAN: True}


def test_jobs_tell_whether_they_do_anything(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(layout.root, retention="never", enabled=False)
    assert names_of_jobs(layout.root, monkeypatch) == {
        AUTO_CRON: False,
        RECOVER: False,
        RETENTION: False,
        COPY_SESSIONS: True,
        INDEX: True,
        MEMORY: True,
        SCAN: True,
        SIZES: True,
    }
