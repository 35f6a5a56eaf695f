"""Watching when the system refuses, loses events, or a thread dies: noticed, and reported."""

from __future__ import annotations

import ctypes
import errno
import logging
import sys
from pathlib import Path

import pytest
from watchdog.observers import inotify_c

from bsd.core.layout import Layout, SessionName
from bsd.daemon import watcher as watcher_module
from bsd.daemon.directories import Trouble
from bsd.daemon.watcher import CHECK_SECONDS, RETRY_SECONDS, Watcher
from tests.daemon.told import NAME, Heard, append, file_of, is_watched, with_a_session
from tests.refusing import raising
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(sys.platform != "linux", reason="needs inotify"),
]


@pytest.fixture
def layout(layout: Layout) -> Layout:
    return with_a_session(layout)


@pytest.fixture
def many(layout: Layout) -> list[Path]:
    """Directories of 50 agents."""
    made = [layout.agents / f"agent{number}" / "sessions" for number in range(50)]
    for path in made:
        path.mkdir(parents=True)
    return made


def refuse_from(patch: pytest.MonkeyPatch, limit: int) -> None:
    """Have the system refuse watches when there are `limit` of them."""
    really, watched = inotify_c.inotify_add_watch, set[bytes]()

    def scarce(descriptor: int, path: bytes, mask: int) -> int:
        if len(watched) < limit:
            watched.add(path)
        if path not in watched:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return really(descriptor, path, mask)

    patch.setattr(inotify_c, "inotify_add_watch", scarce)


def test_too_few_watches_are_noticed_with_the_remedy(
    layout: Layout, heard: Heard, many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """watchdog does not report it: the existing watches are counted."""
    monkeypatch.setattr(watcher_module, "inotify_limit", lambda name: 500)
    with monkeypatch.context() as patch:
        refuse_from(patch, 20)
        watcher = heard.watcher(layout)
        watcher.step(0.0)
    try:
        assert (watcher.health.dirs, watcher.health.watched) == (104, 20)
        [problem] = watcher.health.problems
        assert problem.kind is Trouble.WATCH_LIMIT
        assert "84 of 104" in problem.text
        assert "fs.inotify.max_user_watches=1000" in problem.remedy
        # After the limit is raised, it recovers by itself.
        watcher.step(CHECK_SECONDS)
        assert (watcher.health.watched, watcher.health.problems) == (104, ())
    finally:
        watcher.close()


def test_too_few_watches_are_tried_again_now_and_then_only(
    layout: Layout, heard: Heard, many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_from(monkeypatch, 20)
    watcher = heard.watcher(layout)
    try:
        for step in range(3):
            watcher.step(step * CHECK_SECONDS)
            assert [each.kind for each in watcher.health.problems] == [Trouble.WATCH_LIMIT]
        heard.clear()
        watcher.step(3 * CHECK_SECONDS)
        assert heard.rescans == [], "nothing is newly watched"
        watcher.step(RETRY_SECONDS + CHECK_SECONDS)
        assert heard.rescans
    finally:
        watcher.close()


def test_no_inotify_instance_is_a_problem_not_an_end(
    layout: Layout, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = heard.watcher(layout)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(
                inotify_c.InotifyFD,
                "_create_inotify_fd",
                staticmethod(raising(OSError(errno.EMFILE, "inotify instance limit reached"))),
            )
            watcher.step(0.0)
            [problem] = watcher.health.problems
            assert problem.kind is Trouble.INSTANCE_LIMIT
            assert "fs.inotify.max_user_instances=" in problem.remedy
            assert watcher.health.watched == 0
        watcher.step(CHECK_SECONDS)
        assert watcher.health.watched == 4
    finally:
        watcher.close()


def test_an_observer_that_has_ended_is_replaced(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    assert watcher._observer is not None
    watcher._observer.stop()
    watcher._observer.join()
    watcher.step(CHECK_SECONDS)
    assert (watcher.health.watched, watcher.health.problems) == (4, ())
    assert heard.rescans
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def test_a_dead_emitter_under_a_living_observer_is_noticed(
    watcher: Watcher, layout: Layout, heard: Heard
) -> None:
    assert watcher._observer is not None
    emitters = watcher._observer.emitters
    emitter = next(each for each in emitters if each.watch.path == str(layout.agents))
    emitter.stop()
    emitter.join()
    assert not is_watched(file_of(layout, NAME).parent)
    watcher.step(CHECK_SECONDS)
    assert watcher.health.watched == 4
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def take_a_name_twice(layout: Layout) -> Path:
    """Move a directory out of the tree, and another takes its name and goes; returns the first.

    watchdog 7.1 then has two watches under one name, and fails when the first ends.
    """
    directory, elsewhere = layout.agents / "old", layout.root / "elsewhere"
    directory.mkdir()
    wait_for(lambda: is_watched(directory), "the watch of the first directory")
    directory.rename(elsewhere)
    directory.mkdir()
    wait_for(lambda: is_watched(directory), "the watch of the second directory")
    directory.rmdir()
    return elsewhere


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_of_events_that_has_ended_is_replaced(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    """The observer and its emitters live on, and the kernel still has all watches."""
    take_a_name_twice(layout).rmdir()
    wait_for(lambda: not all(each.is_alive() for each in watcher._threads), "the reader's end")
    watcher.step(CHECK_SECONDS)
    assert (watcher.health.watched, watcher.health.problems) == (4, ())
    assert heard.rescans
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def test_mixed_up_watches_end_with_the_watcher(watcher: Watcher, layout: Layout) -> None:
    take_a_name_twice(layout)
    watcher.close()


class Clumsy(Heard):
    """Fails on the first hint."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    def hint(self, name: SessionName) -> None:
        if not self.failures:
            self.failures += 1
            raise RuntimeError("dropped it")
        super().hint(name)


def test_a_failing_handler_ends_nothing_and_has_the_scan_look(layout: Layout) -> None:
    heard = Clumsy()
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        heard.clear()
        append(file_of(layout, NAME))
        heard.wait_for(lambda: heard.rescans)
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
        [problem] = watcher.rearm(1.0).problems
        assert problem.kind is Trouble.HANDLER
        assert "dropped it" in problem.text
        assert watcher.rearm(2.0).problems == ()
    finally:
        watcher.close()


def test_an_overflow_of_the_kernel_s_queue_has_the_scan_look(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    """watchdog reports it only in its log; a real failure needs a reader that hangs."""
    overflow = inotify_c.InotifyEvent(
        inotify_c.WatchDescriptor(-1),
        inotify_c.Mask(inotify_c.InotifyConstants.IN_Q_OVERFLOW),
        0,
        b"",
    )
    watcher._observer._inotify_fd.handle_event(overflow)  # type: ignore[union-attr]
    assert any("overflowed" in why for why in heard.rescans)
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)
    assert watcher.rearm(1.0).watched == 4


def test_after_the_end_watchdog_s_log_is_left_alone(layout: Layout, heard: Heard) -> None:
    before = list(logging.getLogger("watchdog.observers").handlers)
    watcher = heard.watcher(layout)
    watcher.step(0.0)
    watcher.close()
    assert logging.getLogger("watchdog.observers").handlers == before
