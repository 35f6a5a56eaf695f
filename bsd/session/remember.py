"""What bsd remembers of a session: what is settled in it, its history, the index of its store.

Nothing here is needed to tell what a session is: markers in its lines and files in its store do.
"""

from __future__ import annotations

from bsd.foundation.errors import Unavailable
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.foundation.pruning_fields import PruningConfig
from bsd.foundation.spelling import iso_utc
from bsd.session.session import Session
from bsd.store.changed_lines import took_effect
from bsd.store.extracted import Keep
from bsd.store.history import Act, History
from bsd.store.index import Record
from bsd.store.state import Checkpoint, StateDb
from bsd.surgery.plan import Plan
from bsd.surgery.survey import fingerprint
from bsd.text.change import Identity
from bsd.text.reader import Transcript, TranscriptFile

_log = get_logger("session")

_INDEXED_AT_ONCE = 4096  # files

# Bytes of a session that is read again, whole, as fast as anything could be remembered of it.
_SMALL = 16 << 10


class Remembered:
    """What one extraction leaves for the next, under one set of settings.

    Remembers nothing without a database.
    """

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

    def keep(self, plan: Plan, left_as: Identity | None, guard: bytes, *, committed: bool) -> None:
        """Remember how far a session is settled, now that a plan is in effect (`guard`: `Done`)."""
        if self._state is None:
            return
        at = plan.checkpoint
        if at is None or left_as is None:
            self._state.forget(self._name)
        elif self._recalled is None and not committed and left_as.size < _SMALL:
            pass
        elif at != self._recalled or committed:
            self._state.save(self._name, self._settings, left_as, guard, at)


# --- beside the session: its history, and the index of its store ---


def begin(session: Session, plan: Plan, source: TranscriptFile, actor: str, at: float) -> int:
    """Write a plan into the history before it takes effect; returns the operation's number."""
    settle(session.history, source)
    report = plan.report
    return session.history.begin(
        Act(
            report.action,
            actor,
            iso_utc(at),
            values=report.values,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            undoes=plan.undoes,
        ),
        plan.edits,
        plan.touched,
        plan.keeps,
        source,
        session.store,
        plan.noting,
    )


def settle(history: History, source: Transcript) -> None:
    """Tell what became of operations whose process ended before it could note it.

    The caller holds bsd's own lock of the session, so nobody is in the middle of one.
    """
    for operation in history.pending():
        history.settle(operation, happened=took_effect(source, history, operation))


def index(session: Session, plan: Plan, at: float) -> bool:
    """Note in the store's index what a plan keeps; whether there was room for it."""
    extracted_at = iso_utc(at)
    # A cache: the session is committed, and whoever hears of it makes the index anew.
    try:
        # All at once, those of a large session would make the peak of its memory.
        for start in range(0, len(plan.keeps) or 1, _INDEXED_AT_ONCE):
            keeps = plan.keeps[start : start + _INDEXED_AT_ONCE]
            session.store.index.add(_record(keep, extracted_at) for keep in keeps)
    except Unavailable as problem:
        _log.warning(
            "The index of a store lacks files", session=str(session), problem=problem.message
        )
        return False
    return True


def _record(keep: Keep, extracted_at: str) -> Record:
    return Record(
        entry_id=keep.entry_id,
        index=keep.index,
        file=f"{keep.ref}.json",
        hash=keep.hash,
        size=keep.size,
        keys=keep.keys,
        sizes_bytes=keep.sizes_bytes,
        extracted_at=extracted_at,
    )
