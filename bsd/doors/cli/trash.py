"""`bsd trash`: what was deleted and is still there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.names import say_who
from bsd.doors.cli.output import counted, note, print_json, print_table, say, size

if TYPE_CHECKING:
    from bsd.care.trash import Trash
    from bsd.care.trashed import Trashed

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


class _Trash(click.Group, BsdCommand):
    """A group that is a command as well, when nothing follows."""


def open_trash(
    call: Call, *, writes: bool = True, sleep: Callable[[float], None] = time.sleep
) -> Trash:
    """The trash; whoever writes begins by finishing or undoing what an earlier call left."""
    from bsd.care.trash import Trash
    from bsd.doors.cli.call import LONGEST_WAIT
    from bsd.session.rest import Patience

    if writes:
        call.surgeon(sleep=sleep)
    else:
        call.log(writes=False)
    quiet = call.settings.quiet_seconds if call.settings else 2.0
    keep = call.pruning.current.trash_retention
    return Trash(call.layout, keep, patience=Patience(LONGEST_WAIT, quiet, sleep=sleep))


@click.group(
    "trash",
    cls=_Trash,
    invoke_without_command=True,
    help=f"{COMMANDS['trash'].help}\n\n{_MORE}",
)
@click.pass_context
def trash(context: click.Context, /) -> None:
    if context.invoked_subcommand is None:
        _list(context.obj)


@trash.command("list", cls=BsdCommand)
@click.pass_obj
def list_(call: Call, /) -> None:
    """List what can be brought back, and until when."""
    _list(call)


@trash.command("restore", cls=BsdCommand)
@click.argument("what", metavar="ID", shell_complete=complete.trash)
@click.pass_obj
def restore(call: Call, /, what: str) -> int:
    """Bring a session back, with the children that went with it."""
    from bsd.doors.cli.interrupt import stop_request

    with stop_request() as request:
        found = open_trash(call, sleep=request.sleep)
        done = found.restore(_id_of(found, what))
    if call.json:
        print_json(done.as_json())
        return request.exit_code
    head, *children = done.items
    more = f", with {counted(len(children), 'child session')}" if children else ""
    say(f"{head.name} is back{more}")
    for key in done.keys_taken:
        note(f"sessions.json has another {key} by now: that one stays")
    for each, why in done.not_restored.items():
        note(f"{each} stays in the trash: {why}")
    return request.exit_code


@trash.command("delete", cls=BsdCommand)
@click.argument("what", metavar="ID", shell_complete=complete.trash)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(call: Call, /, what: str, yes: bool) -> int:
    """Delete one session in the trash for good."""
    from bsd.doors.cli.interrupt import stop_request

    with stop_request() as request:
        found = open_trash(call, sleep=request.sleep)
        what = _id_of(found, what)
        if not yes:
            item = found.find(what)
            what = item.id
            _ask(
                f"Delete {item.name} ({_amount([item])}) in the trash for good?",
                f"`bsd trash delete {what} --yes`",
            )
        item = found.remove(what)
    if call.json:
        print_json({"deleted": True, **item.as_json()})
    else:
        say(f"{item.id} is deleted for good")
    return request.exit_code


@trash.command("empty", cls=BsdCommand)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def empty(call: Call, /, yes: bool) -> int:
    """Delete all that is in the trash for good."""
    from bsd.doors.cli.interrupt import stop_request
    from bsd.foundation.errors import BsdError

    with stop_request() as request:
        found = open_trash(call, sleep=request.sleep)
        items = found.items()
        if items and not yes:
            what = f"{counted(len(items), 'session')} ({_amount(items)}) in {call.layout.trash}"
            _ask(f"Delete {what} for good?", "`bsd trash empty --yes`")
        gone, failed = [], {}
        for item in items:
            if request.number is not None:
                break
            try:
                gone.append(found.remove(item.id))
            except BsdError as problem:
                failed[item.id] = problem.message
    if call.json:
        ids = [item.id for item in gone]
        amount = sum(_bytes(item) for item in gone)
        print_json({"cleaned": len(ids), "bytes": amount, "ids": ids, "failed": failed})
    else:
        say(f"deleted {counted(len(gone), 'session')} ({_amount(gone)}) for good")
        for each, why in failed.items():
            note(f"{each}: {why}")
    return 1 if failed else request.exit_code


def _ask(question: str, refusal: str) -> None:
    from bsd.doors.cli.call import confirm
    from bsd.foundation.errors import Conflict

    if not confirm(question, refusal):
        raise Conflict("nothing was deleted", hint=f"{refusal} does not ask")


def _id_of(found: Trash, text: str) -> str:
    """The id that is meant: whole, or how the only one begins, or a session's name, or its id."""
    from bsd.doors.cli.names import only_one
    from bsd.foundation.errors import Invalid, NotFound

    try:
        return found.find(text).id
    except (Invalid, NotFound):
        begins = [
            item.id
            for item in found.items()
            if any(name.startswith(text) for name in (item.id, str(item.name), item.name.session))
        ]
        whole = only_one(text, "sessions in the trash", begins) if text else None
        if whole is None:
            raise
    say_who(text, whole)
    return whole


def _list(call: Call) -> None:
    found = open_trash(call, writes=False)
    items = found.items()
    if call.json:
        keep = call.pruning.current.trash_retention
        print_json({"keep": keep, "sessions": [item.as_json() for item in items]})
        return
    if not items:
        say("the trash is empty")
        return
    rows = [
        (
            item.id,
            str(item.name),
            size(item.size),
            str(item.entries),
            size(item.extracted_bytes),
            _moment(item.as_json()["trashed_at"]),
            _moment(item.as_json()["expires_at"]),
        )
        for item in items
    ]
    columns = ("ID", "SESSION", "SIZE", "ENTRIES", "EXTRACTED", "DELETED (UTC)", "EXPIRES (UTC)")
    print_table(columns, rows, right=("SIZE", "ENTRIES", "EXTRACTED"))
    for item in items:
        if item.problem is not None:
            note(f"{item.problem}\nTry: `bsd trash delete {item.id}`; it cannot be brought back")


def _moment(text: str | None) -> str:
    return "never" if text is None else text[:16].replace("T", " ")


def _bytes(item: Trashed) -> int:
    return item.size + item.extracted_bytes


def _amount(items: list[Trashed]) -> str:
    return size(sum(map(_bytes, items)))
