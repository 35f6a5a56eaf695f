"""run_retention and foretell_retention: old files go, or it is said which will (SPEC §7)."""

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

NextRun = Callable[[float], float]  # of a schedule, after a moment; epoch seconds
# From so many seconds before a moment on, the last run of a schedule before it is looked for.
_STEPS_BACK = (3600.0, 86_400.0, 8 * 86_400.0, 400 * 86_400.0)


@dataclass(frozen=True, slots=True)
class ProgramDeletion:
    """A session that its program deletes. Size in bytes."""

    session: str
    size: int
    due_at: Annotated[str, Field(description="Since then it is old enough")]
    copied: Annotated[bool, Field(description="The archive has a copy of it")]


@dataclass(frozen=True, slots=True)
class ProgramDeletions:
    """The sessions that one program deletes, those that are due first at the beginning."""

    rule: Annotated[str, Field(description="The program's own rule, as a sentence")]
    count: int
    bytes: int
    uncopied: Annotated[int, Field(description="Of how many the archive has no copy yet")]
    sessions: tuple[ProgramDeletion, ...]


@dataclass(frozen=True, kw_only=True)
class RetentionForecast:
    """The files that go until a moment, if the daemon runs. Times are ISO 8601, sizes bytes."""

    at: str
    schedule: Annotated[
        str | None,
        Field(description="retention_cron; null: retention is never, so that no run is scheduled"),
    ]
    next_run: str | None
    last_run: Annotated[str | None, Field(description="The last run until `at`; null: none")]
    moved: Annotated[int, Field(description="Extracted files that move into the archive")]
    moved_bytes: int
    deleted: Annotated[
        int, Field(description="What is deleted for good: files, packs, copies, trashed sessions")
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
    """Archive or delete everything that was kept long enough.

    Args:
        dry_run: return the files that would be deleted, and when, and change nothing.
        forget: delete extracted content for good instead of archiving it.
        trust_clock: the clock of this machine is right, although it was set.

    Returns:
        `ForecastAll` of a dry run, else `CleanedAll`. If the clock is in doubt, nothing is deleted
        and the answer says so; the next run deletes again.
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
    """Return the files that go until a moment: by scheduled runs, and by agents' programs.

    Changes nothing. Values that are extracted from now on are not foretold.

    Args:
        at: a moment as `parse_moment` reads it.
        run_after: returns the first run after a moment, by the setting `retention_cron`.

    Raises:
        Invalid: `at` is no moment, or has passed.
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
    elif last_run != next_run:  # a run in between has noted the clocks anew
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
    """Return the files and bytes that move into the archive, and those that are deleted."""
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
