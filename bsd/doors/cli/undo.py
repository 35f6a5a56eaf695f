"""`bsd undo`: takes an operation on a session back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import note, print_json, say
from bsd.doors.cli.text import counted

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName


@command(
    "undo",
    """
    Every line that the operation changed becomes what it was, exact to the byte. Without OP the
    newest operation that is not undone; OP is a number from `bsd history`. An older one can be
    undone if nothing changed the same entries since. Undoing an undo does the operation again.
    What an undone extraction brought back stays until you extract the session by hand.

    \b
    Examples:
      bsd undo main/4f2a
      bsd undo main/4f2a 12
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("operation", type=click.IntRange(1), required=False, metavar="[OP]")
@click.pass_obj
def undo(call: Call, /, session: SessionName, operation: int | None) -> int:
    from bsd.doors.cli.interrupt import stop_request

    with stop_request() as request:
        answer = call.surgeon(sleep=request.sleep).undo(session, operation)
    if call.json:
        print_json(answer)
        return request.exit_code
    what = f"operation {answer['undone']} ({answer['action']}, {answer['at'][:19]} UTC)"
    say(f"Undid {what} of {session}: {counted(len(answer['entries']), 'entry')}")
    if answer["gone"]:
        say(f"  Thrown away by another program since: {counted(len(answer['gone']), 'entry')}")
    for number in answer["operations"]:
        say(f"  `bsd undo {session} {number}` does it again")
    if answer["action"] == "extract":
        note(
            f"It stays inline until `bsd extract {session}` takes it out again, or "
            f"`bsd set-extractable {session} ENTRY unset` gives an entry back to the daemon"
        )
    return request.exit_code
