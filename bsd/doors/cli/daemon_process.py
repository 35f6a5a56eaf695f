"""The process of `bsd run`: the daemon, the API's doors, and the signals that it obeys."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bsd.daemon.loops import share_heap
from bsd.daemon.service import STOP_SECONDS, Daemon
from bsd.daemon.signals import DUMP, RELOAD, Signals, die_by, stops_among, wait_for_end
from bsd.daemon.state import DaemonState
from bsd.doors.cli.call import Call
from bsd.doors.http.early import Early
from bsd.doors.http.server import ApiServer
from bsd.foundation.errors import TemporaryFailure
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import close_logs
from bsd.foundation.settings import HttpAddress, Settings, load_settings
from bsd.session.surgeon import Surgeon

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bsd.doors.agent.inband import InBand

# Threads that import at the same time modules which import each other may find one half made.
_loading = threading.RLock()


def run_daemon(call: Call, http: str | None) -> int:
    """Be the daemon until somebody says stop; returns the exit code."""
    share_heap()

    def settings() -> Settings:
        return _settings(call, http)

    now = settings()
    call.log_file = call.layout.log_file
    daemon = Daemon(now, reload_settings=settings, in_band=_in_band)
    with Signals() as signals:
        server: ApiServer | None = None
        try:
            daemon.start()
            routes = _routes(daemon, now)
            server = _serve(daemon, now, routes)
            daemon.ready()
            routes.load()
            _obey(signals, daemon)
        except BaseException:  # an interrupt, too, must end all that was begun
            _stop(signals, daemon, server)
            raise
        return 0 if _stop(signals, daemon, server) else _break_off()


def _settings(call: Call, http: str | None) -> Settings:
    found = load_settings(
        Path(call.config) if call.config is not None else None,
        Path(call.root) if call.root is not None else None,
    )
    call.make_root(found)
    return found.model_copy(update={"http": HttpAddress.parse(http)}) if http else found


def _in_band(state: DaemonState, surgeon: Surgeon) -> Callable[[SessionName], bool]:
    """Let calls of agents be carried out; what that takes is loaded behind the start."""

    def carry_out(name: SessionName) -> bool:
        parts = state.layout, state.config, surgeon, state.state_db, state.clocks.wall
        return _load_in_band()(*parts)(name)

    return carry_out


def _load_in_band() -> type[InBand]:
    with _loading:
        from bsd.doors.agent.inband import InBand  # a start waits for none of it

    return InBand


def _serve(daemon: Daemon, settings: Settings, routes: Early) -> ApiServer:
    """Open the API's doors."""
    server = ApiServer(routes, settings, daemon)
    server.start()
    return server


def _routes(daemon: Daemon, settings: Settings) -> Early:
    def make() -> ASGIApp:
        with _loading:
            try:
                _load_in_band()  # what is on the disk later may be another release
                from bsd.doors.http.app import app_of  # all routes and verbs

                return app_of(daemon, settings)
            finally:
                gc.freeze()  # see `Daemon.ready`
                gc.enable()

    return Early(daemon, make)


def _obey(signals: Signals, daemon: Daemon) -> None:
    """Do what signals say until one says stop."""
    while True:
        numbers = signals.wait()
        if stops_among(numbers):
            return
        if RELOAD in numbers:
            daemon.reload()
        if DUMP in numbers:
            daemon.dump()


def _stop(signals: Signals, daemon: Daemon, server: ApiServer | None) -> bool:
    """Stop everything while another signal may still end it at once; whether all has ended."""
    ended: list[bool] = []

    def stop() -> None:
        in_time = False
        try:
            closed = server.stop() if server else True
            in_time = daemon.stop() and closed
        finally:
            ended.append(in_time)
            signals.end_wait()

    # A thread of its own: this one goes on to listen to signals.
    stopper = threading.Thread(target=stop, name="bsd-stop", daemon=True)
    stopper.start()
    if wait_for_end(signals, lambda: bool(ended), STOP_SECONDS + 1, die_by):
        stopper.join(1.0)  # it has only to leave
    return ended == [True]


def _break_off() -> int:
    """Leave threads behind that do not end: what they have in flight is recovered at next start."""
    close_logs()
    os._exit(TemporaryFailure.exit_code)
