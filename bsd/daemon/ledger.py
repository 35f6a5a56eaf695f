"""What the daemon has done since it started: totals, and the last result of each session."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import Any

from bsd.foundation.json_text import document
from bsd.foundation.layout import SessionName
from bsd.foundation.spelling import iso_utc
from bsd.session.commit.protocol import Outcome
from bsd.surgery.result import SessionResult, Status
from bsd.surgery.rules import Reason

_MOST_SESSIONS = 500  # in status; more would be a burden for whoever asks
_TOO_LARGE = "a line of it would take too much memory; its other lines are looked after"


class Ledger:
    """Thread-safe. Sizes are bytes, times epoch seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._give_ups: Counter[str] = Counter()
        # As JSON from the first: they are asked for much more often than they change.
        self._results: OrderedDict[SessionName, bytes] = OrderedDict()
        self._listed: bytes | None = None  # all of them, until one changes
        self._left_alone: dict[SessionName, str] = {}

    def count(self, what: str, number: int = 1) -> None:
        """Add to one of the totals."""
        with self._lock:
            self._totals[what] += number

    def attempted(self, _: SessionName, outcome: Outcome) -> None:
        """Count an attempt to commit, given up or not."""
        with self._lock:
            self._totals["bytes_written"] += outcome.bytes_written
            if outcome.gave_up is None:
                self._totals["commits"] += 1
            else:
                self._give_ups[str(outcome.gave_up)] += 1

    def worked(self, name: SessionName, result: SessionResult, at: float) -> None:
        """Note what became of a session."""
        # A copy has the size that it needs; what comes from orjson has kept all that it might need.
        listed = bytes(memoryview(document({**result.as_json(), "at": iso_utc(at)})))
        with self._lock:
            self._totals["entries"] += result.entries
            self._totals["values"] += result.values
            self._totals["tokens_saved"] += result.tokens_saved
            self._totals["bytes_saved"] += result.bytes_before - result.bytes_after
            self._totals["busy"] += result.status is Status.BUSY
            self._totals["failed"] += result.status is Status.FAILED
            if result.status is Status.LEFT_ALONE:
                self._left_alone[name] = result.reason or "not ours"
            elif Reason.TOO_LARGE_IN_MEMORY in result.reasons:
                self._left_alone[name] = _TOO_LARGE
            elif result.status is not Status.BUSY and not self._says_nothing_new(name, result):
                self._left_alone.pop(name, None)
            self._listed = None
            self._results[name] = listed
            self._results.move_to_end(name)
            if len(self._results) > _MOST_SESSIONS:
                self._results.popitem(last=False)

    def _says_nothing_new(self, name: SessionName, result: SessionResult) -> bool:
        """Whether a line that is left alone may be among those that were not read this time."""
        return result.partial and self._left_alone.get(name) == _TOO_LARGE

    def forget(self, name: SessionName) -> None:
        """The session is gone."""
        with self._lock:
            if self._results.pop(name, None) is not None:
                self._listed = None
            self._left_alone.pop(name, None)

    def totals(self) -> dict[str, Any]:
        """Counts since the start."""
        with self._lock:
            return {
                **{name: self._totals[name] for name in _TOTALS},
                "give_ups": dict(sorted(self._give_ups.items())),
            }

    def left_alone(self) -> dict[str, Any]:
        """How many sessions are not ours to edit, and why."""
        with self._lock:
            reasons = Counter(self._left_alone.values())
        return {"count": reasons.total(), "reasons": dict(reasons.most_common())}

    def sessions(self) -> bytes:
        """The last result of each session, the newest first: a JSON array."""
        with self._lock:
            if self._listed is None:
                self._listed = b"[%b]" % b",".join(reversed(self._results.values()))
            return self._listed


_TOTALS = (
    "commits",
    "entries",
    "values",
    "bytes_saved",
    "tokens_saved",
    "bytes_written",
    "busy",
    "failed",
    "helpers_replaced",
    "workers_replaced",
    "crashes",
)
