"""Finishes or undoes what an earlier process left half done: deletes, restores, forget, commits."""

from __future__ import annotations

import structlog

from bsd.core.errors import BsdError
from bsd.core.formatting import NEVER
from bsd.maintenance.forgetting import forget_on
from bsd.maintenance.trash import Trash
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.idle import RetryBudget
from bsd.sessions.surgeon import Surgeon

_log = structlog.stdlib.get_logger(module="surgeon")


def recover(surgeon: Surgeon) -> list[Recovered]:
    """Deal with all of it under the surgeon's root, as far as that is possible now.

    To be called once at start, and then regularly; returns what became of each commit in flight.
    """
    if surgeon.layout.has_moves():
        budget = RetryBudget(clock=surgeon.budget.clock)
        # By no setting, so that broken settings stop no recovery.
        trash = Trash(surgeon.layout, NEVER, actor=surgeon.actor, budget=budget)
        try:
            trash.recover()
        except BsdError as problem:  # commits can be recovered all the same
            _log.error("Deletes and restores cannot be finished", problem=problem.message)
        forget_on(surgeon.layout, actor=surgeon.actor, budget=budget)
    return surgeon.operator.recover()
