"""What goes: `bsd delete`, `bsd trash`, and what was kept long enough, with `bsd retention`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from bsd.actions.parameters import parameters
from bsd.actions.trash import Emptied, TrashList
from bsd.actions.verbs import (
    RETENTION,
    CleanUp,
    Delete,
    DeleteFromTrash,
    EmptyTrash,
    RestoreFromTrash,
)
from bsd.cli import completion
from bsd.cli.call import Call, ask_first, command, group
from bsd.cli.commands import COMMANDS
from bsd.cli.completion import only_one, say_who
from bsd.cli.output import counted, minute, note, print_table, say, size
from bsd.cli.status import in_flight_line
from bsd.cli.verb_words import VerbWords
from bsd.cli.verbs import CallHands, carry_out, verb_command
from bsd.core.errors import Invalid, NotFound
from bsd.core.formatting import iso_utc
from bsd.core.layout import SessionName
from bsd.maintenance.disk_use import in_flight_use
from bsd.maintenance.expiry import Forecast
from bsd.maintenance.retention import CleanedAll, ForecastAll, Retention
from bsd.maintenance.trash import Trash
from bsd.maintenance.trashed import Deleted, Returned, Trashed

_ID = {"id": completion.trash}
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


_YES = click.Option(["--yes"], is_flag=True, help="Do not ask.")


# --- bsd delete ---


def _ask_about(hands: CallHands, session: SessionName, asked: Delete, *, yes: bool) -> Delete:
    """Name what would go; raises Conflict if it shall not."""
    if yes:
        return asked
    doomed = hands.trash(writes=True).doomed(session)
    if not hands.call.json:
        rows = [
            (str(item.name), size(item.size), str(item.entries), size(item.extracted_bytes))
            for item in doomed
        ]
        columns = ("SESSION", "SIZE", "ENTRIES", "EXTRACTED")
        print_table(columns, rows, right=columns[1:])
    children = len(doomed) - 1
    more = f" and {counted(children, 'child session')}" if children else ""
    what = "Delete for good, past the trash:" if asked.permanent else "Move to the trash:"
    refusal = f"`bsd delete {session}{' --permanent' if asked.permanent else ''} --yes`"
    ask_first(f"{what} {session}{more} under {hands.layout.root}?", refusal, "deleted")
    return asked


def _say_deleted(done: Deleted, session: SessionName) -> None:
    how = "for good" if done.permanent else "and moved to the trash"
    say(f"{session} is deleted {how}{_with_children(done.children_deleted)}")
    if not done.permanent:
        say(f"`bsd trash restore {done.trash_id}` brings it back")


def _with_children(count: int) -> str:
    return f", with {counted(count, 'child session')}" if count else ""


delete = verb_command(
    "delete",
    VerbWords(_say_deleted, begin=_ask_about, also=[_YES]),
    called="delete",
    line=COMMANDS["delete"].help,
)

# --- bsd trash ---


def _say_list(found: TrashList, _: object) -> None:
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
    print_table(columns, rows, right=("SIZE", "ENTRIES", "EXTRACTED"))
    for item in found.sessions:
        if item.problem is not None:
            note(f"{item.problem}\nTry: `bsd trash delete {item.id}`; it cannot be brought back")


def _found(hands: CallHands, _: object, asked: RestoreFromTrash) -> RestoreFromTrash:
    return RestoreFromTrash(_find(hands.trash(writes=True), asked.id).id)


def _say_back(done: Returned, _: object) -> None:
    say(f"{done.session} is back{_with_children(len(done.sessions) - 1)}")
    for key in done.keys_taken:
        note(f"sessions.json has another {key} by now: that one stays")
    for each, why in done.not_restored.items():
        note(f"{each} stays in the trash: {why}")


def _ask_to_remove(
    hands: CallHands, _: object, asked: DeleteFromTrash, *, yes: bool
) -> DeleteFromTrash:
    found = _find(hands.trash(writes=True), asked.id)
    if not yes:
        question = f"Delete {found.name} ({_amount([found])}) in the trash for good?"
        ask_first(question, f"`bsd trash delete {found.id} --yes`", "deleted")
    return DeleteFromTrash(found.id)


def _ask_to_empty(hands: CallHands, _: object, asked: EmptyTrash, *, yes: bool) -> EmptyTrash:
    if items := [] if yes else hands.trash(writes=True).items():
        what = f"{counted(len(items), 'session')} ({_amount(items)}) in {hands.layout.trash}"
        ask_first(f"Delete {what} for good?", "`bsd trash empty --yes`", "deleted")
    return asked


def _say_emptied(done: Emptied, _: object) -> None:
    say(f"deleted {counted(done.cleaned, 'session')} ({size(done.bytes)}) for good")
    for each, why in done.failed.items():
        note(f"{each}: {why}")


trash = group("trash", _MORE, usual="list")
for _verb, _called, _line, _words in (
    (
        "trash_list",
        "list",
        "List what can be brought back, and until when.",
        VerbWords(
            _say_list, lambda _, found: any(one.problem is not None for one in found.sessions)
        ),
    ),
    (
        "trash_restore",
        "restore",
        "Bring a session back, with the children that went with it.",
        VerbWords(_say_back, begin=_found, completed=_ID),
    ),
    (
        "trash_delete",
        "delete",
        "Delete one session in the trash for good.",
        VerbWords(
            lambda done, _: say(f"{done.id} is deleted for good"),
            begin=_ask_to_remove,
            also=[_YES],
            completed=_ID,
        ),
    ),
    (
        "trash_empty",
        "empty",
        "Delete all that is in the trash for good.",
        VerbWords(
            _say_emptied, lambda _, done: bool(done.failed), begin=_ask_to_empty, also=[_YES]
        ),
    ),
):
    trash.add_command(verb_command(_verb, _words, called=_called, line=_line))


def _find(trash: Trash, text: str) -> Trashed:
    """What is meant: by its id, or how the only one begins, or a session's name, or its id."""
    try:
        found = trash.find(text)
    except (Invalid, NotFound):
        begin = _beginning_with(trash, text, str) or _beginning_with(trash, text, str.casefold)
        whole = only_one(text, "sessions in the trash", list(begin)) if text else None
        if whole is None:
            raise
        found = begin[whole]
        say_who(text, whole)
    return found


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


