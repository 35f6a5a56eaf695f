"""`bsd delete` and `bsd trash`: sessions that go, and what of them is still there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bsd.care.trashed import Trashed
from bsd.doors.cli import complete
from bsd.doors.cli.arguments import parameters
from bsd.doors.cli.call import SESSION, BsdCommand, Call, command, confirm
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.names import only_one, say_who
from bsd.doors.cli.output import counted, note, print_json, print_table, say, size
from bsd.doors.cli.verbs import CallHands
from bsd.foundation.answers import Answer
from bsd.foundation.errors import Conflict, Invalid, NotFound
from bsd.foundation.layout import SessionName
from bsd.verbs.trash import (
    DELETE,
    TRASH_DELETE,
    TRASH_EMPTY,
    TRASH_LIST,
    TRASH_RESTORE,
    Delete,
    DeleteFromTrash,
    EmptyTrash,
    ListTrash,
    RestoreFromTrash,
)
from bsd.verbs.verb import perform

if TYPE_CHECKING:  # only who changes the trash loads what does it
    from bsd.care.trash import Trash

_ID = {"id": complete.trash}
_MORE = """
An ID is what the list shows; AGENT/SESSION will do if it is in the trash once. What is older than
the setting `trash_retention` goes by itself, with the next retention run.

\b
Examples:
  bsd trash list
  bsd trash restore main_4f2a_20261121T221605.123Z
  bsd trash restore main/4f2a
  bsd trash delete main/4f2a --yes
  bsd trash empty
"""


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
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(call: Call, /, session: SessionName, permanent: bool, yes: bool) -> int:
    with stop_request() as request:
        hands = CallHands(call, request)
        if not yes:
            _ask_about(call, hands.trash(writes=True), session, permanent=permanent)
        done = perform(DELETE, hands, session, Delete(permanent))
    if not _told(call, done):
        how = "for good" if permanent else "and moved to the trash"
        say(f"{session} is deleted {how}{_with_children(done.children_deleted)}")
        if not permanent:
            say(f"`bsd trash restore {done.trash_id}` brings it back")
    return request.exit_code


delete.params[1:1] = parameters(Delete)


def _ask_about(call: Call, trash: Trash, session: SessionName, *, permanent: bool) -> None:
    """Name what would go; raises Conflict if it shall not."""
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
    _ask(f"{what} {session}{more} under {call.layout.root}?", refusal)


def _with_children(count: int) -> str:
    return f", with {counted(count, 'child session')}" if count else ""


class _Trash(click.Group, BsdCommand):
    """A group that is a command as well, when nothing follows."""


@click.group(
    "trash",
    cls=_Trash,
    invoke_without_command=True,
    help=f"{COMMANDS['trash'].help}\n\n{_MORE}",
)
@click.pass_context
def trash(context: click.Context, /) -> int:
    return _list(context.obj) if context.invoked_subcommand is None else 0


@trash.command("list", cls=BsdCommand)
@click.pass_obj
def list_trash(call: Call, /) -> int:
    """List what can be brought back, and until when."""
    return _list(call)


@trash.command("restore", cls=BsdCommand, params=parameters(RestoreFromTrash, completed=_ID))
@click.pass_obj
def restore(call: Call, /, id: str) -> int:
    """Bring a session back, with the children that went with it."""
    with stop_request() as request:
        hands = CallHands(call, request)
        found = _find(hands.trash(writes=True), id)
        done = perform(TRASH_RESTORE, hands, None, RestoreFromTrash(found.id))
    if not _told(call, done):
        say(f"{done.session} is back{_with_children(len(done.sessions) - 1)}")
        for key in done.keys_taken:
            note(f"sessions.json has another {key} by now: that one stays")
        for each, why in done.not_restored.items():
            note(f"{each} stays in the trash: {why}")
    return request.exit_code


@trash.command("delete", cls=BsdCommand, params=parameters(DeleteFromTrash, completed=_ID))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete_from_trash(call: Call, /, id: str, yes: bool) -> int:
    """Delete one session in the trash for good."""
    with stop_request() as request:
        hands = CallHands(call, request)
        found = _find(hands.trash(writes=True), id)
        if not yes:
            _ask(
                f"Delete {found.name} ({_amount([found])}) in the trash for good?",
                f"`bsd trash delete {found.id} --yes`",
            )
        done = perform(TRASH_DELETE, hands, None, DeleteFromTrash(found.id))
    if not _told(call, done):
        say(f"{done.id} is deleted for good")
    return request.exit_code


@trash.command("empty", cls=BsdCommand)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def empty(call: Call, /, yes: bool) -> int:
    """Delete all that is in the trash for good."""
    with stop_request() as request:
        hands = CallHands(call, request)
        items = [] if yes else hands.trash(writes=True).items()
        if items:
            what = f"{counted(len(items), 'session')} ({_amount(items)}) in {call.layout.trash}"
            _ask(f"Delete {what} for good?", "`bsd trash empty --yes`")
        done = perform(TRASH_EMPTY, hands, None, EmptyTrash())
    if not _told(call, done):
        say(f"deleted {counted(done.cleaned, 'session')} ({size(done.bytes)}) for good")
        for each, why in done.failed.items():
            note(f"{each}: {why}")
    return 1 if done.failed else request.exit_code


def _told(call: Call, answer: Answer) -> bool:
    """Tell programs what was answered; whether that is all who ask."""
    if call.json:
        print_json(answer.as_json())
    return call.json


def _ask(question: str, refusal: str) -> None:
    if not confirm(question, refusal):
        raise Conflict("nothing was deleted", hint=f"{refusal} does not ask")


def _find(trash: Trash, text: str) -> Trashed:
    """What is meant: by its id, or how the only one begins, or a session's name, or its id."""
    try:
        found = trash.find(text)
    except (Invalid, NotFound):
        begin = {
            item.id: item
            for item in trash.items()
            if any(name.startswith(text) for name in (item.id, str(item.name), item.name.session))
        }
        whole = only_one(text, "sessions in the trash", list(begin)) if text else None
        if whole is None:
            raise
        found = begin[whole]
        say_who(text, whole)
    return found


def _list(call: Call) -> int:
    found = perform(TRASH_LIST, CallHands(call), None, ListTrash())
    code = 1 if any(item.problem is not None for item in found.sessions) else 0
    if _told(call, found):
        return code
    if not found.sessions:
        say("the trash is empty")
        return code
    rows = [
        (
            item.id,
            item.session,
            size(item.size),
            str(item.entry_count),
            size(item.extracted_bytes),
            _moment(item.trashed_at),
            _moment(item.expires_at),
        )
        for item in found.sessions
    ]
    columns = ("ID", "SESSION", "SIZE", "ENTRIES", "EXTRACTED", "DELETED (UTC)", "EXPIRES (UTC)")
    print_table(columns, rows, right=("SIZE", "ENTRIES", "EXTRACTED"))
    for item in found.sessions:
        if item.problem is not None:
            note(f"{item.problem}\nTry: `bsd trash delete {item.id}`; it cannot be brought back")
    return code


def _moment(text: str | None) -> str:
    return "never" if text is None else text[:16].replace("T", " ")


def _amount(items: Sequence[Trashed]) -> str:
    return size(sum(item.size + item.extracted_bytes for item in items))
