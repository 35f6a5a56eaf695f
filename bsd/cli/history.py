"""`bsd history`: the operations on a session. `bsd undo` is in `undo.py`."""

from __future__ import annotations

import click

from bsd.actions.history import HistoryList, list_history
from bsd.cli.call import BsdCommand, Call
from bsd.cli.options import session_argument
from bsd.cli.output import print_table, say, size
from bsd.core.layout import SessionName
from bsd.planning.timing_words import SHORT_REASONS
from bsd.planning.undo import PastOperation

_MOST_IDS = 3  # entries named in a row of the history


@click.command("history", cls=BsdCommand)
@session_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="Show the N newest [50].",
)
@click.pass_obj
def history_command(call: Call, /, session: SessionName, limit: int) -> None:
    """List the changes to a session, undone ones too.

    The newest change comes first. `bsd undo` takes the number in the first column. History is kept
    for as long as the setting `trash_retention` says.

    \b
    Examples:
      bsd history main/4f2a
      bsd history main/4f2a --limit 200
    """
    with call.context(changes=False, session=session) as context:
        answer = list_history(context, session, limit=limit)
    call.answer(answer, tell_history)


def tell_history(found: HistoryList) -> None:
    if not found.operations:
        say(f"the history of {found.session} is empty, or no longer kept")
        return
    columns = ("OP", "WHEN (UTC)", "WHAT", "BY", "STATE", "SIZE", "ENTRIES")
    print_table(
        columns,
        map(_row, found.operations),
        right=("OP", "SIZE"),
        wraps=("ENTRIES",),
        spare=("ENTRIES", "BY"),
    )
    if older := found.kept - len(found.operations):
        say(f"… and {older:,} older: --limit {found.kept}")


def _row(operation: PastOperation) -> tuple[str, ...]:
    undoes = f" of {operation.undoes}" if operation.undoes is not None else ""
    cut = operation.cut_reason
    grown = operation.bytes_after - operation.bytes_before
    ids = operation.entry_ids[:_MOST_IDS]
    more = operation.entries - len(ids)
    return (
        str(operation.operation),
        operation.at[:19],
        operation.action + undoes + (f" ({SHORT_REASONS[cut]})" if cut in SHORT_REASONS else ""),
        operation.actor,
        operation.state.replace("_", " "),
        ("−" if grown < 0 else "+") + size(abs(grown)),
        ", ".join(ids) + (f" and {more:,} more" if more > 0 else ""),
    )
