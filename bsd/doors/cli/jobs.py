"""`bsd jobs`: what runs by the clock, and when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.client import find_client
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.output import print_json, print_table, say
from bsd.doors.cli.status_text import spell_seconds, spell_when
from bsd.doors.cli.text import one_line

_MORE = """
Asks the running daemon; exit code 3 if there is none.

\b
Examples:
  bsd jobs
  bsd jobs run retention
  bsd jobs --json | jq '.jobs[] | select(.last_result.ok == false)'
"""


class _Jobs(click.Group, BsdCommand):
    """A group that is a command as well, when nothing follows."""


@click.group(
    "jobs",
    cls=_Jobs,
    invoke_without_command=True,
    help=f"{COMMANDS['jobs'].help}\n\n{_MORE}",
)
@click.pass_context
def jobs(context: click.Context, /) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj)


@jobs.command("run", cls=BsdCommand)
@click.argument("name", shell_complete=complete.jobs)
@click.pass_obj
def run(call: Call, /, name: str) -> int:
    """Run one job now and wait for its end. Exit code 1 if it failed."""
    job = find_client(call.root, call.config).post(f"/api/jobs/{quote(name, safe='')}/run")
    result = job["last_result"] or {"ok": True, "error": None, "seconds": 0.0}
    if call.json:
        print_json(job)
    elif result["ok"]:
        say(f"{job['name']} is done, in {result['seconds']:.1f} s")
    else:
        say(f"{job['name']} failed: {result['error']}")
    return 0 if result["ok"] else 1


def _list(call: Call) -> None:
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
        spell_when(job["last_run"], now) if job["last_run"] else "never",
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
