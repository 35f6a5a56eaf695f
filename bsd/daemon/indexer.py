"""Keeps the search index up to date: what changed, slice by slice, while nobody has work to do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bsd.care.indexing import Due, due_as_it_is, find_due, read_slice
from bsd.daemon.state import DaemonState
from bsd.foundation.errors import BsdError, Busy, NotFound, Unavailable
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger
from bsd.store.search import SearchIndex, use

_log = get_logger("search")

# After a change: a session that is written to all the time is read now and then, not each time.
_GATHER_SECONDS = 2.0
# At a start, others have more important things to read.
_FIRST_SECONDS = 3.0
# A step ends after so long, and whoever else wants the index or the processor has as long again.
_STEP_SECONDS = 0.1
_STEP_BYTES = 256 * 1024
_AT_ONCE = 64  # sessions, most of which are small
# While sessions are worked on, it waits; but not for ever.
_COURTESY_SECONDS = 0.25
_LONGEST_COURTESY_SECONDS = 5.0
_AFTER_TROUBLE_SECONDS = 60.0
_LOCK_SECONDS = 1.0  # that another bsd may have the index: it can wait
_LEAST_FREE = 0.02  # of the disk


@dataclass(slots=True, eq=False)
class _Wanted:
    """A session that is to be read; a change while it is read makes another one of it."""

    due: Due | None = None  # None: it is to be looked at first


def _due(one: tuple[SessionName, _Wanted]) -> Due:
    name, wanted = one
    return wanted.due or Due(name)


class Indexer:
    """A loop's `step`, and what others tell it, from any thread."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._layout = state.layout
        self._clock = state.clocks.steady
        self._lock = threading.Lock()
        self._all = False  # is to be looked at
        self._complete = False  # everything was, since the start
        # Ordered, as a dict would look at all that were taken from its front, each time.
        self._waiting: OrderedDict[SessionName, _Wanted] = OrderedDict()
        self._not_before = self._clock() + _FIRST_SECONDS
        self._busy_since: float | None = None
        self._problem: str | None = None
        self._dropped = False  # something that is still in the files

    def changed(self, name: SessionName) -> None:
        """A session may not be as it was, or may be gone."""
        with self._lock:
            hurry = not self._waiting and not self._all
            self._waiting[name] = _Wanted()
            if hurry:
                self._not_before = max(self._not_before, self._clock() + _GATHER_SECONDS)
        if hurry:
            self._state.wake("indexer")

    def everything(self) -> None:
        """Look at all sessions."""
        with self._lock:
            self._all = True
        self._state.wake("indexer")

    def state(self) -> dict[str, Any]:
        """{complete, waiting, problem}: whether all sessions were read; how many are to be."""
        with self._lock:
            return {
                "complete": self._complete and not self._waiting,
                "waiting": len(self._waiting),
                "problem": self._problem,
            }

    def step(self, now: float) -> float | None:
        """Read for a moment; returns when to come again (None: when something changes)."""
        with self._lock:
            if not self._waiting and not self._all:
                return None
            if now < self._not_before:
                return self._not_before
        if self._is_courteous(now):
            return now + _COURTESY_SECONDS
        try:
            self._check_room()
            use(self._layout.search_db, self._read, wait=_LOCK_SECONDS)
        except Busy:
            return self._clock() + _GATHER_SECONDS
        except BsdError as problem:
            return self._trouble(problem)
        with self._lock:
            self._problem = None
            more = bool(self._waiting or self._all)
        return self._clock() + _STEP_SECONDS if more else None

    def _check_room(self) -> None:
        """Leave the last of the disk to those who cannot do without; raises Unavailable."""
        disk = os.statvfs(self._layout.root)
        if disk.f_bavail < disk.f_blocks * _LEAST_FREE:
            raise Unavailable("the disk is nearly full")

    def _is_courteous(self, now: float) -> bool:
        """Whether to wait for those who work on sessions."""
        if not self._state.is_work_waiting:
            self._busy_since = None
            return False
        if self._busy_since is None:
            self._busy_since = now
        if now - self._busy_since < _LONGEST_COURTESY_SECONDS:
            return True
        self._busy_since = now
        return False

    def _trouble(self, problem: BsdError) -> float:
        with self._lock:
            new, self._problem = self._problem != problem.message, problem.message
            self._not_before = self._clock() + _AFTER_TROUBLE_SECONDS
        if new:
            _log.warning("The search index cannot be kept", problem=problem.message)
        return self._not_before

    # --- with the index open ---

    def _read(self, index: SearchIndex) -> None:
        self._look_at_all(index)
        end = time.monotonic() + _STEP_SECONDS
        while time.monotonic() < end and not self._state.stopping.is_set():
            with self._lock:
                some = list(islice(self._waiting.items(), _AT_ONCE))
            if not some:
                self._scrub(index)
                return
            for name, wanted in some:
                wanted.due = wanted.due or due_as_it_is(self._layout, name)
            for (name, wanted), more in self._slices(index, some, end):
                with self._lock:
                    if self._waiting[name] is wanted:
                        del self._waiting[name]
                        if more:  # behind the others: a huge one shall not keep them waiting
                            self._waiting[name] = wanted

    def _look_at_all(self, index: SearchIndex) -> None:
        with self._lock:
            # Somebody may have removed the index, or it was damaged and is made anew.
            wanted = self._all or (self._complete and index.is_empty())
        if not wanted:
            return
        due, gone = find_due(self._layout, index)
        if gone:
            with index.change():
                self._dropped |= sum(map(index.forget, gone)) > 0
        with self._lock:
            found = OrderedDict((each.name, _Wanted(each)) for each in due)
            self._waiting = found | self._waiting
            self._all, self._complete = False, True

    def _slices(
        self, index: SearchIndex, some: list[tuple[SessionName, _Wanted]], end: float
    ) -> list[tuple[tuple[SessionName, _Wanted], bool]]:
        """Read on in some sessions, until `end`; in which, and whether there is more.

        All at once: each transaction makes a piece of the index that is merged again and again.
        But what cannot be read shall take nothing else with it.
        """
        done = []
        try:
            with index.change():
                for one in some:
                    done.append((one, read_slice(self._layout, index, _due(one), _STEP_BYTES)))
                    if time.monotonic() >= end or self._state.stopping.is_set():
                        break
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - told of by `_slice`, once it is known of which session
            tried = some[: len(done) + 1]
            return [(one, self._slice(index, _due(one))) for one in tried]
        return done

    def _slice(self, index: SearchIndex, due: Due) -> bool:
        """Read on in one session; whether there is more."""
        try:
            with index.change():
                return read_slice(self._layout, index, due, _STEP_BYTES)
        except NotFound:
            with index.change():
                self._dropped |= index.forget(str(due.name)) > 0
        except Busy:  # it was shortened meanwhile: somebody will tell of that
            return False
        except BsdError as problem:
            _log.warning(
                "A session cannot be searched", session=str(due.name), problem=problem.message
            )
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - whatever stands in one session, the others go on
            _log.exception("A session cannot be searched", session=str(due.name))
        return False

    def _scrub(self, index: SearchIndex) -> None:
        if self._dropped:
            index.scrub(self._state.stopping.is_set)
            self._dropped = False
