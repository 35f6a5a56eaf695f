"""The words of the queue: why a session is in it, how work on it ends, what is parked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bsd.foundation.layout import SessionName


class Why(Enum):
    """Why a session is put into the queue."""

    CHANGED = "changed"
    DUE = "due"  # its time came; nothing about it has changed
    ASKED = "asked"  # by a person


@dataclass(frozen=True, slots=True)
class Finished:
    """The work is done; `next_due` if there will be some without a change (steady seconds)."""

    next_due: float | None = None


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody uses the session: try later, at `again` if that is known (steady seconds)."""

    again: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It went wrong: tried again some times, then parked until something changes."""

    error: str


Outcome = Finished | Busy | Failed


@dataclass(frozen=True, slots=True)
class Parked:
    """A session that is left alone, and why."""

    session: SessionName
    error: str
    failures: int
    since: float  # steady seconds


@dataclass(frozen=True, slots=True)
class Counts:
    """The queue in numbers, for status and metrics."""

    waiting: int  # for their time
    ready: int
    working: int
    parked: int
    refused: int  # since the start, for lack of room
    retried: int
    failed: int
