"""The state that the parts of a daemon share: settings, totals, idle sessions, queue and loops."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Literal

import structlog

from bsd.core.answers import as_json
from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.settings import Settings
from bsd.daemon.child import Stopping
from bsd.daemon.directories import Mounts
from bsd.daemon.enqueue import LONGEST_SECONDS, Debounce, Enqueuer
from bsd.daemon.loops import Beats, Clocks, Loop
from bsd.daemon.queue import WorkQueue
from bsd.daemon.scan import Scan
from bsd.daemon.status import Events
from bsd.daemon.unknown_forms import NotUnderstood
from bsd.planning.result import SessionResult, Status
from bsd.planning.rules import Reason
from bsd.planning.survey import fingerprint
from bsd.planning.timing import Timing
from bsd.planning.timing_members import left_figures
from bsd.planning.timing_words import rewritten
from bsd.planning.worth import LONGEST_WAIT_SECONDS
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.store.state import Left, StateDb, state_at
from bsd.transcripts.agents.programs import layout_of
from bsd.transcripts.change import Written

_log = structlog.stdlib.get_logger(module="daemon")

_MOST_SESSIONS = 500  # sessions in the status; more would make the answer too long
_TOO_LARGE = "a line of it would take too much memory; bsd processes its other lines"
_TOTALS = (
    "commits",
    "entries",
    "values",
    "bytes_saved",
    "tokens_saved",
    "tokens_rewritten",
    "bytes_written",
    "busy",
    "failed",
    "children_started",
    "children_died",
    "workers_replaced",
    "crashes",
)
# States of idle sessions to collect before they are written. Without a limit, a scan of all
# sessions would fill the memory with states until the next scan.
_MOST_COLLECTED = 1000


class Ledger:
    """A record of the work since the start: totals, and the last result of each session.

    Thread-safe. Sizes are bytes, times are epoch seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._give_ups: Counter[str] = Counter()
        self._cuts: Counter[str] = Counter()
        # A result is converted to JSON at the first request for the status and kept, because
        # requests are more frequent than new results.
        self._results: OrderedDict[SessionName, dict[str, Any] | tuple[SessionResult, float]]
        self._results = OrderedDict()
        self._left_alone: dict[SessionName, str] = {}

    def count(self, what: str) -> None:
        """Add 1 to a total."""
        with self._lock:
            self._totals[what] += 1

    def attempted(self, outcome: CommitOutcome) -> None:
        """Count an attempt to commit, whether it committed or gave up."""
        with self._lock:
            self._totals["bytes_written"] += outcome.bytes_written
            if outcome.gave_up is None:
                self._totals["commits"] += 1
            else:
                self._give_ups[str(outcome.gave_up)] += 1

    def worked(self, name: SessionName, result: SessionResult, at: float) -> None:
        """Record the result for a session."""
        with self._lock:
            self._totals["entries"] += result.entries
            self._totals["values"] += result.values
            self._totals["tokens_saved"] += result.tokens_saved
            self._totals["bytes_saved"] += result.bytes_before - result.bytes_after
            if (timing := result.timing) and not timing.waits:
                self._cuts[timing.cause] += 1
                self._totals["tokens_rewritten"] += rewritten(timing)
            self._totals["busy"] += result.status is Status.BUSY
            self._totals["failed"] += result.status is Status.FAILED
            if result.status is Status.LEFT_ALONE:
                self._left_alone[name] = result.reason or "not a session that bsd edits"
            elif Reason.TOO_LARGE_IN_MEMORY in result.reasons:
                self._left_alone[name] = _TOO_LARGE
            elif result.status is not Status.BUSY and not self._says_nothing_new(name, result):
                self._left_alone.pop(name, None)
            self._results[name] = result, at
            self._results.move_to_end(name)
            if len(self._results) > _MOST_SESSIONS:
                self._results.popitem(last=False)

    def _says_nothing_new(self, name: SessionName, result: SessionResult) -> bool:
        """Return True if the line that is too large may be among the lines that were not read."""
        return result.partial and self._left_alone.get(name) == _TOO_LARGE

    def forget(self, name: SessionName) -> None:
        """Forget the results of a deleted session."""
        with self._lock:
            self._results.pop(name, None)
            self._left_alone.pop(name, None)

    def totals(self) -> dict[str, Any]:
        """Return the totals since the start."""
        with self._lock:
            return {
                **{name: self._totals[name] for name in _TOTALS},
                "give_ups": dict(sorted(self._give_ups.items())),
                "cuts": {str(cause): number for cause, number in sorted(self._cuts.items())},
            }

    def left_alone(self) -> dict[str, Any]:
        """Return the number of sessions that bsd does not edit, and the reasons."""
        with self._lock:
            reasons = Counter(self._left_alone.values())
        return {"count": reasons.total(), "reasons": dict(reasons.most_common())}

    def sessions(self) -> list[dict[str, Any]]:
        """Return the last result of each session as JSON, the newest first."""
        with self._lock:
            for name, entry in self._results.items():
                if isinstance(entry, tuple):
                    result, at = entry
                    self._results[name] = {**as_json(result), "at": iso_utc(at)}
            results = [entry for entry in self._results.values() if isinstance(entry, dict)]
        return results[::-1]


