"""The daemon: started, asked and stopped; its parts are put together in `parts`."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bsd import __version__
from bsd.agents.owners import layout_of
from bsd.daemon.clock import Clocks, awake
from bsd.daemon.events import Subscription
from bsd.daemon.instance import SingleInstance
from bsd.daemon.loops import Loops
from bsd.daemon.memory import add_memory_job
from bsd.daemon.notify import Notifier
from bsd.daemon.parts import Ground, MakeInBand, Parts, nobody_calls
from bsd.daemon.report import DaemonReport, Life
from bsd.daemon.scheduler import Run
from bsd.daemon.settings_watch import follow
from bsd.daemon.timetable import RETENTION, SCAN, Actions, Timetable
from bsd.daemon.work import Stopping
from bsd.daemon.workspaces import add_workspace_cron
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import configure_logs, get_logger, traced
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.settings import Settings
from bsd.foundation.spelling import iso_utc
from bsd.session.commit.exchangers import Exchanger
from bsd.session.commit.protocol import Outcome

_log = get_logger("daemon")

# Threads that parse would keep one that only has to note an event waiting for 5 ms each time.
_SWITCH_SECONDS = 0.0005
STOP_SECONDS = 5.0


@traced(_log, but=("beat", "end_beat", "wake"))
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
        self.layout = layout_of(settings.root, settings.sources)
        self.config = ConfigService(self.layout.config_file, create=not settings.readonly)
        self._clocks = clocks or Clocks()
        self._life = Life(settings, self._clocks.wall())
        self._reload_settings = reload_settings or (lambda: settings)
        self._instance = SingleInstance(self.layout)
        self._notifier = Notifier()
        ground = Ground(settings, self.layout, self.config, self._clocks)
        self._parts = Parts(ground, self, in_band)
        self._timetable = Timetable(
            self.config,
            Actions(
                self._look_around,
                self._parts.rounds.run,
                self._clean_up,
                self._parts.chores.recover,
                self._parts.indexer.everything,
            ),
            wake=lambda: self.wake("timer"),
            ended=self._job_ended,
            changed=self._settings_changed,
            extraction_changed=self._parts.rounds.everything,
            clock=self._clocks.wall,
        )
        self._loops = Loops(self._parts, self._timetable, self.layout, self._clocks, self._notifier)
        self._report = DaemonReport(
            self._life,
            ground,
            self._parts,
            next_retention=lambda: self._timetable.next_run(RETENTION),
            crashes=lambda: self._loops.crashes,
        )
        self._told_status = ""
        self._looked = False

    # --- life ---

    def start(self) -> None:
        """Become the daemon of this root; raises TemporaryFailure if there is one, ConfigError."""
        settings, parts = self._life.settings, self._parts
        self._instance.acquire()
        configure_logs(self.layout, settings.log_level, settings.log_format)
        _log.info("bsd starts", version=__version__, root=str(self.layout.root), pid=os.getpid())
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._timetable.start(readonly=settings.readonly)
        self._add_jobs(settings)
        if not settings.readonly:
            parts.chores.explain_retention()
            parts.chores.claim_sources()
            if parts.chores.recover():
                self._timetable.in_flight()
            parts.helper.start()
            parts.chores.resume()
        parts.watcher.step(self._clocks.steady())
        self._loops.watch_settings()
        self._looked = True
        self._timetable.run(SCAN)
        parts.indexer.everything()
        self._loops.start()
        if not settings.readonly:
            parts.workers.start()

    def ready(self) -> None:
        """Say that everything stands, the doors included."""
        # What was imported stays: looking through it costs each full collection tens of ms.
        gc.freeze()
        self._life.state = "running"
        self._told_status = self._report.in_short()
        self._notifier.ready(self._told_status)
        self._parts.events.publish("state", state=self._life.state)
        _log.info("bsd is ready", watching=self._told_status)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Finish the commits that have begun and end all threads; whether they ended in time."""
        deadline = time.monotonic() + seconds
        parts = self._parts
        self._life.state = "stopping"
        parts.stopping.set()
        self._notifier.stopping("finishing what has begun")
        _log.info("bsd stops")
        parts.workers.stop()
        self._loops.stop()
        ended = parts.workers.join(deadline)
        parts.rests.flush()
        ended &= self._loops.join(deadline)
        parts.events.close()
        if ended:
            parts.watcher.close()
            self._loops.close()
            parts.helper.close()
            self._instance.release()
        _log.info("bsd has stopped" if ended else "bsd could not finish in time")
        return ended

    def reload(self) -> None:
        """Read settings and config anew, and open the log anew (SIGHUP)."""
        self._notifier.reloading()
        try:
            self._life.settings = follow(self._life.settings, self._reload_settings())
        except BsdError as problem:
            _log.error("The settings cannot be used, those before stay", problem=problem.message)
        settings = self._life.settings
        configure_logs(self.layout, settings.log_level, settings.log_format)
        self._timetable.look_at_settings()
        self._notifier.ready(self._report.in_short())
        _log.info("Settings were read again")

    def dump(self) -> None:
        """Write status and all stacks to the log (SIGUSR1)."""
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read().decode("utf-8", "replace")
        _log.info("Status and stacks", status=self.status(), health=self.health(), stacks=stacks)

    def _add_jobs(self, settings: Settings) -> None:
        stopping, clocks = self._parts.stopping.is_set, self._clocks
        how = {"clock": clocks.wall, "steady": clocks.steady}
        add_workspace_cron(self._timetable, settings, stopping=stopping, **how)
        add_memory_job(self._timetable, self.layout, settings, stopping=stopping, **how)

    # --- what the doors ask (status.Service) ---

    def health(self) -> dict[str, Any]:
        return self._report.health()

    def status(self) -> dict[str, Any]:
        return self._report.status()

    def status_json(self) -> bytes:
        return self._report.status_json()

    def jobs(self) -> list[dict[str, Any]]:
        return self._timetable.jobs()

    def run_job(self, name: str) -> dict[str, Any]:
        self._timetable.run(name)
        return next(job for job in self.jobs() if job["name"] == name)

    def cleaned(self) -> None:
        self._report.forget_retention()

    def search_state(self) -> dict[str, Any]:
        return self._parts.indexer.state()

    @property
    def exchanger(self) -> Exchanger:
        """Who makes commits here, those of the doors included."""
        return self._parts.helper

    def subscribe(self, wake: Callable[[], None] = lambda: None) -> Subscription:
        return self._parts.events.subscribe(wake)

    def beat(self, loop: str, within: float = 60.0) -> None:
        self._parts.beats.beat(loop, awake(), within)

    def end_beat(self, loop: str) -> None:
        self._parts.beats.end(loop)

    def config_changed(self) -> None:
        """Follow a change of the settings at once."""
        self._timetable.look_at_settings()

    # --- what the watcher tells (watcher.Told) ---

    def hint(self, name: SessionName) -> None:
        self._parts.intake.hint(name)
        if self._life.settings.readonly:  # no worker will tell
            self._parts.indexer.changed(name)

    def rescan(self, why: str) -> None:
        if not self._looked:
            return  # the first scan is still to come
        _log.debug("A scan was asked for", why=why)
        self._timetable.ask(SCAN)

    def attention(self) -> None:
        self.wake("watcher")

    # --- what the parts tell (parts.Whole), and doors too ---

    def stop_here(self) -> None:
        """End here, where nothing is half done, if the daemon stops."""
        if self._parts.stopping.is_set():
            raise Stopping

    def attempted(self, name: SessionName, outcome: Outcome) -> None:
        """Note how an attempt to commit ended, ours or that of a door."""
        self._parts.ledger.attempted(name, outcome)
        if not outcome.indexed:
            self._parts.chores.fell_behind(name)
        if outcome.in_flight is not None:
            self._parts.chores.committed(outcome.in_flight)
        if outcome.in_flight is not None or not outcome.indexed:
            self._timetable.in_flight()

    def wake(self, loop: str) -> None:
        """Let the next step of a loop come now."""
        self._loops[loop].wake()

    # --- the jobs ---

    def _look_around(self) -> None:
        chores = self._parts.chores
        chores.look_around()
        if self._life.settings.readonly:
            self._parts.indexer.everything()
        elif chores.is_something_in_flight():
            self._timetable.in_flight()
        if (
            self._life.state == "running"
            and (short := self._report.in_short()) != self._told_status
        ):
            self._told_status = short
            self._notifier.status(short)

    def _clean_up(self) -> None:
        self._parts.chores.clean_up()
        self.cleaned()

    def _job_ended(self, run: Run) -> None:
        self._parts.events.publish(
            "job", name=run.job, started=iso_utc(run.started), ok=not run.error, error=run.error
        )

    def _settings_changed(self, fields: list[str]) -> None:
        self.cleaned()
        self._parts.events.publish("config", fields=fields)
