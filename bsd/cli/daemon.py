"""The daemon: `bsd run` is it, `bsd status` and `bsd jobs` ask it how it is."""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import click

from bsd.cli.call import BsdCommand, Call, NoRoot, command, group, offering
from bsd.cli.output import note, one_line, print_json, print_table, say
from bsd.cli.problem import problem_of
from bsd.cli.status import (
    Client,
    NotRunning,
    disk_lines,
    find_client,
    print_status,
    spell_when,
)
from bsd.core.clock import look
from bsd.core.durations import spell_seconds
from bsd.core.errors import BsdError
from bsd.core.formatting import lifetime_seconds
from bsd.maintenance.disk_use import disk_use


class _Run(BsdCommand):
    """The daemon finishes what is due itself, once its signals are set."""

    finishes_due = False


@command(
    "run",
    """
    Watches the sessions, extracts what became old, archives what was kept long enough, and answers
    on its socket. Ctrl-C or SIGTERM ends it when nothing is half done, twice ends it at once;
    SIGHUP reads the settings again, SIGUSR1 writes its state to the log. An address that other
    machines can reach needs BRAINSURGEON_API_KEYS, or --open.

    \b
    Examples:
      bsd run
      bsd --root /srv/openclaw run --http 127.0.0.1:8000
    """,
    _Run,
)
@click.option("--http", metavar="HOST:PORT", help="Serve the API on TCP, too.")
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Without API keys, serve the network, not only this machine.",
)
@click.pass_obj
def run(call: Call, /, http: str | None, is_open: bool) -> int:
    # While it starts they would end it, and a service manager takes that for what was wished.
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # Nor has anything begun that Ctrl-C could break off: while classes are made, Python would turn
    # it into an error.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Nearly all that a start makes stays; looking through it again and again costs a sixth of it.
    gc.disable()
    try:
        # Only now, and not before those signals are ignored: this is most of a start.
        from bsd.cli.daemon_process import run_daemon

        return run_daemon(call, http, is_open=is_open)
    finally:
        gc.enable()


# --- bsd status ---


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
    shown = problem_of(problem, None)
    disk, clock = None, None
    with suppress(BsdError):  # with broken settings there is no more to say
        try:
            call.layout  # noqa: B018 - whether there is a root
        except NoRoot as missing:
            shown = replace(shown, error=f"{shown.error}: {missing.message}", hint=missing.hint)
            raise
        call.finish_due()
        disk = disk_use(call.layout)
        keep = lifetime_seconds(call.pruning.current.retention)
        clock = look(call.layout, keep=False).why_held(keep)
    if call.json:
        print_json({**shown.as_json(), "disk": disk, "clock": clock})
    elif disk is not None:
        for name, line in disk_lines(disk, time.time()):
            say(f"{name:<6}{line}")
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


_JOBS = """
Asks the running daemon; exit code 3 if there is none.

\b
Examples:
  bsd jobs
  bsd jobs run retention
  bsd jobs --json | jq '.jobs[] | select(.last_result.ok == false)'
"""


jobs = group("jobs", _JOBS, usual="list")


def _job_names(call: Call, _: click.Context) -> Iterator[str]:
    answer = find_client(call.root, call.config).get("/api/jobs")
    return (job["name"] for job in answer["jobs"])


@jobs.command("run", cls=BsdCommand)
@click.argument("name", shell_complete=offering(_job_names))
@click.pass_obj
def run_job(call: Call, /, name: str) -> int:
    """Run one job now and wait for its end. Exit code 1 if it failed."""
    client = find_client(call.root, call.config)
    job = client.post(f"/api/jobs/{quote(name, safe='')}/run")
    result = job["last_result"] or {"ok": True, "error": None, "seconds": 0.0}
    if call.json:
        print_json(job)
    elif result["ok"]:
        say(f"{job['name']} is done, in {result['seconds']:.1f} s")
    else:
        say(f"{job['name']} failed: {result['error']}")
    held = result["ok"] and job["name"] == "retention" and _held(client.get("/api/status"))
    if held:
        note(f"Not all that is old enough may be deleted: {held}")
        note("Try: set the clock right, or wait; if it is right: `bsd retention --trust-clock`")
    return 0 if result["ok"] and not held else 1


def _held(status: Mapping[str, Any]) -> str | None:
    """Return why the clock holds retention back."""
    retention = status.get("retention", {})
    for place in (retention, retention.get("archive", {}), retention.get("trash", {})):
        if place.get("held"):
            return str(place["held"])
    return None


@jobs.command("list", cls=BsdCommand)
@click.pass_obj
def list_jobs(call: Call, /) -> None:
    """List the jobs."""
    answer = find_client(call.root, call.config).get("/api/jobs")
    if call.json:
        print_json(answer)
        return
    now = time.time()
    print_table(
        ("JOB", "SCHEDULE", "LAST RUN", "NEXT RUN", "RESULT"),
        [_row(job, now) for job in answer["jobs"]],
        last_may_shrink=True,
    )


def _row(job: Mapping[str, Any], now: float) -> tuple[str, ...]:
    schedule = job["schedule"] or "when asked"
    return (
        job["name"],
        schedule if job["enabled"] else f"{schedule} (off)",
        spell_when(job["last_run"], now) if job["last_run"] else "not since the start",
        "running" if job["running"] else _next(job, now),
        _result(job["last_result"]),
    )


def _next(job: Mapping[str, Any], now: float) -> str:
    return spell_when(job["next_run"], now) if job["next_run"] else ""


def _result(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    if result["ok"]:
        return f"ok, {spell_seconds(result['seconds'])}"
    return f"failed: {one_line(result['error'] or '', 200)}"
