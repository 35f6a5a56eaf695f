"""Keep the search index up to date with changed sessions, while no session waits for a worker."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection
from itertools import islice
from typing import Any

import structlog

from bsd.core.errors import BsdError, Busy, Unavailable
from bsd.core.layout import SessionName
from bsd.daemon import child_tasks
from bsd.daemon.child import Stopping
from bsd.daemon.children import ChildDied, Children
from bsd.daemon.state import DaemonState
from bsd.maintenance.catalog import agent_order
from bsd.maintenance.indexing import Due
from bsd.maintenance.search import NO_INDEX
from bsd.store.search import SearchIndex, use

_log = structlog.stdlib.get_logger(module="search")

# The wait after a change: a session that is written to all the time is not read after each write.
_GATHER_SECONDS = 2.0
# The wait after the start, when other parts have more important files to read.
_FIRST_SECONDS = 3.0
# The length of a step, and of the pause after it for other users of the index and the processor.
_STEP_SECONDS = 0.1
# The maximum number of sessions in memory, and the number below which more are searched for.
_MOST_FOUND, _LEAST_WAITING = 2000, 500
_AT_ONCE = 64  # sessions that are sent to a child at once; most are small
# While workers have sessions, the next step is put off, up to the longer time in all.
_COURTESY_SECONDS = 0.25
_LONGEST_COURTESY_SECONDS = 5.0
_AFTER_TROUBLE_SECONDS = 60.0
_LOCK_SECONDS = 1.0  # time to wait while another process uses the index
_LEAST_FREE = 0.02  # share of the disk that must be free


class Indexer:
    """Has children read changed sessions into the index. `step` belongs to a loop.

    The other methods may be called from any thread.
    """

    def __init__(self, state: DaemonState, children: Children) -> None:
        self._state = state
        self._children = children
        self._layout = state.layout
        self._clock = state.clocks.steady
        self._lock = threading.Lock()
        self._all = False  # all sessions are to be compared with the index
        self._up_to: str | None = None  # the last agent that this comparison has covered
        self._looking = False  # a child compares further agents, so `_up_to` is out of date
        self._asked = 0  # number of requests for a comparison of all sessions
        self._complete = False  # all sessions were compared since the start
        self._filled = False  # the index was not empty when it was last opened
        # An OrderedDict, since a dict passes over all deleted items at its front at each access.
        # A session that changes while it is read gets another object as its value.
        self._waiting: OrderedDict[SessionName, object] = OrderedDict()
        self._not_before = self._clock() + _FIRST_SECONDS
        self._busy_since: float | None = None
        self._problem: str | None = None
        self._dropped = False  # dead words are still in the files of the index
        self._carefully = 0  # number of sessions to read one by one after a child has died

    def changed(self, name: SessionName) -> None:
        """Record that a session may have changed, or may be deleted."""
        with self._lock:
            hurry = not self._waiting and not self._all
            if self._all and not self._looking and self._is_ahead(name.agent):
                return  # the comparison of all sessions will reach it
            self._waiting[name] = object()
            if hurry:
                self._not_before = max(self._not_before, self._clock() + _GATHER_SECONDS)
        if hurry:
            self._state.wake("indexer")

    def settings_changed(self, names: Collection[str]) -> None:
        """Apply the setting `search_index` if it is among the changed settings `names`."""
        if "search_index" in names:
            self.everything()

    def everything(self) -> None:
        """Compare all sessions with the index."""
        with self._lock:
            self._all, self._up_to = True, None
            self._asked += 1
        self._state.wake("indexer")

    def state(self) -> dict[str, Any]:
        """Return the fields of `SearchState`: complete, waiting, problem."""
        with self._lock:
            has_words = self._state.config.current.search_index
            return {
                "complete": self._complete and not self._waiting,
                "waiting": len(self._waiting),
                "problem": self._problem if has_words else NO_INDEX,
            }

    def step(self, now: float) -> float | None:
        """Read for `_STEP_SECONDS`; return the time of the next step (None: after a change)."""
        with self._lock:
            if not self._waiting and not self._all:
                return None
            if now < self._not_before:
                return self._not_before
        if self._is_courteous(now):
            return now + _COURTESY_SECONDS
        try:
            self._check_room()
            empty = use(self._layout.search_db, SearchIndex.is_empty, wait=_LOCK_SECONDS)
            with self._lock:
                # The index was deleted, or it was damaged and has been created again.
                if empty and (self._filled or self._complete):
                    self._all, self._up_to = True, None
                self._filled, wanted = not empty, self._all
                few = len(self._waiting) < _LEAST_WAITING
            if wanted and few:
                self._look_at_more()
            self._read()
        except Stopping:
            return None
        except Busy:
            return self._clock() + _GATHER_SECONDS
        except BsdError as problem:
            return self._trouble(problem)
        with self._lock:
            self._problem = None
            more = bool(self._waiting or self._all)
        return self._clock() + _STEP_SECONDS if more else None

    def _check_room(self) -> None:
        """Raise Unavailable if the disk is nearly full: other programs need the space more."""
        disk = os.statvfs(self._layout.root)
        if disk.f_bavail < disk.f_blocks * _LEAST_FREE:
            raise Unavailable("the disk is nearly full")

    def _is_courteous(self, now: float) -> bool:
        """Return True if a step must wait for workers; at most `_LONGEST_COURTESY_SECONDS`."""
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
            _log.warning("The search index cannot be updated", problem=problem.message)
        return self._not_before

    def _is_ahead(self, agent: str) -> bool:
        """Return True if the comparison of all sessions has not reached this agent yet."""
        up_to = self._up_to
        return up_to is None or agent_order(self._layout, agent) > agent_order(self._layout, up_to)

    def _look_at_more(self) -> None:
        """Have a child find sessions to read, up to `_MOST_FOUND` at once."""
        with self._lock:
            self._looking, after, asked = True, self._up_to, self._asked
        due, dropped, up_to = self._children.call(
            *(child_tasks.find_unread, after, _MOST_FOUND, _LOCK_SECONDS),
            background=True,
            only_reads=True,
        )
        self._dropped |= dropped
        with self._lock:
            found = OrderedDict((each.name, object()) for each in due)
            self._waiting = found | self._waiting
            self._looking = False
            if self._asked != asked:
                return  # another comparison was requested in the meantime
            self._up_to, self._all = up_to, up_to is not None
            self._complete = not self._all

    def _read(self) -> None:
        """Have a child read for `_STEP_SECONDS`, or remove dead words if all sessions are read."""
        with self._lock:
            some = dict(islice(self._waiting.items(), 1 if self._carefully else _AT_ONCE))
        if some:
            self._read_some(some)
        with self._lock:
            if self._waiting or not self._dropped:
                return
        self._children.call(child_tasks.sweep_words, background=True)
        self._dropped = False

    def _read_some(self, some: dict[SessionName, object]) -> None:
        dues = list(map(Due, some))
        self._carefully = max(0, self._carefully - 1)
        try:
            turns = self._children.call(
                *(child_tasks.read_words, dues, _STEP_SECONDS, _LOCK_SECONDS),
                background=True,
                # A long text can take many seconds, and the database survives a killed process, so
                # a daemon that stops does not wait.
                only_reads=True,
            )
        except ChildDied:
            self._after_death(some)
            return
        for turn in turns:
            name = turn.due.name
            self._dropped |= turn.dropped
            with self._lock:
                if self._waiting.get(name) is some[name]:
                    del self._waiting[name]
                    if turn.more:  # at the end: the others must not wait for a huge session
                        self._waiting[name] = object()

    def _after_death(self, some: dict[SessionName, object]) -> None:
        """Find the session that makes its child die, and leave it out of the index."""
        if len(some) > 1:
            self._carefully = len(some)
            return
        (name,) = some
        _log.error("A session cannot be indexed: the process that reads it dies", session=str(name))
        with self._lock:
            if self._waiting.get(name) is some[name]:
                del self._waiting[name]
