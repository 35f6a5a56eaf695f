"""`bsd retention`: archives or deletes files that have expired."""

from __future__ import annotations

import time

import click

from bsd.actions.retention import foretell_retention, run_retention
from bsd.cli.call import BsdCommand, Call
from bsd.cli.output import counted, note, print_table, say, say_wrapped, size
from bsd.cli.retention_forecast import tell_forecast
from bsd.cli.service import daemon_process
from bsd.cli.status_lines import in_flight_line
from bsd.core.errors import Invalid
from bsd.core.formatting import iso_utc
from bsd.daemon.cron import Cron
from bsd.maintenance.disk_use import in_flight_use
from bsd.maintenance.expiry import Forecast
from bsd.maintenance.retention import CleanedAll, ForecastAll, Retention

_MOST_FILES = 20  # files listed in a dry run


@click.command("retention", cls=BsdCommand)
@click.option(
    "--dry-run", is_flag=True, help="List expired files, and when others expire; change nothing."
)
@click.option(
    "--at",
    metavar="TIME",
    help="With --dry-run: forecast until TIME, as in tonight, tomorrow, +24h, 2026-11-27T06:00.",
)
@click.option(
    "--forget", is_flag=True, help="Delete extracted content for good instead of archiving it."
)
@click.option("--trust-clock", is_flag=True, help="The clock is right, although it was set.")
@click.pass_obj
def retention_command(
    call: Call, /, dry_run: bool, at: str | None, forget: bool, trust_clock: bool
) -> int:
    """Archive or delete values that have expired, or list them.

    Extracted values are kept in the store for as long as the setting `retention` says, and then
    moved into the archive, compressed; from there they can be restored as before. The daemon does
    this by the schedule in `retention_cron`. With `--forget`, or if the setting `archive` is false,
    they are deleted for good. The archive is kept for `archive_retention`, up to
    `archive_max_bytes`. The trash and the data for undo are kept for `trash_retention`.

    If the clock of this machine was set by more than an hour since the last run, this run deletes
    no file, and its exit code is 1; values are still moved into the archive.

    `--dry-run` shows the effect of a run now. `--dry-run --at TIME` shows the effects of the
    scheduled runs until then, and the sessions that agents' programs delete by their own rules.
    tonight is until 6:00.

    \b
    Examples:
      bsd retention --dry-run
      bsd retention --dry-run --at tonight
      bsd retention
      bsd retention --forget
    """
    if at is not None:
        _foretell(call, at, dry_run=dry_run, alone=not (forget or trust_clock))
        return 0
    with call.context(changes=not dry_run, ends_early=not dry_run) as context:
        answer = run_retention(context, dry_run=dry_run, forget=forget, trust_clock=trust_clock)
    call.answer(answer, lambda answer: tell_retention(call, answer))
    if isinstance(answer, CleanedAll):
        return int(bool(answer.failures or answer.problem or answer.held_places))
    return 0


def _foretell(call: Call, at: str, *, dry_run: bool, alone: bool) -> None:
    """Print a forecast until a moment; raises Invalid if it contradicts other options."""
    if not dry_run:
        raise Invalid("--at needs --dry-run", hint=f"`bsd retention --dry-run --at {at}`")
    if not alone:
        raise Invalid(
            "--at forecasts the scheduled runs, which use neither --forget nor --trust-clock",
            hint=f"`bsd retention --dry-run --at {at}`",
        )
    with call.context(changes=False) as context:
        run_after = Cron(context.config.current.retention_cron).after
        answer = foretell_retention(context, at, run_after)
    call.answer(answer, lambda answer: tell_forecast(answer, time.time()))
    if not call.json and answer.schedule is not None and daemon_process(call) is None:
        note("No daemon runs now: scheduled runs begin only after `bsd run`")


def tell_retention(call: Call, answer: Retention) -> None:
    if isinstance(answer, ForecastAll):
        _tell_forecast(call, answer)
    elif isinstance(answer, CleanedAll):
        _tell_cleaned(call, answer)
    for what, why in answer.held_places.items():
        note(f"No data of {what} is deleted: {why}.")
    if answer.held_places:
        note(
            "Try: set the clock right; the next run deletes again. If it is right now: "
            "`bsd retention --trust-clock`"
        )
    if isinstance(answer, CleanedAll) and (found := in_flight_use(call.layout)).files:
        note(in_flight_line(found.as_json(), time.time()))


