"""The job `recover`: finish or undo commits in flight, and repair indexes of stores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from bsd.core.errors import BsdError, Busy, NotFound, TemporaryFailure, Unavailable
from bsd.core.layout import SessionName
from bsd.daemon import child_tasks
from bsd.daemon.child import Stopping
from bsd.daemon.children import Children
from bsd.daemon.state import DaemonState
from bsd.sessions.commit.displaced import Recovered, State
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.sessions.commit.recovery import retire
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="daemon")

_FINAL = {State.FINISHED, State.ABANDONED, State.FAILED}
_QUIET = {State.WATCHED, State.BUSY}
_BAD = {State.FAILED, State.ORPHANED}


class Recovery:
    """The job is `run`; the other methods may be called from any thread."""

    def __init__(self, state: DaemonState, children: Children) -> None:
        self._state = state
        self._children = children
        self._logged: dict[Path, tuple[State, str]] = {}  # record → the state in the log
        self._known: set[Path] = set()  # records of this daemon, and records that were read
        # Records that need no action yet → the last known state of the displaced file.
        self._watched: dict[Path, Written | None] = {}
        self._behind: set[SessionName] = set()  # sessions whose store's index may lack files

    def attempted(self, name: SessionName, outcome: CommitOutcome) -> bool:
        """Record an attempt to commit; return True if it left work for this job."""
        if (record := outcome.in_flight) is not None:
            self._known.add(record)
            self._watched[record] = _displaced(record)
        if not outcome.indexed:
            self._behind.add(name)
        return outcome.in_flight is not None or not outcome.indexed

    def is_something_in_flight(self) -> bool:
        """Return True if a commit of this daemon or of another process is in flight."""
        return next(self._state.in_flight.records(), None) is not None

    def run(self) -> bool:
        """Finish or undo operations in flight; return True if more work will follow soon."""
        self._note_others()
        try:
            found = self._recover()
            self._reindex()
        except Stopping:
            return True
        except TemporaryFailure as problem:
            _log.error(
                "Commits in flight cannot be recovered yet",
                problem=problem.message,
                hint=problem.hint,
            )
            return True
        for each in found:
            if self._logged.get(each.record) != (each.state, each.detail):
                _tell(each)
        self._logged = {each.record: (each.state, each.detail) for each in found}
        return bool(self._behind or self._watched) or any(
            each.state not in _FINAL for each in found
        )

    def _recover(self) -> list[Recovered]:
        """Remove displaced files whose minute is over; have a child recover everything else."""
        state = self._state
        found = retire(state.in_flight, now_ns=lambda: int(state.clocks.wall() * 1e9))
        for record in [*self._watched]:  # a copy, because workers add records
            if not os.path.lexists(record):
                del self._watched[record]
        final = [each for each in found if each.state in _FINAL]
        is_unchanged = all(
            record in self._watched and self._watched[record] == _displaced(record)
            for record in state.in_flight.records()
        )
        if len(final) == len(found) and is_unchanged and not state.layout.has_moves():
            return final
        for each in (others := self._children.call(child_tasks.recover)):
            self._watched.pop(each.record, None)
            if each.state is State.WATCHED:
                self._watched[each.record] = _displaced(each.record)
        return [*final, *others]

    def _note_others(self) -> None:
        """Find commits of other processes, which may have been killed before they ended."""
        records = set(self._state.in_flight.records())
        known = records.intersection([*self._known])  # a copy, because workers add records
        for path in records - known:
            with suppress(OSError, BsdError):
                if (record := self._state.in_flight.read(path)) is not None:
                    self._behind.add(record.session)
                    known.add(path)
        self._known = known

    def _reindex(self) -> None:
        for name in sorted([*self._behind]):  # a copy, because workers add sessions
            try:
                if self._children.call(child_tasks.reindex, name):
                    _log.info("The index of a store was rebuilt", session=str(name))
            except Stopping:
                return
            except (Busy, TemporaryFailure):
                continue  # another process may be writing it
            except NotFound:  # the session was deleted, so its index is not needed
                pass
            except Unavailable as problem:  # the disk is full: try again at the next run
                _log.debug(
                    "An index cannot be rebuilt yet", session=str(name), problem=problem.message
                )
                continue
            except BsdError as problem:
                _log.warning(
                    "The index of a store may lack files; `bsd verify --repair` repairs it",
                    session=str(name),
                    problem=problem.message,
                )
            self._behind.discard(name)


def _tell(each: Recovered) -> None:
    if each.state in _BAD:
        _log.error("A commit in flight needs your attention", **each.as_json())
    elif each.state not in _QUIET:
        _log.info("A commit in flight was recovered", **each.as_json())


def _displaced(record: Path) -> Written | None:
    """Return the current state of a record's displaced file; None if it does not exist."""
    with suppress(OSError):
        return Written.of(record.with_suffix(".file").lstat())
    return None
