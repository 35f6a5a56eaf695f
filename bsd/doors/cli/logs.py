"""`bsd logs`: what the log says, and what is added to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.log_lines import LineFilter, console_line, json_line
from bsd.doors.cli.output import note, styled

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName

_STYLES = {"error": "1;31", "warn": "33", "info": "32", "debug": "2", "trace": "2"}


@command(
    "logs",
    """
    Shows the end of <root>/logs/brainsurgeon.log. With --json the lines are as they stand there.

    \b
    Examples:
      bsd logs -f
      bsd logs --level warn
      bsd logs -n 500 --session main/4f2a… --json | jq .event
    """,
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    metavar="N",
    help="Begin with the last N lines [50].",
)
@click.option(
    "--level",
    type=click.Choice(["trace", "debug", "info", "warn", "error"]),
    default="trace",
    metavar="LEVEL",
    help="Only lines of this level and above.",
)
@click.option("--session", type=SESSION, metavar="A/S", help="Only lines about this session.")
@click.pass_obj
def logs(call: Call, /, follow: bool, lines: int, level: str, session: SessionName | None) -> None:
    from bsd.doors.cli.log_file import LogReader

    wanted = LineFilter(level, str(session) if session else None)
    file = LogReader(call.layout.refuse_outside(call.layout.log_file))
    with file:
        if not file.is_there():
            note(f"nothing has been logged yet: {file.path}")
        for line in file.last(lines, wanted):
            _print(line, as_json=call.json)
        sys.stdout.flush()
        if follow:
            for line in file.follow(wanted):
                _print(line, as_json=call.json)
                sys.stdout.flush()


def _print(line: bytes, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_line(line) + "\n")
        return
    shown = console_line(line)
    head = f"{shown.time} {styled(f'{shown.level:<5}', _STYLES.get(shown.level, ''), sys.stdout)}"
    sys.stdout.write(f"{head} {shown.rest}\n")
