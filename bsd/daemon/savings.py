"""Write amplification is bounded: small savings gather until they are worth a whole copy."""

from __future__ import annotations

import threading

from bsd.foundation.layout import SessionName
from bsd.surgery.plan import Plan

SHARE = 32  # a commit saves at least one part in so many of the bytes it has to copy …
LONGEST_SECONDS = 3600.0  # … or the oldest saving has waited so long

# A new line with one of these is there because somebody asked: it was restored and its protection
# is over, or it was set free. Inside a JSON string the quotes would stand behind backslashes.
_ASKED_FOR = (b'"_restored"', b'"_extractable"')


class Savings:
    """What could be saved in which session, and since when. Times are steady seconds."""

    def __init__(self, share: int = SHARE, longest: float = LONGEST_SECONDS) -> None:
        self._share = share
        self._longest = longest
        self._lock = threading.Lock()
        self._since: dict[SessionName, float] = {}

    def __len__(self) -> int:
        """How many sessions wait for more to be saved."""
        return len(self._since)

    def are_worth(self, name: SessionName, plan: Plan, now: float) -> bool:
        """Whether the plan is to be committed now."""
        if not plan.edits:
            self.settle(name)
            return True
        with self._lock:
            since = self._since.setdefault(name, now)
        if now - since >= self._longest:
            return True
        # The new file is written as a whole, whatever becomes of it.
        if plan.report.bytes_saved * self._share >= plan.report.bytes_after:
            return True
        return any(mark in edit.new for edit in plan.edits for mark in _ASKED_FOR)

    def due(self, name: SessionName) -> float | None:
        """When the session's oldest saving has waited long enough; None if it has none."""
        with self._lock:
            since = self._since.get(name)
        return None if since is None else since + self._longest

    def settle(self, name: SessionName) -> None:
        """Nothing is waiting in this session any more: it was committed, or it is gone."""
        with self._lock:
            self._since.pop(name, None)
