"""What is put in order behind others: a command that was killed has not indexed what it kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.daemon.children import Children
from bsd.daemon.jobs import JobRunner
from bsd.daemon.state import DaemonState
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.sessions.editor import SessionEditor
from bsd.sessions.idle import RetryBudget
from bsd.store.index import Index
from bsd.store.originals import SessionStore
from tests.actions.performed import Caller
from tests.daemon.in_process import ChildrenHere, Here
from tests.loading import load_settings
from tests.logs import capture_logs
from tests.openclaw_tree import set_idle
from tests.refusing import raising
from tests.session_files import NAME, Clock, conversation, write


@pytest.fixture
def layout(layout: Layout) -> Layout:
    write(layout, conversation(2))
    return layout


@pytest.fixture
def records(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """An extraction that was killed before it wrote the index, and what it left in flight."""
    left: list[Path] = []

    def noticed(_: object, outcome: CommitOutcome) -> None:
        assert outcome.in_flight is not None
        left.append(outcome.in_flight)

    with monkeypatch.context() as killed:
        killed.setattr(SessionEditor, "_index", lambda *_: True)
        config = ConfigService(layout.config_file)
        Caller(layout=layout, config=config, budget=RetryBudget(wait=0), noticed=noticed).extract(
            NAME
        )
    assert {one.kind for one in verify(layout).findings} == {"not_indexed"}
    return left


def jobs_of(layout: Layout) -> JobRunner:
    settings = load_settings(root=layout.root, environ={"HOME": str(layout.root)})
    return _jobs(DaemonState(settings))


def _jobs(state: DaemonState, gone: Callable[[SessionName], None] = lambda _: None) -> JobRunner:
    child = Here(state.layout, state.config, clock=Clock().now)
    return JobRunner(state, cast(Children, ChildrenHere(child)), gone=gone)


def test_a_session_whose_copy_stays_is_told_of_when_that_is_known(layout: Layout) -> None:
    """Who looked for its words before found neither the session nor a copy of one that is gone."""
    settings = load_settings(root=layout.root, environ={"HOME": str(layout.root)})
    told: list[SessionName] = []
    jobs = _jobs(DaemonState(settings), told.append)
    set_idle(layout.session_file(NAME), 2 * 86_400)
    assert jobs.keep_sessions() == 1
    assert told == []
    layout.session_file(NAME).unlink()
    assert jobs.keep_sessions() == 1
    assert told == [NAME]


def test_a_store_that_a_killed_command_left_gets_its_index(
    layout: Layout, records: list[Path]
) -> None:
    jobs = jobs_of(layout)
    with own_lock(layout, NAME, 0):
        assert jobs.recover(), "it is being worked on: there will be more to do"
    assert {one.kind for one in verify(layout).findings} == {"not_indexed"}
    jobs.recover()
    assert verify(layout).clean


def test_what_this_process_commits_is_indexed_by_whoever_commits_it(
    layout: Layout, records: list[Path]
) -> None:
    jobs = jobs_of(layout)
    for record in records:
        jobs.committed(record)
    jobs.recover()
    assert not verify(layout).clean, "and costs no second look"


def test_what_there_was_no_room_for_is_indexed_once_there_is(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(layout)
    told: list[CommitOutcome] = []

    def noticed(name: SessionName, outcome: CommitOutcome) -> None:
        told.append(outcome)
        if outcome.in_flight is not None:
            jobs.committed(outcome.in_flight)
        if not outcome.indexed:
            jobs.fell_behind(name)

    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    config = ConfigService(layout.config_file)
    with monkeypatch.context() as disk:
        disk.setattr("bsd.store.index.write_private", full)
        Caller(layout=layout, config=config, budget=RetryBudget(wait=0), noticed=noticed).extract(
            NAME
        )
        assert [outcome.indexed for outcome in told] == [False]
        for _ in range(3):
            assert jobs.recover(), "there will be more to do"
        assert {one.kind for one in verify(layout).findings} == {"not_indexed"}
    jobs.recover()
    assert verify(layout).clean


@pytest.mark.parametrize("room", [True, False], ids=["room", "no-room"])
def test_what_stays_of_a_commit_that_failed_is_indexed_too(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """While an earlier commit is in flight, nothing proves that nobody has read what it wrote."""
    jobs = jobs_of(layout)
    told: list[CommitOutcome] = []

    def noticed(name: SessionName, outcome: CommitOutcome) -> None:
        told.append(outcome)
        if outcome.in_flight is not None:
            jobs.committed(outcome.in_flight)
        if not outcome.indexed:
            jobs.fell_behind(name)

    config = ConfigService(layout.config_file)
    surgeon = Caller(layout=layout, config=config, budget=RetryBudget(wait=0), noticed=noticed)
    assert surgeon.extract(NAME).values
    assert verify(layout).clean
    write(layout, conversation(4))
    with monkeypatch.context() as disk:
        disk.setattr(
            "bsd.sessions.commit.protocol.splice",
            raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        )
        if not room:
            disk.setattr(Index, "add", raising(Unavailable("No space left on device")))
        assert surgeon.extract(NAME).status is Status.FAILED
    assert (told[-1].gave_up, told[-1].indexed) == (GiveUp.FAILED, room)
    assert verify(layout).clean == room
    jobs.recover()
    assert verify(layout).clean
    kept = SessionStore(layout, NAME).refs()
    assert surgeon.extract(NAME).values
    assert SessionStore(layout, NAME).refs() == kept, "the next attempt uses them"


def test_cleaning_up_that_leaves_something_behind_has_failed(layout: Layout) -> None:
    state = DaemonState(load_settings(root=layout.root, environ={"HOME": str(layout.root)}))
    jobs = _jobs(state)
    jobs.clean_up()
    store = layout.extracted / str(NAME).replace("/", "_")
    old = store / "0001_thinking.json"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_bytes(b"x" * 1000)
    set_idle(old, 30 * 3600)
    layout.archive.rmdir()
    layout.archive.write_bytes(b"no directory")
    with pytest.raises(Unavailable, match="not all could be moved or deleted") as told:
        jobs.clean_up()
    assert str(layout.log_file) in str(told.value.hint)
    layout.archive.unlink()
    jobs.clean_up()
    assert not old.exists()


def said_at_start(jobs: JobRunner) -> list[str]:
    with capture_logs() as lines:
        jobs.explain_retention()
    said = [str(line["event"]) for line in lines if line["log_level"] == "info"]
    return [event for event in said if not event.startswith("Config")]


def test_a_start_says_what_becomes_of_content_and_after_the_update_what_is_new(
    layout: Layout,
) -> None:
    jobs = jobs_of(layout)
    (first,) = said_at_start(jobs)
    assert "moved, compressed, into the archive" in first
    config = ConfigService(layout.config_file)
    config.note_run("last_retention_run_at", 1e9)  # by a bsd that knew no archive
    (new,) = said_at_start(jobs_of(layout))
    assert "no longer deleted" in new
    assert "`bsd config set archive false`" in new
    config.update({"archive": False})
    assert said_at_start(jobs_of(layout)) == []
    config.update({"archive": True})
    jobs_of(layout).clean_up()
    assert said_at_start(jobs_of(layout)) == []  # it has been said
