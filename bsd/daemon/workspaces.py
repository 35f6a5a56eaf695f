"""The job `workspace_cron`: workspaces that nobody uses any more go, if a root is configured."""

from __future__ import annotations

import time
from collections.abc import Callable

from bsd.daemon.clock import steady
from bsd.daemon.cron import Cron
from bsd.daemon.timetable import Timetable
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger
from bsd.foundation.settings import Settings

_log = get_logger("workspaces")

WORKSPACE_CRON = "workspace_cron"


def add_workspace_cron(
    timetable: Timetable,
    settings: Settings,
    *,
    stopping: Callable[[], bool],
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
) -> None:
    """Make the job known, unless there is no workspace root or nothing may be changed."""
    root = settings.workspace_root
    if root is None or settings.readonly:
        return
    from bsd.workspaces.verbs import WorkspaceRoot, rules_of  # noqa: PLC0415 - for few only

    workspaces = WorkspaceRoot(
        root,
        Layout(settings.root),
        rules_of(settings),
        actor="daemon",
        clock=clock,
        steady=steady,
    )

    def prune() -> None:
        if not root.is_dir():  # made with the first workspace
            _log.debug("There is no workspace root yet", workspace_root=str(root))
            return
        workspaces.prune(stopping=stopping)

    timetable.add(WORKSPACE_CRON, Cron(settings.workspace_cron), prune)
