"""Finishes or undoes what an earlier process left half done.

Deletes and restores, what was being forgotten, and commits.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, ConfigError
from bsd.core.layout import Layout
from bsd.maintenance.forgetting import forget_on
from bsd.maintenance.trash import Trash
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.recovery import recover as recover_commits
from bsd.sessions.idle import RetryBudget

_log = structlog.stdlib.get_logger(module="surgeon")


def recover(
    layout: Layout,
    config: ConfigService,
    inflight: InFlight,
    clock: Callable[[], float],
    actor: str,
) -> list[Recovered]:
    """Deal with all of it under a root, as far as that is possible now.

    To be called once at start, and then regularly; returns what became of each commit in flight.
    """
    if layout.has_moves():
        budget = RetryBudget(clock=clock)
        try:
            Trash(layout, _trash_retention(config), actor=actor, budget=budget).recover()
        except BsdError as problem:  # sessions are none the worse for it
            _log.error("Deletes and restores cannot be finished", problem=problem.message)
        forget_on(layout, actor=actor, budget=budget)
    return recover_commits(inflight, now_ns=lambda: int(clock() * 1e9))


def _trash_retention(config: ConfigService) -> str:
    # Restoring and undoing need no settings, and shall not wait until broken ones are mended;
    # whoever needs some learns of it then.
    try:
        return config.current.trash_retention
    except ConfigError as problem:
        _log.warning("Settings are broken", problem=problem.message)
        return "never"
