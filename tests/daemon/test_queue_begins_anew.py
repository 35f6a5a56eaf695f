"""State that the queue and the debounce drop again: attempts, wishes, impossible times."""

from __future__ import annotations

from pathlib import Path

from bsd.core.layout import Layout, SessionName
from bsd.daemon.enqueue import Debounce, Enqueuer
from bsd.daemon.queue import Backoff, Finished, TryLater, WorkQueue
from bsd.daemon.scan import Scan
from bsd.transcripts.change import Written
from tests.daemon.taking import take_at
from tests.openclaw_tree import add_session

A, B = (SessionName("main", name) for name in "ab")
QUIET = 20.0


def enqueuer_of(root: Path, queue: WorkQueue) -> Enqueuer:
    scan = Scan(Layout(root))
    return Enqueuer(queue, scan, Debounce(), quiet=QUIET, wake=lambda: None, clock=lambda: 0.0)


def written(root: Path, name: SessionName) -> Written:
    return Written.of(add_session(root, str(name), b"{}\n").lstat())


def test_who_knows_when_it_is_free_is_no_longer_backed_off_from() -> None:
    queue = WorkQueue(backoff=Backoff(first=2, longest=60, chance=lambda: 1.0))
    queue.put(A, 0)
    dues = []
    now = 0.0
    for ended in (TryLater(), TryLater(), TryLater(500.0), TryLater(), Finished(), TryLater()):
        assert take_at(queue, now) == A
        queue.done(A, ended, now)
        if isinstance(ended, Finished):
            queue.put(A, now)
        due = queue.next_due()
        assert due is not None
        dues.append(due - now)
        now = due
    assert dues == [2, 4, 494, 2, 0, 2]


def test_a_wish_for_which_there_is_no_room_is_no_wish(root: Path) -> None:
    """A caller that insists gets an answer, and insists again; that must not count as another
    visit.
    """
    queue = WorkQueue(capacity=1)
    enqueuer = enqueuer_of(root, queue)
    assert enqueuer.put_urgent(A, written(root, A), 0.0, 1e9)
    assert not enqueuer.put_urgent(B, written(root, B), 0.0, 1e9)
    assert enqueuer.take_urgency(A)
    assert not enqueuer.take_urgency(B)


def test_a_file_from_the_future_is_not_waited_for_until_then(root: Path) -> None:
    queue = WorkQueue()
    enqueuer = enqueuer_of(root, queue)
    wall = 1_800_000_000.0
    seen = written(root, A)
    for name, age in ((A, -86_400.0), (B, 5.0)):
        mtime = int((wall - age) * 1e9)
        enqueuer.put_found(name, seen._replace(mtime_ns=mtime), 100.0, wall)
    assert take_at(queue, 100.0) == A
    assert queue.next_due() == 100.0 + QUIET - 5.0
