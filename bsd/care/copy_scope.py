"""What is asked of a run that copies whole sessions (`keeping`), and what it tells of each."""

from __future__ import annotations

from enum import StrEnum

from bsd.foundation.errors import BsdError
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName

SOON_SECONDS = 7 * 24 * 3600.0


@immutable
class CopyScope:
    """Which sessions a run copies.

    Args:
        first: only sessions that their program deletes by their age, and these are urgent.
        at_once: no session waits for a day of rest, and the run goes on until all are copied.
        names: only these sessions, with those that are parts of them; empty: all.
        dry_run: tell which sessions would be copied, and change nothing.
    """

    first: bool = False
    at_once: bool = False
    names: frozenset[SessionName] = frozenset()
    dry_run: bool = False


class CopyStatus(StrEnum):
    """What became of a session of which a copy was asked for."""

    COPIED = "copied"
    UNCHANGED = "unchanged"  # the copy that there was is as the session is
    BUSY = "busy"
    FAILED = "failed"


@immutable
class CopyOutcome:
    """One session of a run. `size`: bytes of its transcript."""

    session: SessionName
    status: CopyStatus
    size: int
    problem: BsdError | None = None
