"""Jobs of the two libraries: `memory` (facts expire and fade, seed 002) and `workspace_cron`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from bsd.core.clock import steady
from bsd.core.errors import BsdError
from bsd.core.layout import Layout
from bsd.daemon.cron import Cron, Every
from bsd.daemon.scheduler import ScheduledJob
from bsd.daemon.state import DaemonState

if TYPE_CHECKING:  # imported only if there is a memory: most roots have none
    from bsd.memory.memory import Memory

_log = structlog.stdlib.get_logger(module="memory")

_workspaces_log = structlog.stdlib.get_logger(module="workspaces")

MEMORY = "memory"
WORKSPACE_CRON = "workspace_cron"
_HOUR = 3600.0
_START_SECONDS = 10.0  # the longest delay of the daemon's start
_LAST_RUN = "last_run"  # stored in the database, so that a restart does not postpone the next run


def memory_job(state: DaemonState) -> ScheduledJob | None:
    """Delete facts that have expired; return the hourly job, or None if there is no memory."""
    if state.settings.readonly or state.settings.memory.enabled is False:
        return None
    keeper = MemoryKeeper(state)
    return ScheduledJob(MEMORY, keeper.run, Every(_HOUR), last_run=keeper.begin())


def workspace_job(state: DaemonState) -> ScheduledJob | None:
    """Return the job that prunes unused workspaces.

    None if there is no workspace root, or the daemon is read-only.
    """
    settings = state.settings
    root = settings.workspace_root
    if root is None or settings.readonly:
        return None
    from bsd.workspaces.actions import (  # noqa: PLC0415 - few roots have workspaces
        WorkspaceRoot,
        prune,
        rules_of,
    )

    workspaces = WorkspaceRoot(
        root,
        Layout(settings.root),
        rules_of(settings),
        actor="daemon",
        clock=state.clocks.wall,
        steady=state.clocks.steady,
    )

    def run() -> None:
        if not root.is_dir():  # it is created with the first workspace
            _workspaces_log.debug("There is no workspace root yet", workspace_root=str(root))
            return
        prune(workspaces, stopping=state.stopping.is_set)

    return ScheduledJob(WORKSPACE_CRON, run, Cron(settings.workspace_cron))


class MemoryKeeper:
    """Deletes expired facts of a root and decays the others, if bsd may change them."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._layout = state.layout
        self._settings = state.settings.memory

    def begin(self) -> float | None:
        """At the start, delete expired facts; return the time of the last hourly run.

        Failures are logged: the daemon starts even if the database is in use or damaged.
        """
        try:
            # Most roots have no database and do not load the library.
            (self._settings.database or self._layout.facts_db).stat()
        except FileNotFoundError:
            return None
        except OSError:
            pass  # no permission: opening the memory reports it
        try:
            with self._memory(deadline=steady() + _START_SECONDS) as memory:
                return self._begin(memory) if self._is_mine(memory) else None
        except BsdError as problem:
            _log.warning(f"startup prune failed: {problem.message}", hint=problem.hint)
            return None

    def _begin(self, memory: Memory) -> float:
        from bsd.memory import actions  # noqa: PLC0415 - imported only if there is a memory

        done = actions.prune(memory, soft=False)
        if done.expired:
            _log.info(
                f"startup prune removed {done.expired} expired facts",
                vectors_deleted=done.vectors_deleted,
            )
        now = int(self._state.clocks.wall())
        if actions.count_expired(memory):
            return now - _HOUR  # facts are left, so the hourly run is due when the daemon is up
        last_run = memory.noted(_LAST_RUN)
        if isinstance(last_run, int) and last_run <= now:
            return float(last_run)
        # There was no run yet, or its time is in the future because the clock was wrong. The hour
        # starts now and is stored, so that restarts do not postpone the first run for ever.
        memory.note(_LAST_RUN, now)
        return float(now)

    def run(self) -> None:
        """Delete expired facts and decay the others; raises BsdError.

        A failed run loses no work: the next run an hour later does the same.
        """
        from bsd.memory import actions  # noqa: PLC0415 - imported only if there is a memory

        started = int(self._state.clocks.wall())
        try:
            with self._memory() as memory:
                if not self._is_mine(memory):
                    return
                done = actions.prune(memory)
                if not self._state.stopping.is_set():
                    memory.note(_LAST_RUN, started)
        except BsdError as problem:
            _log.warning(f"periodic prune failed: {problem.message}", hint=problem.hint)
            raise
        tell = _log.info if done.changed_anything else _log.debug
        tell(
            f"periodic prune — {done.expired} expired, {done.decayed} decayed",
            deleted=done.deleted,
            vectors_deleted=done.vectors_deleted,
            vectors_pending=done.vectors_pending,
        )

    def _is_mine(self, memory: Memory) -> bool:
        """Return True if the daemon maintains the facts; by default a plugin maintains its own."""
        if not memory.exists():
            return False
        return bool(self._settings.enabled) or memory.is_ours()

    def _memory(self, *, deadline: float = math.inf) -> Memory:
        """Open the memory; `deadline`: when to end the current work, in steady seconds."""
        from bsd.memory.memory import open_memory  # noqa: PLC0415 - imported only if there is a memory

        return open_memory(
            self._layout,
            self._settings,
            actor="daemon",
            clock=self._state.clocks.wall,
            steady=self._state.clocks.steady,
            stopping=lambda: self._state.stopping.is_set() or steady() > deadline,
        )
