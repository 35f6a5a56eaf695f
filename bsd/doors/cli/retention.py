"""`bsd retention`: archives or deletes what was kept long enough, or says what would go, when."""

from __future__ import annotations

import time

import click

from bsd.care.disk_use import in_flight_use
from bsd.care.expiry import Forecast
from bsd.care.retention import CleanedAll, ForecastAll, Retention
from bsd.doors.cli.arguments import parameters
from bsd.doors.cli.call import Call, command
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.output import counted, note, print_json, print_table, say, size
from bsd.doors.cli.status_text import in_flight_line
from bsd.doors.cli.verbs import CallHands
from bsd.foundation.spelling import iso_utc
from bsd.verbs.retention import RETENTION, CleanUp
from bsd.verbs.verb import perform

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
    asked = CleanUp(**given)
    call.log(writes=not asked.dry_run)
    if not asked.dry_run:
        call.finish_due()
    with stop_request() as request:
        done = perform(RETENTION, CallHands(call, request), None, asked)
    if call.json:
        print_json(done.as_json())
    elif isinstance(done, ForecastAll):
        _print(done)
        _print_archive(done.archive)
        _print_gone(done.sessions)
        _print_history(done.history)
        _print_trash(done.trash)
        _print_held(done)
    elif isinstance(done, CleanedAll):
        _print_done(call, done)
    failed = isinstance(done, CleanedAll) and (done.failures or done.held)
    return request.exit_code or int(bool(failed))


retention.params[:0] = parameters(CleanUp)


def _print_done(call: Call, done: CleanedAll) -> None:
    amount = f"{counted(done.store.cleaned, 'extracted file')} ({size(done.store.bytes)})"
    if done.archived_bytes is None:
        say(f"deleted {amount}, kept {done.keep}")
    else:
        new = f": {size(done.archived_bytes)} there" if done.store.cleaned else ""
        say(f"moved {amount}, kept {done.keep}, into the archive{new}")
    if done.archive.cleaned:
        gone = f"{counted(done.archive.cleaned, 'pack')} ({size(done.archive.bytes)})"
        say(f"deleted {gone} of the archive for good, kept {done.archive.keep}")
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
    _print_held(done)
    _print_in_flight(call)


def _print_held(done: Retention) -> None:
    """Say why nothing is deleted, and how to go on."""
    held, others = done.held, done.trash.held  # history and trash are kept equally long
    places = ("what was extracted", held), ("the archive", done.archive.held)
    for what, why in (*places, ("history and trash", others)):
        if why is not None:
            note(f"Nothing of {what} is deleted: {why}.")
    if held or others or done.archive.held:
        note("Try: set the clock right, or wait; if it is right: `bsd retention --trust-clock`")


def _print_in_flight(call: Call) -> None:
    found = in_flight_use(call.layout)
    if found.files:
        note(in_flight_line(found.as_json(), time.time()))


def _print_history(found: Forecast) -> None:
    """Say what could no longer be undone; nothing, if there is no history."""
    if found.going or found.staying:
        going = counted(len(found.going), "operation")
        say(
            f"{going} ({size(found.bytes)}) in the history would be forgotten now, "
            f"{found.staying:,} kept: trash_retention is {found.keep}"
        )


def _print_trash(found: Forecast) -> None:
    """Say what could no longer be restored from the trash; nothing, if it is empty."""
    if found.going or found.staying:
        going = counted(len(found.going), "session")
        say(
            f"{going} ({size(found.bytes)}) in the trash would go now, "
            f"{found.staying:,} kept: trash_retention is {found.keep}"
        )


def _print_gone(found: Forecast) -> None:
    """Say which sessions could no longer be brought back; nothing, if none is gone."""
    if found.going or found.staying:
        going = counted(len(found.going), "session")
        say(
            f"{going} ({size(found.bytes)}) that are gone would leave the archive now, "
            f"{found.staying:,} kept: archive_sessions is {found.keep}"
        )


def _print_archive(found: Forecast) -> None:
    """Say what the archive would lose for good; nothing, if it is empty."""
    if found.going or found.staying:
        going = counted(len(found.going), "pack")
        say(
            f"{going} ({size(found.bytes)}) of the archive would be deleted now, "
            f"{found.staying:,} kept: archive_retention is {found.keep}"
        )


def _print(done: ForecastAll) -> None:
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
