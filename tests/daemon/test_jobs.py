"""Repairs after other work: a killed command has not indexed the content that it stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.daemon.children import Children
from bsd.daemon.jobs import JobRunner
from bsd.daemon.state import DaemonState
from tests.daemon.in_process import ChildrenHere, Here
from tests.loading import load_settings
from tests.logs import capture_logs
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, write


@pytest.fixture
def layout(layout: Layout) -> Layout:
    write(layout, conversation(2))
    return layout


def jobs_of(layout: Layout) -> JobRunner:
    settings = load_settings(root=layout.root, environ={"HOME": str(layout.root)})
    return _jobs(DaemonState(settings))


def _jobs(state: DaemonState, gone: Callable[[SessionName], None] = lambda _: None) -> JobRunner:
    child = Here(state.layout, state.config, clock=Clock().now)
    return JobRunner(state, cast(Children, ChildrenHere(child)), gone=gone)


def test_a_session_whose_copy_stays_is_told_of_when_that_is_known(layout: Layout) -> None:
    """A search for its words found neither the session nor a copy of a deleted session before."""
    settings = load_settings(root=layout.root, environ={"HOME": str(layout.root)})
    told: list[SessionName] = []
    jobs = _jobs(DaemonState(settings), told.append)
    set_idle(layout.session_file(NAME), 2 * 86_400)
    assert jobs.copy_sessions() == 1
    assert told == []
    layout.session_file(NAME).unlink()
    assert jobs.copy_sessions() == 1
    assert told == [NAME]


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
    with pytest.raises(Unavailable, match="some files could not be moved or deleted") as told:
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
    assert "compressed, into the archive" in first
    config = ConfigService(layout.config_file)
    config.note_run("last_retention_run_at", 1e9)  # by a bsd without an archive
    (new,) = said_at_start(jobs_of(layout))
    assert "no longer deleted" in new
    assert "`bsd config set archive false`" in new
    config.update({"archive": False})
    assert said_at_start(jobs_of(layout)) == []
    config.update({"archive": True})
    jobs_of(layout).clean_up()
    assert said_at_start(jobs_of(layout)) == []  # already reported
