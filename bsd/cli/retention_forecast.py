"""The lines of `bsd retention --dry-run --at TIME`: a forecast until a moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from bsd.actions.retention import ProgramDeletions, RetentionForecast
from bsd.cli.output import counted, note, print_table, say, say_wrapped, size
from bsd.cli.status_lines import spell_when
from bsd.maintenance.retention import ForecastAll

_MOST_SESSIONS = 10  # listed for each program


def tell_forecast(found: RetentionForecast, now: float) -> None:
    """Print a forecast of deletions and moves; `now` is epoch seconds."""
    say(f"Until {spell_moment(found.at, now)} ({spell_when(found.at, now)})", style="1")
    for line in _runs(found, now):
        say_wrapped(line, 4)
    for program in found.programs:
        _tell_program(program, now)
    if not found.programs:
        say("No agent's program deletes a session by its age until then.")
    say()
    say_wrapped(_total(found))
    held = {} if found.until is None else found.until.held_places
    for what, why in held.items():
        note(f"No data of {what} is deleted by the next run: {why}.")
    if any(program.uncopied for program in found.programs):
        note("Try: `bsd archive keep` copies sessions that have no copy yet")


def spell_moment(moment: str, now: float) -> str:
    """Format an ISO 8601 moment in local time: `today, 18:00`, `Fri 2026-11-27, 06:00`."""
    local = datetime.fromisoformat(moment).astimezone()
    today = datetime.fromtimestamp(now).astimezone().date()
    if local.date() == today:
        day = "today"
    elif local.date() == today + timedelta(days=1):
        day = "tomorrow"
    else:
        day = f"{local:%a %Y-%m-%d}"
    return f"{day}, {local:%H:%M}"


def _runs(found: RetentionForecast, now: float) -> Iterator[str]:
    """Yield lines on the effects of the scheduled runs until then, and of the next run."""
    if found.next_run is None or found.next is None:
        yield "bsd deletes nothing by itself: the setting `retention` is never."
        return
    next_run = spell_moment(found.next_run, now)
    if found.last_run is None or found.until is None:
        yield f"The daemon has no run until then. With its next run, {next_run}:"
        yield from _going(found.next)
    elif found.last_run == found.next_run:
        yield f"By the daemon, with its run {next_run}:"
        yield from _going(found.until)
    else:
        yield f"By the daemon, with its runs until {spell_moment(found.last_run, now)}:"
        yield from _going(found.until)
        yield f"Of these with the next run, {next_run}:"
        yield from _going(found.next)


def _going(found: ForecastAll) -> Iterator[str]:
    """Yield lines on the files that one forecast moves and deletes."""
    store = f"{counted(found.store.cleaned, 'extracted file')} ({size(found.store.bytes)})"
    if found.store.going and found.archived_bytes is not None:
        yield f"  into the archive: {store}, about {size(found.archived_bytes)} there"
    gone = [store] if found.store.going and found.archived_bytes is None else []
    gone += [
        f"{counted(place.cleaned, thing)} ({size(place.bytes)}) {where}"
        for place, thing, where in (
            (found.archive, "pack", "of the archive"),
            (found.sessions, "session", "that its program had deleted"),
            (found.history, "operation", "that can be undone until then"),
            (found.trash, "session", "in the trash"),
        )
        if place.going
    ]
    for line in gone:
        yield f"  deleted for good: {line}"
    if not (gone or found.store.going):
        yield "  nothing"


def _tell_program(program: ProgramDeletions, now: float) -> None:
    copies = (
        "with a copy in the archive" if program.count == 1 else "all with a copy in the archive"
    )
    if program.uncopied == program.count:
        copies = "without a copy in the archive"
    elif program.uncopied:
        copies = f"{program.uncopied:,} of them without a copy in the archive"
    amount = f"{counted(program.count, 'session')} ({size(program.bytes)})"
    say_wrapped(f"{program.rule}: {amount}, {copies}.")
    rows = [
        (
            each.session,
            size(each.size),
            spell_when(each.due_at, now),
            "copied" if each.copied else "no copy",
        )
        for each in program.sessions[:_MOST_SESSIONS]
    ]
    print_table(("SESSION", "SIZE", "DUE", "ARCHIVE"), rows, right=("SIZE",))
    if (more := program.count - len(rows)) > 0:
        say(f"… and {counted(more, 'session')} more (--json names them)")


def _total(found: RetentionForecast) -> str:
    programs = sum(program.count for program in found.programs)
    size_of_programs = sum(program.bytes for program in found.programs)
    deleted = f"{counted(found.deleted, 'file')} ({size(found.deleted_bytes)})"
    moved = f"{counted(found.moved, 'file')} ({size(found.moved_bytes)})"
    total = f"In all: bsd deletes {deleted} for good and moves {moved} into the archive"
    if programs:
        total += f"; programs delete {counted(programs, 'session')} ({size(size_of_programs)})"
    return f"{total}."
