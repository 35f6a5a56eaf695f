"""Jobs of the two libraries: `memory` (facts expire and fade, seed 002) and `workspace_cron`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from bsd.core.clock import steady
from bsd.core.errors import BsdError
from bsd.core.layout import Layout
from bsd.daemon.schedule import JobSchedule
from bsd.daemon.scheduler import Cron, Every
from bsd.daemon.state import DaemonState

if TYPE_CHECKING:  # loaded when there is a memory: most roots have none
    from bsd.memory.memory import Memory

_log = structlog.stdlib.get_logger(module="memory")

_workspaces_log = structlog.stdlib.get_logger(module="workspaces")

MEMORY = "memory"
WORKSPACE_CRON = "workspace_cron"
_HOUR = 3600.0
_START_SECONDS = 10.0  # after which a start is kept waiting no longer
_LAST_RUN = "last_run"  # kept in the database, so that no restart puts the next run off


def add_memory_job(schedule: JobSchedule, state: DaemonState) -> None:
    """Delete what has expired meanwhile, and make the hourly job known."""
    if state.settings.readonly or state.settings.memory.enabled is False:
        return
    keeper = MemoryKeeper(state)
    last_run = keeper.begin()
    schedule.add(MEMORY, Every(_HOUR), keeper.run, last_run=last_run)


def add_workspace_cron(schedule: JobSchedule, state: DaemonState) -> None:
    """Make the job known by which workspaces go that nobody uses any more.

    Not if there is no workspace root, or nothing may be changed.
    """
    settings = state.settings
    root = settings.workspace_root
    if root is None or settings.readonly:
        return
    from bsd.workspaces.actions import (  # noqa: PLC0415 - for few only
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
        if not root.is_dir():  # made with the first workspace
            _workspaces_log.debug("There is no workspace root yet", workspace_root=str(root))
            return
        prune(workspaces, stopping=state.stopping.is_set)

    schedule.add(WORKSPACE_CRON, Cron(settings.workspace_cron), run)


class MemoryKeeper:
    """Cares for the facts of a root, whenever there are some that it may touch."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._layout = state.layout
        self._settings = state.settings.memory

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
        from bsd.memory import actions  # noqa: PLC0415 - see above

        done = actions.prune(memory, soft=False)
        if done.expired:
            _log.info(
                f"startup prune removed {done.expired} expired facts",
                vectors_deleted=done.vectors_deleted,
            )
        now = int(self._state.clocks.wall())
        if actions.count_expired(memory):
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
        from bsd.memory import actions  # noqa: PLC0415 - see above

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
        """Whether the daemon shall care: the plugin decays its own, unless it is told to."""
        if not memory.exists():
            return False
        return bool(self._settings.enabled) or memory.is_ours()

    def _memory(self, *, deadline: float = math.inf) -> Memory:
        """`deadline`: when to break off what is going on, in steady seconds."""
        from bsd.memory.memory import open_memory  # noqa: PLC0415 - see above

        return open_memory(
            self._layout,
            self._settings,
            actor="daemon",
            clock=self._state.clocks.wall,
            steady=self._state.clocks.steady,
            stopping=lambda: self._state.stopping.is_set() or steady() > deadline,
        )
