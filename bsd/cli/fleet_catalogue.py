"""`bsd fleet migrate` and `bsd fleet rebuild`: the tables of the catalogue in PostgreSQL."""

from __future__ import annotations

import click

from bsd.actions.fleet_catalogue import (
    MigratedCatalogue,
    RebuiltCatalogue,
    migrate_catalogue,
    rebuild_catalogue,
)
from bsd.cli.call import BsdCommand, Call
from bsd.cli.output import counted, note, say


@click.command("migrate", cls=BsdCommand)
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="ROLE",
    help="Let this role read all tables, for dashboards. May be repeated.",
)
@click.pass_obj
def migrate_command(call: Call, /, readers: tuple[str, ...]) -> int:
    """Make the tables of the catalogue, or bring them up to date.

    The daemon does so by itself if its role owns the schema `bsd`, or may make it. Nothing happens
    if the tables are up to date.

    \b
    Examples:
      bsd fleet migrate
      bsd fleet migrate --reader grafana
    """
    with call.context(changes=False) as context:
        answer = migrate_catalogue(context, readers)
    call.answer(answer, tell_migrated)
    return 0


@click.command("rebuild", cls=BsdCommand)
@click.option("--host", metavar="HOST", help="Only this host: HOST or HOST~ID.")
@click.pass_obj
def rebuild_command(call: Call, /, host: str | None) -> int:
    """Write the sessions that the bucket has of all hosts into the catalogue.

    What the catalogue has already stays, so the same command goes on after an interruption. Hosts
    that are there write their newer sessions themselves.

    \b
    Examples:
      bsd fleet rebuild
      bsd fleet rebuild --host builder-7
    """
    with call.context(changes=False, ends_early=True) as context:
        answer = rebuild_catalogue(context, host)
    call.answer(answer, tell_rebuilt)
    return int(bool(answer.failed))


def tell_migrated(done: MigratedCatalogue) -> None:
    if done.before == done.schema:
        say(f"{done.database}: schema {done.schema}, up to date")
    else:
        say(f"{done.database}: schema {done.schema} (before: {done.before or 'none'})")
    for role in done.readers:
        say(f"The role {role} may read it")


def tell_rebuilt(done: RebuiltCatalogue) -> None:
    say(
        f"{done.database}: {counted(done.sessions, 'session')} of {counted(done.hosts, 'host')}"
        f" read, {done.unchanged:,} were there; {done.rows:,} rows written"
    )
    for problem in done.failed:
        note(f"Not read: {problem}")
