"""Finishes or undoes interrupted operations: deletes, restores, `forget`, commits."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from bsd.core.errors import BsdError
from bsd.core.formatting import NEVER
from bsd.core.layout import Layout
from bsd.maintenance.finish_forgetting import finish_forgetting
from bsd.maintenance.trash import Trash
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.recovery import recover as recover_commits
from bsd.sessions.idle import RetryBudget

_log = structlog.stdlib.get_logger(module="surgeon")


def recover(
    layout: Layout,
    inflight: InFlight,
    clock: Callable[[], float],
    actor: str,
) -> list[Recovered]:
    """Finish or undo all interrupted operations under a root, as far as that is possible now.

    The daemon calls this at start and then regularly.

    Returns:
        The result for each commit in flight.
    """
    if layout.has_moves():
        budget = RetryBudget(clock=clock)
        # Not the setting, so that broken settings do not stop the recovery.
        trash = Trash(layout, NEVER, actor=actor, budget=budget)
        try:
            trash.recover()
        except BsdError as problem:  # commits can still be recovered
            _log.error("Deletes and restores cannot be finished", problem=problem.message)
        finish_forgetting(layout, actor=actor, budget=budget)
    return recover_commits(inflight, now_ns=lambda: int(clock() * 1e9))
