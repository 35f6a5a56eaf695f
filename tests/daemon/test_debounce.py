"""Quiet sessions become due, busy sessions too in the end, each once."""

from __future__ import annotations

import time
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.layout import Layout, SessionName
from bsd.daemon.enqueue import Debounce, Enqueuer
from bsd.daemon.queue import Finished, WorkQueue
from bsd.daemon.scan import Scan
from bsd.daemon.state import PendingSavings
from bsd.daemon.tasks import is_worth
from bsd.planning.plan import Plan, Report
from bsd.planning.worth import LONGEST_WAIT_SECONDS
from bsd.transcripts.change import Edit, Identity
from tests.daemon.taking import take_at

A, B, C = (SessionName("main", name) for name in "abc")


def test_a_quiet_session_is_due() -> None:
    debounce = Debounce(2, 30)
    debounce.note(A, 100.0)
    assert debounce.next_due() == 102.0
    assert debounce.due(101.9) == []
    assert debounce.due(102.0) == [A]
    assert debounce.due(1000.0) == []
    assert debounce.next_due() is None


def test_every_event_starts_the_quiet_time_anew() -> None:
    debounce = Debounce(2, 30)
    for now in (100.0, 101.5, 103.0):
        debounce.note(A, now)
    assert debounce.due(104.9) == []
    assert debounce.due(105.0) == [A]


def test_a_session_that_is_never_quiet_is_due_after_the_longest_delay() -> None:
    debounce = Debounce(2, 30)
    due = []
    for second in range(31):
        debounce.note(A, float(second))
        due += debounce.due(float(second))
    assert due == [A]
    assert debounce.next_due() is None


def test_sleepers_are_woken_only_for_the_first() -> None:
    debounce = Debounce(2, 30)
    assert debounce.note(A, 1.0)
    assert not debounce.note(A, 2.0)
    assert not debounce.note(B, 2.0)
    assert debounce.due(9.0) == [A, B]
    assert debounce.note(B, 9.0)


def test_a_thread_that_comes_late_loses_nothing() -> None:
    debounce = Debounce(2, 30)
    debounce.note(A, 10.0)
    debounce.note(B, 9.5)
    assert debounce.due(12.0) == [A, B]


@pytest.mark.parametrize(("quiet", "longest"), [(-1, 2), (3, 2)])
def test_nonsense_is_refused(quiet: float, longest: float) -> None:
    with pytest.raises(ValueError, match="quiet"):
        Debounce(quiet, longest)


steps = st.lists(
    st.tuples(st.sampled_from([A, B, C, None]), st.integers(0, 5)), min_size=1, max_size=80
)


@given(steps, st.integers(0, 4), st.integers(0, 6))
def test_it_does_what_the_obvious_does(
    steps: list[tuple[SessionName | None, int]], quiet: int, more: int
) -> None:
    longest = quiet + more
    debounce = Debounce(quiet, longest)
    first: dict[SessionName, int] = {}
    last: dict[SessionName, int] = {}
    now = 0
    for session, pause in steps:
        now += pause
        if session is not None:
            debounce.note(session, now)
            first.setdefault(session, now)
            last[session] = now
        else:
            expected = {
                each for each in first if now >= last[each] + quiet or now >= first[each] + longest
            }
            got = debounce.due(now)
            assert len(got) == len(set(got))
            assert set(got) == expected
            for each in expected:
                del first[each], last[each]
        times = [min(last[each] + quiet, first[each] + longest) for each in first]
        assert debounce.next_due() == min(times, default=None)
        assert len(debounce) == len(first)


# --- sessions for which the queue has no room stay pending ---


def test_what_finds_no_room_is_found_again_by_the_next_scan(tmp_path: Path) -> None:
    sessions = tmp_path / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for number in range(3):
        (sessions / f"s{number}.jsonl").write_bytes(b"{}\n")
    scan, queue = Scan(Layout(tmp_path)), WorkQueue(capacity=1, clock=lambda: 0.0)
    enqueuer = Enqueuer(queue, scan, Debounce(), quiet=0.0, wake=lambda: None, clock=lambda: 0.0)
    worked = set()
    for _ in range(3):
        for name, seen in scan.step():
            assert seen is not None
            enqueuer.put_found(name, seen, 0.0, time.time())
        taken = take_at(queue, 1.0)
        assert taken is not None
        queue.done(taken, Finished(), 1.0)
        worked.add(taken.session)
    assert worked == {"s0", "s1", "s2"}
    assert list(scan.step()) == []


