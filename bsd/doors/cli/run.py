"""`bsd run`: the daemon, in the foreground, until it is told to stop."""

from __future__ import annotations

import gc
import signal

import click

from bsd.doors.cli.call import Call, command


@command(
    "run",
    """
    Watches the sessions, extracts what became old, archives what was kept long enough, and answers
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
        # Only now, and not before those signals are ignored: this is most of a start.
        from bsd.doors.cli.daemon_process import run_daemon

        return run_daemon(call, http)
    finally:
        gc.enable()
