"""`bsd delete` and `bsd trash`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from bsd.actions.trash import (
    Emptied,
    TrashList,
    delete_from_trash,
    delete_session,
    empty_trash,
    list_trash,
    restore_from_trash,
)
from bsd.cli import completion
from bsd.cli.call import BsdCommand, BsdGroup, Call, ask_first
from bsd.cli.names import only_one, say_who
from bsd.cli.options import session_argument, yes_option
from bsd.cli.output import counted, minute, note, print_table, say, size
from bsd.core.errors import Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import Deleted, Returned, Trashed


@click.command("delete", cls=BsdCommand)
@session_argument
@click.option("--permanent", is_flag=True, help="Delete it for good, not into the trash.")
@yes_option
@click.pass_obj
def delete_command(call: Call, /, session: SessionName, permanent: bool, yes: bool) -> None:
    """Move a session and its children to the trash.

    The session's extracted values, its history, its entries in sessions.json, and its child
    sessions of all generations go with it. `bsd trash restore` brings all of them back, for as long
    as the setting `trash_retention` says. A session in use is refused.

    \b
    Examples:
      bsd delete main/4f2a
      bsd delete main/4f2a --permanent --yes
    """
    with call.context(changes=True) as context:
        if not yes:
            _ask_about(call, context.trash(), session, permanent=permanent)
        answer = delete_session(context, session, permanent=permanent)
    call.answer(answer, tell_deleted)


def _ask_about(call: Call, trash: Trash, session: SessionName, *, permanent: bool) -> None:
    """List the sessions that would be deleted, and ask; raises Conflict if the answer is no."""
    doomed = trash.doomed(session)
    if not call.json:
        rows = [
            (str(item.name), size(item.size), str(item.entries), size(item.extracted_bytes))
            for item in doomed
        ]
        columns = ("SESSION", "SIZE", "ENTRIES", "EXTRACTED")
        print_table(columns, rows, right=columns[1:])
    children = len(doomed) - 1
    more = f" and {counted(children, 'child session')}" if children else ""
    what = "Delete for good, not into the trash:" if permanent else "Move to the trash:"
    unasked = f"`bsd delete {session}{' --permanent' if permanent else ''} --yes`"
    ask_first(f"{what} {session}{more} under {call.layout.root}?", unasked, "deleted")


def tell_deleted(done: Deleted) -> None:
    how = "for good" if done.permanent else "and moved to the trash"
    say(f"{done.session} is deleted {how}{_with_children(done.children_deleted)}")
    if not done.permanent:
        say(f"`bsd trash restore {done.trash_id}` brings it back")


def _with_children(count: int) -> str:
    return f", with {counted(count, 'child session')}" if count else ""


@click.group("trash", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def trash_group(context: click.Context, /) -> Any:
    """List the trash, restore from it, or empty it.

    An ID is from the list; AGENT/SESSION is enough if the trash has the session only once. Sessions
    older than the setting `trash_retention` are deleted by the next retention run.

    \b
    Examples:
      bsd trash list
      bsd trash restore main_4f2a_20261121T221605.123Z
      bsd trash restore main/4f2a
      bsd trash delete main/4f2a --yes
      bsd trash empty
    """
    if context.invoked_subcommand is None:
        return context.invoke(list_command)
    return None


id_argument = click.argument("id", metavar="ID", shell_complete=completion.trash)


@trash_group.command("list")
@click.pass_obj
def list_command(call: Call, /) -> int:
    """List the sessions in the trash, and when they expire."""
    with call.context(changes=False) as context:
        answer = list_trash(context)
    call.answer(answer, tell_trash)
    return int(any(item.problem is not None for item in answer.sessions))


def tell_trash(found: TrashList) -> None:
    if not found.sessions:
        say("the trash is empty")
        return
    rows = [
        (
            item.id,
            item.session,
            size(item.size),
            str(item.entries),
            size(item.extracted_bytes),
            minute(item.trashed),
            minute(item.expires),
        )
        for item in found.sessions
    ]
    columns = ("ID", "SESSION", "SIZE", "ENTRIES", "EXTRACTED", "DELETED (UTC)", "EXPIRES (UTC)")
    print_table(
        columns,
        rows,
        right=("SIZE", "ENTRIES", "EXTRACTED"),
        spare=("SESSION", "ENTRIES", "EXTRACTED"),
    )
    for item in found.sessions:
        if item.problem is not None:
            note(f"{item.problem}\nTry: `bsd trash delete {item.id}`; it cannot be brought back")


@trash_group.command("restore")
@id_argument
@click.pass_obj
def restore_command(call: Call, /, id: str) -> None:
    """Bring a session back, with the children that were deleted with it."""
    with call.context(changes=True) as context:
        answer = restore_from_trash(context, _find(context.trash(), id).id)
    call.answer(answer, tell_returned)


def tell_returned(done: Returned) -> None:
    say(f"{done.session} is back{_with_children(len(done.sessions) - 1)}")
    for key in done.keys_taken:
        note(f"sessions.json has another {key} by now, which was not replaced")
    for session, why in done.not_restored.items():
        note(f"{session} stays in the trash: {why}")


@trash_group.command("delete")
@id_argument
@yes_option
@click.pass_obj
def delete_from_trash_command(call: Call, /, id: str, yes: bool) -> None:
    """Delete one session in the trash for good."""
    with call.context(changes=True) as context:
        item = _find(context.trash(), id)
        if not yes:
            question = f"Delete {item.name} ({_amount([item])}) in the trash for good?"
            ask_first(question, f"`bsd trash delete {item.id} --yes`", "deleted")
        answer = delete_from_trash(context, item.id)
    call.answer(answer, lambda _: say(f"{item.id} is deleted for good"))


@trash_group.command("empty")
@yes_option
@click.pass_obj
def empty_command(call: Call, /, yes: bool) -> int:
    """Delete all sessions in the trash for good."""
    with call.context(changes=True) as context:
        if items := [] if yes else context.trash().items():
            what = f"{counted(len(items), 'session')} ({_amount(items)}) in {call.layout.trash}"
            ask_first(f"Delete {what} for good?", "`bsd trash empty --yes`", "deleted")
        answer = empty_trash(context)
    call.answer(answer, tell_emptied)
    return int(bool(answer.failed))


def tell_emptied(done: Emptied) -> None:
    say(f"deleted {counted(done.cleaned, 'session')} ({size(done.bytes)}) for good")
    for id_, why in done.failed.items():
        note(f"{id_}: {why}")


def _find(trash: Trash, text: str) -> Trashed:
    """Find a session in the trash by its id or name, or by the beginning of only one of them.

    Raises:
        NotFound: no id or name begins with the text.
        Invalid: several do.
    """
    try:
        return trash.find(text)
    except (Invalid, NotFound):
        fitting = _beginning_with(trash, text, str) or _beginning_with(trash, text, str.casefold)
        whole = only_one(text, "sessions in the trash", list(fitting)) if text else None
        if whole is None:
            raise
    say_who(text, whole)
    return fitting[whole]


def _beginning_with(trash: Trash, text: str, spelled: Callable[[str], str]) -> dict[str, Trashed]:
    return {
        item.id: item
        for item in trash.items()
        if any(
            spelled(name).startswith(spelled(text))
            for name in (item.id, str(item.name), item.name.session)
        )
    }


def _amount(items: Sequence[Trashed]) -> str:
    return size(sum(item.size + item.extracted_bytes for item in items))