class IdleSessions:
    """The states of idle sessions, which the next daemon uses so that it need not open them again.

    This class collects the states, and `flush` writes them, seldom and all at once. If the daemon
    is killed before, the next daemon opens these sessions again. Sessions that have changed since
    then are found by their stat.
    """

    def __init__(self, state: StateDb, config: ConfigService) -> None:
        self._state = state
        self._config = config
        self._lock = threading.Lock()
        self._new: dict[SessionName, Left | None] = {}
        self._judged_by: dict[SessionName, str] = {}  # fingerprint of the settings in use
        self._printed: tuple[PruningConfig, str] | None = None

    def known(self) -> Iterator[Left]:
        """Yield the states of idle sessions that were saved under the current settings."""
        return self._state.rests(self._fingerprint())

    def left(
        self,
        name: SessionName,
        seen: Written,
        due_at: float | None,
        wait: Timing | None = None,
    ) -> None:
        """Record that a session is idle until it changes, or until `due_at` (epoch seconds).

        `wait`: the timing of values that wait for their prompt cache.
        """
        with self._lock:
            settings = self._judged_by.pop(name, None)
            if settings is not None:
                figures = left_figures(wait) if wait else {}
                self._new[name] = Left(name, settings, seen, due_at, **figures)
            many = len(self._new) >= _MOST_COLLECTED
        if many:
            self.flush()

    def unsettled(self, *names: SessionName) -> None:
        """Record that sessions are being processed, so their saved states are no longer valid."""
        settings = self._fingerprint()
        with self._lock:
            for name in names:
                self._new[name] = None
                self._judged_by[name] = settings

    def _fingerprint(self) -> str:
        """Return the fingerprint of the current settings."""
        now = self._config.current
        if self._printed is None or self._printed[0] is not now:
            self._printed = now, fingerprint(now)
        return self._printed[1]

    def keep_only(self, is_there: Callable[[SessionName], bool]) -> None:
        """Forget deleted sessions, with all data about them in the state database."""
        if count := self._state.keep_only(is_there):
            _log.debug("Deleted sessions were forgotten", count=count)

    def flush(self) -> None:
        """Write the collected states."""
        with self._lock:
            new, self._new = self._new, {}
        if new:
            self._state.note_rests(new)


