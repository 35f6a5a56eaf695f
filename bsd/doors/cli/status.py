"""`bsd status`: how the running daemon is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from bsd.doors.cli.call import Call, command
from bsd.doors.cli.client import Client, NotRunning, find_client
from bsd.doors.cli.output import print_json, say
from bsd.doors.cli.quick_status import print_status

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # home, clear the screen, forget what scrolled away


@command(
    "status",
    """
    Asks the daemon of this root on its socket: what it watches, what is waiting, what it has saved
    since it started, what bsd itself takes on disk, and what is wrong. If it is not running, exit
    code 3, and what can be said without it.

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
def status(call: Call, /, watch: bool, every: float) -> int:
    client = find_client(call.root, call.config)
    if watch:
        _watch(client, every, as_json=call.json)
        return 0
    try:
        document = client.get("/api/status")
    except NotRunning as problem:
        return _without_daemon(call, problem)
    print_status(document, as_json=call.json)
    return 0


def _without_daemon(call: Call, problem: NotRunning) -> int:
    """Tell what there is all the same: what bsd takes on disk."""
    from bsd.care.disk_use import disk_use
    from bsd.doors.cli.disk_text import disk_lines
    from bsd.doors.cli.problem import problem_of
    from bsd.foundation.ages import look
    from bsd.foundation.errors import BsdError
    from bsd.foundation.spelling import lifetime_seconds

    shown = problem_of(problem, None)
    document, disk, clock = shown.as_json(), None, None
    with suppress(BsdError):  # without a root, or with broken settings, there is no more to say
        call.finish_due()
        disk = disk_use(call.layout).as_json()
        keep = lifetime_seconds(call.pruning.current.retention)
        clock = look(call.layout, keep=False).why_held(keep)
    if call.json:
        print_json({**document, "disk": disk, "clock": clock})
    elif disk is not None:
        for number, line in enumerate(disk_lines(disk, time.time())):
            say(f"{'disk' if not number else '':<6}{line}")
        if clock:
            say(f"clock {clock}")
    shown.show()
    return problem.exit_code


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
