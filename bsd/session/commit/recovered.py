"""What recovery needs to get at a session, and what it says became of a record in flight."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any

from bsd.agents.owner import Owner
from bsd.agents.owners import owner_of
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName
from bsd.session.commit.lock import own_lock


class State(StrEnum):
    """What became of one record."""

    WATCHED = "watched"  # nothing to do; its displaced file is kept a while longer
    BUSY = "busy"  # a living process is at it
    WAITING = "waiting"  # late bytes cannot be carried now; tried again later
    CARRIED = "carried"  # late bytes are in their session; watched on
    ORPHANED = "orphaned"  # late bytes have become an orphan
    PUT_BACK = "put_back"  # the displaced file had been rewritten, and stands at the path again
    FINISHED = "finished"  # nothing came any more: the displaced file is gone
    ABANDONED = "abandoned"  # a commit had not come as far as its exchange: removed
    FAILED = "failed"  # see detail; left as it is


@immutable
class Recovered:
    """What became of one record in flight, and how much was carried now."""

    state: State
    record: Path
    session: SessionName | None = None
    detail: str = ""
    lines: int = 0
    bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        return {
            "state": str(self.state),
            "record": str(self.record),
            "session": str(self.session) if self.session else None,
            "detail": self.detail,
            "lines": self.lines,
            "bytes": self.bytes,
        }


@immutable
class Access:
    """How recovery gets at a session; each lock raises Busy at once if it is held."""

    own_lock: Callable[[SessionName], AbstractContextManager[object]]
    session_lock: Callable[[SessionName, Path], AbstractContextManager[object]]
    still_idle: Callable[[SessionName, Path], str | None]
    owner: Callable[[SessionName], Owner]

    @classmethod
    def to(cls, layout: Layout, still_idle: Callable[[SessionName, Path], str | None]) -> Access:
        """Access by the usual locks, without waiting."""
        return cls(
            own_lock=lambda name: own_lock(layout, name, 0.0),
            session_lock=lambda name, path: owner_of(layout, name.agent).lock(name, path),
            still_idle=still_idle,
            owner=lambda name: owner_of(layout, name.agent),
        )
