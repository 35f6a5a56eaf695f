"""Which loops are alive: each says when it will be heard of next."""

from __future__ import annotations

import threading

# How much later than promised is still on time: a busy machine, a slow disk.
GRACE_SECONDS = 15.0


class Beats:
    """Promises of loops. Times are of `clock.awake`: during suspend nobody can be late."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self._lock = threading.Lock()
        self._promised: dict[str, float] = {}

    def beat(self, loop: str, now: float, within: float) -> None:
        """`loop` is alive at `now` and will beat again within so many seconds.

        Before a long sleep or a long piece of work, promise accordingly.
        """
        with self._lock:
            self._promised[loop] = now + within

    def expect(self, loop: str, now: float, within: float) -> None:
        """A loop that was never heard of is late after this; one that beats already is left."""
        with self._lock:
            self._promised.setdefault(loop, now + within)

    def end(self, loop: str) -> None:
        """`loop` has ended as it should."""
        with self._lock:
            self._promised.pop(loop, None)

    def late(self, now: float) -> list[str]:
        """Loops that have broken their promise; none means that all is well."""
        with self._lock:
            return sorted(loop for loop, by in self._promised.items() if now > by + self._grace)
