"""What the parts of one daemon share: what it stands on, what it knows, what waits to be done."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from bsd.agents.owners import layout_of
from bsd.daemon.child import Stopping
from bsd.daemon.directories import Mounts
from bsd.daemon.events import Events
from bsd.daemon.intake import LONGEST_SECONDS, Debounce, Intake
from bsd.daemon.ledger import Ledger, PendingSavings, SessionsAtRest
from bsd.daemon.loops import Beats, Clocks, Loop
from bsd.daemon.queue import WorkQueue
from bsd.daemon.scan import Scan
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.settings import Settings
from bsd.session.commit.inflight import InFlight
from bsd.store.state import state_at


class DaemonState:
    """Made once, when the daemon is; of all that stands here only three are ever replaced.

    These are `settings`, as far as a running daemon follows them, `phase` ("starting", "running",
    "stopping") and `loops`, the threads by name, which are made last.
    """

    def __init__(self, settings: Settings, clocks: Clocks | None = None) -> None:
        self.settings = settings
        self.clocks = clocks or Clocks()
        self.layout = layout_of(settings.root, settings.sources)
        self.config = ConfigService(self.layout.config_file, create=not settings.readonly)
        self.phase: Literal["starting", "running", "stopping"] = "starting"
        self.started_at = self.clocks.wall()  # epoch seconds
        self.stopping = threading.Event()
        self.loops: dict[str, Loop] = {}
        self.beats = Beats()
        self.events = Events(self.clocks.wall)
        self.ledger = Ledger()
        self.state_db = state_at(self.layout.state_db)
        self.at_rest = SessionsAtRest(self.state_db, self.config)
        self.savings = PendingSavings()
        self.in_flight = InFlight(self.layout)
        self.mounts = Mounts(self._can_exchange)
        self.scan = Scan(self.layout)
        self.queue = WorkQueue(workers=settings.threads, clock=self.clocks.steady)
        quiet = settings.debounce_seconds
        self.intake = Intake(
            self.queue,
            self.scan,
            Debounce(quiet, max(quiet, LONGEST_SECONDS)),
            quiet=settings.quiet_seconds,
            wake=lambda: self.wake("debounce"),
            clock=self.clocks.steady,
        )

    def wake(self, loop: str) -> None:
        """Let the next step of a loop come now. From any thread."""
        if loop in self.loops:  # not while the daemon is being put together: all steps come then
            self.loops[loop].wake()

    def stop_here(self) -> None:
        """End here, where nothing is half done, if the daemon stops; raises Stopping."""
        if self.stopping.is_set():
            raise Stopping

    @property
    def is_work_waiting(self) -> bool:
        """Whether sessions wait for workers, or are at work, just now."""
        counts = self.queue.counts()
        return bool(counts.ready or counts.working) and not self.settings.readonly

    def _can_exchange(self, sessions: Path) -> bool | None:
        return self.in_flight.can_exchange(sessions, make=not self.settings.readonly)
