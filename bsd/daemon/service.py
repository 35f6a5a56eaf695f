"""The daemon: its parts, put together, started, asked and stopped."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bsd import __version__
from bsd.daemon import snapshot
from bsd.daemon.beats import Beats
from bsd.daemon.chores import Chores
from bsd.daemon.clock import awake, steady
from bsd.daemon.debounce import LONGEST_SECONDS, Debounce
from bsd.daemon.events import Events, Subscription
from bsd.daemon.guarantee import Mounts
from bsd.daemon.helper_watch import WatchedHelper
from bsd.daemon.indexer import Indexer
from bsd.daemon.instance import SingleInstance
from bsd.daemon.intake import Intake
from bsd.daemon.ledger import Ledger
from bsd.daemon.loop import Loop
from bsd.daemon.memory import add_memory_job
from bsd.daemon.notify import Notifier, Watchdog, watchdog_seconds
from bsd.daemon.queue import WorkQueue
from bsd.daemon.rest import Rests
from bsd.daemon.rounds import Rounds
from bsd.daemon.savings import Savings
from bsd.daemon.scan import Scan
from bsd.daemon.scheduler import Run
from bsd.daemon.settings_watch import SettingsWatch, follow
from bsd.daemon.timetable import RETENTION, SCAN, Actions, Timetable
from bsd.daemon.watcher import Watcher
from bsd.daemon.work import InBand, Stopping, Work
from bsd.daemon.workers import Workers
from bsd.daemon.workspaces import add_workspace_cron
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import configure_logs, get_logger
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.settings import Settings
from bsd.foundation.times import iso_utc
from bsd.store.state import StateDb
from bsd.surgeon import Patience, Surgeon
from bsd.transcript.commit import Outcome
from bsd.transcript.exchangers import Exchanger

_log = get_logger("daemon")

# Makes who carries out the calls of agents in their sessions; a door, which no floor may import.
MakeInBand = Callable[[Layout, ConfigService, Surgeon, StateDb, Callable[[], float]], InBand]

# Threads that parse would keep one that only has to note an event waiting for 5 ms each time.
_SWITCH_SECONDS = 0.0005
STOP_SECONDS = 5.0
_TIMER_STEP_SECONDS = 600.0  # the longest job: a retention of very many files


def nobody_calls(*_: object) -> InBand:
    """For a daemon that carries out no calls of agents."""
    return lambda _: False


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the daemon's parts get the time from: epoch seconds, and steady ones."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady


class Daemon:
    """One daemon for one root; see `status.Service` for what doors may ask it.

    `start` comes before `ready`, `stop` may come at any time, from any thread, and once.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reload_settings: Callable[[], Settings] | None = None,
        clocks: Clocks | None = None,
        in_band: MakeInBand = nobody_calls,
    ) -> None:
        self.settings = settings
        self._make_in_band = in_band
        self.layout = Layout(settings.root)
        self.config = ConfigService(self.layout.config_file, create=not settings.readonly)
        self._reload_settings = reload_settings or (lambda: settings)
        self._clocks = clocks or Clocks()
        self._state = "starting"
        self._started_at = self._clocks.wall()
        self._instance = SingleInstance(self.layout)
        self._stopping = threading.Event()
        self._beats = Beats()
        self._events = Events(self._clocks.wall)
        self._ledger = Ledger()
        self._notifier = Notifier()
        self._mounts = Mounts()
        self._next_retention = snapshot.NextRetention(self.layout, self._clocks.wall)
        self._told_status = ""
        self._looked = False
        self._compose()

    def _compose(self) -> None:
        settings, layout, wall = self.settings, self.layout, self._clocks.wall
        self._helper = WatchedHelper(lambda: self._ledger.count("helpers_replaced"))
        state = StateDb(layout.state_db)
        self._rests = Rests(state, self.config)
        self._surgeon = self._make_surgeon("daemon", state)
        self._queue = WorkQueue(workers=settings.workers, clock=self._clocks.steady)
        self._scan = Scan(layout)
        self._savings = Savings()
        quiet = settings.debounce_seconds
        self._intake = Intake(
            self._queue,
            self._scan,
            Debounce(quiet, max(quiet, LONGEST_SECONDS)),
            quiet=settings.quiet_seconds,
            wake=self._wake_debounce,
            clock=self._clocks.steady,
        )
        self._rounds = Rounds(
            layout,
            self.config,
            self._intake,
            self._scan,
            self._savings,
            clock=wall,
            steady=self._clocks.steady,
        )
        self._indexer = Indexer(
            layout,
            busy=self._is_work_waiting,
            stopping=self._stopping.is_set,
            wake=self._wake_indexer,
            clock=self._clocks.steady,
        )
        self._workers = Workers(
            settings.workers,
            self._queue,
            Work(
                layout,
                self.config,
                self._surgeon,
                intake=self._intake,
                scan=self._scan,
                savings=self._savings,
                ledger=self._ledger,
                events=self._events,
                rests=self._rests,
                worked=self._worked,
                in_band=self._make_in_band(
                    layout, self.config, self._make_surgeon("agent"), state, wall
                ),
                clock=wall,
                steady=self._clocks.steady,
            ),
            self._beats,
            self._ledger,
        )
        self._chores = Chores(
            layout,
            self.config,
            self._surgeon,
            scan=self._scan,
            intake=self._intake,
            savings=self._savings,
            ledger=self._ledger,
            mounts=self._mounts,
            rests=self._rests,
            stopping=self._stopping.is_set,
            gone=self._indexer.changed,
            clock=wall,
            steady=self._clocks.steady,
        )
        self._watcher = Watcher(layout, self, scan_only=self._mounts.scan_only)

    def _make_surgeon(self, actor: str, state: StateDb | None = None) -> Surgeon:
        return Surgeon(
            self.layout,
            self.config,
            actor=actor,
            patience=Patience(
                wait=0.0,
                quiet=self.settings.quiet_seconds,
                clock=self._clocks.wall,
                check=self.stop_here,
            ),
            exchanger=self._helper,
            noticed=self.attempted,
            state=state,
        )

    # --- life ---

    def start(self) -> None:
        """Become the daemon of this root; raises TemporaryFailure if there is one, ConfigError."""
        self._instance.acquire()
        configure_logs(self.layout, self.settings.log_level, self.settings.log_format)
        _log.info("bsd starts", version=__version__, root=str(self.layout.root), pid=os.getpid())
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._timetable = Timetable(
            self.config,
            Actions(
                self._look_around,
                self._rounds.run,
                self._clean_up,
                self._chores.recover,
                self._indexer.everything,
            ),
            wake=self._wake_timer,
            ended=self._job_ended,
            changed=self._settings_changed,
            extraction_changed=self._rounds.everything,
            clock=self._clocks.wall,
        )
        self._make_loops()
        self._timetable.start(readonly=self.settings.readonly)
        add_workspace_cron(
            self._timetable,
            self.settings,
            stopping=self._stopping.is_set,
            clock=self._clocks.wall,
        )
        add_memory_job(
            self._timetable,
            self.layout,
            self.settings,
            stopping=self._stopping.is_set,
            clock=self._clocks.wall,
        )
        if not self.settings.readonly:
            self._chores.explain_retention()
            if self._chores.begin():
                self._timetable.in_flight()
            self._helper.start()
            self._chores.resume()
        self._watcher.step(self._clocks.steady())
        self._settings_watch.start()
        self._looked = True
        self._timetable.run(SCAN)
        self._indexer.everything()
        for loop in self._loops:
            loop.start()
        if not self.settings.readonly:
            self._workers.start()

    def ready(self) -> None:
        """Say that everything stands, the doors included."""
        # What was imported stays: looking through it costs each full collection tens of ms.
        gc.freeze()
        self._state = "running"
        self._told_status = self._in_short()
        self._notifier.ready(self._told_status)
        self._events.publish("state", state=self._state)
        _log.info("bsd is ready", watching=self._told_status)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Finish the commits that have begun and end all threads; whether they ended in time."""
        deadline = time.monotonic() + seconds
        self._state = "stopping"
        self._stopping.set()
        self._notifier.stopping("finishing what has begun")
        _log.info("bsd stops")
        self._workers.stop()
        loops = getattr(self, "_loops", ())
        for loop in loops:
            loop.stop()
        ended = self._workers.join(deadline)
        self._rests.flush()
        for loop in loops:
            if loop.alive:
                ended &= loop.join(max(0.0, deadline - time.monotonic()))
        self._events.close()
        if ended:
            self._watcher.close()
            if loops:
                self._settings_watch.close()
            self._helper.close()
            self._instance.release()
        _log.info("bsd has stopped" if ended else "bsd could not finish in time")
        return ended

    def reload(self) -> None:
        """Read settings and config anew, and open the log anew (SIGHUP)."""
        self._notifier.reloading()
        try:
            self.settings = follow(self.settings, self._reload_settings())
        except BsdError as problem:
            _log.error("The settings cannot be used, those before stay", problem=problem.message)
        configure_logs(self.layout, self.settings.log_level, self.settings.log_format)
        self._timetable.look_at_settings()
        self._notifier.ready(self._in_short())
        _log.info("Settings were read again")

    def dump(self) -> None:
        """Write status and all stacks to the log (SIGUSR1)."""
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read().decode("utf-8", "replace")
        _log.info("Status and stacks", status=self.status(), health=self.health(), stacks=stacks)

    # --- what the doors ask (status.Service) ---

    def health(self) -> dict[str, Any]:
        late = self._beats.late(awake())
        problems = [str(p) for p in self._watcher.health.problems if snapshot.is_trouble(p)]
        problems += [str(p) for p in self._scan.problems if snapshot.is_trouble(p)]
        if self.config.problem:
            problems.append(self.config.problem.message)
        well = "degraded" if late or problems else "ok"
        return {
            "status": well if self._state == "running" else self._state,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_seconds": round(self._clocks.wall() - self._started_at, 3),
            "late": late,
            "problems": list(dict.fromkeys(problems)),
        }

    def status(self) -> dict[str, Any]:
        config, problem = self.config.current, self.config.problem
        return {
            "state": self._state,
            "pid": os.getpid(),
            "version": __version__,
            "root": str(self.layout.root),
            "started_at": iso_utc(self._started_at),
            "uptime_seconds": round(self._clocks.wall() - self._started_at, 3),
            "enabled": config.enabled,
            "readonly": self.settings.readonly,
            "auto_refresh_ms": self.settings.auto_refresh_ms,
            "roots": self._mounts.snapshot(),
            "watcher": snapshot.watcher(self._watcher.health, self._scan.problems),
            "queue": snapshot.queue(self._queue, len(self._intake), len(self._savings)),
            "workers": self._workers.snapshot(),
            "totals": {"sessions": len(self._scan), **self._totals()},
            "left_alone": self._ledger.left_alone(),
            "sessions": self._ledger.sessions(),
            "orphans": snapshot.orphans(self.layout),
            "search": self._indexer.state(),
            "config": {
                "path": str(self.layout.config_file),
                "problem": problem.message if problem else None,
            },
            "retention": self._next_retention.snapshot(
                config.retention, config.trash_retention, self._timetable.next_run(RETENTION)
            ),
        }

    def jobs(self) -> list[dict[str, Any]]:
        return self._timetable.jobs()

    def run_job(self, name: str) -> dict[str, Any]:
        self._timetable.run(name)
        return next(job for job in self.jobs() if job["name"] == name)

    def cleaned(self) -> None:
        self._next_retention.forget()

    def search_state(self) -> dict[str, Any]:
        return self._indexer.state()

    @property
    def exchanger(self) -> Exchanger:
        """Who makes commits here, those of the doors included."""
        return self._helper

    def subscribe(self) -> Subscription:
        return self._events.subscribe()

    def beat(self, loop: str, within: float = 60.0) -> None:
        self._beats.beat(loop, awake(), within)

    def end_beat(self, loop: str) -> None:
        self._beats.end(loop)

    def config_changed(self) -> None:
        """Follow a change of the settings at once."""
        self._timetable.look_at_settings()

    # --- what the watcher tells (watcher.Told) ---

    def hint(self, name: SessionName) -> None:
        self._intake.hint(name)
        if self.settings.readonly:  # no worker will tell
            self._indexer.changed(name)

    def rescan(self, why: str) -> None:
        if not self._looked:
            return  # the first scan is still to come
        _log.debug("A scan was asked for", why=why)
        self._timetable.ask(SCAN)

    def attention(self) -> None:
        self._watcher_loop.wake()

    # --- the jobs ---

    def _look_around(self) -> None:
        self._chores.look_around()
        if self.settings.readonly:
            self._indexer.everything()
        if not self.settings.readonly and self._chores.is_something_in_flight():
            self._timetable.in_flight()
        if self._state == "running" and (short := self._in_short()) != self._told_status:
            self._told_status = short
            self._notifier.status(short)

    def _clean_up(self) -> None:
        self._chores.clean_up()
        self.cleaned()

    # --- what the parts tell ---

    def stop_here(self) -> None:
        """End here, where nothing is half done, if the daemon stops; doors ask this, too."""
        if self._stopping.is_set():
            raise Stopping

    def attempted(self, name: SessionName, outcome: Outcome) -> None:
        """Note how an attempt to commit ended, ours or that of a door."""
        self._ledger.attempted(name, outcome)
        if outcome.in_flight is not None:
            self._timetable.in_flight()

    def _worked(self, name: SessionName) -> None:
        self._rounds.worked(name)
        self._indexer.changed(name)

    def _is_work_waiting(self) -> bool:
        counts = self._queue.counts()
        return bool(counts.ready or counts.working) and not self.settings.readonly

    def _job_ended(self, run: Run) -> None:
        self._events.publish(
            "job", name=run.job, started=iso_utc(run.started), ok=not run.error, error=run.error
        )

    def _settings_changed(self, fields: list[str]) -> None:
        self._next_retention.forget()
        self._events.publish("config", fields=fields)

    # --- small parts ---

    def _wake_debounce(self) -> None:
        self._debounce_loop.wake()

    def _wake_timer(self) -> None:
        self._timer_loop.wake()

    def _wake_indexer(self) -> None:
        self._indexer_loop.wake()

    def _make_loops(self) -> None:
        beats, clock = self._beats, self._clocks.steady
        self._debounce_loop = Loop("debounce", self._intake.step, beats, clock=clock)
        self._watcher_loop = Loop("watcher", self._watcher.step, beats, clock=clock)
        self._timer_loop = Loop(
            "timer",
            self._timetable.step,
            beats,
            clock=self._clocks.wall,
            work_seconds=_TIMER_STEP_SECONDS,
        )
        self._indexer_loop = Loop(
            "indexer", self._indexer.step, beats, clock=clock, work_seconds=_TIMER_STEP_SECONDS
        )
        self._settings_watch = SettingsWatch(
            self.layout.config_file, self._timetable.look_at_settings
        )
        self._loops = [
            self._debounce_loop,
            self._watcher_loop,
            self._timer_loop,
            self._indexer_loop,
        ]
        if self._notifier.listening and (every := watchdog_seconds()):
            dog = Watchdog(self._notifier, beats, every, self._say_who_is_late)
            self._loops.append(Loop("watchdog", dog.step, beats, clock=awake))

    def _say_who_is_late(self, late: list[str]) -> None:
        _log.error("Not answering; the service manager is told nothing more", loops=late)

    def _totals(self) -> dict[str, Any]:
        totals = self._ledger.totals()
        totals["crashes"] += sum(loop.crashes for loop in self._loops)
        return totals

    def _in_short(self) -> str:
        health, counts = self._watcher.health, self._queue.counts()
        return (
            f"{len(self._scan)} sessions, {health.watched} of {health.dirs} directories watched, "
            f"{counts.parked} sessions parked"
        )