# --- bsd retention ---


_SHOWN = 20


@command(
    "retention",
    """
    Extracted content is kept for as long as the setting `retention` says, and then moved into the
    archive, compressed; from there it can be restored as before. The daemon does this by the
    schedule in `retention_cron`. With `--forget`, or where the setting `archive` is false, it is
    deleted for good. The archive is kept for `archive_retention`, up to `archive_max_bytes`. What
    is in the trash, and what undo needs, is kept for `trash_retention`.
    When the clock of this machine was put forward, and no sleep explains it, nothing goes until the
    machine has run for as long as things are kept: exit code 1.

    \b
    Examples:
      bsd retention --dry-run
      bsd retention
      bsd retention --forget
    """,
)
@click.pass_obj
def retention(call: Call, /, **given: bool) -> int:
    words = VerbWords(
        lambda done, _: _tell_cleaned(call, done),
        lambda _, done: (
            isinstance(done, CleanedAll) and bool(done.failures or done.problem or done.held_places)
        ),
        _begin_cleaning,
    )
    return carry_out(call, RETENTION, None, CleanUp(**given), words)


retention.params[:0] = parameters(CleanUp)


def _begin_cleaning(hands: CallHands, _: object, asked: CleanUp) -> CleanUp:
    hands.call.log(writes=not asked.dry_run)
    if not asked.dry_run:
        hands.call.finish_due()
    return asked


def _tell_cleaned(call: Call, done: Retention) -> None:
    if isinstance(done, ForecastAll):
        _print_store(done)
        _print_archive(call, done.archive)
        _print_going(
            done.sessions, "session", "that are gone would leave the archive", "archive_sessions"
        )
        _print_going(
            done.history, "operation", "in the history would be forgotten", "trash_retention"
        )
        _print_going(done.trash, "session", "in the trash would go", "trash_retention")
        _print_held(done)
    elif isinstance(done, CleanedAll):
        _print_done(call, done)


