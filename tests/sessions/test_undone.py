"""What a person took back by undo stays inline, until somebody extracts it by hand or frees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.trash import Trash
from bsd.planning.result import SessionResult, Status
from bsd.sessions.commit.exchange import GiveUp
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.store.changed_lines import undone_in
from bsd.store.entry_notes import EntryNotes, Noting
from bsd.store.history import History
from bsd.store.state import StateDb
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, entry, make_caller, write

YEAR = 365 * 86_400.0


@pytest.fixture
def daemon(layout: Layout, clock: Clock) -> Caller:
    """Extracts by itself, and remembers what is settled."""
    budget = RetryBudget(clock=clock.now, sleep=clock.sleep)
    config, state = ConfigService(layout.config_file), StateDb(layout.state_db)
    return Caller(layout=layout, config=config, actor="daemon", budget=budget, state=state)


def undone(layout: Layout) -> frozenset[str]:
    return History(layout, NAME).entry_notes.undone()


def reasons(result: SessionResult) -> dict[str, int]:
    return {reason: n for reason, n in result.reasons.items() if reason in ("extract", "undone")}


def append(path: Path, *entries: dict[str, Any]) -> None:
    with path.open("a") as stream:
        stream.write("".join(json.dumps(one) + "\n" for one in entries))
    set_idle(path)


@pytest.fixture
def taken_back(layout: Layout, daemon: Caller, caller: Caller) -> Path:
    """A session whose extraction has been undone."""
    path = write(layout, conversation())
    daemon.extract(NAME)
    performed.undo(caller, NAME)
    return path


def test_the_daemon_leaves_it_inline_for_good(
    layout: Layout, daemon: Caller, taken_back: Path
) -> None:
    before = taken_back.read_bytes()
    assert reasons(daemon.extract(NAME)) == {"undone": 3}
    assert daemon.extract(NAME).entries == 0
    assert taken_back.read_bytes() == before
    RetentionRun(layout, actor="test", clock=lambda: 2e9 + YEAR).clean_history("24h")
    assert History(layout, NAME).operations() == []
    StateDb(layout.state_db).forget(NAME)
    assert reasons(daemon.extract(NAME)) == {"undone": 3}


def test_what_comes_later_leaves_as_ever(daemon: Caller, taken_back: Path) -> None:
    daemon.extract(NAME)
    append(taken_back, entry(9, "toolResult", "y" * 600))
    append(taken_back, *(entry(n, "assistant", "seen") for n in range(10, 14)))
    assert daemon.extract(NAME).entries == 1
    text = taken_back.read_text()
    assert "[[extracted-e9]]" in text
    assert text.count("[[extracted-") == 1


def test_it_is_settled_and_freeing_it_unsettles(
    layout: Layout,
    daemon: Caller,
    caller: Caller,
    taken_back: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Bytes: of what is small, nothing is remembered.
    monkeypatch.setattr("bsd.actions.extract._SMALL", 0)
    daemon.extract(NAME)
    assert reasons(daemon.extract(NAME)) == {}, "it begins behind them"
    assert performed.set_extractable(caller, NAME, "e2", None)["updated"]
    assert undone(layout) == {"e1", "e3"}
    assert reasons(daemon.extract(NAME)) == {"extract": 1, "undone": 2}
    assert "[[extracted-e2]]" in taken_back.read_text()


@pytest.mark.parametrize("value", [True, False, 0, 2, None])
def test_any_word_on_an_entry_frees_it(
    layout: Layout, caller: Caller, taken_back: Path, value: bool | int | None
) -> None:
    performed.set_extractable(caller, NAME, "e1", value)
    assert undone(layout) == {"e2", "e3"}
    assert b"e1" in taken_back.read_bytes()


def test_by_hand_it_leaves_and_is_free_then(
    layout: Layout, clock: Clock, daemon: Caller, caller: Caller, taken_back: Path
) -> None:
    daemon.extract(NAME)
    trial = performed.extraction(caller, NAME)
    assert reasons(trial) == {"extract": 3}
    assert "3 of the entries that would leave were brought back" in trial.warnings[0]
    assert reasons(caller.extract(NAME)) == {"undone": 3}
    assert caller.extract(NAME, by_hand=True).entries == 3
    assert undone(layout) == frozenset()
    performed.restore(caller, NAME, "e1")
    clock.ahead += 700
    assert daemon.extract(NAME).entries == 1, "a restoration is for a while, as ever"
    assert taken_back.read_text().count('"[[extracted-') == 3


def test_doing_it_again_frees_it(layout: Layout, caller: Caller, taken_back: Path) -> None:
    performed.undo(caller, NAME, 2)
    assert undone(layout) == frozenset()
    assert taken_back.read_text().count('"[[extracted-') == 3
    performed.undo(caller, NAME, 3)
    assert undone(layout) == {"e1", "e2", "e3"}


def test_undoing_a_restoration_frees_nothing_that_is_inline(
    layout: Layout, clock: Clock, daemon: Caller, caller: Caller
) -> None:
    write(layout, conversation())
    daemon.extract(NAME)
    performed.restore(caller, NAME, "e1")
    performed.undo(caller, NAME)
    assert undone(layout) == frozenset()
    performed.undo(caller, NAME, 3)  # it is restored again
    assert undone(layout) == frozenset()
    clock.ahead += 700
    assert daemon.extract(NAME).entries == 1


def test_an_undo_that_gave_up_has_taken_nothing_back(
    layout: Layout, clock: Clock, daemon: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(layout, conversation())
    daemon.extract(NAME)
    set_idle(path)

    def gives_up(*_: object, keep: Any, **_how: object) -> CommitOutcome:
        keep()
        assert undone(layout) == {"e1", "e2", "e3"}, "durable before it takes effect"
        return CommitOutcome(GiveUp.CHANGED, "somebody wrote")

    with monkeypatch.context() as patch:
        patch.setattr("bsd.sessions.editor.commit", gives_up)
        with pytest.raises(Exception, match="somebody wrote"):
            performed.undo(make_caller(layout, clock, wait=0.0), NAME)
    assert undone(layout) == frozenset()
    assert not (layout.history_dir(NAME) / "undone.json").exists()


@pytest.mark.parametrize("number", [1, 2])
def test_of_what_a_crash_left_the_session_tells(
    layout: Layout, daemon: Caller, caller: Caller, taken_back: Path, number: int
) -> None:
    directory = layout.history_dir(NAME)
    if number == 1:  # killed after the note, before the commit
        performed.undo(caller, NAME, 2)
        taken_away = taken_back.read_bytes()
        done = [path.name for path in directory.iterdir()]
        performed.undo(caller, NAME, 3)
        taken_back.write_bytes(taken_away)
        set_idle(taken_back)
        [newest] = [path for path in directory.glob("*.jsonl") if path.name not in done]
    else:  # killed after the commit, before that was noted
        [newest] = directory.glob("000002*")
    newest.rename(newest.with_suffix(".pending"))
    StateDb(layout.state_db).forget(NAME)
    source, _ = Session(layout, NAME).open()
    with source:
        there = undone_in(source, History(layout, NAME))
    assert there == ({"e1", "e2", "e3"} if number == 2 else frozenset())
    expected = {"undone": 3} if number == 2 else {}
    assert reasons(daemon.extract(NAME)) == expected
    append(taken_back, entry(9, "user", "more"))
    performed.set_extractable(caller, NAME, "e9", False)
    assert not list(directory.glob("*.pending"))
    assert undone(layout) == ({"e1", "e2", "e3"} if number == 2 else frozenset())


def test_it_goes_into_the_trash_with_its_session_and_comes_back(
    layout: Layout, clock: Clock, daemon: Caller, taken_back: Path
) -> None:
    trash = Trash(layout, "30d", budget=RetryBudget(clock=clock.now, sleep=clock.sleep))
    trash.delete(NAME)
    assert not layout.history_dir(NAME).exists()
    # Another session of this name leaves something behind.
    EntryNotes(layout.history_dir(NAME), NAME).note(1, Noting(undone=("e99",)))
    trash.restore(str(NAME))
    assert undone(layout) == {"e1", "e2", "e3", "e99"}
    set_idle(taken_back)
    assert reasons(daemon.extract(NAME)) == {"undone": 3}
    trash.delete(NAME, permanent=True)
    assert list(layout.history.iterdir()) == []


def test_of_a_session_that_is_gone_it_goes_with_the_history(
    layout: Layout, taken_back: Path
) -> None:
    later = 2e9 + YEAR
    for path in layout.store_dir(NAME).iterdir():
        path.unlink()
    layout.store_dir(NAME).rmdir()
    taken_back.rename(taken_back.with_suffix(".elsewhere"))
    RetentionRun(layout, actor="test", clock=lambda: later).clean_history("never")
    assert undone(layout)
    RetentionRun(layout, actor="test", clock=lambda: later).clean_history("24h")
    assert list(layout.history.iterdir()) == []


def test_a_damaged_file_is_said_and_stops_no_restoration(
    layout: Layout, daemon: Caller, caller: Caller, taken_back: Path
) -> None:
    files = [layout.history_dir(NAME) / name for name in ("undone.json", "restored.json")]
    for file in files:
        file.write_bytes(b"[]" if file.stem == "undone" else b'{"entries":[1]}')
    result = daemon.extract(NAME)
    assert result.status is Status.FAILED
    assert "undone.json is damaged" in (result.reason or "")
    assert "delete it" in (result.hint or "")
    with pytest.raises(Unavailable):
        EntryNotes(layout.history_dir(NAME), NAME).stamps()
    performed.undo(caller, NAME, 2)
    performed.restore(caller, NAME, "e1")
    assert taken_back.read_text().count('"[[extracted-') == 2
    assert all(file.with_suffix(".damaged").exists() for file in files[1:])


def test_an_operation_that_frees_is_undone_in_its_turn(layout: Layout) -> None:
    lasting = EntryNotes(layout.history_dir(NAME), NAME)
    lasting.note(2, Noting(undone=("e1", "e2")))
    lasting.note(5, Noting(freed=("e1", "e9")))
    assert lasting.undone() == {"e2"}
    assert lasting.undone(without_effect=[5]) == {"e1", "e2"}
    lasting.drop(5)
    assert lasting.undone() == {"e1", "e2"}
    lasting.note(6, Noting(freed=("e1", "e2")))
    lasting.note(7, Noting(freed=("e1",)))
    assert not lasting.has_undone


def test_an_act_without_notes_leaves_no_file(layout: Layout, caller: Caller) -> None:
    write(layout, conversation())
    caller.extract(NAME)
    assert [path.name for path in layout.history_dir(NAME).iterdir()] == ["000001_extract.jsonl"]
