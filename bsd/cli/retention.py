"""`bsd retention`: deletes what has been kept long enough, or says what would go, and when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from bsd.cli.call import Call, command
from bsd.cli.output import print_json, print_table, say
from bsd.cli.text import counted, size

if TYPE_CHECKING:
    from bsd.lifecycle.expiry import Forecast

_SHOWN = 20


@command(
    "retention",
    """
    Extracted content is kept for as long as the setting `retention` says, and then deleted for
    good; the daemon does this by the schedule in `retention_cron`. `bsd config set retention never`
    keeps it for ever. What is in the trash, and what undo needs, is kept for `trash_retention`.

    \b
    Examples:
      bsd retention --dry-run
      bsd retention
    """,
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and when; delete nothing.")
@click.pass_obj
def retention(call: Call, /, dry_run: bool) -> int:
    keep, keep_history = call.pruning.current.retention, call.pruning.current.trash_retention
    call.log(writes=not dry_run)
    if dry_run:
        _foretell(call, keep, keep_history)
        return 0
    return _run(call, keep, keep_history)


def _foretell(call: Call, keep: str, keep_history: str) -> None:
    from bsd.lifecycle.expiry import forecast
    from bsd.lifecycle.retention import HistoryShelf, StoreShelf
    from bsd.lifecycle.trash_shelf import TrashShelf

    found = forecast(StoreShelf(call.layout, keep), time.time())
    history = forecast(HistoryShelf(call.layout, keep_history), time.time())
    trash = forecast(TrashShelf(call.layout, keep_history), time.time())
    if call.json:
        more = {"history": history.as_json(), "trash": trash.as_json()}
        print_json({"dry_run": True, **found.as_json(), **more})
    else:
        _print(found)
        _print_history(history)
        _print_trash(trash)


def _run(call: Call, keep: str, keep_history: str) -> int:
    from bsd.lifecycle.retention import run_history_retention, run_retention
    from bsd.lifecycle.trash_shelf import run_trash_retention

    started = time.time()
    done = run_retention(call.layout, keep, actor="cli")
    forgotten = run_history_retention(call.layout, keep_history, actor="cli")
    emptied = run_trash_retention(call.layout, keep_history, actor="cli")
    call.pruning.note_run("last_retention_run_at", started)
    errors = done.errors + forgotten.errors + emptied.errors
    if call.json:
        more = {
            "history": {"keep": keep_history, **forgotten.as_json()},
            "trash": {"keep": keep_history, **emptied.as_json()},
        }
        print_json({"dry_run": False, "keep": keep, **done.as_json(), **more})
        return 1 if errors else 0
    say(f"deleted {counted(done.cleaned, 'extracted file')} ({size(done.bytes)}), kept {keep}")
    if forgotten.cleaned:
        gone = counted(forgotten.cleaned, "operation")
        say(f"forgot {gone} that can no longer be undone, kept {keep_history}")
    if emptied.cleaned:
        gone = f"{counted(emptied.cleaned, 'file')} ({size(emptied.bytes)})"
        say(f"deleted {gone} in the trash, kept {keep_history}")
    if errors:
        say(f"{counted(errors, 'failure')}: see {call.layout.log_file}")
    return 1 if errors else 0


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


def _print(found: Forecast) -> None:
    from bsd.foundation.times import iso_utc

    if found.going:
        rows = [
            (thing.path.parent.name, thing.path.name, size(thing.size), iso_utc(thing.mtime)[:19])
            for thing in found.going[:_SHOWN]
        ]
        print_table(("STORE", "FILE", "SIZE", "EXTRACTED (UTC)"), rows, right=("SIZE",))
        if len(found.going) > _SHOWN:
            say(f"… and {counted(len(found.going) - _SHOWN, 'file')} more")
        say()
    going = counted(len(found.going), "extracted file")
    say(f"{going} ({size(found.bytes)}) would go now: retention is {found.keep}")
    if found.next_expiry is not None:
        staying = counted(found.staying, "file")
        say(f"{staying} would stay, the oldest until {iso_utc(found.next_expiry)[:19]} UTC")
    elif found.staying:
        say(f"{counted(found.staying, 'file')} would stay, for ever")
