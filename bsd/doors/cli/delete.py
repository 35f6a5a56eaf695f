"""`bsd delete`: a session into the trash, with its children, its store and its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.output import counted, print_json, print_table, say, size

if TYPE_CHECKING:
    from bsd.care.trash import Trash
    from bsd.foundation.layout import SessionName


@command(
    "delete",
    """
    With the session go what was taken out of it, its history, its entries in sessions.json, and
    its child sessions of all generations. All of it comes back with `bsd trash restore`, for as
    long as the setting `trash_retention` says. A session in use is refused.

    \b
    Examples:
      bsd delete main/4f2a
      bsd delete main/4f2a --permanent --yes
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--permanent", is_flag=True, help="Delete it for good, past the trash.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(call: Call, /, session: SessionName, permanent: bool, yes: bool) -> int:
    from bsd.doors.cli.interrupt import stop_request
    from bsd.doors.cli.trash import open_trash

    with stop_request() as request:
        trash = open_trash(call, sleep=request.sleep)
        if not yes:
            _ask(call, trash, session, permanent=permanent)
        done = trash.delete(session, permanent=permanent)
    if call.json:
        print_json(done.as_json())
        return request.exit_code
    how = "for good" if permanent else "and moved to the trash"
    children = len(done.items) - 1
    more = f", with {counted(children, 'child session')}" if children else ""
    say(f"{session} is deleted {how}{more}")
    if not permanent:
        say(f"`bsd trash restore {done.items[0].id}` brings it back")
    return request.exit_code


def _ask(call: Call, trash: Trash, session: SessionName, *, permanent: bool) -> None:
    """Name what would go; raises Conflict if it shall not."""
    from bsd.doors.cli.call import confirm
    from bsd.foundation.errors import Conflict

    doomed = trash.doomed(session)
    if not call.json:
        rows = [
            (
                str(item.name),
                size(item.size),
                str(item.entries),
                size(item.extracted_bytes),
            )
            for item in doomed
        ]
        columns = ("SESSION", "SIZE", "ENTRIES", "EXTRACTED")
        print_table(columns, rows, right=columns[1:])
    children = len(doomed) - 1
    more = f" and {counted(children, 'child session')}" if children else ""
    what = "Delete for good, past the trash:" if permanent else "Move to the trash:"
    refusal = f"`bsd delete {session}{' --permanent' if permanent else ''} --yes`"
    if not confirm(f"{what} {session}{more} under {call.layout.root}?", refusal):
        raise Conflict("nothing was deleted", hint=f"{refusal} does not ask")
