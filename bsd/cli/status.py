"""`bsd status`: the state of the running daemon."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import click

from bsd.cli.call import BsdCommand, Call, NoRoot
from bsd.cli.client import Client, NotRunning
from bsd.cli.output import print_json, say, say_wrapped
from bsd.cli.problem import problem_of
from bsd.cli.progress import waiting
from bsd.cli.status_lines import ROW_INDENT, disk_lines, status_lines, unserved_lines
from bsd.core.clock import check_clock
from bsd.core.errors import BsdError
from bsd.maintenance.disk_use import disk_use
from bsd.setup.unserved import ToldIn, note_told, unserved

_DISK_INDENT = 6


@click.command("status", cls=BsdCommand)
@click.option("--watch", is_flag=True, help="Update the status until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="SECONDS",
    help="With --watch, how often [2].",
)
@click.pass_obj
def status(call: Call, watch: bool, every: float) -> int:
    """Show the state of the running daemon.

    Asks the daemon of this root on its socket, and shows the watched and waiting sessions, the
    savings since the start, bsd's own disk use, and problems. If the daemon is not running, the
    exit code is 3, and the facts that need no daemon are shown.

    \b
    Examples:
      bsd status
      bsd status --watch
      bsd status --json | jq .totals.bytes_saved
    """
    client = Client(call.settings.socket)
    if watch:
        _watch(client, every, as_json=call.json, shown=partial(_note_told, call))
        return 0
    try:
        document = client.get("/api/status")
    except NotRunning as problem:
        return _without_daemon(call, problem)
    _print(document, as_json=call.json)
    _note_told(call, document.get("unserved", []))
    return 0


def _note_told(call: Call, agents: list[dict[str, Any]]) -> None:
    """Note that the user has seen the agents that bsd does not manage: one mention is enough."""
    if agents and not call.settings.readonly:
        with suppress(BsdError):  # only the daemon may have access to the root
            note_told(call.layout, [agent["kind"] for agent in agents], ToldIn.STATUS)


def _without_daemon(call: Call, problem: NotRunning) -> int:
    """Print the facts that need no daemon, such as bsd's disk use; returns the exit code."""
    shown = problem_of(problem, None)
    disk, clock = None, None
    agents: list[dict[str, Any]] = []
    with suppress(BsdError):  # with broken settings, only the problem is shown
        try:
            call.layout  # noqa: B018 - raises if there is no root
        except NoRoot as missing:
            shown = replace(shown, error=f"{shown.error}: {missing.message}", hint=missing.hint)
            raise
        call.finish_due()
        with waiting("adding up the disk use"):
            disk = disk_use(call.layout)
        clock = check_clock(call.layout, "retention").doubt
        agents = unserved(call.layout, os.environ)
    if call.json:
        print_json({**shown.as_json(), "disk": disk, "clock": clock, "unserved": agents})
    elif disk is not None:
        for name, line in disk_lines(disk, time.time()):
            say_wrapped(f"{name:<6}{line}", _DISK_INDENT)
        if clock:
            say(f"clock {clock}")
        for line in unserved_lines(agents):
            say(line)
    shown.show()
    _note_told(call, agents)
    return problem.exit_code


def _watch(
    client: Client,
    every: float,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
    shown: Callable[[list[dict[str, Any]]], None] = lambda _: None,
) -> None:
    """Show the status every `every` seconds, without end. A stopped daemon may start again.

    Args:
        as_json: print each status as one line of JSON.
        shown: called with the agents that a status mentions.

    Raises:
        NotRunning: no daemon runs at the beginning.
    """
    document = client.get("/api/status")
    while True:
        _show(document, as_json=as_json)
        shown(document.get("unserved", []))
        sleep(every)
        try:
            document = client.get("/api/status")
        except NotRunning as problem:
            document = {"error": problem.message, "hint": problem.hint}


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        click.clear()  # does nothing unless stdout is a terminal
        if "error" in document:
            say(f"{document['error']} (try: {document['hint']})")
        else:
            _print(document, as_json=False)
        if not sys.stdout.isatty():
            say()
    sys.stdout.flush()


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    for line in status_lines(document, time.time()):
        say_wrapped(line, ROW_INDENT)
