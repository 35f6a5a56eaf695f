"""Waits until a session has been quiet for a while, but not for ever. Pure; the caller locks."""

from __future__ import annotations

from collections import OrderedDict

from bsd.foundation.layout import SessionName

QUIET_SECONDS = 2.0
LONGEST_SECONDS = 30.0


class Debounce:
    """Sessions that changed lately.

    One is due when nothing happened to it for `quiet` seconds, or when it waits for `longest`
    seconds already. Every operation takes constant time for each session that it concerns.
    Threads that read the clock before they get the lock may bring times a little out of order:
    a session is then due by as much later.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        if not 0 <= quiet <= longest:
            raise ValueError("the quiet time is from 0 to the longest delay")
        self._quiet = quiet
        self._longest = longest
        # Both delays are the same for all, so who was noted first is due first: no heap needed.
        self._first: OrderedDict[SessionName, float] = OrderedDict()  # by first note
        self._last: OrderedDict[SessionName, float] = OrderedDict()  # by latest note

    def __len__(self) -> int:
        return len(self._last)

    def note(self, session: SessionName, now: float) -> bool:
        """Something happened; True if a sleeper must learn of it, as nobody was waiting before."""
        was_empty = not self._last
        self._first.setdefault(session, now)
        self._last[session] = now
        self._last.move_to_end(session)
        return was_empty

    def due(self, now: float) -> list[SessionName]:
        """Take out the sessions whose time has come, the longest waiting first."""
        due = []
        while self._first and next(iter(self._first.values())) + self._longest <= now:
            session, _ = self._first.popitem(last=False)
            del self._last[session]
            due.append(session)
        while self._last and next(iter(self._last.values())) + self._quiet <= now:
            session, _ = self._last.popitem(last=False)
            del self._first[session]
            due.append(session)
        return due

    def next_due(self) -> float | None:
        """When `due` will have something to give, if nothing else happens."""
        if not self._last:
            return None
        quiet_at = next(iter(self._last.values())) + self._quiet
        longest_at = next(iter(self._first.values())) + self._longest
        return min(quiet_at, longest_at)
