"""When pauses change, queue the sessions that they cover.

A pause that ends at its set time needs no action here: a session that was due during the pause
waits in the queue until its end (`Worker`).
"""

from __future__ import annotations

import structlog

from bsd.core.errors import BsdError
from bsd.core.pauses import Pause, pauses_of
from bsd.daemon.scan import sessions_by_stat
from bsd.daemon.state import DaemonState

_log = structlog.stdlib.get_logger(module="daemon")


class PauseFollower:
    """Compares the pauses with those of the last call. Only one thread at a time may call it."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._before: list[Pause] = []

    def look(self) -> None:
        """Queue the sessions of pauses that have begun, ended or changed since the last call."""
        state = self._state
        now, wall = state.clocks.steady(), state.clocks.wall()
        try:
            pauses = [each.pause for each in pauses_of(state.layout, wall, now)]
        except BsdError as problem:  # each edit is refused with the same error
            _log.error("The pauses cannot be read", problem=problem.message, hint=problem.hint)
            return
        changed = [each for each in self._before if each not in pauses]
        changed += [each for each in pauses if each not in self._before]
        self._before = pauses
        if not changed or state.settings.readonly:
            return
        _log.info("Pauses have changed", names=sorted({each.name for each in changed}))
        for name, seen in sessions_by_stat(state.layout):
            if any(each.covers(name) for each in changed):
                state.enqueuer.put_found(name, seen, now, wall)
