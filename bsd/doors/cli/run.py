"""`bsd run`: the daemon, in the foreground, until it is told to stop."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import Call, command

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bsd.daemon.service import Daemon
    from bsd.daemon.signals import Signals
    from bsd.daemon.state import DaemonState
    from bsd.doors.http.desk import Desk
    from bsd.doors.http.early import Early
    from bsd.doors.http.server import ApiServer
    from bsd.foundation.layout import SessionName
    from bsd.foundation.settings import Settings
    from bsd.session.surgeon import Surgeon

# Threads that import at the same time modules which import each other may find one half made.
_loading = threading.Lock()


@command(
    "run",
    """
    Watches the sessions, extracts what became old, deletes what was kept long enough, and answers
    on its socket. Ctrl-C or SIGTERM ends it when nothing is half done, twice ends it at once;
    SIGHUP reads the settings again, SIGUSR1 writes its state to the log.

    \b
    Examples:
      bsd run
      bsd --root /srv/openclaw run --http 127.0.0.1:8000
    """,
)
@click.option("--http", metavar="HOST:PORT", help="Serve the API on TCP, too.")
@click.pass_obj
def run(call: Call, /, http: str | None) -> int:
    # While it starts they would end it, and a service manager takes that for what was wished.
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # Nearly all that a start makes stays; looking through it again and again costs a sixth of it.
    gc.disable()
    try:
        return _run(call, http)
    finally:
        gc.enable()


def _run(call: Call, http: str | None) -> int:
    from bsd.daemon.loops import share_heap
    from bsd.daemon.service import Daemon
    from bsd.daemon.signals import Signals

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
    from bsd.foundation.settings import HttpAddress, load_settings

    found = load_settings(
        Path(call.config) if call.config is not None else None,
        Path(call.root) if call.root is not None else None,
    )
    call.make_root(found)
    return found.model_copy(update={"http": HttpAddress.parse(http)}) if http else found


def _in_band(state: DaemonState, surgeon: Surgeon) -> Callable[[SessionName], bool]:
    """Let calls of agents be carried out; what that takes is loaded behind the start."""

    def carry_out(name: SessionName) -> bool:
        with _loading:
            from bsd.doors.agent.inband import InBand

        return InBand(state.layout, state.config, surgeon, state.state_db, state.clocks.wall)(name)

    return carry_out


def _serve(daemon: Daemon, settings: Settings, routes: Early) -> ApiServer:
    """Open the API's doors."""
    with _loading:
        from bsd.doors.http.server import ApiServer

    server = ApiServer(routes, settings, daemon)
    server.start()
    return server


def _routes(daemon: Daemon, settings: Settings) -> Early:
    with _loading:
        from bsd.doors.http.early import Early

    def make() -> FastAPI:
        with _loading:
            try:
                return load()
            finally:
                gc.freeze()  # see `Daemon.ready`
                gc.enable()

    def load() -> FastAPI:
        import bsd.doors.agent.inband  # noqa: F401 - what is on the disk later may be another release
        from bsd.doors.http.app import create_app
        from bsd.memory.facts import open_memory
        from bsd.workspaces.verbs import WorkspaceRoot, rules_of

        return create_app(
            daemon,
            daemon.state.config,
            _desk(daemon, settings),
            readonly=settings.readonly,
            memory=partial(open_memory, daemon.state.layout, settings.memory),
            workspaces=WorkspaceRoot(
                settings.workspace_root, daemon.state.layout, rules_of(settings), actor="api"
            ),
            config_changed=daemon.config_changed,
        )

    return Early(daemon, make)


def _desk(daemon: Daemon, settings: Settings) -> Desk:
    from bsd.care.search import sessions_with
    from bsd.doors.http.desk import WAIT_SECONDS, Desk
    from bsd.session.rest import Patience

    return Desk(
        daemon.state.layout,
        daemon.state.config,
        Patience(WAIT_SECONDS, settings.quiet_seconds, check=daemon.state.stop_here),
        exchanger=daemon.exchanger,
        noticed=daemon.attempted,
        find_text=partial(sessions_with, daemon.state.layout),
        cleaned=daemon.cleaned,
        search_state=daemon.search_state,
    )


def _obey(signals: Signals, daemon: Daemon) -> None:
    """Do what signals say until one says stop."""
    from bsd.daemon.signals import DUMP, RELOAD, stops_among

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
    from bsd.daemon.service import STOP_SECONDS
    from bsd.daemon.signals import die_by, wait_for_end

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
    from bsd.foundation.errors import TemporaryFailure
    from bsd.foundation.logs import close_logs

    close_logs()
    os._exit(TemporaryFailure.exit_code)
