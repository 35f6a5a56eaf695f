"""The job `recover`: it repairs the index of a store after a killed command, and other
leftovers.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.daemon.children import Children
from bsd.daemon.recovery import Recovery
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
from tests.refusing import raising
from tests.session_files import NAME, Clock, conversation, make_caller, write


@pytest.fixture
def layout(layout: Layout) -> Layout:
    write(layout, conversation(2))
    return layout


@pytest.fixture
def records(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """An extraction that was killed before it wrote the index, and its files in flight."""
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


def recovery_of(layout: Layout) -> Recovery:
    state = DaemonState(load_settings(root=layout.root, environ={"HOME": str(layout.root)}))
    child = Here(state.layout, state.config, caller=make_caller(state.layout, Clock()))
    return Recovery(state, cast(Children, ChildrenHere(child)))


def test_a_store_that_a_killed_command_left_gets_its_index(
    layout: Layout, records: list[Path]
) -> None:
    recovery = recovery_of(layout)
    with own_lock(layout, NAME, 0):
        assert recovery.run(), "it is being worked on: there will be more to do"
    assert {one.kind for one in verify(layout).findings} == {"not_indexed"}
    recovery.run()
    assert verify(layout).clean


def test_what_this_process_commits_is_indexed_by_whoever_commits_it(
    layout: Layout, records: list[Path]
) -> None:
    recovery = recovery_of(layout)
    for record in records:
        recovery.attempted(NAME, CommitOutcome(None, in_flight=record))
    recovery.run()
    assert not verify(layout).clean, "and costs no second look"


def test_what_there_was_no_room_for_is_indexed_once_there_is(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovery = recovery_of(layout)
    told: list[CommitOutcome] = []

    def noticed(name: SessionName, outcome: CommitOutcome) -> None:
        told.append(outcome)
        recovery.attempted(name, outcome)

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
            assert recovery.run(), "there will be more to do"
        assert {one.kind for one in verify(layout).findings} == {"not_indexed"}
    recovery.run()
    assert verify(layout).clean


@pytest.mark.parametrize("room", [True, False], ids=["room", "no-room"])
def test_what_stays_of_a_commit_that_failed_is_indexed_too(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """While an earlier commit is in flight, its content may have been read."""
    recovery = recovery_of(layout)
    told: list[CommitOutcome] = []

    def noticed(name: SessionName, outcome: CommitOutcome) -> None:
        told.append(outcome)
        recovery.attempted(name, outcome)

    config = ConfigService(layout.config_file)
    caller = Caller(layout=layout, config=config, budget=RetryBudget(wait=0), noticed=noticed)
    assert caller.extract(NAME).values
    assert verify(layout).clean
    write(layout, conversation(4))
    with monkeypatch.context() as disk:
        disk.setattr(
            "bsd.sessions.commit.protocol.splice",
            raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        )
        if not room:
            disk.setattr(Index, "add", raising(Unavailable("No space left on device")))
        assert caller.extract(NAME).status is Status.FAILED
    assert (told[-1].gave_up, told[-1].indexed) == (GiveUp.FAILED, room)
    assert verify(layout).clean == room
    recovery.run()
    assert verify(layout).clean
    kept = SessionStore(layout, NAME).refs()
    assert caller.extract(NAME).values
    assert SessionStore(layout, NAME).refs() == kept, "the next attempt uses them"
