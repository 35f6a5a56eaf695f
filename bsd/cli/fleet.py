"""`bsd fleet`: what this machine shares with others."""

from __future__ import annotations

from typing import Any

import click

from bsd.actions.fleet import FleetStatus, fleet_status
from bsd.cli.call import BsdGroup, Call
from bsd.cli.output import say


@click.group("fleet", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def fleet_group(context: click.Context, /) -> Any:
    """Show what this machine shares with others.

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
    """List the hosts, when each was last seen, and what it has not uploaded yet."""
    with call.context(changes=False) as context:
        answer = fleet_status(context)
    call.answer(answer, tell_status)
    return int(bool(answer.problems))


def tell_status(found: FleetStatus) -> None:
    for host in found.hosts:
        say(host.host)


# --- commands of other modules: `fleet_group.add_command(COMMAND)`, one line each ---

# the catalogue: `fleet_catalogue`

# files for analysis: `fleet_export`
