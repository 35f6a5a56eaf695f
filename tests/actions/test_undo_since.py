"""Undo of all extractions since a moment, in many sessions; sessions left out are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions.undo_since import SessionUndone, UndoneSince, UndoStatus, undo_since
from bsd.core.config_file import ConfigService
from bsd.core.errors import Invalid
from bsd.core.layout import Layout, SessionName
from bsd.sessions.idle import RetryBudget
from bsd.store.history import History
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle, set_status
from tests.session_files import Clock, conversation, write

ONE, TWO = SessionName("main", "one"), SessionName("main", "two")


@pytest.fixture
def daemon(layout: Layout, clock: Clock) -> Caller:
    budget = RetryBudget(clock=clock.now, sleep=clock.sleep)
    return Caller(
        layout=layout, config=ConfigService(layout.config_file), actor="daemon", budget=budget
    )


@pytest.fixture
def paths(layout: Layout, daemon: Caller, clock: Clock) -> list[Path]:
    """Two sessions from which the daemon has extracted, two hours ago."""
    found = [write(layout, conversation(), name) for name in (ONE, TWO)]
    for name in (ONE, TWO):
        assert daemon.extract(name).entries == 3
    clock.ahead += 7200
    return found


def of(answer: UndoneSince, name: SessionName) -> SessionUndone:
    (found,) = [one for one in answer.sessions if one.session == str(name)]
    return found


def original(layout: Layout) -> bytes:
    return write(layout, conversation(), SessionName("main", "never")).read_bytes()


def test_all_of_them_come_back_and_a_dry_run_says_so_before(
    layout: Layout, caller: Caller, paths: list[Path]
) -> None:
    before = [path.read_bytes() for path in paths]
    foreseen = undo_since(caller, "3h", dry_run=True)
    assert [path.read_bytes() for path in paths] == before
    assert (foreseen.undone, foreseen.operations, foreseen.dry_run) == (2, 2, True)
    assert foreseen.total.values_back == 6
    assert undo_since(caller, "1h").sessions == ()
    done = undo_since(caller, "3h")
    assert (done.undone, done.operations) == (2, 2)
    assert done.total == foreseen.total
    whole = original(layout)
    assert [path.read_bytes() for path in paths] == [whole, whole]
    assert of(done, ONE).by == (2,)
    assert History(layout, ONE).entry_notes.undone() == {"e1", "e2", "e3"}
    assert undo_since(caller, "3h").sessions == ()  # no values are left


def test_several_operations_of_a_session_are_undone_newest_first(
    layout: Layout, daemon: Caller, caller: Caller, clock: Clock
) -> None:
    path = write(layout, conversation(), ONE)
    for keep_recent, entries in ((6, 2), (0, 1)):
        assert daemon.extract(ONE, overrides={"keep_recent": keep_recent}).entries == entries
        clock.ahead += 600
    performed.undo(caller, ONE)
    performed.undo(caller, ONE, 3)  # a redo: the same effect as before the undo
    clock.ahead += 600
    done = of(undo_since(caller, "9h"), ONE)
    assert (done.operations, done.by) == ((2, 1), (5, 6))
    assert path.read_bytes() == original(layout)


def test_a_session_that_a_person_changed_since_is_left_and_named(
    layout: Layout, caller: Caller, paths: list[Path]
) -> None:
    performed.set_extractable(caller, ONE, "e1", value=False)
    before = paths[0].read_bytes()
    for dry_run in (True, False):
        answer = undo_since(caller, "9h", dry_run=dry_run)
        left = of(answer, ONE)
        assert (left.status, left.operations, left.found) == (UndoStatus.LEFT, (), 1)
        assert "set_extractable" in str(left.reason)
        assert left.hint == "undo operation 2 first"
        assert of(answer, TWO).status is UndoStatus.UNDONE
        assert paths[0].read_bytes() == before
    assert paths[1].read_bytes() == original(layout)


def test_what_was_restored_stays_and_one_that_is_whole_is_no_trouble(
    layout: Layout, caller: Caller, paths: list[Path]
) -> None:
    performed.restore(caller, ONE, "e2")
    performed.restore_all(caller, TWO)
    whole = paths[1].read_bytes()
    answer = undo_since(caller, "9h")
    effect = of(answer, ONE).effect
    assert effect is not None
    assert (effect.values_back, effect.stays) == (2, 1)
    assert of(answer, TWO).status is UndoStatus.UNCHANGED
    assert paths[1].read_bytes() == whole


def test_a_session_in_use_is_left_and_another_agent_is_not_meant(
    layout: Layout, caller: Caller, paths: list[Path]
) -> None:
    set_status(layout.root, str(ONE), "running")
    before = paths[0].read_bytes()
    for dry_run in (True, False):
        answer = undo_since(replace(caller), "9h", dry_run=dry_run)
        assert of(answer, ONE).status is UndoStatus.BUSY
        assert "running" in str(of(answer, ONE).reason)
        assert of(answer, TWO).status is UndoStatus.UNDONE
    assert paths[0].read_bytes() == before
    assert undo_since(caller, "9h", session=TWO).sessions == ()


def test_once_it_is_to_stop_no_further_session_is_begun(
    layout: Layout, caller: Caller, paths: list[Path]
) -> None:
    asked = iter([False, True, True, True])
    answer = undo_since(replace(caller, stopping=lambda: next(asked)), "9h")
    assert (answer.undone, answer.not_begun) == (1, 1)
    assert sum(path.read_bytes() == original(layout) for path in paths) == 1


def test_what_is_no_moment_is_refused(caller: Caller) -> None:
    with pytest.raises(Invalid, match="not a time in the past"):
        undo_since(caller, "soon")


def test_where_the_clock_was_set_the_order_of_operations_counts(
    layout: Layout, daemon: Caller, caller: Caller, clock: Clock
) -> None:
    write(layout, conversation(), ONE)
    for ahead, keep_recent in ((3600, 7), (-3600, 6), (600, 0)):
        clock.ahead = ahead
        assert daemon.extract(ONE, overrides={"keep_recent": keep_recent}).entries
    clock.ahead = 1800  # the first session has a time in the future
    operations = History(layout, ONE).operations()
    set_idle(operations[0].path, -3600)
    times = [one.act.at for one in operations]
    assert times[1] < times[2] < times[0]
    only_last = of(undo_since(caller, "50m", dry_run=True), ONE)
    assert (only_last.operations, only_last.doubt) == ((3,), None)
    clock.ahead = 3900  # its time is past: the clock may have been set in between
    foreseen = of(undo_since(caller, "80m", dry_run=True), ONE)
    assert (foreseen.operations, foreseen.found) == ((3,), 1)
    assert "operation 1 (extract, " in str(foreseen.doubt)
    assert "operation 2 (extract, " in str(foreseen.doubt)
    left = of(undo_since(caller, "20m"), ONE)
    assert (left.status, left.operations, left.hint is not None) == (UndoStatus.LEFT, (), True)
    assert "operation 1" in str(left.reason)
    assert of(undo_since(caller, "9h"), ONE).operations == (3, 2, 1)
