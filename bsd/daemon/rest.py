"""Which sessions are at rest, from one daemon to the next: a start need not open them again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.pruning_config import ConfigService
from bsd.store.state import Left, StateDb
from bsd.surgery.survey import fingerprint
from bsd.text.change import Written

_log = get_logger("daemon")

# More are not collected before they are written: after a look at all sessions, memory would be
# full of them until the next scan.
_MOST_COLLECTED = 1000


class Rests:
    """Collects how sessions were left; `flush` writes it, seldom and all at once.

    What is lost with a kill is looked into again, and what changed since is found by its stat.
    """

    def __init__(self, state: StateDb, config: ConfigService) -> None:
        self._state = state
        self._config = config
        self._lock = threading.Lock()
        self._new: dict[SessionName, Left | None] = {}
        self._judged_by: dict[SessionName, str] = {}  # fingerprint of the settings

    def known(self) -> list[Left]:
        """How sessions were left under the settings that hold now."""
        return self._state.rests(fingerprint(self._config.current))

    def left(self, name: SessionName, seen: Written, due_at: float | None) -> None:
        """There is nothing more to do to a session, until it changes or `due_at` (epoch)."""
        with self._lock:
            settings = self._judged_by.pop(name, None)
            if settings is not None:
                self._new[name] = Left(name, settings, seen, due_at)
            many = len(self._new) >= _MOST_COLLECTED
        if many:
            self.flush()

    def unsettled(self, name: SessionName) -> None:
        """A session is looked into: there may be something to do to it."""
        settings = fingerprint(self._config.current)
        with self._lock:
            self._new[name] = None
            self._judged_by[name] = settings

    def keep_only(self, is_there: Callable[[SessionName], bool]) -> None:
        """Forget sessions that are not there any more, with all that was known of them."""
        if count := self._state.keep_only(is_there):
            _log.debug("Sessions that are gone were forgotten", count=count)

    def flush(self) -> None:
        """Write what came together."""
        with self._lock:
            new, self._new = self._new, {}
        if new:
            self._state.note_rests(new)


def resume(
    rests: Rests,
    note: Callable[[SessionName, Written], None],
    queue: Callable[[SessionName, float], None],
) -> None:
    """Tell a scan what is known, and the queue what will be due (epoch seconds)."""
    for rest in rests.known():
        note(rest.session, rest.file)
        if rest.due_at is not None:
            queue(rest.session, rest.due_at)
