"""`bsd history` and `bsd undo`: the operations on a session, and taking them back."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bsd.actions.history import HistoryList, list_history, undo
from bsd.cli.call import BsdCommand, Call, ask_first
from bsd.cli.options import session_argument, yes_option
from bsd.cli.output import counted, note, print_table, say, size
from bsd.core.layout import SessionName
from bsd.planning.undo import PastOperation, Undone

_MOST_IDS = 3  # entries named in a row of the history


@click.command("history", cls=BsdCommand)
@session_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="No more than so many, the newest [50].",
)
@click.pass_obj
def history_command(call: Call, /, session: SessionName, limit: int) -> None:
    """Show what was done to a session, and what is undone.

    The newest first. `bsd undo` takes the number in the first column. History is kept for as long
    as the setting `trash_retention` says.

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
        say(f"nothing was done to {found.session}, or it is no longer kept")
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
    grown = operation.bytes_after - operation.bytes_before
    ids = operation.entry_ids[:_MOST_IDS]
    more = operation.entries - len(ids)
    return (
        str(operation.operation),
        operation.at[:19],
        operation.action + undoes,
        operation.actor,
        operation.state.replace("_", " "),
        ("−" if grown < 0 else "+") + size(abs(grown)),
        ", ".join(ids) + (f" and {more:,} more" if more > 0 else ""),
    )


@click.command("undo", cls=BsdCommand)
@session_argument
@click.argument("op", type=click.IntRange(min=1), required=False, metavar="[OP]")
@yes_option
@click.pass_obj
def undo_command(call: Call, /, session: SessionName, op: int | None, yes: bool) -> None:
    """Take back what was done to a session.

    Every line that the operation changed becomes what it was, exact to the byte. Without OP the
    newest operation that is not undone; OP is a number from `bsd history`. An older one can be
    undone if nothing changed the same entries since. Undoing an undo does the operation again.
    What an undone extraction brought back stays until you extract the session by hand. What a
    restore brought back is taken out again when you undo the restore: the command asks first.

    \b
    Examples:
      bsd undo main/4f2a
      bsd undo main/4f2a 12
    """
    with call.context(changes=True) as context:
        if not yes:
            op = _ask(list_history(context, session).operations, session, op)
        answer = undo(context, session, op)
    call.answer(answer, lambda answer: tell_undone(answer, session))


def _ask(operations: Sequence[PastOperation], session: SessionName, op: int | None) -> int | None:
    """Ask before a restore is undone; return the operation to undo, as it was shown.

    Raises Conflict if the answer is no.
    """
    operation = _to_be_undone(operations, op)
    if operation is None or not _is_restore(operation.action):
        return op
    values = f"{counted(operation.values, 'value')} of {counted(operation.entries, 'entry')}"
    ask_first(
        f"Undo operation {operation.operation} ({operation.action}, {operation.at[:19]} UTC): "
        f"take {values} out of {session} again?",
        f"`bsd undo {session}{'' if op is None else f' {op}'} --yes`",
    )
    return operation.operation


def _to_be_undone(operations: Sequence[PastOperation], op: int | None) -> PastOperation | None:
    """Find the operation `op`, or the newest that can be undone."""
    for operation in operations:
        if operation.operation == op:
            return operation
        if op is None and operation.undoes is None and operation.state != "undone":
            return operation
    return None


def _is_restore(action: str) -> bool:
    return action.startswith("restore")


def tell_undone(answer: Undone, session: SessionName) -> None:
    operation = f"operation {answer.undone} ({answer.action}, {answer.at[:19]} UTC)"
    out = ", whose values are taken out again" if _is_restore(answer.action) else ""
    say(f"Undid {operation} of {session}: {counted(len(answer.entries), 'entry')}{out}")
    if answer.gone:
        say(f"  Thrown away by another program since: {counted(len(answer.gone), 'entry')}")
    for number in answer.operations:
        say(f"  `bsd undo {session} {number}` does it again")
    if answer.action == "extract":
        note(
            f"It stays inline until `bsd extract {session}` takes it out again, or "
            f"`bsd set-extractable {session} ENTRY unset` gives an entry back to the daemon"
        )