def _print_done(call: Call, done: CleanedAll) -> None:
    amount = f"{counted(done.store.cleaned, 'extracted file')} ({size(done.store.bytes)})"
    if done.archived_bytes is None:
        say(f"deleted {amount}, kept {done.keep}")
    else:
        new = f": {size(done.archived_bytes)} there" if done.store.cleaned else ""
        say(f"moved {amount}, kept {done.keep}, into the archive{new}")
    if done.archive.cleaned:
        gone = f"{_parts(done.archive.cleaned)} ({size(done.archive.bytes)})"
        say(f"deleted {gone} of the archive for good: {_archive_settings(call, done.archive.keep)}")
    if done.sessions.cleaned:
        gone = f"{counted(done.sessions.cleaned, 'session')} ({size(done.sessions.bytes)})"
        say(f"deleted {gone} in the archive that were gone, kept {done.sessions.keep}")
    if done.history.cleaned:
        gone = counted(done.history.cleaned, "operation")
        say(f"forgot {gone} that can no longer be undone, kept {done.history.keep}")
    if done.trash.cleaned:
        gone = f"{counted(done.trash.cleaned, 'file')} ({size(done.trash.bytes)})"
        say(f"deleted {gone} in the trash, kept {done.trash.keep}")
    if done.failures:
        say(f"{counted(done.failures, 'failure')}: see {call.layout.log_file}")
    if done.problem:
        note(f"It is not noted that there was a run: {done.problem}")
    _print_held(done)
    _print_in_flight(call)


def _print_held(done: Retention) -> None:
    """Say why nothing is deleted, and how to go on."""
    held = done.held_places
    for what, why in held.items():
        note(f"Nothing of {what} is deleted: {why}.")
    if held:
        note("Try: set the clock right, or wait; if it is right: `bsd retention --trust-clock`")


def _print_in_flight(call: Call) -> None:
    found = in_flight_use(call.layout)
    if found.files:
        note(in_flight_line(found.as_json(), time.time()))


def _print_going(found: Forecast, thing: str, what_becomes: str, setting: str) -> None:
    """Say what a setting lets go; nothing, if there is none of it."""
    if found.going or found.staying:
        say(
            f"{counted(len(found.going), thing)} ({size(found.bytes)}) {what_becomes} now, "
            f"{found.staying:,} kept: {setting} is {found.keep}"
        )


def _print_archive(call: Call, found: Forecast) -> None:
    if found.going or found.staying:
        going = f"{_parts(len(found.going))} ({size(found.bytes)})"
        say(
            f"{going} of the archive would be deleted now, "
            f"{counted(found.staying, 'pack')} kept: {_archive_settings(call, found.keep)}"
        )


def _archive_settings(call: Call, keep: str) -> str:
    """Name the settings that bound the archive."""
    text = f"archive_retention is {keep}"
    most = call.pruning.current.archive_max_bytes
    return f"{text}, archive_max_bytes is {size(most)}" if most else text


def _parts(number: int) -> str:
    return "1 pack or copy" if number == 1 else f"{number:,} packs and copies"


def _print_store(done: ForecastAll) -> None:
    found = done.store
    if found.going:
        rows = [
            (thing.path.parent.name, thing.path.name, size(thing.size), iso_utc(thing.mtime)[:19])
            for thing in found.going[:_SHOWN]
        ]
        print_table(("STORE", "FILE", "SIZE", "EXTRACTED (UTC)"), rows, right=("SIZE",))
        if len(found.going) > _SHOWN:
            say(f"… and {counted(len(found.going) - _SHOWN, 'file')} more")
        say()
    going = f"{counted(len(found.going), 'extracted file')}, {size(found.bytes)}"
    if done.archived_bytes is None:
        say(f"deletes {going}, for good: retention is {found.keep}")
    else:
        about = f": about {size(done.archived_bytes)}" if found.going else ""
        say(f"moves {going}, into the archive{about} (retention is {found.keep})")
    if found.expires is not None:
        staying = counted(found.staying, "file")
        say(f"{staying} would stay, the oldest until {found.expires[:19]} UTC")
    elif found.staying:
        say(f"{counted(found.staying, 'file')} would stay, for ever")
