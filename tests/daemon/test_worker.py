"""The verdict of a worker on each result: the next visit, the stored state, the events sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import (
    BsdError,
    Busy,
    Forbidden,
    LeftAlone,
    NotFound,
    NotRecognised,
    Unavailable,
    UnknownForm,
)
from bsd.core.layout import SessionName
from bsd.daemon import tasks
from bsd.daemon.child import Stopping
from bsd.daemon.queue import Failed, Finished, TryLater
from bsd.planning.plan import Plan, Report
from bsd.planning.result import SessionResult, Status
from bsd.planning.worth import LONGEST_WAIT_SECONDS
from bsd.transcripts.change import Identity, Written
from tests.daemon.work_house import NAME, House, small_saving
from tests.logs import capture_logs


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_our_own_writing_wakes_nobody(house: House) -> None:
    house.write()
    assert house.look() == [NAME]

    def commit() -> None:
        house.write(b'{"shorter":1}\n')
        house.caller.answer = SessionResult(
            str(NAME), Status.EXTRACTED, entries=1, left_as=house.identity()
        )

    house.caller.meanwhile = commit
    assert house.on(NAME) == Finished(None)
    assert not house.scan.changed(NAME)
    house.enqueuer.hint(NAME)
    house.enqueuer.step(house.steady + 60)
    assert house.queue.next_due() is None
    assert house.look() == []


def test_a_change_during_the_work_is_not_taken_for_ours(house: House) -> None:
    house.write()
    house.look()
    planned = house.identity()
    house.caller.meanwhile = lambda: house.write(b"{}\n{}\n")
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED, left_as=planned)
    assert house.on(NAME) == Finished(None)
    assert house.scan.changed(NAME)


def test_lines_that_came_in_with_a_commit_are_looked_at_soon(house: House) -> None:
    house.write()
    house.caller.answer = SessionResult(str(NAME), Status.EXTRACTED, entries=1, left_as=None)
    outcome = house.on(NAME)
    assert isinstance(outcome, Finished)
    assert outcome.next_due is not None
    assert house.steady < outcome.next_due < house.steady + 10
    assert house.scan.changed(NAME)


def test_the_end_of_a_protection_brings_the_session_back(house: House) -> None:
    house.write()
    house.caller.answer = SessionResult(
        str(NAME), Status.UNCHANGED, left_as=house.identity(), due_at=house.now + 600
    )
    assert house.on(NAME) == Finished(house.steady + 600)
    house.caller.answer = SessionResult(
        str(NAME), Status.UNCHANGED, left_as=house.identity(), due_at=house.now - 5
    )
    assert house.on(NAME) == Finished(house.steady)


def test_one_that_gave_way_comes_again_at_once_and_is_not_done(house: House) -> None:
    house.write()
    house.look()
    house.caller.answer = SessionResult(
        str(NAME), Status.EXTRACTED, entries=1, left_as=house.identity(), unfinished=True
    )
    assert house.on(NAME) == Finished(house.steady)
    assert house.scan.changed(NAME)


def test_what_the_scan_finds_is_a_backlog_unless_it_was_written_to_just_now(house: House) -> None:
    others = [SessionName("main", name) for name in ("old", "new")]
    for name in others:
        house.write(name=name)
    old, new = others
    for name, age in ((old, 3600.0), (new, 30.0)):
        seen = Written.of((house.sessions / f"{name.session}.jsonl").stat())
        house.enqueuer.put_found(name, seen, house.steady, seen.mtime_ns / 1e9 + age)
    assert [house.take(), house.take()] == [new, old]


def test_small_savings_gather_for_an_hour(house: House) -> None:
    house.write()
    house.caller.plan = small_saving(house)
    house.caller.answer = SessionResult(str(NAME), Status.EXTRACTED, left_as=house.identity())
    began = house.steady
    assert house.on(NAME) == Finished(began + LONGEST_WAIT_SECONDS)
    house.steady += 1800
    assert house.on(NAME) == Finished(began + LONGEST_WAIT_SECONDS)
    assert house.caller.committed == 0
    house.steady += 1800
    assert house.on(NAME) == Finished(None)
    assert house.caller.committed == 1
    assert len(house.state.savings) == 0


def test_what_waits_for_more_to_be_saved_is_not_at_rest_for_the_next_daemon(house: House) -> None:
    house.write()
    house.caller.plan = small_saving(house)
    house.on(NAME)
    house.state.idle_sessions.flush()
    assert list(house.state.idle_sessions.known()) == []
    house.caller.plan = None
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED, left_as=house.identity())
    house.on(NAME)
    house.state.idle_sessions.flush()
    assert [rest.session for rest in house.state.idle_sessions.known()] == [NAME]


def test_who_insists_does_not_wait_for_more_to_be_saved(house: House) -> None:
    house.write()
    house.caller.plan = small_saving(house)
    house.auto_cron.run()
    assert house.take(5) == NAME
    house.caller.answer = SessionResult(str(NAME), Status.BUSY)
    assert house.on(NAME) == TryLater()
    # TryLater, so it is as urgent as before.
    house.caller.answer = SessionResult(str(NAME), Status.EXTRACTED, entries=1)
    house.on(NAME)
    assert house.caller.committed == 2
    house.on(NAME)
    assert house.caller.committed == 2, "it was urgent once"


def test_outcomes_are_what_the_queue_understands(house: House) -> None:
    house.write()
    house.look()
    answers: list[tuple[SessionResult | BsdError, Any]] = [
        (SessionResult(str(NAME), Status.BUSY), TryLater()),
        (SessionResult(str(NAME), Status.BUSY, again_in=8.0), TryLater(58.0)),
        (SessionResult(str(NAME), Status.FAILED, reason="disk full"), Failed("disk full")),
        (Forbidden("a link"), Failed("a link")),
        (NotFound("gone"), Finished(None)),
        (SessionResult(str(NAME), Status.LEFT_ALONE, reason="no header"), Finished(None)),
    ]
    for answer, outcome in answers:
        house.caller.answer = answer
        assert house.on(NAME) == outcome
    totals = house.state.ledger.totals()
    assert (totals["busy"], totals["failed"]) == (2, 2)
    assert house.state.ledger.left_alone() == {"count": 1, "reasons": {"no header": 1}}
    assert not house.scan.changed(NAME), "what is not ours is read once"


def test_a_session_that_is_gone_is_forgotten(house: House) -> None:
    path = house.write()
    house.caller.answer = SessionResult(str(NAME), Status.LEFT_ALONE, reason="no header")
    house.on(NAME)

    def vanish() -> None:
        path.unlink()
        house.caller.answer = SessionResult(str(NAME), Status.FAILED, reason="vanished")

    house.caller.meanwhile = vanish
    assert house.on(NAME) == Finished(None)
    assert house.state.ledger.left_alone()["count"] == 0
    assert house.state.ledger.sessions() == []
    calls = house.caller.calls
    assert house.on(NAME) == Finished(None)
    assert house.caller.calls == calls


def test_switched_off_nothing_is_done_and_nothing_forgotten(house: House) -> None:
    house.write()
    house.look()
    house.config.update({"enabled": False})
    assert house.on(NAME) == Finished(None)
    assert house.caller.calls == 0
    assert house.scan.changed(NAME)


def test_a_stop_is_taken_between_two_megabytes(house: House) -> None:
    house.write()
    house.caller.meanwhile = house.state.stopping.set
    assert house.work.run([NAME]) == {}


def test_listeners_hear_of_every_result_and_the_log_in_the_seeds_words(house: House) -> None:
    house.write()
    heard = house.state.events.subscribe()
    house.caller.plan = Plan(house.identity(), (), Report("extract", bytes_before=3))
    house.caller.plan.report.reasons.update({"too_recent": 3, "type_not_matched": 12})
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED, left_as=house.identity())
    with capture_logs() as lines:
        house.on(NAME)
    assert "Processing session main/s1, 15 entries to check" in [line["event"] for line in lines]
    event = heard.take()
    assert event is not None
    assert event.as_json()["session"] == "main/s1"
    heard.close()


@pytest.mark.parametrize(
    ("calls", "again"),
    [
        (True, 53.0),
        (Busy("its lock is held"), None),
        (Busy("it was written to 2.0 s ago", again_in=8.0), 58.0),
    ],
)
def test_after_calls_the_session_is_looked_at_again_when_it_rests(
    house: House, calls: bool | BsdError, again: float | None
) -> None:
    house.write()
    house.calls = calls
    assert house.on(NAME) == TryLater(again)
    assert house.caller.calls == 0, "it would settle what the calls are about"
    house.calls = False
    assert isinstance(house.on(NAME), Finished)
    assert house.caller.calls == 1


def test_calls_in_a_session_that_is_not_ours_or_gone(house: House) -> None:
    house.write()
    house.calls = LeftAlone("version 1")
    house.caller.answer = SessionResult(str(NAME), Status.LEFT_ALONE, reason="version 1")
    assert house.on(NAME) == Finished(None)
    assert house.caller.calls == 1
    house.calls = NotFound("it vanished")
    assert house.on(NAME) == Finished(None)


def test_calls_that_cannot_be_dealt_with_now(house: House) -> None:
    house.write()
    house.calls = Unavailable("no space left")
    assert house.on(NAME) == Failed("no space left")
    assert house.caller.calls == 0


# --- a quiet time that is longer than the debounce ---


def live(house: House, seconds: int, writes: Callable[[int], bool], quiet: float) -> list[int]:
    """Let `seconds` pass while a program writes at times; return when it was extracted."""
    extracted = []
    path = house.sessions / "s1.jsonl"
    last = 0.0

    def look_closely() -> None:
        age = house.now - last
        if age < quiet:
            house.caller.answer = SessionResult(
                str(NAME), Status.BUSY, reason="just written", again_in=quiet - age
            )
            return
        extracted.append(second)
        left = Identity.of(path.stat())
        house.caller.answer = SessionResult(str(NAME), Status.EXTRACTED, entries=1, left_as=left)

    house.caller.meanwhile = look_closely
    start, steady = house.now, house.steady
    for second in range(seconds):
        house.now, house.steady = start + second, steady + second
        if writes(second):
            with path.open("a") as stream:
                stream.write("{}\n")
            last = house.now
            house.enqueuer.hint(NAME)
        house.enqueuer.step(house.steady)
        while (name := house.take()) is not None:
            house.queue.done(name, house.on(name), house.steady)
    return extracted


def test_a_session_is_looked_at_when_it_has_been_quiet_for_its_owners_time(house: House) -> None:
    house.write()
    assert live(house, 400, lambda second: second < 120, quiet=60.0) == [119 + 60]


def test_a_turn_every_fifteen_seconds_still_gets_through(house: House) -> None:
    house.write()
    assert live(house, 300, lambda second: second % 15 < 3, quiet=10.0) == [
        2 + 10 + turn for turn in range(0, 300, 15)
    ]


# --- several at once ---

SEVERAL = [SessionName("main", f"s{n}") for n in range(1, 5)]


@pytest.fixture
def backlog(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """Some jobs of a backlog, taken together; the child asks before each whether to continue."""
    monkeypatch.setattr(tasks, "_ASK_SECONDS", 0.0)
    for name in SEVERAL:
        house.write(name=name)
        house.queue.put(name, house.steady, backlog=True)
    first = house.take()
    assert first is not None
    rest = house.queue.take_more(first, 31)  # each worker has its share of the ready jobs
    while len(rest) < len(SEVERAL) - 1:
        rest += house.queue.take_more(first, 31) or [house.queue.take(0)]  # type: ignore[list-item]
    assert [first, *rest] == SEVERAL
    return house


def test_each_of_several_ends_as_if_it_had_been_alone(backlog: House) -> None:
    answers: list[SessionResult | BsdError] = [
        SessionResult(str(SEVERAL[0]), Status.UNCHANGED, left_as=backlog.identity()),
        Busy("in use", again_in=8.0),
        Forbidden("it is not ours"),
        NotFound("it is gone"),
    ]
    backlog.caller.meanwhile = lambda: vars(backlog.caller).update(answer=answers.pop(0))
    assert backlog.work.run(SEVERAL) == {
        SEVERAL[0]: Finished(None),
        SEVERAL[1]: TryLater(58.0),
        SEVERAL[2]: Failed("it is not ours"),
        SEVERAL[3]: Finished(),
    }
    assert backlog.caller.calls == len(SEVERAL)
    assert not backlog.scan.changed(SEVERAL[0])


def test_several_give_way_to_what_is_due_and_the_rest_is_untouched(backlog: House) -> None:
    backlog.caller.answer = SessionResult("x", Status.UNCHANGED, left_as=backlog.identity())
    due = SessionName("main", "due")
    backlog.caller.meanwhile = lambda: backlog.queue.put(due, backlog.steady)
    assert list(backlog.work.run(SEVERAL)) == SEVERAL[:1]
    assert backlog.caller.calls == 1


def test_one_of_several_that_is_in_use_again_is_due_itself(backlog: House) -> None:
    backlog.caller.answer = SessionResult("x", Status.UNCHANGED, left_as=backlog.identity())
    backlog.caller.meanwhile = lambda: backlog.queue.put(SEVERAL[3], backlog.steady + 9)
    assert list(backlog.work.run(SEVERAL)) == SEVERAL[:1]
    for name in SEVERAL:
        backlog.queue.give_back(name)
    assert backlog.take() == SEVERAL[3]


@pytest.mark.parametrize("error", [BsdError("the process ended"), Stopping()], ids=repr)
def test_what_ends_several_is_about_the_one_at_work(backlog: House, error: Exception) -> None:
    backlog.auto_cron.run()  # insists on all of them
    backlog.broken = SEVERAL[2], error
    failed = {SEVERAL[2]: Failed("the process ended")}
    assert backlog.work.run(SEVERAL) == (failed if isinstance(error, BsdError) else {})
    assert {one.name: one.urgent for one in backlog.handed} == dict.fromkeys(SEVERAL, True)
    assert all(backlog.enqueuer.take_urgency(name) for name in SEVERAL), "as urgent as before"
    assert backlog.state.ledger.totals()["failed"] == isinstance(error, BsdError)


def test_an_error_that_nobody_expected_is_of_one_session(backlog: House) -> None:
    backlog.broken = SEVERAL[2], RuntimeError("no")
    with capture_logs() as lines:
        verdicts = backlog.work.run(SEVERAL)
    assert verdicts == {SEVERAL[2]: Failed("internal error: RuntimeError('no')")}
    assert backlog.worked == [SEVERAL[2]]
    assert backlog.state.ledger.totals()["crashes"] == 1
    assert [line["session"] for line in lines if line["log_level"] == "error"] == [str(SEVERAL[2])]


def test_a_stop_keeps_what_several_have_come_to(backlog: House) -> None:
    backlog.caller.answer = SessionResult("x", Status.UNCHANGED, left_as=backlog.identity())
    backlog.caller.meanwhile = backlog.state.stopping.set
    found = backlog.work.run(SEVERAL)
    assert set(found) <= set(SEVERAL[:1])
    assert backlog.caller.calls == 1


def test_one_of_several_that_is_gone_needs_no_child(backlog: House) -> None:
    for name in SEVERAL:
        (backlog.sessions / f"{name.session}.jsonl").unlink()
    assert backlog.work.run(SEVERAL) == dict.fromkeys(SEVERAL, Finished())
    assert backlog.handed == []


def test_nothing_is_looked_into_while_switched_off(backlog: House) -> None:
    backlog.config.update({"enabled": False})
    assert backlog.work.run(SEVERAL) == dict.fromkeys(SEVERAL, Finished())
    assert backlog.handed == []


def is_saved_as_idle(house: House) -> bool:
    house.state.idle_sessions.flush()
    return NAME in {left.session for left in house.state.idle_sessions.known()}


def test_a_session_in_an_unknown_form_is_told_and_looked_at_again_after_a_restart(
    house: House,
) -> None:
    house.write()
    house.look()
    unknown = UnknownForm("session header of unknown version 4")
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED).failed(unknown)
    with capture_logs() as logs:
        for _ in range(2):
            assert house.on(NAME) == Finished()
    assert house.look() == []  # until it changes, or another daemon starts
    assert not is_saved_as_idle(house)
    told = [record for record in logs if "in a form that bsd does not know" in record["event"]]
    assert [record["session"] for record in told] == [str(NAME)]
    [forms] = house.state.not_understood.unknown_forms()
    assert (forms["source"], forms["title"], forms["sessions"]) == ("openclaw", "OpenClaw", 1)
    assert (forms["newest"], forms["reason"]) == (str(NAME), "session header of unknown version 4")
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED, left_as=house.identity())
    assert isinstance(house.on(NAME), Finished)
    assert house.state.not_understood.unknown_forms() == []
    assert is_saved_as_idle(house)


def test_small_files_without_messages_are_not_opened_again_after_a_restart(house: House) -> None:
    unrecognised = NotRecognised("no entries")
    house.caller.answer = SessionResult(str(NAME), Status.UNCHANGED).failed(unrecognised)
    for content, is_saved in ((b"{}\n", True), (b"{}\n" * 50_000, False)):
        house.write(content)
        assert house.on(NAME) == Finished()
        assert is_saved_as_idle(house) is is_saved
