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
    help="Serve other machines even without API keys.",
)
@click.pass_obj
def run(call: Call, http: str | None, is_open: bool) -> int:
    """Watch, extract and clean up, until stopped.

    Watches the sessions, extracts old values, archives expired values, and answers on its socket.
    The first Ctrl-C or SIGTERM stops the daemon after its current commit, a second one at once.
    SIGHUP reads the settings again, SIGUSR1 writes the daemon's state to the log. An address that
    other machines can reach needs BRAINSURGEON_API_KEYS, or --open.

    \b
    Examples:
      bsd run
      bsd --root /srv/openclaw run --http 127.0.0.1:8000
    """
    # During the start these signals would end the process, and a service manager would count that
    # as a regular stop.
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    from bsd.cli.daemon_process import run_daemon  # imports the daemon and the server

    return run_daemon(call, http, is_open=is_open)
