"""Who listens to a watcher in tests, and waits for what it says."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bsd.foundation.layout import SessionName
from tests.waiting import DEADLINE_SECONDS


class Heard:
    """Keeps all that a watcher tells."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.hints: list[SessionName] = []
        self.rescans: list[str] = []
        self.attentions = 0

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
