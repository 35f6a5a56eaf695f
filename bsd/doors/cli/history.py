"""`bsd history`: what was done to a session, and what of it is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import print_json, print_table, say
from bsd.doors.cli.text import size

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName

_SHOWN = 50
_IDS = 3


@command(
    "history",
    """
    The newest first. `bsd undo` takes the number in the first column. History is kept for as long
    as the setting `trash_retention` says.

    \b
    Examples:
      bsd history main/4f2a
      bsd history main/4f2a --limit 200
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--limit", type=click.IntRange(1), default=_SHOWN, help=f"Default: {_SHOWN}.")
@click.pass_obj
def history(call: Call, /, session: SessionName, limit: int) -> None:
    call.say_whose(session.agent)
    operations = call.queries().history(session)
    if not operations:
        call.layout.session_file(session)  # a name mistyped is an error, not an empty history
    if call.json:
        print_json({"session": str(session), "operations": operations[:limit]})
    elif operations:
        columns = ("OP", "WHEN (UTC)", "WHAT", "BY", "STATE", "SIZE", "ENTRIES")
        print_table(columns, map(_row, operations[:limit]), right=("OP", "SIZE"))
        if len(operations) > limit:
            say(f"… and {len(operations) - limit:,} older: --limit {len(operations)}")
    else:
        say(f"nothing was done to {session}, or it is no longer kept")


def _row(operation: dict[str, Any]) -> tuple[str, ...]:
    undoes = operation["undoes"]
    grown = operation["bytes_after"] - operation["bytes_before"]
    ids: list[str] = operation["entry_ids"]
    more = operation["entries"] - len(ids[:_IDS])
    return (
        str(operation["operation"]),
        operation["at"][:19],
        operation["action"] + (f" of {undoes}" if undoes is not None else ""),
        operation["actor"],
        operation["state"].replace("_", " "),
        ("−" if grown < 0 else "+") + size(abs(grown)),
        ", ".join(ids[:_IDS]) + (f" and {more:,} more" if more > 0 else ""),
    )
