"""Finishes or undoes what an earlier process left half done.

Deletes and restores, what was being forgotten, and commits.
"""

from __future__ import annotations

import structlog

from bsd.core.errors import BsdError, ConfigError
from bsd.maintenance.forget import finish_forgetting
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
        keep, budget = _trash_retention(surgeon), RetryBudget(clock=surgeon.budget.clock)
        trash = Trash(surgeon.layout, keep, actor=surgeon.actor, budget=budget)
        try:
            trash.recover()
        except BsdError as problem:  # sessions are none the worse for it
            _log.error("Deletes and restores cannot be finished", problem=problem.message)
        finish_forgetting(surgeon.layout, actor=surgeon.actor, budget=budget)
    return surgeon.operator.recover()


def _trash_retention(surgeon: Surgeon) -> str:
    # Restoring and undoing need no settings, and shall not wait until broken ones are mended;
    # whoever needs some learns of it then.
    try:
        return surgeon.config.current.trash_retention
    except ConfigError as problem:
        _log.warning("Settings are broken", problem=problem.message)
        return "never"
