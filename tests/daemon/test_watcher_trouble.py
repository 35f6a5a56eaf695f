"""Watching when the system refuses, loses events, or a thread dies: it is noticed, and said."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from pathlib import Path

import pytest
from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, InotifyFD, Mask
from watchdog.observers.inotify_c import WatchDescriptor as Descriptor

from bsd.core.layout import Layout, SessionName
from bsd.daemon import watcher as watcher_module
from bsd.daemon.directories import Trouble
from bsd.daemon.watcher import CHECK_SECONDS, Watcher
from bsd.daemon.watches import InotifyWatches, ObserverWatches, lost_by_fsevents
from tests.daemon.told import NAME, Heard, Kind, append, file_of, look_at, with_a_session
from tests.refusing import raising
from tests.waiting import DEADLINE_SECONDS

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


def refuse_from(monkeypatch: pytest.MonkeyPatch, limit: int, error: int) -> None:
    """Let the system refuse watches when there are `limit` of them."""
    really = InotifyFD._get_or_create_watch

    def scarce(self: InotifyFD, path: bytes, mask: Mask) -> object:
        if len(self._watch_for_wd) >= limit:
            raise OSError(error, os.strerror(error))
        return really(self, path, mask)

    monkeypatch.setattr(InotifyFD, "_get_or_create_watch", scarce)


def test_too_few_watches_are_noticed_with_the_remedy(
    layout: Layout, heard: Heard, kind: Kind, many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "inotify_limit", lambda name: 500)
    with monkeypatch.context() as patch:
        refuse_from(patch, 20, errno.ENOSPC)
        watcher = heard.watcher(layout, watching=kind)
        watcher.step(0.0)
    try:
        assert (watcher.health.dirs, watcher.health.watched) == (104, 20)
        [problem] = watcher.health.problems
        assert problem.kind is Trouble.WATCH_LIMIT
        assert "84 of 104" in problem.text
        assert "fs.inotify.max_user_watches=1000" in problem.remedy
        assert layout.agents / "main" / "sessions" not in many
        # Once the limit is raised, it heals by itself.
        watcher.step(CHECK_SECONDS)
        assert (watcher.health.watched, watcher.health.problems) == (104, ())
    finally:
        watcher.close()


def test_no_inotify_instance_is_a_problem_not_an_end(
    layout: Layout, heard: Heard, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = heard.watcher(layout, watching=kind)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(
                InotifyFD,
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


def test_one_directory_without_permission_keeps_no_other_from_being_watched(
    layout: Layout, heard: Heard, many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from watchdog.observers import inotify_c

    really = inotify_c.inotify_add_watch

    def refuse(descriptor: int, path: bytes, mask: int) -> int:
        if path == os.fsencode(many[7]):
            import ctypes

            ctypes.set_errno(errno.EACCES)
            return -1
        return really(descriptor, path, mask)

    monkeypatch.setattr(inotify_c, "inotify_add_watch", refuse)
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        assert (watcher.health.dirs, watcher.health.watched) == (104, 103)
        [problem] = watcher.health.problems
        assert problem.kind is Trouble.NO_ACCESS
        assert str(many[7]) in problem.text
    finally:
        watcher.close()


def test_a_reader_that_has_died_is_noticed_and_replaced(
    watcher: Watcher, heard: Heard, layout: Layout, kind: Kind
) -> None:
    end_reader(watcher)
    assert [each.kind for each in look_at(watcher, 1.0).problems] == [Trouble.STOPPED]
    assert watcher.health.watched == 0
    watcher.step(CHECK_SECONDS)
    assert (watcher.health.watched, watcher.health.problems) == (4, ())
    assert heard.rescans
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def end_reader(watcher: Watcher) -> None:
    watches = watcher._watches
    if isinstance(watches, InotifyWatches):
        watches._reader.stop()
        watches._reader.join()
    else:
        assert isinstance(watches, ObserverWatches)
        watches._observer.stop()
        watches._observer.join()


def test_a_dead_emitter_under_a_living_observer_is_noticed(layout: Layout, heard: Heard) -> None:
    watcher = heard.watcher(layout, watching=ObserverWatches)
    try:
        watcher.step(0.0)
        assert isinstance(watcher._watches, ObserverWatches)
        emitter = next(
            each
            for each in watcher._watches._observer.emitters
            if each.watch.path == str(layout.agents / "main" / "sessions")
        )
        emitter.stop()
        emitter.join()
        assert watcher._watches.alive
        assert look_at(watcher, 1.0).watched == 3
        watcher.step(CHECK_SECONDS)
        assert watcher.health.watched == 4
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
    finally:
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


def test_a_failing_handler_ends_nothing_and_has_the_scan_look(layout: Layout, kind: Kind) -> None:
    heard = Clumsy()
    watcher = heard.watcher(layout, watching=kind)
    try:
        watcher.step(0.0)
        heard.clear()
        append(file_of(layout, NAME))
        heard.wait_for(lambda: heard.rescans)
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
        [problem] = look_at(watcher, 1.0).problems
        assert problem.kind is Trouble.HANDLER
        assert "dropped it" in problem.text
        watcher.rearm(2.0)
        assert look_at(watcher, 3.0).problems == ()
    finally:
        watcher.close()


class Slow(Heard):
    """Holds up the reader at the first hint."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()

    def hint(self, name: SessionName) -> None:
        if not self.entered.is_set():
            self.entered.set()
            assert self.go.wait(DEADLINE_SECONDS)
        super().hint(name)


def test_a_real_overflow_of_the_kernel_s_queue_has_the_scan_look(layout: Layout) -> None:
    limit = watcher_module.inotify_limit("max_queued_events") or 0
    if not 0 < limit <= 100_000:
        pytest.skip(f"a queue of {limit} events takes too long to fill")
    heard = Slow()
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        heard.clear()
        first, second = (file_of(layout, SessionName("main", name)) for name in ("a", "b"))
        with first.open("ab", buffering=0) as one, second.open("ab", buffering=0) as other:
            assert heard.entered.wait(DEADLINE_SECONDS)
            for _ in range(limit):  # in turn, or the kernel puts them together
                one.write(b"\n")
                other.write(b"\n")
        heard.go.set()
        heard.wait_for(lambda: heard.rescans)
        heard.clear()
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
    finally:
        heard.go.set()
        watcher.close()


def test_watchdog_s_own_word_of_an_overflow_has_the_scan_look(
    watcher: Watcher, heard: Heard, kind: Kind
) -> None:
    event = InotifyEvent(Descriptor(-1), Mask(InotifyConstants.IN_Q_OVERFLOW), 0, b"")
    watches = watcher._watches
    if isinstance(watches, InotifyWatches):
        watches._reader.handle_event(event)
    else:
        assert isinstance(watches, ObserverWatches)
        watches._observer._inotify_fd.handle_event(event)  # type: ignore[attr-defined]
    assert any("ran over" in why for why in heard.rescans)


def test_after_the_end_watchdog_s_log_is_left_alone(layout: Layout, heard: Heard) -> None:
    before = list(logging.getLogger("watchdog.observers").handlers)
    watcher = heard.watcher(layout, watching=ObserverWatches)
    watcher.step(0.0)
    watcher.close()
    assert logging.getLogger("watchdog.observers").handlers == before


def test_flags_of_fsevents_that_mean_a_scan() -> None:
    assert lost_by_fsevents([0, 0x01])
    assert lost_by_fsevents([0x20])
    assert not lost_by_fsevents([0x100, 0x1000, 0x10000])
    assert not lost_by_fsevents([])
