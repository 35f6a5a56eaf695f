"""The job `memory`: facts that have expired go, and facts that nobody recalls fade (seed 002)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bsd.daemon.clock import steady
from bsd.daemon.cron import Every
from bsd.daemon.timetable import Timetable
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger
from bsd.foundation.settings import Settings
from bsd.foundation.settings_tables import MemorySettings

if TYPE_CHECKING:  # loaded when there is a memory: most roots have none
    from bsd.memory.facts import Memory

_log = get_logger("memory")

MEMORY = "memory"
_HOUR = 3600.0
_START_SECONDS = 10.0  # after which a start is kept waiting no longer
_LAST_RUN = "last_run"  # kept in the database, so that no restart puts the next run off


def add_memory_job(
    timetable: Timetable,
    layout: Layout,
    settings: Settings,
    *,
    stopping: Callable[[], bool],
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
) -> None:
    """Delete what has expired meanwhile, and make the hourly job known."""
    if settings.readonly or settings.memory.enabled is False:
        return
    keeper = Keeper(layout, settings.memory, stopping=stopping, clock=clock, steady=steady)
    last_run = keeper.begin()
    timetable.add(MEMORY, Every(_HOUR), keeper.run, last_run=last_run)


class Keeper:
    """Cares for the facts of a root, whenever there are some that it may touch."""

    def __init__(
        self,
        layout: Layout,
        settings: MemorySettings,
        *,
        stopping: Callable[[], bool],
        clock: Callable[[], float],
        steady: Callable[[], float] = steady,
    ) -> None:
        self._layout = layout
        self._settings = settings
        self._stopping = stopping
        self._clock = clock
        self._steady = steady

    def begin(self) -> float | None:
        """At the start: delete what has expired; returns when the last hourly run was.

        What goes wrong is logged: a database in use, or damaged, is no reason not to start.
        """
        try:
            # Whatever it is: most roots have none, and need not load what looks closer.
            (self._settings.database or self._layout.facts_db).stat()
        except FileNotFoundError:
            return None
        except OSError:
            pass  # nobody may look there: the memory says so
        try:
            with self._memory(deadline=steady() + _START_SECONDS) as memory:
                return self._begin(memory) if self._is_mine(memory) else None
        except BsdError as problem:
            _log.warning(f"startup prune failed: {problem.message}", hint=problem.hint)
            return None

    def _begin(self, memory: Memory) -> float:
        done = memory.prune(soft=False)
        if done.expired:
            _log.info(
                f"startup prune removed {done.expired} expired facts",
                vectors_deleted=done.vectors_deleted,
            )
        now = int(self._clock())
        if memory.expired():
            return now - _HOUR  # the hourly run goes on with them as soon as the daemon stands
        last_run = memory.noted(_LAST_RUN)
        if isinstance(last_run, int) and last_run <= now:
            return float(last_run)
        # The hour begins with the first sight: restarts shall not put it off for ever. A run in
        # the future was noted by a wrong clock.
        memory.note(_LAST_RUN, now)
        return float(now)

    def run(self) -> None:
        """Every hour; raises BsdError, and an hour later nothing is lost by that."""
        started = int(self._clock())
        try:
            with self._memory() as memory:
                if not self._is_mine(memory):
                    return
                done = memory.prune()
                if not self._stopping():
                    memory.note(_LAST_RUN, started)
        except BsdError as problem:
            _log.warning(f"periodic prune failed: {problem.message}", hint=problem.hint)
            raise
        tell = _log.info if done.something else _log.debug
        tell(
            f"periodic prune — {done.expired} expired, {done.decayed} decayed",
            deleted=done.deleted,
            vectors_deleted=done.vectors_deleted,
            vectors_pending=done.vectors_pending,
        )

    def _is_mine(self, memory: Memory) -> bool:
        """Whether the daemon shall care: the plugin decays its own, unless it is told to."""
        if not memory.exists():
            return False
        return bool(self._settings.enabled) or memory.is_ours()

    def _memory(self, *, deadline: float = math.inf) -> Memory:
        """`deadline`: when to break off what is going on, in steady seconds."""
        from bsd.memory.facts import open_memory  # noqa: PLC0415 - see above

        return open_memory(
            self._layout,
            self._settings,
            actor="daemon",
            clock=self._clock,
            steady=self._steady,
            stopping=lambda: self._stopping() or steady() > deadline,
        )
