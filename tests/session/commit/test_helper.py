"""The helper process: its life, its death in the middle of a request, and who notices."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from bsd.foundation.errors import BsdError
from bsd.session.commit.displaced import State
from bsd.session.commit.exchangers import HelperExchanger
from bsd.session.commit.protocol import GiveUp, Outcome
from tests.refusing import raising
from tests.session.commit.scene import (
    EDITED,
    SESSION,
    SHORT,
    SHORTEN,
    Scene,
    edit_of,
    line,
    once_at,
)
from tests.waiting import wait_for


@pytest.fixture
def helper() -> Iterator[HelperExchanger]:
    with HelperExchanger() as exchanger:
        yield exchanger


@pytest.fixture
def scene(scene: Scene, helper: HelperExchanger) -> Scene:
    scene.exchanger = helper
    return scene


def kill(helper: HelperExchanger) -> None:
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)


def test_one_process_serves_many_commits(scene: Scene, helper: HelperExchanger) -> None:
    assert helper.pid is None
    assert scene.commit().committed
    first = helper.pid
    scene.age()
    assert scene.commit(edit_of(line(4), b"", EDITED)).committed
    assert helper.pid == first is not None


def test_closing_ends_the_process(scene: Scene, helper: HelperExchanger) -> None:
    helper.start()
    pid = helper.pid
    assert pid is not None
    helper.close()
    assert helper.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_helper_ends_with_whoever_started_it() -> None:
    """Without a word: its stdin ends."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lonely = HelperExchanger()
        lonely.start()
        os.write(write, str(lonely.pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    pid = int(os.read(read, 32))
    os.close(read)
    os.close(write)
    wait_for(lambda: not _alive(pid), "the helper has left")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_terminal_s_signals_are_not_for_the_helper(
    scene: Scene, helper: HelperExchanger
) -> None:
    helper.start()
    assert helper.pid is not None
    assert os.getsid(helper.pid) != os.getsid(0)
    assert scene.commit().committed  # it has started, and set its signals
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(helper.pid, number)
    scene.age()
    before = helper.pid
    assert scene.commit(edit_of(line(4), b"", EDITED)).committed
    assert helper.pid == before


def test_a_helper_that_died_between_requests_is_replaced(
    scene: Scene, helper: HelperExchanger
) -> None:
    helper.start()
    kill(helper)
    outcome = scene.commit()
    if not outcome.committed:  # it was not yet dead when it was asked
        assert outcome.gave_up is GiveUp.HELPER_LOST
        outcome = scene.commit()
    assert outcome.committed
    assert scene.content == EDITED


def die_at(scene: Scene, helper: HelperExchanger, step: str) -> Outcome:
    return scene.commit(after_step=once_at(step, lambda: kill(helper)))


@pytest.mark.parametrize("step", ["opened", "leased_old", "leased_new", "verified"])
def test_a_death_before_the_exchange_changes_nothing(
    scene: Scene, helper: HelperExchanger, step: str
) -> None:
    outcome = die_at(scene, helper, step)
    assert outcome.gave_up is GiveUp.HELPER_LOST
    assert outcome.in_flight in scene.records()
    assert scene.content == SESSION
    assert scene.commit().committed
    assert {one.state for one in scene.recover(61)} == {State.FINISHED}
    assert scene.content == EDITED


@pytest.mark.parametrize("step", ["exchanged", "recognised", "draining", "drained", "released"])
def test_a_death_after_the_exchange_is_a_commit(
    scene: Scene, helper: HelperExchanger, step: str
) -> None:
    outcome = die_at(scene, helper, step)
    assert outcome.committed
    assert outcome.identity is not None
    assert outcome.identity.ino == scene.path.stat().st_ino
    assert scene.content == EDITED
    assert [one.state for one in scene.recover(61)] == [State.FINISHED]


@pytest.mark.parametrize("step", ["drained", "noted", "carried"])
def test_a_death_with_growth_in_its_hands_is_recovered(
    scene: Scene, helper: HelperExchanger, step: str
) -> None:
    def both(name: str) -> None:
        if name == "verified":
            scene.append_blocked(line(90))
        if name == step:
            kill(helper)

    assert scene.commit(after_step=both).committed
    scene.finish_children()
    scene.recover()
    assert scene.content == EDITED + line(90)


def test_a_session_that_goes_with_the_helper(scene: Scene, helper: HelperExchanger) -> None:
    def both(name: str) -> None:
        if name == "verified":
            scene.path.unlink()
            kill(helper)

    assert scene.commit(after_step=both).gave_up is GiveUp.HELPER_LOST
    assert not scene.path.exists()


def test_a_hook_that_fails_lets_the_helper_finish(scene: Scene, helper: HelperExchanger) -> None:
    with pytest.raises(RuntimeError):
        scene.commit(after_step=once_at("exchanged", raising(RuntimeError)))
    assert scene.content == EDITED
    assert [file.read_bytes() for file in scene.in_flight()] == [SESSION]


def test_a_helper_that_cannot_be_started(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BsdError, match="helper process"):
        scene.commit()
    assert scene.content == SESSION
    assert scene.records() == scene.in_flight() == []


def test_threads_take_turns(tmp_path_factory: pytest.TempPathFactory) -> None:
    with HelperExchanger() as helper:
        scenes = [Scene(tmp_path_factory.mktemp("turn") / "root", helper) for _ in range(4)]
        outcomes: list[Outcome] = []
        threads = [
            threading.Thread(target=lambda s=one: outcomes.append(s.commit(SHORTEN)))
            for one in scenes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [outcome.committed for outcome in outcomes] == [True] * 4
    assert all(SHORT in one.content for one in scenes)
