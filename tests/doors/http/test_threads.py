"""Work beside the event loop: by a few threads, and never on the loop itself."""

from __future__ import annotations

import asyncio
import threading

from bsd.doors.http.routes.threads import Threads


def test_no_more_threads_than_allowed_work_at_once() -> None:
    most = 3
    working: set[int] = set()
    seen: list[int] = []
    together = threading.Barrier(most)
    guard = threading.Lock()

    def work() -> int:
        with guard:
            working.add(threading.get_ident())
            seen.append(len(working))
        together.wait(20)  # so all that may work do so at the same time
        with guard:
            working.discard(threading.get_ident())
        together.wait(20)
        return threading.get_ident()

    async def all_at_once() -> list[int]:
        threads = Threads("test", most)
        return await asyncio.gather(*(threads.run(work) for _ in range(3 * most)))

    idents = asyncio.run(all_at_once())
    assert max(seen) == most
    assert threading.get_ident() not in idents


def test_each_event_loop_has_its_own() -> None:
    threads = Threads("again", 1)
    for _ in range(2):
        assert asyncio.run(threads.run(lambda: 7)) == 7
