"""The parts of one daemon, and how they are put together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bsd.daemon.beats import Beats
from bsd.daemon.chores import Chores
from bsd.daemon.clock import Clocks
from bsd.daemon.debounce import LONGEST_SECONDS, Debounce
from bsd.daemon.events import Events
from bsd.daemon.guarantee import Mounts
from bsd.daemon.helper_watch import WatchedHelper
from bsd.daemon.indexer import Indexer
from bsd.daemon.intake import Intake
from bsd.daemon.ledger import Ledger
from bsd.daemon.queue import WorkQueue
from bsd.daemon.rest import Rests
from bsd.daemon.rounds import Rounds
from bsd.daemon.savings import Savings
from bsd.daemon.scan import Scan
from bsd.daemon.watcher import Told, Watcher
from bsd.daemon.work import InBand, Work
from bsd.daemon.workers import Workers
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.settings import Settings
from bsd.session.commit.inflight import InFlight
from bsd.session.commit.protocol import Outcome
from bsd.session.rest import Patience
from bsd.session.surgeon import Surgeon
from bsd.store.state import StateDb, state_at

# Makes who carries out the calls of agents in their sessions; a door, which no floor may import.
MakeInBand = Callable[[Layout, ConfigService, Surgeon, StateDb, Callable[[], float]], InBand]


def nobody_calls(*_: object) -> InBand:
    """For a daemon that carries out no calls of agents."""
    return lambda _: False


class Whole(Told, Protocol):
    """What the parts tell the daemon as a whole, and what it must be woken for."""

    def stop_here(self) -> None:
        """End here, where nothing is half done, if the daemon stops."""
        ...

    def attempted(self, name: SessionName, outcome: Outcome) -> None:
        """Hear how an attempt to commit ended."""
        ...

    def wake(self, loop: str) -> None:
        """Let the next step of a loop come now."""
        ...


@dataclass(frozen=True, slots=True)
class Ground:
    """What the daemon stands on; it stays while it runs."""

    settings: Settings
    layout: Layout
    config: ConfigService
    clocks: Clocks


class Parts:
    """Put together, not started; `in_band` as `MakeInBand` says."""

    def __init__(self, ground: Ground, whole: Whole, in_band: MakeInBand) -> None:
        self._ground = ground
        self._whole = whole
        self.stopping = threading.Event()
        self.beats = Beats()
        self.events = Events(ground.clocks.wall)
        self.ledger = Ledger()
        self.mounts = Mounts(self._can_exchange())
        self.helper = WatchedHelper(lambda: self.ledger.count("helpers_replaced"))
        state = state_at(ground.layout.state_db)
        self.rests = Rests(state, ground.config)
        self.surgeon = self._make_surgeon("daemon", state)
        self._notice()
        self.workers = self._make_workers(
            in_band(
                ground.layout,
                ground.config,
                self._make_surgeon("agent"),
                state,
                ground.clocks.wall,
            )
        )
        self.chores = self._make_chores()

    def _can_exchange(self) -> Callable[[Path], bool | None]:
        """What tells of a mount whether names can be exchanged there."""
        inflight, make = InFlight(self._ground.layout), not self._ground.settings.readonly
        return lambda sessions: inflight.can_exchange(sessions, make=make)

    def _make_surgeon(self, actor: str, state: StateDb | None = None) -> Surgeon:
        ground, whole = self._ground, self._whole
        return Surgeon(
            ground.layout,
            ground.config,
            actor=actor,
            patience=Patience(
                wait=0.0,
                quiet=ground.settings.quiet_seconds,
                clock=ground.clocks.wall,
                check=whole.stop_here,
            ),
            exchanger=self.helper,
            noticed=whole.attempted,
            state=state,
        )

    def _notice(self) -> None:
        """Make who notices that there is something to do, and who keeps it."""
        settings, layout = self._ground.settings, self._ground.layout
        clocks, wake = self._ground.clocks, self._whole.wake
        quiet = settings.debounce_seconds
        self.queue = WorkQueue(workers=settings.workers, clock=clocks.steady)
        self.scan = Scan(layout)
        self.savings = Savings()
        self.intake = Intake(
            self.queue,
            self.scan,
            Debounce(quiet, max(quiet, LONGEST_SECONDS)),
            quiet=settings.quiet_seconds,
            wake=lambda: wake("debounce"),
            clock=clocks.steady,
        )
        self.rounds = Rounds(
            layout,
            self._ground.config,
            self.intake,
            self.scan,
            self.savings,
            clock=clocks.wall,
            steady=clocks.steady,
        )
        self.indexer = Indexer(
            layout,
            busy=self._is_work_waiting,
            stopping=self.stopping.is_set,
            wake=lambda: wake("indexer"),
            clock=clocks.steady,
        )
        self.watcher = Watcher(layout, self._whole, scan_only=self.mounts.scan_only)

    def _make_workers(self, in_band: InBand) -> Workers:
        ground = self._ground
        work = Work(
            ground.layout,
            ground.config,
            self.surgeon,
            intake=self.intake,
            scan=self.scan,
            savings=self.savings,
            ledger=self.ledger,
            events=self.events,
            rests=self.rests,
            worked=self._worked,
            in_band=in_band,
            clock=ground.clocks.wall,
            steady=ground.clocks.steady,
        )
        return Workers(ground.settings.workers, self.queue, work, self.beats, self.ledger)

    def _make_chores(self) -> Chores:
        ground = self._ground
        return Chores(
            ground.layout,
            ground.config,
            self.surgeon,
            scan=self.scan,
            intake=self.intake,
            savings=self.savings,
            ledger=self.ledger,
            mounts=self.mounts,
            rests=self.rests,
            stopping=self.stopping.is_set,
            readonly=ground.settings.readonly,
            gone=self.indexer.changed,
            clock=ground.clocks.wall,
            steady=ground.clocks.steady,
        )

    # --- what they tell each other ---

    def _worked(self, name: SessionName) -> None:
        self.rounds.worked(name)
        self.indexer.changed(name)

    def _is_work_waiting(self) -> bool:
        counts = self.queue.counts()
        return bool(counts.ready or counts.working) and not self._ground.settings.readonly
