"""The daemon: put together, started, asked and stopped."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from bsd import __version__
from bsd.core.errors import BsdError
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.core.logs import configure_logs
from bsd.core.settings import RELOADABLE, Settings
from bsd.daemon import tasks
from bsd.daemon.children import Children
from bsd.daemon.indexer import Indexer
from bsd.daemon.instance import Notifier, SingleInstance, Watchdog, watchdog_seconds
from bsd.daemon.jobs import AutoCron, JobRunner
from bsd.daemon.library_jobs import add_memory_job, add_workspace_cron
from bsd.daemon.loops import Clocks, Loop, awake
from bsd.daemon.report import DaemonReport
from bsd.daemon.schedule import (
    INDEX,
    KEEP,
    RECOVER,
    RETENTION,
    SCAN,
    Actions,
    JobSchedule,
    SettingsWatch,
)
from bsd.daemon.scheduler import Run
from bsd.daemon.state import DaemonState
from bsd.daemon.status import Subscription
from bsd.daemon.watcher import Watcher
from bsd.daemon.worker import Worker, Workers
from bsd.planning.result import SessionResult
from bsd.sessions.commit.protocol import CommitOutcome

_log = structlog.stdlib.get_logger(module="daemon")

# Threads that parse would keep one that only has to note an event waiting for 5 ms each time.
_SWITCH_SECONDS = 0.0005
STOP_SECONDS = 5.0
_LONG_STEP_SECONDS = 600.0  # the longest job: a retention of very many files


def follow(old: Settings, new: Settings) -> Settings:
    """Return `old` with the changes that a running daemon can follow; the log names the others."""
    changed = {key for key in Settings.model_fields if getattr(old, key) != getattr(new, key)}
    if waiting := sorted(changed - RELOADABLE):
        _log.warning("These settings take effect at the next start", keys=waiting)
    return old.model_copy(update={key: getattr(new, key) for key in changed & RELOADABLE})


class Daemon:
    """One daemon for one root; see `status.Service` for what doors may ask it.

    `start` comes before `ready`, `stop` may come at any time, from any thread, and once. `in_band`
    names who carries out the calls of agents in their sessions (`child.Setup`): a door, which no
    floor may import.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reload_settings: Callable[[], Settings] | None = None,
        clocks: Clocks | None = None,
        in_band: str | None = None,
    ) -> None:
        self.state = state = DaemonState(settings, clocks)
        self._reload_settings = reload_settings or (lambda: settings)
        self._instance = SingleInstance(state.layout)
        self._notifier = Notifier()
        self._told_status = ""
        self._looked = self._asked_to_go_on = False
        self.children = self._make_children(in_band)
        self._watcher = self._make_watcher()
        self._indexer = Indexer(state, self.children)
        self._auto_cron = AutoCron(state)
        self._jobs = JobRunner(state, self.children, gone=self._indexer.changed)
        looks = self._look_into, self._look_into_several
        self._workers = Workers(state, Worker(state, *looks, worked=self._worked))
        self._schedule = self._make_schedule()
        self._settings_watch = SettingsWatch(
            state.layout.config_file, self._schedule.look_at_settings
        )
        self._make_loops()
        self._report = DaemonReport(
            state,
            watcher=self._watcher,
            workers=self._workers,
            children=self.children,
            jobs=self._jobs,
            indexer=self._indexer,
            next_retention=lambda: self._schedule.next_run(RETENTION),
        )

    # --- how it is put together ---

    def _make_watcher(self) -> Watcher:
        return Watcher(
            self.state.layout,
            hint=self._hint,
            rescan=self._rescan,
            wake=lambda: self.state.wake("watcher"),
            scan_only=self.state.mounts.scan_only,
        )

    def _make_children(self, in_band: str | None) -> Children:
        state = self.state
        return Children(
            state.layout,
            state.config,
            quiet_seconds=state.settings.quiet_seconds,
            in_band=in_band,
            log=lambda: (state.settings.log_level, state.settings.log_format),
            heard={"attempted": self._attempted},
            count=state.ledger.count,
            wake=lambda: state.wake("children"),
            clock=state.clocks.steady,
        )

    def _make_schedule(self) -> JobSchedule:
        return JobSchedule(
            self.state.config,
            Actions(
                self._look_around,
                self._auto_cron.run,
                self._clean_up,
                self._jobs.recover,
                self._indexer.everything,
                self._keep_sessions,
            ),
            wake=lambda: self.state.wake("timer"),
            ended=self._job_ended,
            changed=self._settings_changed,
            extraction_changed=self._auto_cron.everything,
            clock=self.state.clocks.wall,
        )

    def _make_loops(self) -> None:
        """The daemon's own threads beside the workers; all of them start together."""
        state, clocks = self.state, self.state.clocks

        def add(
            name: str,
            step: Callable[[float], float | None],
            clock: Callable[[], float] = clocks.steady,
            work_seconds: float = 60.0,
        ) -> None:
            state.loops[name] = Loop(
                name, step, state.beats, clock=clock, work_seconds=work_seconds
            )

        # Beside the others: it ends when it has nothing more to do.
        self._first_copies = Loop(
            "first-copies",
            self._keep_first,
            state.beats,
            clock=clocks.steady,
            work_seconds=_LONG_STEP_SECONDS,
        )
        add("debounce", state.enqueuer.step)
        add("watcher", self._watcher.step)
        add("timer", self._schedule.step, clocks.wall, _LONG_STEP_SECONDS)
        add("indexer", self._indexer.step, work_seconds=_LONG_STEP_SECONDS)
        add("children", self.children.step)
        if self._notifier.listening and (every := watchdog_seconds()):
            dog = Watchdog(self._notifier, state.beats, every, _say_who_is_late)
            add("watchdog", dog.step, awake)

    # --- life ---

    def start(self) -> None:
        """Become the daemon of this root; raises TemporaryFailure if there is one, ConfigError."""
        state, settings = self.state, self.state.settings
        self._instance.acquire()
        configure_logs(state.layout, settings.log_level, settings.log_format)
        _log.info("bsd starts", version=__version__, root=str(state.layout.root), pid=os.getpid())
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._schedule.start(readonly=settings.readonly)
        add_workspace_cron(self._schedule, state)
        add_memory_job(self._schedule, state)
        if not settings.readonly:
            self._jobs.explain_retention()
            self._jobs.claim_sources()
            began = state.clocks.wall()
            if self._jobs.recover():
                self._schedule.in_flight()
            self._schedule.note(RECOVER, began)
            self._jobs.resume()
            self._first_copies.start()
        self._watcher.step(state.clocks.steady())
        self._settings_watch.start()
        self._looked = True
        self._schedule.run(SCAN)
        self._indexer.everything()
        self._schedule.note(INDEX, state.clocks.wall())
        for loop in state.loops.values():
            loop.start()
        if not settings.readonly:
            self._workers.start()

    def ready(self) -> None:
        """Say that everything stands, the doors included."""
        # What was imported stays: looking through it costs each full collection tens of ms.
        gc.freeze()
        self.state.phase = "running"
        self._told_status = self._report.in_short()
        self._notifier.ready(self._told_status)
        self.state.events.publish("state", state=self.state.phase)
        _log.info("bsd is ready", watching=self._told_status)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Finish the commits that have begun and end all threads; whether they ended in time."""
        deadline = time.monotonic() + seconds
        state = self.state
        state.phase = "stopping"
        state.stopping.set()
        self._notifier.stopping("finishing what has begun")
        _log.info("bsd stops")
        state.events.close()
        state.queue.close()
        self.children.stop()
        for loop in (self._first_copies, *state.loops.values()):
            loop.stop()
        ended = self._workers.join(deadline) & self.children.join(deadline)
        state.idle_sessions.flush()
        for loop in (self._first_copies, *state.loops.values()):
            if loop.alive:
                ended &= loop.join(max(0.0, deadline - time.monotonic()))
        if ended:
            self._watcher.close()
            self._settings_watch.close()
            self._instance.release()
        _log.info("bsd has stopped" if ended else "bsd could not finish in time")
        return ended

    def reload(self) -> None:
        """Read settings and config anew, and open the log anew (SIGHUP)."""
        state = self.state
        self._notifier.reloading()
        try:
            state.settings = follow(state.settings, self._reload_settings())
        except BsdError as problem:
            _log.error("The settings cannot be used, those before stay", problem=problem.message)
        configure_logs(state.layout, state.settings.log_level, state.settings.log_format)
        self._schedule.look_at_settings()
        self._notifier.ready(self._report.in_short())
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
        return self._report.health()

    def status(self) -> dict[str, Any]:
        return self._report.status()

    def status_json(self) -> bytes:
        return self._report.status_json()

    def jobs(self) -> list[dict[str, Any]]:
        return self._schedule.jobs()

    def run_job(self, name: str) -> dict[str, Any]:
        self._schedule.run(name)
        return next(job for job in self.jobs() if job["name"] == name)

    def cleaned(self) -> None:
        self._report.forget_retention()

    def search_state(self) -> dict[str, Any]:
        return self._indexer.state()

    def subscribe(self, wake: Callable[[], None] = lambda: None) -> Subscription:
        return self.state.events.subscribe(wake)

    def beat(self, loop: str, within: float = 60.0) -> None:
        self.state.beats.beat(loop, within)

    def end_beat(self, loop: str) -> None:
        self.state.beats.end(loop)

    def config_changed(self) -> None:
        """Follow a change of the settings at once."""
        self._schedule.look_at_settings()

    # --- what the watcher tells ---

    def _hint(self, name: SessionName) -> None:
        self.state.enqueuer.hint(name)
        if self.state.settings.readonly:  # no worker will tell
            self._indexer.changed(name)

    def _rescan(self, why: str) -> None:
        if not self._looked:
            return  # the first scan is still to come
        _log.debug("A scan was asked for", why=why)
        self._schedule.ask(SCAN)

    # --- what the other parts tell ---

    def _look_into(
        self, name: SessionName, alive: Callable[[], None], waited: float, *, urgent: bool
    ) -> SessionResult | None:
        return self.children.call(
            partial(tasks.look_into, waited=waited, urgent=urgent),
            name,
            session=name,
            background=True,
            heard={"alive": alive, "goes_on": lambda one: not self.state.queue.others_first(one)},
        )

    def _look_into_several(
        self,
        wanted: Mapping[tasks.ToLook, int],
        alive: Callable[[], None],
        began: Callable[[SessionName], None],
    ) -> list[tasks.Looked]:
        names = [one.name for one in wanted]

        def goes_on(name: SessionName) -> bool:
            later = names[names.index(name) + 1 :]
            return not self.state.queue.others_first(name, *later)

        return self.children.call(
            tasks.look_into_several,
            list(wanted),
            several={one.name: size for one, size in wanted.items()},
            background=True,
            heard={"alive": alive, "began": began, "goes_on": goes_on},
        )

    def _attempted(self, name: SessionName, outcome: CommitOutcome) -> None:
        """Note how an attempt to commit ended, ours or that of a door."""
        self.state.ledger.attempted(outcome)
        if not outcome.indexed:
            self._jobs.fell_behind(name)
        if outcome.in_flight is not None:
            self._jobs.committed(outcome.in_flight)
        if outcome.in_flight is not None or not outcome.indexed:
            self._schedule.in_flight()

    def _worked(self, name: SessionName) -> None:
        self._auto_cron.worked(name)
        self._indexer.changed(name)
        self._go_on_looking()

    def _go_on_looking(self) -> None:
        """Have those looked for that the last scan left for later, once they may come."""
        state = self.state
        if state.scan.left and not self._asked_to_go_on and state.queue.is_roomy:
            self._asked_to_go_on = True
            self._schedule.ask(SCAN)

    def _job_ended(self, run: Run) -> None:
        self.state.events.publish(
            "job", name=run.job, started=iso_utc(run.started), ok=not run.error, error=run.error
        )

    def _settings_changed(self, fields: list[str]) -> None:
        self.cleaned()
        self._indexer.settings_changed(fields)
        self.state.events.publish("config", fields=fields)

    # --- jobs ---

    def _look_around(self) -> None:
        self._jobs.look_around()
        self._asked_to_go_on = False
        self._go_on_looking()
        if self.state.settings.readonly:
            self._indexer.everything()
        elif self._jobs.is_something_in_flight():
            self._schedule.in_flight()
        short = self._report.in_short()
        if self.state.phase == "running" and short != self._told_status:
            self._told_status = short
            self._notifier.status(short)

    def _keep_sessions(self) -> None:
        if self._jobs.keep_sessions():
            self._report.forget_retention()

    def _keep_first(self, now: float) -> float | None:
        """Copy what programs delete by its age, at the start, which does not wait for that."""
        began = self.state.clocks.wall()
        try:
            heard, complete = self._jobs.keep_first()
            self._schedule.note(KEEP, began)
        except Exception:  # noqa: BLE001 - whatever it was: the job comes again, by the timetable
            _log.exception("The first copies have failed")
            heard, complete = 0, True
        if heard:
            self._report.forget_retention()
        if not complete:
            return now
        self._first_copies.stop()
        return None

    def _clean_up(self) -> None:
        self._jobs.clean_up()
        self.cleaned()


def _say_who_is_late(late: list[str]) -> None:
    _log.error("Not answering; the service manager is told nothing more", loops=late)
