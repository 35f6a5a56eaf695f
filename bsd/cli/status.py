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
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="SECONDS",
    help="With --watch, how often [2].",
)
@click.pass_obj
def status(call: Call, watch: bool, every: float) -> int:
    """Ask the running daemon how it is.

    Asks the daemon of this root on its socket: what it watches, what is waiting, what it has saved
    since it started, what bsd itself takes on disk, and what is wrong. If it is not running, exit
    code 3, and what can be said without it.

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
    """Note that the user was told of agents that bsd does not look after: once is enough."""
    if agents and not call.settings.readonly:
        with suppress(BsdError):  # the daemon may know the root by another way
            note_told(call.layout, [agent["kind"] for agent in agents], ToldIn.STATUS)


def _without_daemon(call: Call, problem: NotRunning) -> int:
    """Report the facts that need no daemon: the bytes of bsd on disk."""
    shown = problem_of(problem, None)
    disk, clock = None, None
    agents: list[dict[str, Any]] = []
    with suppress(BsdError):  # with broken settings there is no more to say
        try:
            call.layout  # noqa: B018 - whether there is a root
        except NoRoot as missing:
            shown = replace(shown, error=f"{shown.error}: {missing.message}", hint=missing.hint)
            raise
        call.finish_due()
        with waiting("adding up what bsd takes"):
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
    """Show the status again every so many seconds; a daemon that stops may come back.

    With `as_json`, each is one line. `shown` is called with the agents that a status told of.
    Raises NotRunning if no daemon runs at the beginning.
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
