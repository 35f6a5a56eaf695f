"""`bsd fleet export`: sessions, calls, usage and savings by day, as Parquet files."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import click

from bsd.actions.fleet_export import ExportedFleet, fleet_export
from bsd.cli.call import BsdCommand, Call
from bsd.cli.output import counted, note, say
from bsd.core.past_moments import FORMS, parse_past


@click.command("export", cls=BsdCommand)
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A directory; default: this host's directory in the bucket.",
)
@click.option("--since", metavar="DATE", help=f"Leave files of earlier days as they are: {FORMS}.")
@click.pass_obj
def export_command(call: Call, /, to: Path | None, since: str | None) -> int:
    """Write sessions, calls, usage and savings by day as Parquet files.

    The files contain no text and no titles: names, models, tokens, sizes, times and costs. DuckDB,
    ClickHouse, Athena and others read them. Only what has changed since the last export is read and
    written. Days are days of UTC. With `parquet = true` under [fleet], the daemon does this once a
    day.

    \b
    Examples:
      bsd fleet export
      bsd fleet export --to ~/usage --since 2026-11-01
    """
    day = None
    if since is not None:
        day = datetime.fromtimestamp(parse_past(since, time.time())).astimezone().date()
    with call.context(changes=False, ends_early=True) as context:
        answer = fleet_export(context, to, day)
    call.answer(answer, tell_exported)
    return int(bool(answer.failed) or not answer.complete)


def tell_exported(done: ExportedFleet) -> None:
    say(
        f"{done.to}: {counted(done.written, 'file')} written, {done.unchanged} unchanged, "
        f"{done.deleted} deleted; {counted(done.sessions, 'session')} read"
    )
    for problem in done.failed:
        note(f"Not read: {problem}")
    if not done.complete:
        note("Stopped before the end. The same command goes on.")
