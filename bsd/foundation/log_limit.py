"""Keeps one complaint, repeated for ever, from filling the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

PERIOD_SECONDS = 60.0
MOST_ALIKE = 60  # lines in a period
_MOST_KINDS = 1000  # that are told apart; texts may hold names of all sorts
_LIMITED = ("warn", "error")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Lines that were not written; like them are those of this module with this text."""

    level: str
    module: str
    event: str
    count: int


@dataclass(slots=True)
class _Kind:
    level: str
    since: float
    written: int = 0
    left_out: int = 0


class Limit:
    """Counts warnings and errors that say the same; all other lines always pass.

    Whoever asks holds the lock of the output whose lines these are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._next_look = float("inf")  # when something that was left out is to be told

    def passes(self, level: str, module: str, event: str) -> bool:
        """Whether a line may be written. Of a text, the first line counts."""
        if level not in _LIMITED:
            return True
        now, key = self._clock(), (module, event.partition("\n")[0])
        kind = self._kinds.get(key)
        if kind is None or (now - kind.since >= PERIOD_SECONDS and not kind.left_out):
            self._make_room()
            kind = self._kinds[key] = _Kind(level, now)
        if kind.written < MOST_ALIKE:
            kind.written += 1
            return True
        kind.left_out += 1
        self._next_look = min(self._next_look, kind.since + PERIOD_SECONDS)
        return False

    def left_out(self, *, all: bool = False) -> list[LeftOut]:
        """What was left out in periods that are over (or `all`), and has not been told."""
        now = self._clock()
        if not all and now < self._next_look:
            return []
        over = {
            key: kind
            for key, kind in self._kinds.items()
            if kind.left_out and (all or now - kind.since >= PERIOD_SECONDS)
        }
        for key in over:
            del self._kinds[key]
        waiting = (kind.since for kind in self._kinds.values() if kind.left_out)
        self._next_look = min(waiting, default=float("inf")) + PERIOD_SECONDS
        return [LeftOut(kind.level, *key, kind.left_out) for key, kind in over.items()]

    def _make_room(self) -> None:
        """Forget the kind that was heard of first, if there are too many; what it owes stays."""
        if len(self._kinds) >= _MOST_KINDS:
            oldest = next((key for key, kind in self._kinds.items() if not kind.left_out), None)
            if oldest is not None:
                del self._kinds[oldest]
