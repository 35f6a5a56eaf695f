"""`bsd status`: how the running daemon is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from bsd.cli.call import Call, command
from bsd.cli.client import Client, NotRunning, find_client
from bsd.cli.output import say
from bsd.cli.quick_status import print_status

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # home, clear the screen, forget what scrolled away


@command(
    "status",
    """
    Asks the daemon of this root on its socket: what it watches, what is waiting, what it has saved
    since it started, and what is wrong. Exit code 3 if it is not running.

    \b
    Examples:
      bsd status
      bsd status --watch
      bsd status --json | jq .totals.bytes_saved
    """,
)
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="SECONDS",
    help="With --watch, how often [2].",
)
@click.pass_obj
def status(call: Call, /, watch: bool, every: float) -> None:
    client = find_client(call.root, call.config)
    if watch:
        _watch(client, every, as_json=call.json)
    else:
        print_status(client.get("/api/status"), as_json=call.json)


def _watch(
    client: Client, every: float, *, as_json: bool, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show the status anew every so many seconds; a daemon that stops may come back.

    As JSON, one line each. Raises NotRunning only if there is no daemon to begin with.
    """
    document = client.get("/api/status")
    while True:
        _show(document, as_json=as_json)
        sleep(every)
        try:
            document = client.get("/api/status")
        except NotRunning as problem:
            document = {"error": problem.message, "hint": problem.hint}


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        import json

        sys.stdout.write(json.dumps(document) + "\n")
    else:
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        if "error" in document:
            say(f"{document['error']} (try: {document['hint']})")
        else:
            print_status(document, as_json=False)
        if not sys.stdout.isatty():
            say()
    sys.stdout.flush()
