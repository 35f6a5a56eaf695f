"""The daemon: its parts, its threads and its jobs; start, reload and stop."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import structlog

from bsd import __version__
from bsd.core.config import OFF
from bsd.core.errors import BsdError
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.core.layout import SessionName
from bsd.core.logs import configure_logs
from bsd.core.settings import RELOADABLE, Settings
from bsd.daemon.auto_cron import AutoCron
from bsd.daemon.children import Children
from bsd.daemon.cron import Every
from bsd.daemon.hooks import HookReceiver
from bsd.daemon.indexer import Indexer
from bsd.daemon.instance import SingleInstance
from bsd.daemon.jobs import JobRunner
from bsd.daemon.library_jobs import memory_job, workspace_job
from bsd.daemon.loops import Clocks, Loop, awake
from bsd.daemon.notifier import Notifier, ping_watchdog, watchdog_seconds
from bsd.daemon.paused import PauseFollower
from bsd.daemon.recovery import Recovery
from bsd.daemon.report import DaemonReport
from bsd.daemon.scheduler import Run, ScheduledJob, Scheduler
from bsd.daemon.state import DaemonState
from bsd.daemon.uploader import LONGEST_RUN_SECONDS, senders
from bsd.daemon.watcher import Watcher
from bsd.daemon.worker import Worker, Workers
from bsd.sessions.commit.protocol import CommitOutcome
from bsd.setup.unserved import tell_in_log

_log = structlog.stdlib.get_logger(module="daemon")

# With the default of 5 ms, a thread that only records an event would wait too long for threads that
# parse.
_SWITCH_SECONDS = 0.0005
STOP_SECONDS = 10.0
_LONG_STEP_SECONDS = 600.0  # the longest job: a retention of very many files

# Names of jobs.
SCAN, AUTO_CRON, RETENTION, RECOVER = "scan", "auto_cron", "retention", "recover"
INDEX, COPY_SESSIONS, SIZES = "index", "keep_sessions", "sizes"

# Interval of `recover` while commits are in flight; displaced files are kept for a minute.
RECOVER_SECONDS = 30.0
# Interval at which all sessions are compared with the search index, in case it missed a change.
INDEX_SECONDS = 3600.0
SIZES_SECONDS = 3600.0  # the job writes only one line per day
# Interval of the search for sessions that have been idle long enough to be copied.
COPY_SECONDS = 600.0


def follow(old: Settings, new: Settings) -> Settings:
    """Return `old` with the changes that a running daemon can apply; log the other keys."""
    changed = {key for key in Settings.model_fields if getattr(old, key) != getattr(new, key)}
    if waiting := sorted(changed - RELOADABLE):
        _log.warning("Some settings take effect at the next start", keys=waiting)
    return old.model_copy(update={key: getattr(new, key) for key in changed & RELOADABLE})


class Daemon:
    """The daemon of one root.

    Call `start` before `ready`. `stop` may be called once, at any time and from any thread.
    Interfaces use the attributes from any thread.

    Args:
        reload_settings: returns the settings again at a reload; None: they do not change.
        in_band: `module:class` that executes agents' calls in their sessions. It is given by name,
            because it belongs to an interface, which this package must not import.
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
        self._notified = ""  # the last status sent to the service manager
        self._scanned = self._scan_asked = False
        self.children = Children(
            state.layout,
            state.config,
            quiet_seconds=settings.quiet_seconds,
            in_band=in_band,
            fleet=settings.fleet,
            prices=settings.price_sources,
            log=lambda: (state.settings.log_level, state.settings.log_format),
            handlers={"attempted": self._attempted},
            count=state.ledger.count,
            wake=lambda: state.wake("children"),
            clock=state.clocks.steady,
        )
        self._auto_cron = AutoCron(state)
        self.scheduler = Scheduler(
            state.config,
            wake=lambda: state.wake("timer"),
            ended=self._job_ended,
            changed=self._settings_changed,
            extraction_changed=self._auto_cron.everything,
            clock=state.clocks.wall,
        )
        self._watcher = Watcher(
            state.layout,
            hint=self._hint,
            rescan=self._rescan,
            wake=lambda: state.wake("watcher"),
            settings_changed=self.scheduler.look_at_settings,
            pauses_changed=lambda: self._rescan("pauses have changed"),
            scan_only=state.mounts.scan_only,
        )
        self.indexer = Indexer(state, self.children)
        self.hooks = HookReceiver(state)
        self._jobs = JobRunner(state, self.children, gone=self.indexer.changed)
        self._senders = senders(settings)
        self._pauses = PauseFollower(state)
        self._recovery = Recovery(state, self.children)
        self._workers = Workers(state, Worker(state, self.children, worked=self._worked))
        self.report = DaemonReport(
            state,
            watcher=self._watcher,
            workers=self._workers,
            children=self.children,
            jobs=self._jobs,
            indexer=self.indexer,
            senders=self._senders,
            next_retention=lambda: self.scheduler.next_run(RETENTION),
        )
        self._make_loops()

    def _make_loops(self) -> None:
        """Create the daemon's threads other than workers; `start` starts all of them."""
        state, clocks = self.state, self.state.clocks

        def loop(
            name: str,
            step: Callable[[float], float | None],
            clock: Callable[[], float] = clocks.steady,
            work_seconds: float = 60.0,
        ) -> Loop:
            return Loop(name, step, state.beats, clock=clock, work_seconds=work_seconds)

        loops = [
            loop("debounce", state.enqueuer.step),
            loop("watcher", self._watcher.step),
            loop("timer", self.scheduler.step, clocks.wall, _LONG_STEP_SECONDS),
            loop("indexer", self.indexer.step, work_seconds=_LONG_STEP_SECONDS),
            loop("children", self.children.step),
        ]
        loops += [
            loop(f"fleet-{sender.name}", sender.step, work_seconds=LONGEST_RUN_SECONDS)
            for sender in self._senders
        ]
        if self._notifier.listening and (every := watchdog_seconds()):
            ping = partial(ping_watchdog, self._notifier, state.beats, every, _say_what_is_late)
            loops.append(loop("watchdog", ping, awake))
        state.loops |= {each.name: each for each in loops}
        # Not one of `loops`, because it ends when all first copies are made.
        self._first_copies = loop("first-copies", self._copy_first, work_seconds=_LONG_STEP_SECONDS)

    def _add_jobs(self) -> None:
        """Fill the table of jobs; a read-only daemon has fewer jobs. Raises ConfigError."""
        table: list[ScheduledJob | None] = [
            ScheduledJob(SCAN, self._scan),
            ScheduledJob(INDEX, self.indexer.everything, Every(INDEX_SECONDS)),
        ]
        if not self.state.settings.readonly:
            table += [
                ScheduledJob(RECOVER, self._recover),
                ScheduledJob(SIZES, self.report.note_sizes, Every(SIZES_SECONDS), at_start=True),
                ScheduledJob(
                    COPY_SESSIONS,
                    self._copy_sessions,
                    Every(COPY_SECONDS),
                    is_enabled=lambda config: config.archive_sessions != OFF,
                ),
                ScheduledJob(
                    AUTO_CRON,
                    self._auto_cron.run,
                    noted_as="last_run_at",
                    is_enabled=lambda config: config.enabled,
                    when_asked=self._auto_cron.run_asked,
                ),
                ScheduledJob(
                    RETENTION,
                    self._clean_up,
                    noted_as="last_retention_run_at",
                    is_enabled=lambda config: lifetime_seconds(config.retention) is not None,
                    at_start=True,
                ),
                workspace_job(self.state),
                memory_job(self.state),
            ]
        for job in filter(None, table):
            self.scheduler.add(job)

    # --- life ---

    def start(self) -> None:
        """Become the daemon of this root, and start all threads.

        Raises:
            TemporaryFailure: another daemon runs for this root.
            ConfigError: config.json cannot be used.
        """
        state, settings = self.state, self.state.settings
        self._instance.acquire()
        configure_logs(state.layout, settings.log_level, settings.log_format)
        _log.info("bsd starts", version=__version__, root=str(state.layout.root), pid=os.getpid())
        _tell_price_list(settings)
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._add_jobs()
        if not settings.readonly:
            self._jobs.explain_retention()
            tell_in_log(state.layout, os.environ)
            self._jobs.claim_sources()
            began = state.clocks.wall()
            if self._recovery.run():
                self._look_after_in_flight()
            self.scheduler.note(RECOVER, began)
            self._jobs.resume()
            self._first_copies.start()
        self._watcher.step(state.clocks.steady())
        self._scanned = True
        self.scheduler.run(SCAN)
        self.indexer.everything()
        self.scheduler.note(INDEX, state.clocks.wall())
        for loop in state.loops.values():
            loop.start()
        if not settings.readonly:
            self._workers.start()

    def ready(self) -> None:
        """Report that the daemon is running; the caller has started the interfaces."""
        # Imported modules stay in memory. Without this, each full collection would spend tens of ms
        # on them.
        gc.freeze()
        self.state.phase = "running"
        self._notified = self.report.in_short()
        self._notifier.ready(self._notified)
        self.state.events.publish("state", state=self.state.phase)
        _log.info("bsd is ready", watching=self._notified)

    def stop(self, seconds: float = STOP_SECONDS, *, again: bool = False) -> bool:
        """Finish the commits that have begun, and end all threads.

        Args:
            seconds: the longest time to wait.
            again: this process starts another daemon immediately; report this to the service
                manager.

        Returns:
            True if all threads ended in time.
        """
        deadline = time.monotonic() + seconds
        state = self.state
        state.phase = "stopping"
        state.stopping.set()
        if again:
            self._notifier.reloading()
        else:
            self._notifier.stopping("finishing the commits that have begun")
        _log.info("bsd starts again" if again else "bsd stops")
        state.events.close()
        state.queue.close()
        self.children.stop()
        for sender in self._senders:
            sender.stop()
        loops = (self._first_copies, *state.loops.values())
        for loop in loops:
            loop.stop()
        ended = self._workers.join(deadline) & self.children.join(deadline)
        state.idle_sessions.flush()
        for loop in loops:
            if loop.alive:
                ended &= loop.join(max(0.0, deadline - time.monotonic()))
        if ended:
            self._watcher.close()
            self._instance.release()
        _log.info("bsd has stopped" if ended else "bsd could not finish in time")
        return ended

    def reload(self) -> None:
        """Read the settings and config.json again, and reopen the log (SIGHUP)."""
        state = self.state
        self._notifier.reloading()
        try:
            state.settings = follow(state.settings, self._reload_settings())
        except BsdError as problem:
            _log.error(
                "The new settings cannot be used; the previous ones stay", problem=problem.message
            )
        configure_logs(state.layout, state.settings.log_level, state.settings.log_format)
        _tell_price_list(state.settings)
        self.scheduler.look_at_settings()
        self._notifier.ready(self.report.in_short())
        _log.info("Settings were read again")

    def dump(self) -> None:
        """Write the status and the stacks of all threads to the log (SIGUSR1)."""
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read().decode("utf-8", "replace")
        status, health = self.report.status(), self.report.health()
        _log.info("Status and stacks", status=status, health=health, stacks=stacks)

    # --- callbacks of the parts ---

    def _hint(self, name: SessionName) -> None:
        if self.state.layout.excluded(name):
            return
        self.state.enqueuer.hint(name)
        if self.state.settings.readonly:  # there are no workers that call the indexer
            self.indexer.changed(name)

    def _rescan(self, why: str) -> None:
        if self._scanned:  # otherwise the first scan is still to come
            _log.debug("A scan was requested", why=why)
            self.scheduler.ask(SCAN)

    def _attempted(self, name: SessionName, outcome: CommitOutcome) -> None:
        """Record the outcome of an attempt to commit, of a worker or an interface."""
        self.state.ledger.attempted(outcome)
        if self._recovery.attempted(name, outcome):
            self._look_after_in_flight()

    def _worked(self, name: SessionName) -> None:
        self._auto_cron.worked(name)
        self.indexer.changed(name)
        self._continue_scan()

    def _continue_scan(self) -> None:
        """Request another scan if the last one left sessions for later and the queue has room."""
        state = self.state
        if state.scan.left and not self._scan_asked and state.queue.is_roomy:
            self._scan_asked = True
            self.scheduler.ask(SCAN)

    def _job_ended(self, run: Run) -> None:
        self.state.events.publish(
            "job", name=run.job, started=iso_utc(run.started), ok=not run.error, error=run.error
        )

    def _settings_changed(self, fields: list[str]) -> None:
        self.report.forget_retention()
        self.indexer.settings_changed(fields)
        if "exclude" in fields:
            self._watcher.look_soon()
            self._rescan("other sessions are excluded")
            self.indexer.everything()
        self.state.events.publish("config", fields=fields)

    # --- jobs ---

    def _scan(self) -> None:
        self.scheduler.apply()  # a change of config.json may have caused no event
        self._pauses.look()
        self._jobs.scan()
        self._scan_asked = False
        self._continue_scan()
        if self.state.settings.readonly:
            self.indexer.everything()
        elif self._recovery.is_something_in_flight():
            self._look_after_in_flight()
        short = self.report.in_short()
        if self.state.phase == "running" and short != self._notified:
            self._notified = short
            self._notifier.status(short)

    def _look_after_in_flight(self) -> None:
        self.scheduler.reschedule(RECOVER, Every(RECOVER_SECONDS))

    def _recover(self) -> None:
        if not self._recovery.run():
            self.scheduler.reschedule(RECOVER, None)

    def _clean_up(self) -> None:
        self._jobs.clean_up()
        self.report.forget_retention()

    def _copy_sessions(self) -> None:
        if self._jobs.copy_sessions():
            self.report.forget_retention()

    def _copy_first(self, now: float) -> float | None:
        """Copy sessions that their programs delete by age; the start does not wait for it."""
        began = self.state.clocks.wall()
        try:
            copied, complete = self._jobs.copy_first()
            self.scheduler.note(COPY_SESSIONS, began)
        except Exception:  # noqa: BLE001 - the job `keep_sessions` tries again
            _log.exception("The first copies have failed")
            copied, complete = 0, True
        if copied:
            self.report.forget_retention()
        if not complete:
            return now
        self._first_copies.stop()
        return None


def _say_what_is_late(late: list[str]) -> None:
    _log.error("Threads are late; the watchdog of the service manager gets no pings", loops=late)


def _tell_price_list(settings: Settings) -> None:
    """Log the state of the file that `prices_file` names."""
    listed = settings.price_sources.table().price_list
    if listed is None:
        return
    if listed.problem is not None:
        _log.error("The list of prices cannot be used", problem=listed.problem, hint=listed.hint)
    elif listed.skipped:
        _log.warning(
            "Some prices of the list cannot be used", path=listed.path, rows=listed.skipped
        )
