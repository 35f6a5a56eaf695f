"""How long bsd waits for a session in use, and which signs count as use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy
from bsd.core.layout import Layout
from bsd.planning.result import Status
from bsd.planning.survey import fingerprint
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import InFlightRecord
from bsd.sessions.idle import RetryBudget
from bsd.store.state import Checkpoints, StateDb
from bsd.transcripts.reader import TranscriptFile
from tests.actions import performed
from tests.actions.performed import Caller
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock, conversation, entry, make_caller, write

_QUIET = 10.0


def caller_of(layout: Layout, clock: Clock, wait: float = 0.0, quiet: float = _QUIET) -> Caller:
    budget = RetryBudget(wait, quiet, clock=clock.now, sleep=clock.sleep)
    return Caller(layout=layout, config=ConfigService(layout.config_file), budget=budget)


def test_who_is_too_early_learns_when_to_come_again(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 4.0)
    caller = caller_of(layout, clock)
    result = caller.extract(NAME)
    assert result.status is Status.BUSY
    assert result.again_in == pytest.approx(6.0, abs=0.9)
    with pytest.raises(Busy, match="was written to") as refused:
        performed.set_extractable(caller, NAME, "e1", value=True)
    assert refused.value.again_in == pytest.approx(6.0, abs=0.9)
    assert (refused.value.hint or "").startswith("again in ")
    clock.ahead += result.again_in or 0.0
    assert caller.extract(NAME).status is Status.EXTRACTED


def test_our_own_writing_is_nobodys_use(layout: Layout, clock: Clock) -> None:
    require_linux()
    path = write(layout, conversation())
    caller = caller_of(layout, clock)
    assert caller.extract(NAME).status is Status.EXTRACTED
    early = performed.restore_all(caller, NAME)
    assert early.status is Status.BUSY, "two seconds are for the timestamps alone"
    assert (early.again_in or 0.0) <= 2.0
    clock.ahead += 2.5
    assert performed.restore_all(caller, NAME).status is Status.RESTORED
    clock.ahead += 2.5
    assert performed.set_extractable(caller, NAME, "e1", value=True)["updated"], (
        "that was ours, too"
    )
    with path.open("a") as stream:
        stream.write("{}\n")
    clock.ahead += 2.5
    with pytest.raises(Busy):
        performed.set_extractable(caller, NAME, "e1", value=False)


def test_what_others_wrote_before_us_still_counts(layout: Layout, clock: Clock) -> None:
    """A commit that brings no lines of other writers leaves the session's time of quiet as it
    was.
    """
    require_linux()
    path = write(layout, conversation())
    set_idle(path, 5.0)
    assert caller_of(layout, clock, quiet=4.0).extract(NAME).status is Status.EXTRACTED
    clock.ahead += 2.5
    caller = caller_of(layout, clock, quiet=60.0)
    assert performed.restore_all(caller, NAME).status is Status.BUSY


def locked_by_init(path: Path) -> None:
    lock = path.with_name(path.name + ".lock")
    lock.write_text('{"pid": 1, "createdAt": "2026-02-01T00:00:00Z"}')


def test_the_lock_of_another_bsd_and_the_session_are_waited_for_together(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked_by_init(write(layout, conversation()))

    @contextmanager
    def after_twenty_seconds(*_: object, **__: object) -> Iterator[None]:
        clock.ahead += 20
        yield

    monkeypatch.setattr("bsd.sessions.session.own_lock", after_twenty_seconds)
    caller = make_caller(layout, clock)
    assert caller.extract(NAME).status is Status.BUSY
    assert 9 < sum(clock.slept) <= 10
    with pytest.raises(Busy):
        performed.set_extractable(caller, NAME, "e1", value=True)
    assert 19 < sum(clock.slept) <= 20


def test_a_session_whose_quiet_time_is_too_long_is_not_waited_for(
    layout: Layout, clock: Clock
) -> None:
    path = write(layout, conversation())
    set_idle(path, 1.0)
    assert caller_of(layout, clock, 30.0, quiet=60.0).extract(NAME).status is Status.BUSY
    assert clock.slept == []
    assert caller_of(layout, clock, 30.0, quiet=20.0).extract(NAME).status is Status.EXTRACTED
    assert 18 < sum(clock.slept) <= 19


def test_a_clock_that_is_put_back_does_not_make_the_waiting_longer(
    layout: Layout, clock: Clock
) -> None:
    locked_by_init(write(layout, conversation()))

    def back() -> None:
        clock.ahead -= 60.0

    clock.meanwhile = back
    assert make_caller(layout, clock).extract(NAME).status is Status.BUSY
    assert 29 < sum(clock.slept) <= 30.5


def test_what_was_displaced_is_looked_at_again_only_if_it_was_touched(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_linux()
    looks: list[Path] = []

    def looked_at(inflight: InFlight, record: Path) -> InFlightRecord | None:
        looks.append(record)
        return read(inflight, record)

    read = InFlight.read
    monkeypatch.setattr(InFlight, "read", looked_at)
    path = write(layout, conversation())
    caller = caller_of(layout, clock, quiet=0.0)
    assert caller.extract(NAME).status is Status.EXTRACTED
    clock.ahead += 2.5
    assert caller.extract(NAME).status is Status.UNCHANGED
    [displaced] = layout.inflight.glob("*.file")
    assert looks, "once, since somebody may have been on the way to it"
    looks.clear()
    for _ in range(3):
        assert caller.extract(NAME).status is Status.UNCHANGED
    assert not looks
    late = json.dumps(entry(99, "user", "late")).encode() + b"\n"
    with displaced.open("ab") as file:
        file.write(late)
    clock.ahead += 2.5
    before = path.read_bytes()
    caller.extract(NAME)
    assert looks
    assert path.read_bytes() == before + late


def test_of_a_small_session_with_nothing_to_give_nothing_is_saved(
    layout: Layout, clock: Clock
) -> None:
    """The daemon looks at ten thousand sessions when it starts; reading them again is as fast."""
    path = write(layout, conversation(results=0))
    state = StateDb(layout.state_db)
    caller = replace(make_caller(layout, clock, wait=0.0), state=state)
    result = caller.extract(NAME)
    assert (result.status, result.entries) == (Status.UNCHANGED, 0)
    with TranscriptFile(path) as source:
        assert state.load(NAME, fingerprint(caller.config.current), source) == Checkpoints()
