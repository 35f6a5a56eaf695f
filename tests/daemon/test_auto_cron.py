"""`auto_cron`: which sessions a run takes, and when it is over (seed 000, SP-04)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bsd.core.layout import SessionName
from bsd.daemon import auto_cron
from bsd.planning.result import SessionResult, Status
from bsd.transcripts.change import Identity
from tests.daemon.work_house import NAME, House, small_saving
from tests.logs import capture_logs
from tests.refusing import raising


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_the_first_run_takes_all_and_the_next_only_what_changed(house: House) -> None:
    names = [SessionName("main", f"s{n}") for n in range(1, 4)]
    for name in names:
        house.write(name=name)
    house.now = (house.sessions / "s1.jsonl").stat().st_mtime + 100
    house.look()
    house.auto_cron.run()
    taken = work_off(house)
    assert taken == set(names)
    noted = house.config.current.last_run_at
    assert noted is not None
    house.now += 120
    with capture_logs() as lines:
        house.auto_cron.run()
    assert work_off(house) == set()
    assert f"Session main/s1 unchanged since {noted[:19]}Z, skipping" in [
        line["event"] for line in lines
    ]
    assert house.config.current.last_run_at not in {None, noted}


def test_a_run_that_fails_does_not_keep_the_next_from_running(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write()
    house.look()
    with monkeypatch.context() as patch:
        patch.setattr(auto_cron, "sessions_by_stat", raising(OSError(errno.EIO, "broken disk")))
        with pytest.raises(OSError, match="broken"):
            house.auto_cron.run()
    house.auto_cron.run()
    assert work_off(house) == {NAME}


def test_the_first_run_passes_over_what_has_been_seen_to_and_is_as_it_was_left(
    house: House,
) -> None:
    seen_to, new = NAME, SessionName("main", "new")
    house.write()
    house.look()
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED, left_as=house.identity())
    house.on(seen_to)
    house.write(name=new)
    with capture_logs() as lines:
        house.auto_cron.run()
    assert house.take(5) == new
    assert house.take() is None
    told = f"Session {seen_to} unchanged since bsd processed it, skipping"
    assert told in [line["event"] for line in lines]


def test_a_failed_session_stops_no_other_and_the_run_is_noted(house: House) -> None:
    for number in range(1, 4):
        house.write(name=SessionName("main", f"s{number}"))
    house.caller.answer = SessionResult(str(NAME), Status.FAILED, reason="no luck")
    house.auto_cron.run()
    assert len(work_off(house, once=True)) == 3
    assert house.config.current.last_run_at is not None


def test_the_run_is_noted_only_when_all_have_had_their_turn(house: House) -> None:
    for number in range(1, 3):
        house.write(name=SessionName("main", f"s{number}"))
    house.auto_cron.run()
    first = house.take(5)
    assert first is not None
    house.on(first)
    assert house.config.current.last_run_at is None
    house.auto_cron.run()  # the run before is going on: no new run
    second = house.take(5)
    assert second is not None
    house.on(second)
    assert house.config.current.last_run_at is not None


def test_switched_off_it_does_nothing(house: House) -> None:
    house.write()
    house.config.update({"enabled": False})
    house.auto_cron.run()
    assert house.queue.next_due() is None
    assert house.config.current.last_run_at is None


def test_what_has_little_to_save_is_taken_though_it_did_not_change(house: House) -> None:
    house.write()
    house.look()
    house.config.note_run("last_run_at", 1000.0)
    house.caller.plan = small_saving(house)
    house.on(NAME)
    assert not house.scan.changed(NAME)
    house.auto_cron.run()
    assert work_off(house) == {NAME}
    assert house.caller.committed == 1


def work_off(house: House, *, once: bool = False) -> set[SessionName]:
    taken = set()
    house.steady += 10
    while (name := house.take()) is not None:
        taken.add(name)
        house.caller.meanwhile = lambda name=name: settle(house, name)  # type: ignore[misc]
        house.queue.done(name, house.on(name), house.steady)
    return taken


def settle(house: House, name: SessionName) -> None:
    if isinstance(house.caller.answer, SessionResult) and (
        house.caller.answer.status is not Status.FAILED
    ):
        path = house.sessions / f"{name.session}.jsonl"
        house.caller.answer = SessionResult(
            str(name), Status.UNCHANGED, left_as=Identity.of(path.stat())
        )