class PendingSavings:
    """The sessions that wait for larger savings, with the start of the wait, in steady seconds.

    It also keeps the last commit of each session that saved tokens and no bytes, for an hour.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[SessionName, float] = {}
        self._unpaid: dict[SessionName, float] = {}

    def __len__(self) -> int:
        """Return the number of sessions that wait for larger savings."""
        return len(self._since)

    def waited(self, name: SessionName, now: float) -> float:
        """Return for how many seconds the oldest saving of a session has waited; 0: no saving."""
        with self._lock:
            return now - self._since.get(name, now)

    def wait(self, name: SessionName, now: float) -> None:
        """Record that the saving of a session is not worth a commit yet; the first time counts."""
        with self._lock:
            self._since.setdefault(name, now)

    def __contains__(self, name: SessionName) -> bool:
        """Return whether a saving of a session waits."""
        with self._lock:
            return name in self._since

    def due(self, name: SessionName, now: float) -> float:
        """Return the first moment after `now` at which a saving that waits may be worth a commit.

        That is when it has waited long enough, or when the last commit that saved no bytes is long
        enough ago; bsd does not keep which of the two the saving needs.
        """
        with self._lock:
            since = self._since.get(name, now)
            begun = (since, self._unpaid.get(name, since))
        ends = [at + LONGEST_WAIT_SECONDS for at in begun if at + LONGEST_WAIT_SECONDS > now]
        return min(ends, default=now + LONGEST_WAIT_SECONDS)

    def note_unpaid(self, name: SessionName, now: float) -> None:
        """Record a commit that saved no bytes."""
        with self._lock:
            self._unpaid = {
                each: at for each, at in self._unpaid.items() if now - at < LONGEST_WAIT_SECONDS
            }
            self._unpaid[name] = now

    def since_unpaid(self, name: SessionName, now: float) -> float:
        """Return the seconds since the last commit that saved no bytes; infinite if none."""
        with self._lock:
            return now - self._unpaid.get(name, -inf)

    def clear(self, name: SessionName) -> None:
        """Record that no saving of a session waits any more: it was committed or deleted."""
        with self._lock:
            self._since.pop(name, None)


class DaemonState:
    """The shared state of a daemon. Only these attributes change after the daemon is created.

    Attributes:
        settings: with the changes that a running daemon can apply.
        phase: "starting", "running" or "stopping".
        loops: the threads by name; they are created last.
        page: the address of the page once the API listens on TCP.
    """

    def __init__(self, settings: Settings, clocks: Clocks | None = None) -> None:
        self.settings = settings
        self.clocks = clocks or Clocks()
        self.layout = layout_of(settings.root, settings.sources, settings.exclude)
        self.layout.refuse_planted()
        self.config = ConfigService(self.layout.config_file, create=not settings.readonly)
        self.phase: Literal["starting", "running", "stopping"] = "starting"
        self.page: str | None = None
        self.started_at = self.clocks.wall()  # epoch seconds
        self.stopping = threading.Event()
        self.loops: dict[str, Loop] = {}
        self.beats = Beats()
        self.events = Events(self.clocks.wall)
        self.ledger = Ledger()
        self.not_understood = NotUnderstood(self.layout)
        self.state_db = state_at(self.layout.state_db)
        self.idle_sessions = IdleSessions(self.state_db, self.config)
        self.savings = PendingSavings()
        # Sessions that wait for their prompt cache.
        self.waiting: dict[SessionName, Timing] = {}
        self.in_flight = InFlight(self.layout)
        self.mounts = Mounts(self._can_exchange)
        self.scan = Scan(self.layout)
        self.queue = WorkQueue(workers=settings.threads, clock=self.clocks.steady)
        quiet = settings.debounce_seconds
        self.enqueuer = Enqueuer(
            self.queue,
            self.scan,
            Debounce(quiet, max(quiet, LONGEST_SECONDS)),
            quiet=settings.quiet_seconds,
            wake=lambda: self.wake("debounce"),
            clock=self.clocks.steady,
        )

    def note_waiting(self, name: SessionName, wait: Timing | None) -> None:
        """Record that a session waits for its prompt cache; None: it does not wait."""
        if wait is None:
            self.waiting.pop(name, None)
        else:
            self.waiting[name] = wait

    def wake(self, loop: str) -> None:
        """Make the next step of a loop due now. May be called from any thread."""
        if loop in self.loops:  # before the loops exist: each one begins with a step anyway
            self.loops[loop].wake()

    def stop_here(self) -> None:
        """Raise Stopping if the daemon stops; call it where no change is incomplete."""
        if self.stopping.is_set():
            raise Stopping

    @property
    def is_work_waiting(self) -> bool:
        """True if sessions wait for a worker, or if workers have sessions."""
        counts = self.queue.counts()
        return bool(counts.ready or counts.working) and not self.settings.readonly

    def _can_exchange(self, sessions: Path) -> bool | None:
        return self.in_flight.can_exchange(sessions, make=not self.settings.readonly)
