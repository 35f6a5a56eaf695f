"""The daemon's own threads beside the workers, and the watch on the settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from bsd.daemon.clock import Clocks, awake
from bsd.daemon.loop import Loop
from bsd.daemon.notify import Notifier, Watchdog, watchdog_seconds
from bsd.daemon.parts import Parts
from bsd.daemon.settings_watch import SettingsWatch
from bsd.daemon.timetable import Timetable
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger

_log = get_logger("daemon")

_LONG_STEP_SECONDS = 600.0  # the longest job: a retention of very many files


class Loops:
    """All of them are made at once, and start together."""

    def __init__(
        self, parts: Parts, timetable: Timetable, layout: Layout, clocks: Clocks, tell: Notifier
    ) -> None:
        def loop(
            name: str,
            step: Callable[[float], float | None],
            clock: Callable[[], float] = clocks.steady,
            work_seconds: float = 60.0,
        ) -> Loop:
            return Loop(name, step, parts.beats, clock=clock, work_seconds=work_seconds)

        made = [
            loop("debounce", parts.intake.step),
            loop("watcher", parts.watcher.step),
            loop("timer", timetable.step, clocks.wall, _LONG_STEP_SECONDS),
            loop("indexer", parts.indexer.step, work_seconds=_LONG_STEP_SECONDS),
        ]
        if tell.listening and (every := watchdog_seconds()):
            dog = Watchdog(tell, parts.beats, every, _say_who_is_late)
            made.append(loop("watchdog", dog.step, awake))
        self._loops = {each.name: each for each in made}
        self._settings_watch = SettingsWatch(layout.config_file, timetable.look_at_settings)

    @property
    def crashes(self) -> int:
        """How many steps have failed."""
        return sum(loop.crashes for loop in self._loops.values())

    def __getitem__(self, name: str) -> Loop:
        return self._loops[name]

    def watch_settings(self) -> None:
        self._settings_watch.start()

    def start(self) -> None:
        for loop in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """Ask all to end; `join` waits for that."""
        for loop in self._loops.values():
            loop.stop()

    def join(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); whether all have ended."""
        ended = True
        for loop in self._loops.values():
            if loop.alive:
                ended &= loop.join(max(0.0, deadline - time.monotonic()))
        return ended

    def close(self) -> None:
        """Watch the settings no longer."""
        self._settings_watch.close()


def _say_who_is_late(late: list[str]) -> None:
    _log.error("Not answering; the service manager is told nothing more", loops=late)