# --- when a commit is worth the bytes it has to copy ---


NAME = SessionName("main", "s1")
MB = 1 << 20


def plan(before: int, after: int, new: bytes = b'{"id":"e1"}\n', *, edited: bool = False) -> Plan:
    edits = (Edit(0, 1, new),) if edited or before != after else ()
    return Plan(Identity(1, 2, before, 3, 4), edits, Report("extract", 1, 1, before, after))


@pytest.mark.parametrize(
    ("saved", "worth"), [(5 * 1024, False), (MB - 1, False), (MB, True), (20 * MB, True)]
)
def test_a_commit_saves_at_least_a_part_of_what_it_copies(saved: int, worth: bool) -> None:
    assert is_worth(plan(32 * MB + saved, 32 * MB), 0.0) is worth


def test_the_oldest_saving_waits_no_longer_than_an_hour() -> None:
    savings = PendingSavings()
    assert NAME not in savings
    assert savings.waited(NAME, 100.0) == 0.0
    savings.wait(NAME, 100.0)
    # A later saving does not make the oldest younger.
    savings.wait(NAME, 200.0)
    assert len(savings) == 1
    assert NAME in savings
    assert savings.due(NAME, 200.0) == 100.0 + LONGEST_WAIT_SECONDS
    small = plan(32 * MB + 10, 32 * MB)
    for seconds, worth in ((LONGEST_WAIT_SECONDS - 1, False), (LONGEST_WAIT_SECONDS, True)):
        assert is_worth(small, savings.waited(NAME, 100.0 + seconds)) is worth
    savings.clear(NAME)
    assert len(savings) == 0
    assert savings.waited(NAME, 101.0 + LONGEST_WAIT_SECONDS) == 0.0


def test_what_somebody_asked_for_does_not_wait() -> None:
    restored = b'{"id":"e1","text":"[[extracted-e1]]","_restored":"2026-01-01T00:00:00Z"}\n'
    freed = b'{"id":"e1","text":"[[extracted-e1]]","_extractable":true}\n'
    mentioned = b'{"id":"e1","text":"they wrote \\"_restored\\" and \\"_extractable\\""}\n'
    assert is_worth(plan(32 * MB + 10, 32 * MB, restored), 0.0)
    assert is_worth(plan(32 * MB + 10, 32 * MB, freed), 0.0)
    assert not is_worth(plan(32 * MB + 10, 32 * MB, mentioned), 0.0)


def test_a_commit_that_saves_no_bytes_is_made_once_an_hour() -> None:
    savings, tokens_only = PendingSavings(), plan(32 * MB, 32 * MB, edited=True)
    assert is_worth(tokens_only, 0.0, savings.since_unpaid(NAME, 100.0))
    savings.note_unpaid(NAME, 100.0)
    savings.wait(NAME, 200.0)
    assert savings.due(NAME, 200.0) == 100.0 + LONGEST_WAIT_SECONDS
    later = 150.0 + LONGEST_WAIT_SECONDS  # a moment that has passed is never due again
    assert savings.due(NAME, later) == 200.0 + LONGEST_WAIT_SECONDS
    for seconds, worth in ((LONGEST_WAIT_SECONDS - 1, False), (LONGEST_WAIT_SECONDS, True)):
        since = savings.since_unpaid(NAME, 100.0 + seconds)
        assert is_worth(tokens_only, seconds - 100, since, urgent=True) is worth
    assert is_worth(plan(32 * MB + 10, 32 * MB), 0.0, 0.0, urgent=True)
    other = SessionName("main", "s2")
    savings.note_unpaid(other, 101.0 + LONGEST_WAIT_SECONDS)
    assert savings.since_unpaid(NAME, 102.0 + LONGEST_WAIT_SECONDS) == inf


def test_nothing_to_save_waits_for_nothing() -> None:
    assert is_worth(plan(32 * MB, 32 * MB), 0.0)
