"""run_retention and foretell_retention: delete old files, or forecast which will go (SPEC §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.clock import RunTime, check_clock
from bsd.core.errors import BsdError, ConfigError
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.core.moments import parse_moment
from bsd.maintenance.program_deletions import DueSession, due_sessions
from bsd.maintenance.retention import ForecastAll, Retention, RetentionRun, forecast_all

NextRun = Callable[[float], float]  # moment → first run of a schedule after it; epoch seconds
# Distances in seconds, tried in this order, at which the search for the last run before a moment
# begins.
_STEPS_BACK = (3600.0, 86_400.0, 8 * 86_400.0, 400 * 86_400.0)


@dataclass(frozen=True, slots=True)
class ProgramDeletion:
    """A session that its program deletes. Size in bytes."""

    session: str
    size: int
    due_at: Annotated[str, Field(description="When it becomes old enough")]
    copied: Annotated[bool, Field(description="True if the archive has a copy of it")]


@dataclass(frozen=True, slots=True)
class ProgramDeletions:
    """The sessions that a program deletes, in the order of their due times."""

    rule: Annotated[str, Field(description="The program's own rule, as a sentence")]
    count: int
    bytes: int
    uncopied: Annotated[int, Field(description="Number of sessions without a copy in the archive")]
    sessions: tuple[ProgramDeletion, ...]


@dataclass(frozen=True, kw_only=True)
class RetentionForecast:
    """The files that go until a moment if the daemon runs. Times are ISO 8601, sizes bytes."""

    at: str
    schedule: Annotated[
        str | None,
        Field(
            description="The setting retention_cron; null: the setting retention is never, so no"
            " run is scheduled"
        ),
    ]
    next_run: str | None
    last_run: Annotated[
        str | None, Field(description="The last run until `at`; null: there is none")
    ]
    moved: Annotated[int, Field(description="Number of extracted files that move into the archive")]
    moved_bytes: int
    deleted: Annotated[
        int,
        Field(description="Number of files, packs, copies and trashed sessions deleted for good"),
    ]
    deleted_bytes: int
    until: Annotated[
        ForecastAll | None, Field(description="The runs until `at`; null: there is none")
    ]
    next: Annotated[ForecastAll | None, Field(description="The next run alone")]
    programs: Annotated[
        tuple[ProgramDeletions, ...],
        Field(description="Sessions that agents' programs delete until `at`"),
    ]


def run_retention(
    context: ActionContext,
    *,
    dry_run: bool = False,
    forget: bool = False,
    trust_clock: bool = False,
) -> Retention:
    """Archive or delete all data that has reached its retention time.

    Args:
        dry_run: return the files that would be deleted, and when, and change no file.
        forget: delete extracted content for good instead of archiving it.
        trust_clock: the clock of this machine is right, although it was set.

    Returns:
        `ForecastAll` for a dry run, else `CleanedAll`. If the clock is in doubt, no file is
        deleted and the answer says so; the next run deletes again.
    """
    layout, config = context.layout, context.config
    if dry_run:
        time = check_clock(layout, "retention", context.now)
        time = RunTime(time.now) if trust_clock else time
        return forecast_all(layout, config.current, time, forget=forget)
    started = context.now()
    run = RetentionRun(
        layout,
        actor=context.actor,
        clock=context.now,
        trust_clock=trust_clock,
        stopping=context.stopping,
    )
    done = run.clean_all(config.current, forget=forget, progress=context.progress)
    context.cleaned()
    try:
        config.note_run("last_retention_run_at", started)
    except BsdError as problem:  # the deleted files are reported all the same
        return replace(done, problem=problem.message)
    return done


def foretell_retention(context: ActionContext, at: str, run_after: NextRun) -> RetentionForecast:
    """Forecast the files that go until a moment: by scheduled runs, and by agents' programs.

    Values that are extracted after this call are not included. No file is changed.

    Args:
        at: a moment in the syntax of `parse_moment`.
        run_after: returns the first run after a moment, by the setting `retention_cron`.

    Raises:
        Invalid: `at` is not a moment, or is in the past.
    """
    layout, config = context.layout, context.config.current
    moment = parse_moment(at, context.now())
    clock = check_clock(layout, "retention", context.now)
    next_run = last_run = None
    if lifetime_seconds(config.retention) is not None:
        next_run = run_after(clock.now)
        last_run = _last_until(run_after, next_run, moment)
    following = None if next_run is None else forecast_all(layout, config, _at(clock, next_run))
    until = following
    if last_run is None:
        until = None
    elif last_run != next_run:  # a run in between will have recorded the clocks again
        until = forecast_all(layout, config, RunTime(last_run))
    due: list[DueSession] = []
    with suppress(ConfigError):  # a root without agents
        due = sorted(due_sessions(layout, moment), key=lambda each: each.due_at)
    moved, deleted = _sums(until)
    return RetentionForecast(
        at=iso_utc(moment),
        schedule=None if next_run is None else config.retention_cron,
        next_run=None if next_run is None else iso_utc(next_run),
        last_run=None if last_run is None else iso_utc(last_run),
        moved=moved[0],
        moved_bytes=moved[1],
        deleted=deleted[0],
        deleted_bytes=deleted[1],
        until=until,
        next=following,
        programs=tuple(
            _deletions(rule, [each for each in due if each.rule == rule])
            for rule in sorted({each.rule for each in due})
        ),
    )


def _at(clock: RunTime, moment: float) -> RunTime:
    return replace(clock, now=moment)


def _last_until(run_after: NextRun, first: float, end: float) -> float | None:
    """Return the last run until `end`; `first`: the next run from now on."""
    if first > end:
        return None
    last = first
    for step in _STEPS_BACK:
        found = run_after(max(first, end - step) - 1.0)
        if found <= end:
            while found <= end:
                last, found = found, run_after(found)
            return last
    return last


def _sums(found: ForecastAll | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two pairs (files, bytes): moved into the archive, and deleted."""
    if found is None:
        return (0, 0), (0, 0)
    store = (found.store.cleaned, found.store.bytes)
    others = (found.archive, found.sessions, found.history, found.trash)
    count, size = sum(each.cleaned for each in others), sum(each.bytes for each in others)
    if found.archived_bytes is None:
        return (0, 0), (count + store[0], size + store[1])
    return store, (count, size)


def _deletions(rule: str, due: Iterable[DueSession]) -> ProgramDeletions:
    sessions = tuple(
        ProgramDeletion(str(each.name), each.size, iso_utc(each.due_at), each.is_copied)
        for each in due
    )
    return ProgramDeletions(
        rule=rule,
        count=len(sessions),
        bytes=sum(each.size for each in sessions),
        uncopied=sum(not each.copied for each in sessions),
        sessions=sessions,
    )
