"""What the surgeon remembers of a session from one extraction to the next."""

from __future__ import annotations

from pathlib import Path

from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.pruning_fields import PruningConfig
from bsd.session.operation import Done
from bsd.store.checkpoint import Checkpoint
from bsd.store.state import StateDb
from bsd.surgery.settled import fingerprint
from bsd.text.reader import Transcript

_log = get_logger("session")


class Recollection:
    """Of one session under one set of settings; remembers nothing without a database."""

    def __init__(self, state: StateDb | None, name: SessionName, config: PruningConfig) -> None:
        self._state = state
        self._name = name
        self._settings = fingerprint(config) if state else ""
        self._recalled: Checkpoint | None = None

    def recall(self, source: Transcript) -> Checkpoint | None:
        """Where to begin, if what is remembered still fits."""
        if self._state:
            self._recalled = self._state.load(self._name, self._settings, source)
            hit = "miss" if self._recalled is None else "hit"
            _log.debug(f"Session {self._name}: cache {hit}", session=str(self._name))
        return self._recalled

    def keep(self, session: Path, done: Done) -> None:
        """Remember how far the session is settled now that a plan is in effect."""
        if self._state is None or done.postponed:
            return
        outcome, at = done.outcome, done.plan.checkpoint
        left_as = outcome.identity if outcome else done.plan.planned_on
        if at is None or left_as is None:
            self._state.forget(self._name)
        elif at != self._recalled or outcome:
            self._state.save(self._name, self._settings, session, left_as, at)
