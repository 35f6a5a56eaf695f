"""A real daemon with all its parts, whose loops are stepped by hand on a clock of its own.

No thread is started and no loop sleeps. A second of the clock costs time only if an event falls
into it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.logs import close_logs
from bsd.daemon import service, state
from bsd.daemon.loops import Clocks, Loop
from bsd.daemon.queue import Backoff, WorkQueue
from bsd.daemon.service import Daemon
from bsd.daemon.watcher import WatchHealth
from bsd.daemon.worker import Workers
from tests.daemon.in_process import ChildrenHere, Here
from tests.loading import load_settings


class Clock:
    """The time of the machine."""

    def __init__(self, wall: float) -> None:
        self.wall = wall
        self._boot = wall - 5000.0

    @property
    def steady(self) -> float:
        """It continues during suspend, as CLOCK_BOOTTIME does."""
        return self.wall - self._boot

    def wall_of(self, steady: float) -> float:
        """The time when `steady` is reached, without a rounding error below it."""
        return math.nextafter(steady + self._boot, math.inf)

    def go_to(self, wall: float) -> None:
        self.wall = max(self.wall, wall)


class _NoWatcher:
    """Events come from the test's script."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.health = WatchHealth()

    def step(self, now: float) -> None:
        return None

    def close(self) -> None:
        """No directory is watched."""


class Machine:
    """The daemon and the clock that drives it."""

    def __init__(self, daemon: Daemon, child: Here, clock: Clock) -> None:
        self.daemon = daemon
        self.child = child
        self.clock = clock
        self.jobs: list[tuple[str, float]] = []  # name and start of every run
        self.ended: Callable[[str], None] = lambda _: None
        self.may_fail: str | None = None  # a job
        self.failed: list[str] = []  # the messages of its failures
        self._events = daemon.state.events.subscribe()
        self._debounce_at: float | None = None
        self._timer_at: float | None = None

    def hint(self, name: SessionName) -> None:
        """Report a change as the watcher would."""
        self.daemon._hint(name)

    def settle(self) -> None:
        """Let every loop do the work that is due now."""
        self._debounce_at = self.daemon.state.loops["debounce"]._step(self.clock.steady)
        self._timer_at = self.daemon.state.loops["timer"]._step(self.clock.wall)
        queue, worker = self.daemon.state.queue, self.daemon._workers._worker
        while (name := queue.take(0)) is not None:
            queue.done(name, worker.run([name])[name], self.clock.steady)
        while (event := self._events.take()) is not None:
            if event.type == "job":
                assert event.data["ok"] or event.data["name"] == self.may_fail, event
                if not event.data["ok"]:
                    self.failed.append(str(event.data["error"]))
                self.jobs.append((event.data["name"], event.at))
                self.ended(event.data["name"])

    def run_until(self, wall: float) -> None:
        """Let time pass, with every event at its moment."""
        while (due := self._next()) is not None and due <= wall:
            self.clock.go_to(due)
            self.settle()
        self.clock.go_to(wall)

    def _next(self) -> float | None:
        steady = [self._debounce_at, self.daemon.state.queue.next_due()]
        moments = [self.clock.wall_of(each) for each in steady if each is not None]
        moments += [] if self._timer_at is None else [self._timer_at]
        return min(moments, default=None)


@contextmanager
def machine(
    root: Path,
    clock: Clock,
    patch: pytest.MonkeyPatch,
    caller: object | None = None,
    may_fail: str | None = None,
    **environ: str,
) -> Iterator[Machine]:
    """A running daemon; it ends with the block as after SIGTERM."""
    interval = sys.getswitchinterval()
    with patch.context() as patched:
        patched.setattr(service, "Watcher", _NoWatcher)
        patched.setattr(Loop, "start", lambda _: None)
        patched.setattr(Workers, "start", lambda _: None)
        # Without chance, so that a failure can be repeated.
        patched.setattr(
            state,
            "WorkQueue",
            lambda **given: WorkQueue(**given, backoff=Backoff(chance=lambda: 1.0)),
        )
        here: list[Here] = []

        def children(layout: Layout, config: ConfigService, **given: Any) -> ChildrenHere:
            child = Here(layout, config, caller=caller, clock=lambda: clock.wall)
            here.append(child)
            return ChildrenHere(child, given["handlers"])

        patched.setattr(service, "Children", children)
        variables = {"HOME": str(root), "BRAINSURGEON_LOG_LEVEL": "error", **environ}
        daemon = Daemon(
            load_settings(root=root, environ=variables),
            clocks=Clocks(lambda: clock.wall, lambda: clock.steady),
        )
        running = Machine(daemon, here[0], clock)
        running.may_fail = may_fail
        try:
            daemon.start()
            daemon.ready()
            running.settle()
            yield running
        finally:
            ended = daemon.stop()
            close_logs()
            sys.setswitchinterval(interval)
        assert ended