def _tell_cleaned(call: Call, done: CleanedAll) -> None:
    amount = f"{counted(done.store.cleaned, 'extracted file')} ({size(done.store.bytes)})"
    if done.archived_bytes is None:
        say_wrapped(f"deleted {amount}, kept {done.keep}")
    else:
        new = f": {size(done.archived_bytes)} there" if done.store.cleaned else ""
        say_wrapped(f"moved {amount}, kept {done.keep}, into the archive{new}")
    if done.archive.cleaned:
        gone = f"{_parts(done.archive.cleaned)} ({size(done.archive.bytes)})"
        say_wrapped(
            f"deleted {gone} of the archive for good: {_archive_settings(call, done.archive.keep)}"
        )
    if done.sessions.cleaned:
        gone = f"{counted(done.sessions.cleaned, 'session')} ({size(done.sessions.bytes)})"
        say_wrapped(f"deleted {gone} in the archive that were gone, kept {done.sessions.keep}")
    if done.history.cleaned:
        gone = counted(done.history.cleaned, "operation")
        say_wrapped(f"forgot {gone} that can no longer be undone, kept {done.history.keep}")
    if done.trash.cleaned:
        gone = f"{counted(done.trash.cleaned, 'file')} ({size(done.trash.bytes)})"
        say_wrapped(f"deleted {gone} in the trash, kept {done.trash.keep}")
    if done.failures:
        say_wrapped(f"{counted(done.failures, 'failure')}: see {call.layout.log_file}")
    if done.problem:
        note(f"The time of this run could not be saved: {done.problem}")


def _tell_forecast(call: Call, found: ForecastAll) -> None:
    _tell_store(found.store, found.archived_bytes)
    archive = found.archive
    if archive.going or archive.staying:
        going = f"{_parts(len(archive.going))} ({size(archive.bytes)})"
        staying = counted(archive.staying, "pack")
        settings = _archive_settings(call, archive.keep)
        say_wrapped(f"{going} of the archive would be deleted now, {staying} kept: {settings}")
    for place, thing, what_becomes, setting in (
        (
            found.sessions,
            "session",
            "that are gone would be deleted from the archive",
            "archive_sessions",
        ),
        (found.history, "operation", "in the history would be forgotten", "trash_retention"),
        (found.trash, "session", "in the trash would be deleted", "trash_retention"),
    ):
        if place.going or place.staying:
            say_wrapped(
                f"{counted(len(place.going), thing)} ({size(place.bytes)}) {what_becomes} now, "
                f"{place.staying:,} kept: {setting} is {place.keep}"
            )


def _tell_store(found: Forecast, archived_bytes: int | None) -> None:
    if found.going:
        rows = [
            (file.path.parent.name, file.path.name, size(file.size), iso_utc(file.mtime)[:19])
            for file in found.going[:_MOST_FILES]
        ]
        print_table(("STORE", "FILE", "SIZE", "EXTRACTED (UTC)"), rows, right=("SIZE",))
        if len(found.going) > _MOST_FILES:
            say_wrapped(f"… and {counted(len(found.going) - _MOST_FILES, 'file')} more")
        say()
    going = f"{counted(len(found.going), 'extracted file')}, {size(found.bytes)}"
    if archived_bytes is None:
        say_wrapped(f"deletes {going}, for good: retention is {found.keep}")
    else:
        about = f": about {size(archived_bytes)}" if found.going else ""
        say_wrapped(f"moves {going}, into the archive{about} (retention is {found.keep})")
    if found.expires is not None:
        staying = counted(found.staying, "file")
        say_wrapped(f"{staying} would stay, the oldest until {found.expires[:19]} UTC")
    elif found.staying:
        say_wrapped(f"{counted(found.staying, 'file')} would stay, for ever")


def _archive_settings(call: Call, keep: str) -> str:
    """Return a text with the settings that limit the archive."""
    text = f"archive_retention is {keep}"
    most = call.pruning.current.archive_max_bytes
    return f"{text}, archive_max_bytes is {size(most)}" if most else text


def _parts(number: int) -> str:
    return "1 pack or copy" if number == 1 else f"{number:,} packs and copies"
