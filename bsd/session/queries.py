"""Looks at sessions and touches none: nothing here locks, waits or writes.

Who only looks loads only this: nothing that plans, and none of the parts that operate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bsd.agents.dialect import Format
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.pruning_fields import PruningConfig
from bsd.session.notes import Notes
from bsd.session.session import Session
from bsd.store.extracted import SessionStore
from bsd.surgery.plan import Means
from bsd.text.reader import Transcript

_log = get_logger("surgeon")

_Answer = TypeVar("_Answer")


@traced(_log)
class Queries:
    """Answers what is asked of one session at a time; `actor` is named in the log."""

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        actor: str = "cli",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.layout = layout
        self.config = config
        self.clock = clock
        self.notes = Notes(layout, actor, clock)

    def look(
        self, name: SessionName, query: Callable[[Transcript, Format, Means], _Answer]
    ) -> _Answer:
        """Ask something of a session as it stands; raises NotFound and what the query raises."""
        session = Session(self.layout, name)
        source, fmt = session.open_to_read()
        with source:
            return query(source, fmt, self._means(name, session.store))

    def _means(self, name: SessionName, store: SessionStore) -> Means:
        return Means(name, store, self.clock(), lambda: self.config.current)

    def settings(self, overrides: Mapping[str, Any] | None) -> PruningConfig:
        """The settings as they are, but for those of one call; raises ConfigError, Invalid."""
        config = self.config.current
        if not overrides:
            return config
        return PruningConfig.checked({**config.as_json(), **overrides})
