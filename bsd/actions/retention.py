"""run_retention: files kept long enough are archived or deleted, or forecast (SPEC §7)."""

from __future__ import annotations

from dataclasses import replace

from bsd.actions.context import ActionContext
from bsd.core.clock import RunTime, check_clock
from bsd.core.errors import BsdError
from bsd.maintenance.retention import Retention, RetentionRun, forecast_all


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
    done = run.clean_all(config.current, forget=forget)
    context.cleaned()
    try:
        config.note_run("last_retention_run_at", started)
    except BsdError as problem:  # the deleted files are reported all the same
        return replace(done, problem=problem.message)
    return done
