"""A process's memory of its own commits, passed on to the next process that works on a session.

Without it, late lines are put back a little later, by the next recovery of all commits in flight.
"""

from __future__ import annotations

from pathlib import Path

from bsd.core.errors import os_problem
from bsd.core.layout import SessionName
from bsd.sessions.commit.record import FILE
from bsd.transcripts.change import Identity

# For one session: (records, last_commit). `records` maps the record of each commit to the displaced
# file's identity at the last check. `last_commit` is the identity of the session file as bsd left
# it, and the time of the last write by another program before (epoch nanoseconds).
CommitMemory = tuple[dict[Path, Identity | None], tuple[Identity, int] | None]

_MANY = 1000  # sessions; beyond, outdated entries are dropped
_USEFUL_NS = 2 * 3600 * 10**9  # longer than any session must be quiet


class OwnCommits:
    """The commits of one process, by session."""

    def __init__(self) -> None:
        self._look_at = _MANY
        self._left: dict[SessionName, dict[Path, Identity | None]] = {}
        self._own: dict[SessionName, tuple[Identity, int]] = {}

    def hand_over(self, session: SessionName) -> CommitMemory:
        """Return the memory of a session, for another process that will work on it."""
        return self._left.get(session, {}), self._own.get(session)

    def take_over(self, session: SessionName, memory: CommitMemory) -> None:
        """Replace the memory of a session by that of another process."""
        self._left.pop(session, None)
        self._own.pop(session, None)
        self.learn(session, memory)

    def learn(self, session: SessionName, memory: CommitMemory) -> None:
        """Add another process's memory of a session."""
        left, own = memory
        if left:
            self._left.setdefault(session, {}).update(left)
        if own is not None:
            self._own[session] = own
            self._tidy(own[0].mtime_ns)

    def _tidy(self, now_ns: int) -> None:
        """Drop outdated entries once there are many."""
        if len(self._own) + len(self._left) < self._look_at:
            return
        own, left = self._own.items(), self._left.items()
        self._own = {name: one for name, one in own if now_ns - one[0].mtime_ns < _USEFUL_NS}
        self._left = {name: records for name, records in left if any(map(_as_it_is, records))}
        self._look_at = max(_MANY, 2 * (len(self._own) + len(self._left)))

    def remember(self, session: SessionName, record: Path) -> None:
        """Note the record that a commit of this process left."""
        self._left.setdefault(session, {})[record] = None

    def note_own(self, session: SessionName, before: Identity, after: Identity) -> None:
        """Note that bsd changed a session's file from `before` to `after`."""
        used = self.used_before(session, before)
        self._own[session] = after, before.mtime_ns if used is None else used

    def used_before(self, session: SessionName, found: Identity) -> int | None:
        """Return when another program last wrote to a session (epoch nanoseconds).

        None unless the session is as this process left it.
        """
        left = self._own.get(session)
        if left is None:
            return None
        was, used_ns = left
        if was.written == found.written:
            return used_ns
        self._own.pop(session, None)
        return None

    def touched(self, session: SessionName) -> dict[Path, Identity | None]:
        """Return the records of commits whose displaced file changed since `note_watched`.

        Oldest first, each with the identity of its displaced file now; None if the file is gone.
        """
        left = self._left.get(session)
        if left is None:
            return {}
        for record in [record for record in left if _as_it_is(record) is None]:
            del left[record]
        if not left:
            del self._left[session]
        now = {record: _as_it_is(record.with_suffix(FILE)) for record in left}
        return {record: file for record, file in now.items() if not file or file != left[record]}

    def note_watched(self, session: SessionName, record: Path, file: Identity | None) -> None:
        """Note that a displaced file, as it was then, needed no action."""
        self._left.get(session, {})[record] = file


def _as_it_is(path: Path) -> Identity | None:
    try:
        return Identity.of(path.lstat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise os_problem(error, f"looking for {path}") from error
