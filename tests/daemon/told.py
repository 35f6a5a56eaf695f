"""A listener for a watcher in tests; it waits for the watcher's reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from bsd.core.layout import Layout, SessionName
from bsd.daemon.watcher import Watcher, watched_inodes
from tests.waiting import DEADLINE_SECONDS

NAME = SessionName("main", "s1")


class Heard:
    """Keeps all reports of a watcher."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.hints: list[SessionName] = []
        self.rescans: list[str] = []
        self.attentions = 0

    def watcher(self, layout: Layout, **how: Any) -> Watcher:
        """A watcher that reports to the listener."""
        told: dict[str, Any] = {"hint": self.hint, "rescan": self.rescan, "wake": self.attention}
        return Watcher(layout, **told, **how)

    def hint(self, name: SessionName) -> None:
        with self._changed:
            self.hints.append(name)
            self._changed.notify_all()

    def rescan(self, why: str) -> None:
        with self._changed:
            self.rescans.append(why)
            self._changed.notify_all()

    def attention(self) -> None:
        with self._changed:
            self.attentions += 1
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self.hints.clear()
            self.rescans.clear()

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_SECONDS), (self.hints, self.rescans)

    def wait_for_hint(self, name: SessionName) -> None:
        self.wait_for(lambda: name in self.hints)


def is_watched(directory: Path) -> bool:
    """Whether this process has a watch on a directory."""
    return directory.exists() and directory.stat().st_ino in (watched_inodes() or ())


def file_of(layout: Layout, name: SessionName) -> Path:
    return layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"{}\n")


def settle(watcher: Watcher, heard: Heard, condition: Callable[[], object]) -> None:
    """Do the work of the watcher's loop until a condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    for now in count(1):
        watcher.step(float(now))
        if condition():
            return
        assert time.monotonic() < deadline
        time.sleep(0.005)


def with_a_session(layout: Layout) -> Layout:
    """The root with a session, and an agent's directory that holds none."""
    (layout.agents / "main" / "agent").mkdir()
    file_of(layout, NAME).write_bytes(b"{}\n")
    return layout
