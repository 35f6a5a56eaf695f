"""One job per session, at its time, in a fair order; no job is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bsd.core.clock import steady
from bsd.core.layout import SessionName
from bsd.daemon.queue import TOGETHER_SECONDS, Backoff, Failed, Finished, TryLater, WorkQueue
from tests.daemon.taking import take_at
from tests.waiting import DEADLINE_SECONDS, wait_for

A, B, C, D = SESSIONS = tuple(SessionName("main", name) for name in "abcd")


def fixed(**more: object) -> WorkQueue:
    """A queue without chance."""
    return WorkQueue(backoff=Backoff(first=2, longest=60, chance=lambda: 1.0), **more)  # type: ignore[arg-type]


def test_a_session_is_taken_when_it_is_due() -> None:
    queue = fixed()
    assert queue.put(A, 10)
    assert queue.next_due() == 10
    assert take_at(queue, 9.9) is None
    assert take_at(queue, 10) == A
    assert take_at(queue, 11) is None
    assert queue.next_due() is None


def test_the_earlier_time_wins() -> None:
    queue = fixed()
    for due in (10, 5, 20):
        queue.put(A, due)
    assert queue.next_due() == 5
    assert take_at(queue, 5) == A
    queue.done(A, Finished(), 6)
    assert take_at(queue, 100) is None


def test_what_comes_up_during_work_is_done_afterwards_not_beside() -> None:
    queue = fixed()
    queue.put(A, 0)
    assert take_at(queue, 0) == A
    queue.put(A, 1)
    assert take_at(queue, 5) is None
    queue.done(A, Finished(next_due=100), 6)
    assert queue.next_due() == 1
    assert take_at(queue, 6) == A


def test_sessions_in_use_go_before_a_backlog_but_not_for_ever() -> None:
    queue = fixed()
    for session in (A, B):
        queue.put(session, 0, backlog=True)
    queue.put(C, 5)
    queue.put(D, 3601)
    assert [take_at(queue, 3700) for _ in SESSIONS] == [C, A, B, D]


def test_one_of_a_backlog_that_is_used_goes_before_the_others() -> None:
    queue = fixed()
    for session in (A, B, C):
        queue.put(session, 0, backlog=True)
    assert take_at(queue, 1) == A  # now the others are ready
    queue.put(C, 1)
    queue.put(C, 2, backlog=True)  # it stays in use
    assert queue.counts().ready == 2
    assert queue.next_due() == 0
    assert [take_at(queue, 2) for _ in SESSIONS] == [C, B, None, None]
    assert queue.counts().ready == 0


def test_a_backlog_gives_way_to_sessions_in_use_alone() -> None:
    now = 1.0
    queue = fixed(clock=lambda: now)
    for session in (A, B):
        queue.put(session, 0, backlog=True)
    assert queue.take(0) == A
    assert not queue.others_first(A), "the next one of the backlog can wait"
    queue.put(C, 5)
    assert not queue.others_first(A), "it is not due"
    now = 6.0
    assert queue.others_first(A)
    assert queue.take(0) == C
    assert not queue.others_first(C)


def backlog(workers: int = 1, work: float = 0.0) -> WorkQueue:
    """A queue with four sessions of a backlog, the first of them taken."""
    queue = fixed(workers=workers)
    for due, session in enumerate(SESSIONS):
        queue.put(session, due, work=work, backlog=True)
    assert take_at(queue, 10) == A
    return queue


def test_small_ones_of_a_backlog_go_together() -> None:
    queue = backlog()
    assert queue.take_more(A, 2) == [B, C]
    assert queue.counts().working == 3
    queue.done(B, Finished(), 11)
    assert take_at(queue, 11) == D
    for session in (A, C, D):
        queue.done(session, Finished(), 12)
    assert queue.counts().working == queue.counts().waiting == 0


def test_other_workers_get_their_part_of_a_backlog() -> None:
    assert backlog(workers=3).take_more(A, 31) == [B]
    assert backlog(workers=4).take_more(A, 31) == []


def test_what_takes_long_goes_alone() -> None:
    assert backlog(work=TOGETHER_SECONDS / 2).take_more(A, 31) == [B]
    assert backlog(work=TOGETHER_SECONDS).take_more(A, 31) == []
    assert backlog(work=60.0).take_more(A, 31) == []


def test_a_session_in_use_neither_takes_others_along_nor_goes_along() -> None:
    queue = backlog()
    queue.put(B, 20)
    assert queue.take_more(A, 31) == []
    assert queue.take(0) == B
    assert queue.take_more(B, 31) == []


def test_what_is_given_back_waits_as_before() -> None:
    queue = backlog(work=0.001)
    assert queue.take_more(A, 31) == [B, C, D]
    queue.put(C, 15)
    before = queue.counts()
    for session in (A, B, C, D):
        queue.give_back(session)
    now = queue.counts()
    assert (now.retried, now.failed) == (before.retried, before.failed)
    assert [queue.take(0) for _ in SESSIONS] == [C, A, B, D]
    queue.give_back(A)
    with pytest.raises(ValueError, match="was not taken"):
        queue.give_back(A)


def test_one_of_a_batch_that_is_in_use_again_goes_first() -> None:
    queue = backlog()
    later = queue.take_more(A, 31)
    assert not queue.others_first(A, *later)
    queue.put(D, 100)
    assert queue.others_first(A, *later)
    assert not queue.others_first(D)


def test_a_due_time_needs_no_change() -> None:
    queue = fixed()
    queue.put(A, 0)
    take_at(queue, 0)
    queue.done(A, Finished(next_due=600), 1)
    assert take_at(queue, 599) is None
    assert take_at(queue, 600) == A


def test_busy_sessions_are_tried_ever_less_often() -> None:
    queue = fixed()
    now = 0.0
    queue.put(A, now)
    pauses = []
    for _ in range(8):
        assert take_at(queue, now) == A
        queue.done(A, TryLater(), now)
        due = queue.next_due()
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert queue.counts().retried == 8


def test_who_is_only_to_be_quiet_for_a_while_is_due_then() -> None:
    queue = fixed()
    now = 0.0
    queue.put(A, now)
    for _ in range(8):
        assert take_at(queue, now) == A
        queue.done(A, TryLater(again=now + 7.5), now)
        assert queue.next_due() == now + 7.5
        now += 7.5
    assert take_at(queue, now) == A
    queue.done(A, TryLater(again=now - 1), now)
    assert take_at(queue, now) == A
    queue.done(A, TryLater(), now)
    assert queue.next_due() == now + 2, "that was no failed try"


def test_success_makes_busy_forgotten() -> None:
    queue = fixed()
    queue.put(A, 0)
    take_at(queue, 0)
    queue.done(A, TryLater(), 0)
    take_at(queue, 2)
    queue.done(A, Finished(next_due=3), 2)
    take_at(queue, 3)
    queue.done(A, TryLater(), 3)
    assert queue.next_due() == 5


def test_chance_keeps_tries_apart_but_never_makes_them_longer() -> None:
    assert Backoff(2, 60, lambda: 0.0).delay(1) == 1
    assert Backoff(2, 60, lambda: 1.0).delay(1) == 2
    assert Backoff(2, 60, lambda: 1.0).delay(10_000) == 60


def fail_until_parked(queue: WorkQueue, now: float = 0.0) -> float:
    while not queue.parked():
        assert take_at(queue, now) == A
        queue.done(A, Failed("no such luck"), now)
        now = queue.next_due() or now
    return now


def test_a_session_that_keeps_failing_is_parked_with_its_error() -> None:
    queue = fixed(park_after=3)
    queue.put(A, 0)
    fail_until_parked(queue)
    [parked] = queue.parked()
    assert (parked.session, parked.error, parked.failures) == (A, "no such luck", 3)
    assert queue.next_due() is None
    assert queue.counts().failed == 3


def test_a_change_earns_a_parked_session_one_more_try() -> None:
    queue = fixed(park_after=3)
    queue.put(A, 0)
    now = fail_until_parked(queue)
    queue.put(A, now)
    assert queue.parked() == []
    assert take_at(queue, now) == A
    queue.done(A, Failed("again"), now)
    assert [each.error for each in queue.parked()] == ["again"]


def test_a_change_during_the_last_try_keeps_it_from_being_parked() -> None:
    queue = fixed(park_after=1)
    queue.put(A, 0)
    take_at(queue, 0)
    queue.put(A, 1)
    queue.done(A, Failed("then"), 1)
    assert queue.parked() == []
    assert take_at(queue, 1) == A
    queue.done(A, Failed("now"), 2)
    assert [each.error for each in queue.parked()] == ["now"]
    assert queue.next_due() is None


def test_a_failing_session_blocks_nobody() -> None:
    queue = fixed()
    queue.put(A, 0)
    queue.put(B, 1)
    assert take_at(queue, 1) == A
    queue.done(A, Failed("x"), 1)
    assert take_at(queue, 1) == B


def test_small_work_passes_huge_work_that_came_just_before() -> None:
    queue = fixed(workers=1)
    queue.put(A, 0, work=30)
    queue.put(B, 1, work=0.1)
    assert take_at(queue, 2) == B


def test_huge_work_is_not_passed_for_ever() -> None:
    queue = fixed(workers=1)
    queue.put(A, 0, work=30)
    taken = []
    for second in range(100):  # a small job every second, each taking a second
        queue.put(B, second, work=0.1)
        session = take_at(queue, second)
        assert session is not None
        taken.append(session)
        queue.done(session, Finished(), second)
    # A job due after 0 + 30 seconds does not overtake it.
    assert taken.index(A) == 30


def test_huge_jobs_leave_a_worker_for_the_small_ones() -> None:
    queue = fixed(workers=2)
    queue.put(A, 0, work=10)
    queue.put(B, 0, work=10)
    assert take_at(queue, 0) == A
    assert take_at(queue, 50) is None
    assert queue.next_due() is None  # no job that a second worker may take
    queue.put(C, 50)
    assert take_at(queue, 50) == C
    queue.done(A, Finished(), 51)
    assert take_at(queue, 51) == B


def test_a_full_queue_refuses_and_says_so() -> None:
    queue = fixed(capacity=2)
    assert queue.put(A, 0)
    assert queue.put(B, 0)
    assert not queue.put(C, 0)
    assert queue.put(A, 0)  # is in it already
    assert queue.counts().refused == 1
    assert take_at(queue, 0) == A
    assert queue.put(A, 0)  # has its place while it is worked on
    queue.done(A, Finished(), 0)
    assert [take_at(queue, 0), take_at(queue, 0)] == [B, A]


def test_many_changes_of_time_leave_no_rubbish() -> None:
    queue = fixed()
    for due in range(10_000, 0, -1):
        queue.put(A, due)
    assert len(queue._waiting) < 100
    assert take_at(queue, 1) == A


def test_only_who_has_taken_can_be_done() -> None:
    queue = fixed()
    queue.put(A, 0)
    with pytest.raises(ValueError, match="was not taken"):
        queue.done(A, Finished(), 0)


def test_nothing_comes_from_or_goes_into_a_closed_queue() -> None:
    queue = fixed()
    queue.put(A, 0)
    queue.close()
    assert take_at(queue, 1) is None
    assert queue.take(0) is None
    assert not queue.put(B, 0)
    assert queue.counts().refused == 0


def in_threads(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


def test_close_wakes_everyone_who_waits() -> None:
    queue = fixed()
    got: list[SessionName | None] = []
    threads = in_threads(3, lambda: got.append(queue.take()))
    queue.close()
    join(threads)
    assert got == [None, None, None]


def test_a_sleeping_worker_wakes_for_an_earlier_job() -> None:
    queue = fixed()
    queue.put(A, steady() + 3600)
    got: list[SessionName | None] = []
    threads = in_threads(1, lambda: got.append(queue.take()))
    queue.put(B, steady())
    join(threads)
    assert got == [B]


def wait_for_sleepers(queue: WorkQueue, count: int) -> None:
    """Wait until `count` threads sleep in `take`."""
    waiters = queue._changed._waiters  # type: ignore[attr-defined]
    wait_for(lambda: len(waiters) >= count, "workers to sleep")


def test_while_one_works_another_watches_for_the_next() -> None:
    queue = fixed()
    got: list[SessionName | None] = []
    threads = in_threads(2, lambda: got.append(queue.take()))  # which is never done
    wait_for_sleepers(queue, 2)
    now = steady()
    queue.put(A, now + 0.3)
    queue.put(B, now + 0.4)  # is not the first: no worker is woken for it
    join(threads)
    assert set(got) == {A, B}


def test_the_end_of_huge_work_wakes_who_waits_for_its_place() -> None:
    queue = fixed(workers=2)
    queue.put(A, 0, work=10)
    queue.put(B, 0, work=10)
    assert queue.take() == A
    got: list[SessionName | None] = []
    threads = in_threads(1, lambda: got.append(queue.take()))
    wait_for_sleepers(queue, 1)
    queue.done(A, Finished())
    join(threads)
    assert got == [B]


def test_threads_never_meet_on_a_session_and_lose_none() -> None:
    queue = WorkQueue(workers=4, backoff=Backoff(first=0.001, longest=0.002))
    guards = {session: threading.Lock() for session in SESSIONS}
    wanted = dict.fromkeys(SESSIONS, 0)
    seen = dict.fromkeys(SESSIONS, 0)
    met = []
    idle = threading.Event()

    def work() -> None:
        turns = 0
        while (session := queue.take(1)) is not None or not queue._closed:
            if session is None:
                continue
            if not guards[session].acquire(blocking=False):
                met.append(session)
                continue
            seen[session] = wanted[session]
            guards[session].release()
            turns += 1
            queue.done(session, TryLater() if turns % 5 == 0 else Finished())
            if seen == wanted and queue.next_due() is None:
                idle.set()

    threads = in_threads(4, work)
    for turn in range(500):
        session = SESSIONS[turn % 4]
        wanted[session] += 1
        idle.clear()
        queue.put(session, steady())
    assert idle.wait(DEADLINE_SECONDS)
    queue.close()
    join(threads)
    assert met == []
    assert seen == wanted


class Obvious(RuleBasedStateMachine):
    """The queue beside a slow model of it: lists, and one look at everything."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = fixed(workers=2, capacity=3, park_after=2, heavy=5)
        self.now = 0.0
        self.due: dict[SessionName, float] = {}  # waiting for their time or a worker
        self.work: dict[SessionName, float] = {}
        self.ready: dict[SessionName, float] = {}  # → rank
        self.working: dict[SessionName, bool] = {}  # → heavy
        self.given: dict[SessionName, tuple[float, float]] = {}  # → due and work, when taken
        self.changed: set[SessionName] = set()
        self.busy: dict[SessionName, int] = {}
        self.failures: dict[SessionName, int] = {}
        self.parked: set[SessionName] = set()

    @rule(
        session=st.sampled_from(SESSIONS),
        wait=st.integers(-3, 20),
        work=st.sampled_from([0, 1, 8]),
    )
    def put(self, session: SessionName, wait: int, work: float) -> None:
        due = self.now + wait
        accepted = self.queue.put(session, due, work=work)
        known = self.due.keys() | self.working.keys()
        assert accepted == (session in known or len(known) < 3)
        if not accepted:
            return
        if session in self.parked:
            self.parked.discard(session)
            self.failures[session] = 1
        self.changed.add(session)
        self.due[session] = min(due, self.due.get(session, due))
        self.work[session] = max(work, self.work.get(session, 0))

    @rule(pause=st.integers(0, 10))
    def wait(self, pause: int) -> None:
        self.now += pause

    @rule()
    def take(self) -> None:
        for session, due in self.due.items():
            if due <= self.now and session not in self.working and session not in self.ready:
                self.ready[session] = due + self.work[session]
                if self.work[session] >= 5:
                    self.heavy.add(session)
        free = {
            session: rank
            for session, rank in self.ready.items()
            if session not in self.heavy or not any(self.working.values())
        }
        got = take_at(self.queue, self.now)
        assert (got is None) == (not free)
        if got is None:
            return
        assert got not in self.working
        assert free[got] == min(free.values())
        self.working[got] = got in self.heavy
        self.heavy.discard(got)
        self.changed.discard(got)
        self.given[got] = self.due[got], self.work[got]
        del self.ready[got], self.due[got], self.work[got]

    @property
    def heavy(self) -> set[SessionName]:
        return self.__dict__.setdefault("_heavy", set())  # type: ignore[no-any-return]

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.working)))
        del self.working[session]
        due, work = self.given[session]
        self.due[session] = min(due, self.due.get(session, due))
        self.work[session] = max(work, self.work.get(session, 0))
        self.queue.give_back(session)

    @precondition(lambda self: self.working)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["finished", "finished with due", "busy", "failed"]),
    )
    def done(self, data: st.DataObject, outcome: str) -> None:
        session = data.draw(st.sampled_from(sorted(self.working)))
        del self.working[session]
        dues = [self.due.pop(session)] if session in self.due else []
        if outcome.startswith("finished"):
            self.busy[session] = self.failures[session] = 0
            due = self.now + 7 if outcome.endswith("due") else None
            self.queue.done(session, Finished(due), self.now)
            dues += [due] if due is not None else []
        elif outcome == "busy":
            self.busy[session] = self.busy.get(session, 0) + 1
            self.queue.done(session, TryLater(), self.now)
            dues.append(self.now + min(60, 2 ** self.busy[session]))
        else:
            self.busy[session] = 0
            self.failures[session] = self.failures.get(session, 0) + 1
            self.queue.done(session, Failed("x"), self.now)
            if self.failures[session] < 2:
                dues.append(self.now + 2 ** self.failures[session])
            elif session in self.changed:
                self.failures[session] = 1
            else:
                self.parked.add(session)
                dues = []
        self.changed.discard(session)
        if dues:
            self.due[session] = min(dues)
            self.work.setdefault(session, 0)
        else:
            self.work.pop(session, None)

    @invariant()
    def nobody_is_lost(self) -> None:
        counts = self.queue.counts()
        assert counts.working == len(self.working)
        queued = len(self.due)
        assert counts.waiting + counts.ready == queued
        assert {each.session for each in self.queue.parked()} == self.parked


TestObvious = Obvious.TestCase
TestObvious.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
