"""The process of `bsd run`: the daemon, the API's server, and the signals that it obeys."""

from __future__ import annotations

import os
import sys
import threading

from bsd.cli.agents import setup_context
from bsd.cli.call import Call
from bsd.cli.run_start import tell_start
from bsd.core.errors import TemporaryFailure, os_problem
from bsd.core.logs import close_logs
from bsd.core.processes import give_back_memory
from bsd.core.settings import HttpAddress, Settings
from bsd.daemon.loops import share_heap
from bsd.daemon.service import STOP_SECONDS, Daemon
from bsd.daemon.signals import DUMP, RELOAD, RESTART, Signals, die_by, stops_among, wait_for_end
from bsd.http.app import app_of
from bsd.http.server import ApiServer
from bsd.http.sockets import check_exposure

_IN_BAND = "bsd.mcp.inband:InBand"  # children load it


def run_daemon(call: Call, http: str | None, *, is_open: bool) -> int:
    """Run the daemon until a signal stops it; returns the exit code.

    If the API asks for a restart, the process stops the daemon and executes its own command line
    again, so that a changed bsd.toml takes effect.

    Args:
        http: the option `--http`, which overrides the settings.
        is_open: the option `--open`, which overrides the settings.
    """
    share_heap()

    def read_again() -> Settings:
        return _with(call.load_settings(), http, is_open=is_open)

    now = call.settings = _with(call.settings, http, is_open=is_open)
    call.make_root()
    call.log_file = call.layout.log_file
    daemon = Daemon(now, reload_settings=read_again, in_band=_IN_BAND)
    with Signals() as signals:
        server: ApiServer | None = None
        try:
            daemon.start()
            app = app_of(
                daemon,
                now,
                setup=lambda: setup_context(call, read_again()),
                restart=signals.ask_restart,
            )
            server = ApiServer(app, now, daemon.state.beats)
            server.start()
            daemon.state.page = server.page
            daemon.ready()
            tell_start(daemon, server.addresses)
            give_back_memory()
            again = _obey(signals, daemon)
        except BaseException:  # an interrupt, too, must stop daemon and server
            _stop(signals, daemon, server)
            raise
        if not _stop(signals, daemon, server, again=again):
            return _break_off()
    return _run_anew() if again else 0


def _with(settings: Settings, http: str | None, *, is_open: bool) -> Settings:
    """Return the settings with those of the command line; raises Invalid, ConfigError."""
    if http:
        settings = settings.model_copy(update={"http": HttpAddress.parse(http)})
    if is_open:
        settings = settings.model_copy(update={"http_open": True})
    check_exposure(settings)
    return settings


def _obey(signals: Signals, daemon: Daemon) -> bool:
    """Act on signals until one of them stops the daemon; returns True for a restart."""
    while True:
        numbers = signals.wait()
        if stops_among(numbers):
            return False
        if RESTART in numbers:
            return True
        if RELOAD in numbers:
            daemon.reload()
        if DUMP in numbers:
            daemon.dump()


def _stop(
    signals: Signals, daemon: Daemon, server: ApiServer | None, *, again: bool = False
) -> bool:
    """Stop the server and the daemon, while another signal can still end the process at once.

    Returns:
        True if both have stopped in time.
    """
    ended: list[bool] = []

    def stop() -> None:
        in_time = False
        try:
            if server:
                server.stop_listening()
            # Requests in progress end with the work of the daemon.
            in_time = daemon.stop(again=again)
            in_time &= server.join() if server else True
        finally:
            ended.append(in_time)
            signals.end_wait()

    # In another thread, so that the main thread can still receive signals.
    stopper = threading.Thread(target=stop, name="bsd-stop", daemon=True)
    try:
        stopper.start()
    except RuntimeError:  # no thread can be started, which may be why the daemon stops
        stop()
        return ended == [True]
    if wait_for_end(signals, lambda: bool(ended), STOP_SECONDS + 1, die_by):
        stopper.join(1.0)  # its work is done
    return ended == [True]


def _run_anew() -> int:
    """Replace this process by a new run of its command line, with the same process id.

    Does not return.
    """
    close_logs()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this program
    except OSError as error:
        raise os_problem(error, "starting bsd again") from error


def _break_off() -> int:
    """Exit although threads are still running; the next start recovers their work in flight."""
    close_logs()
    os._exit(TemporaryFailure.exit_code)
