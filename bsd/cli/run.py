"""`bsd run`: the daemon as a command."""

from __future__ import annotations

import signal

import click

from bsd.cli.call import BsdCommand, Call


class _RunCommand(BsdCommand):
    finishes_due = False  # the daemon does this itself, once its signals are set


@click.command("run", cls=_RunCommand)
@click.option("--http", metavar="HOST:PORT", help="Serve the API on TCP, too.")
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Without API keys, serve the network, not only this machine.",
)
@click.pass_obj
def run(call: Call, http: str | None, is_open: bool) -> int:
    """Watch, extract and clean up, until told to stop.

    Watches the sessions, extracts what became old, archives what was kept long enough, and answers
    on its socket. Ctrl-C or SIGTERM ends it when nothing is half done, twice ends it at once;
    SIGHUP reads the settings again, SIGUSR1 writes its state to the log. An address that other
    machines can reach needs BRAINSURGEON_API_KEYS, or --open.

    \b
    Examples:
      bsd run
      bsd --root /srv/openclaw run --http 127.0.0.1:8000
    """
    # During the start these signals would end the process, and a service manager would take that
    # for a wanted end.
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    from bsd.cli.daemon_process import run_daemon  # imports the daemon and the server

    return run_daemon(call, http, is_open=is_open)
