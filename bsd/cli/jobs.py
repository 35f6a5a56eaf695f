"""`bsd jobs`: the scheduled jobs of the running daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import click

from bsd.cli.call import BsdGroup, Call
from bsd.cli.client import Client
from bsd.cli.completion import offering
from bsd.cli.output import one_line, print_json, print_table, say
from bsd.cli.progress import waiting
from bsd.cli.status_lines import spell_when
from bsd.core.durations import spell_seconds


@click.group("jobs", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def jobs(context: click.Context) -> int | None:
    """List the scheduled jobs, or run one now.

    Asks the running daemon; exit code 3 if there is none.

    \b
    Examples:
      bsd jobs
      bsd jobs run retention
      bsd jobs --json | jq '.jobs[] | select(.last_result.ok == false)'
    """
    return context.invoke(list_jobs) if context.invoked_subcommand is None else None


def _job_names(call: Call, _: click.Context) -> Iterator[str]:
    answer = Client(call.settings.socket).get("/api/jobs")
    return (job["name"] for job in answer["jobs"])


@jobs.command("run")
@click.argument("name", shell_complete=offering(_job_names))
@click.pass_obj
def run_job(call: Call, name: str) -> int:
    """Run one job now and wait for its end. Exit code 1 if it failed."""
    client = Client(call.settings.socket)
    with waiting(f"the daemon runs {name}"):
        job = client.post(f"/api/jobs/{quote(name, safe='')}/run")
    result = job["last_result"] or {"ok": True, "error": None, "seconds": 0.0}
    if call.json:
        print_json(job)
    elif result["ok"]:
        say(f"{job['name']} is done, in {result['seconds']:.1f} s")
    else:
        say(f"{job['name']} failed: {result['error']}")
    return 0 if result["ok"] else 1


@jobs.command("list")
@click.pass_obj
def list_jobs(call: Call) -> None:
    """List the jobs."""
    answer = Client(call.settings.socket).get("/api/jobs")
    if call.json:
        print_json(answer)
        return
    now = time.time()
    print_table(
        ("JOB", "SCHEDULE", "LAST RUN", "NEXT RUN", "RESULT"),
        [_row(job, now) for job in answer["jobs"]],
        wraps=("RESULT",),
        spare=("SCHEDULE", "LAST RUN"),
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
