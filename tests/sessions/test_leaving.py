"""Leaving bsd restores every file as it was, except for changes that other writers made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.store.history import History
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.planning.test_uninstall import unpinned
from tests.session_files import NAME, Clock, conversation, make_caller, write
from tests.transcripts.agents.sources import KINDS
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind

YEARS = 3e9
FORK = SessionName("main", "fork")


def leave(caller: Caller, name: SessionName = NAME) -> Status:
    set_idle(caller.layout.session_file(name))
    result = performed.restore_all(caller, name, leaving=True)
    assert result.unavailable == {}
    return result.status


def restored_session(layout: Layout, caller: Caller) -> tuple[Path, bytes]:
    """Every value came back, a single value twice; no value is missing."""
    path = write(layout, conversation())
    original = path.read_bytes()
    caller.extract(NAME)
    performed.restore(caller, NAME, "e2")
    performed.restore_all(caller, NAME)
    assert path.read_bytes().count(b'"_restored"') == 3
    return path, original


def test_nothing_is_away_any_more_and_no_trace_stays(layout: Layout, caller: Caller) -> None:
    path, original = restored_session(layout, caller)
    assert leave(caller) is Status.RESTORED
    assert path.read_bytes() == original
    assert leave(caller) is Status.UNCHANGED
    assert verify(layout).clean


def test_it_can_be_undone(layout: Layout, caller: Caller) -> None:
    path, original = restored_session(layout, caller)
    before = path.read_bytes()
    leave(caller)
    set_idle(path)
    performed.undo(caller, NAME)
    assert path.read_bytes() == before
    leave(caller)
    assert path.read_bytes() == original


def test_pins_edits_and_what_stood_there_before_stay(layout: Layout, caller: Caller) -> None:
    entries = conversation()
    entries[2]["_restored"] = "2020-01-01T00:00:00.000Z"
    entries[3]["_restored"] = None
    path = write(layout, entries)
    original = path.read_bytes()
    caller.extract(NAME)
    performed.restore_all(caller, NAME)
    performed.set_extractable(caller, NAME, "e3", False)
    leave(caller)
    assert unpinned(path.read_bytes()) == original
    assert b'"_extractable":false' in path.read_bytes()


@pytest.mark.parametrize("expired", ["history", "store", "both"])
def test_what_expired_is_known_all_the_same(layout: Layout, caller: Caller, expired: str) -> None:
    path, original = restored_session(layout, caller)
    if expired != "store":
        RetentionRun(layout, actor="test", clock=lambda: YEARS).clean_history("24h")
        assert History(layout, NAME).operations() == []
    if expired != "history":
        RetentionRun(layout, actor="test", clock=lambda: YEARS).clean_store("24h")
        assert not layout.store_dir(NAME).exists()
    leave(caller)
    assert path.read_bytes() == original


@pytest.mark.parametrize("kept", ["history", "store"])
def test_what_was_restored_before_it_was_noted_is_told_by_what_is_kept(
    layout: Layout, caller: Caller, kept: str
) -> None:
    path, original = restored_session(layout, caller)
    (layout.history_dir(NAME) / "restored.json").unlink()
    if kept == "store":
        shutil.rmtree(layout.history_dir(NAME))
    else:
        shutil.rmtree(layout.store_dir(NAME))
    leave(caller)
    assert path.read_bytes() == original


def test_of_what_nothing_is_known_nothing_goes(layout: Layout, caller: Caller) -> None:
    path, _ = restored_session(layout, caller)
    shutil.rmtree(layout.history)
    shutil.rmtree(layout.extracted)
    before = path.read_bytes()
    assert leave(caller) is Status.UNCHANGED
    assert path.read_bytes() == before


@pytest.mark.parametrize("known", ["notes", "store"])
def test_a_fork_is_told_by_the_session_that_it_was_made_of(
    layout: Layout, caller: Caller, known: str
) -> None:
    path, original = restored_session(layout, caller)
    fork = layout.sessions_dir("main") / f"{FORK.session}.jsonl"
    shutil.copy(path, fork)
    shutil.rmtree(layout.extracted if known == "notes" else layout.history)
    assert leave(caller, FORK) is Status.RESTORED
    assert fork.read_bytes() == original


@pytest.mark.parametrize("known", ["notes", "store"])
def test_even_if_that_one_is_in_the_trash(
    layout: Layout, clock: Clock, caller: Caller, known: str
) -> None:
    path, original = restored_session(layout, caller)
    fork = layout.sessions_dir("main") / f"{FORK.session}.jsonl"
    shutil.copy(path, fork)
    shutil.rmtree(layout.extracted if known == "notes" else layout.history)
    set_idle(path)
    Trash(layout, "30d", budget=RetryBudget(clock=clock.now, sleep=clock.sleep)).delete(NAME)
    leave(caller, FORK)
    assert fork.read_bytes() == original


def test_who_waited_for_the_lock_takes_nothing_out_again(
    layout: Layout, clock: Clock, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = restored_session(layout, caller)
    config = ConfigService(layout.config_file)
    budget = RetryBudget(clock=clock.now, sleep=clock.sleep)
    daemon = Caller(layout=layout, config=ConfigService(layout.config_file), budget=budget)

    def lock_that_another_has(*_: object, **_how: object) -> AbstractContextManager[None]:
        monkeypatch.undo()
        config.update({"enabled": False})
        leave(caller)
        set_idle(path)
        return nullcontext()

    monkeypatch.setattr("bsd.sessions.session.own_lock", lock_that_another_has)
    assert daemon.extract(NAME).reasons == {"disabled": 9}
    assert path.read_bytes() == original


def test_through_the_trash_and_back(layout: Layout, clock: Clock, caller: Caller) -> None:
    path, original = restored_session(layout, caller)
    shutil.rmtree(layout.extracted)
    trash = Trash(layout, "30d", budget=RetryBudget(clock=clock.now, sleep=clock.sleep))
    set_idle(path)
    trash.delete(NAME)
    trash.restore(str(NAME))
    leave(caller)
    assert path.read_bytes() == original


def test_others_lines_of_the_same_id_are_no_originals(layout: Layout, caller: Caller) -> None:
    restored_session(layout, caller)
    theirs = conversation()
    theirs[2]["_restored"] = "2020-01-01T00:00:00.000Z"
    theirs[2]["message"]["content"][0]["text"] = "of their own"
    path = write(layout, theirs, FORK)
    before = path.read_bytes()
    assert leave(caller, FORK) is Status.UNCHANGED
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
@pytest.mark.parametrize("seed", range(3))
def test_other_programs_sessions_after_many_operations(
    kind: Kind, seed: int, tmp_path: Path, clock: Clock
) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    caller, chance = make_caller(home.layout, clock), Random(seed)
    original, mtime = home.path.read_bytes(), home.path.stat().st_mtime_ns
    overrides = EVERYTHING | {"keep_after_restore_seconds": 0}
    caller.extract(home.name, overrides=overrides)

    def some(*, extracted: bool) -> str:
        rows = performed.context(caller, home.name)["entries"]
        return chance.choice(
            [f"#{one['index']}" for one in rows if one["extracted"] or not extracted]
        )

    acts: list[Callable[[], object]] = [
        lambda: caller.extract(home.name, by_hand=True, overrides=overrides),
        lambda: performed.restore(caller, home.name, some(extracted=True)),
        lambda: performed.restore_all(caller, home.name),
        lambda: performed.undo(caller, home.name),
        lambda: performed.set_extractable(
            caller, home.name, some(extracted=False), chance.choice([True, False, 2, None])
        ),
    ]
    for _ in range(12):
        set_idle(home.path)
        try:
            chance.choice(acts)()
        except (BsdError, IndexError):  # no value is missing, or there was no operation
            continue
    set_idle(home.path)
    performed.restore_all(caller, home.name, leaving=True)
    left = home.path.read_bytes()
    assert unpinned(left) == unpinned(original)
    assert b"[[extracted-" not in left
    assert json.loads(left.splitlines()[-1])
    assert home.path.stat().st_mtime_ns >= mtime
