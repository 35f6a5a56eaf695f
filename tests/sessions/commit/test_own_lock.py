from __future__ import annotations

import errno
import fcntl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bsd.core.errors import Busy, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from tests.refusing import raising

NAME = SessionName("main", "abc")
OTHER = SessionName("main", "other")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_private_and_stays_after_release(layout: Layout) -> None:
    with own_lock(layout, NAME):
        assert mode(layout.lock_file(NAME)) == 0o600
    assert mode(layout.locks) == 0o700
    assert mode(layout.own) == 0o700
    # unlinking it would separate the processes that wait for it
    assert layout.lock_file(NAME).exists()


def test_two_never_meet_and_the_second_learns_why(layout: Layout) -> None:
    now, sleeps = [0.0], []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    with own_lock(layout, NAME), own_lock(layout, OTHER, 0):
        with pytest.raises(Busy, match="another bsd is working on session main/abc") as caught:
            own_lock(layout, NAME, 1.0, clock=lambda: now[0], sleep=sleep).acquire()
        assert caught.value.hint == "again later"
        with pytest.raises(Busy):
            own_lock(layout, NAME, 0).acquire()
    assert sleeps == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.25])
    own_lock(layout, NAME, 0).acquire().lock.release()


def test_it_parts_the_workers_of_one_process(layout: Layout) -> None:
    lock = own_lock(layout, NAME, 0)
    busy: list[Busy] = []

    def work() -> None:
        for attempt in (lock, own_lock(layout, NAME, 0)):
            try:
                attempt.acquire()
            except Busy as error:
                busy.append(error)

    with lock:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(busy) == 2


def test_it_ends_with_its_process(layout: Layout) -> None:
    program = """if True:
        import sys
        from pathlib import Path
        from bsd.core.layout import Layout, SessionName
        from bsd.core.locks import own_lock
        with own_lock(Layout(Path(sys.argv[1])), SessionName("main", "abc")):
            print("held", flush=True)
            input()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(layout.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Busy):
        own_lock(layout, NAME, 0).acquire()
    holder.kill()
    holder.communicate()
    with own_lock(layout, NAME, 0):
        pass


def test_a_file_system_without_flock_is_an_error(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOSYS, "Function not implemented")))
    with pytest.raises(Unavailable, match="Function not implemented"):
        own_lock(layout, NAME).acquire()
