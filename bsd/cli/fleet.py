"""`bsd fleet`: what this machine shares with others."""

from __future__ import annotations

from typing import Any

import click

from bsd.actions.fleet import BEGIN
from bsd.actions.fleet_status import FleetStatus, HostState, fleet_status
from bsd.cli.call import BsdGroup, Call
from bsd.cli.fleet_catalogue import migrate_command, rebuild_command
from bsd.cli.fleet_export import export_command
from bsd.cli.output import counted, minute, note, print_table, say, say_wrapped, size
from bsd.cli.problem import Problem
from bsd.cli.progress import waiting
from bsd.cli.push import update_command
from bsd.core.durations import spell_seconds


@click.group("fleet", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def fleet_group(context: click.Context, /) -> Any:
    """Show what this machine shares with others.

    `[fleet]` of bsd.toml names a bucket, to which the archive is uploaded, and a database, in which
    all machines list their sessions. `bsd archive` uses the bucket, `bsd sessions --fleet` and `bsd
    search --fleet` the database.

    \b
    Examples:
      bsd fleet
      bsd fleet status --json | jq '.hosts[] | select(.behind_files > 0) | .host'
    """
    if context.invoked_subcommand is None:
        return context.invoke(status_command)
    return None


@fleet_group.command("status")
@click.pass_obj
def status_command(call: Call, /) -> int:
    """List the hosts, each with the files that it has not uploaded yet.

    This machine comes first. WAITING is their number and size, FOR is since when they wait; of
    hosts that only the bucket knows, it is not known. Exit code 1 if the bucket, the database or
    the record of this machine's uploads cannot be used; the rest is shown.
    """
    with call.context(changes=False) as context, waiting("asking the bucket and the database"):
        answer = fleet_status(context)
    call.answer(answer, tell_status)
    for problem in answer.problems:
        Problem(f"{problem.part}: {problem.error}", 1, problem.hint).show()
    return int(bool(answer.problems))


def tell_status(found: FleetStatus) -> None:
    if found.bucket is None and not found.database:
        say_wrapped("This machine shares nothing: bsd.toml names neither a bucket nor a database.")
        say_wrapped(f"Try: {BEGIN}")
        return
    if found.hosts:
        right = ("SESSIONS", "SIZE", "IN BUCKET", "WAITING")
        columns = ("HOST", "LAST SEEN (UTC)", "VERSION", *right, "FOR", "ERRORS")
        print_table(
            columns,
            [_row(host) for host in found.hosts],
            right=(*right, "ERRORS"),
            spare=("VERSION", "SIZE", "SESSIONS", "LAST SEEN (UTC)"),
        )
        say()
    catalogue = "a catalogue" if found.database else "no catalogue"
    say_wrapped(f"{counted(len(found.hosts), 'host')}; {found.bucket or 'no bucket'}, {catalogue}")
    for host in found.hosts:
        if host.last_error:
            note(f"{host.host}, last error: {host.last_error}")
    for warning in found.warnings:
        note(warning)


def _row(host: HostState) -> tuple[str, ...]:
    waits = "unknown" if host.behind_files is None else "nothing"
    if host.behind_files:
        waits = f"{counted(host.behind_files, 'file')}, {size(host.behind_bytes or 0)}"
    return (
        f"{host.host} (here)" if host.here else host.host,
        minute(host.last_seen) if host.last_seen else "unknown",
        host.version or "",
        "" if host.sessions is None else f"{host.sessions:,}",
        "" if host.bytes is None else size(host.bytes),
        "" if host.bucket_bytes is None else size(host.bucket_bytes),
        waits,
        "" if host.behind_seconds is None else spell_seconds(host.behind_seconds),
        str(host.errors or ""),
    )


# --- commands of other modules: `fleet_group.add_command(COMMAND)`, one line each ---

# the catalogue
fleet_group.add_command(update_command)
fleet_group.add_command(migrate_command)
fleet_group.add_command(rebuild_command)

# files for analysis
fleet_group.add_command(export_command)
